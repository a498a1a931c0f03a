//! Coroutines: switching, the stacks they run on, and what happens when one is used up.

pub(crate) mod guard;
pub(crate) mod layout;
pub(crate) mod overflow;
pub(crate) mod relocation;
pub(crate) mod stack;
pub(crate) mod switch;
