//! Coroutines: switching, the stacks they run on, and the guards of those.

pub(crate) mod cache;
pub(crate) mod extra;
mod fiber;
pub(crate) mod guard;
pub(crate) mod layout;
pub(crate) mod relocation;
pub(crate) mod slabs;
pub(crate) mod stack;
pub(crate) mod stack_pool;
pub(crate) mod switch;
pub(crate) mod walk;
