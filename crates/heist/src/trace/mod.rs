//! Execution traces.

pub(crate) mod emit;
pub(crate) mod recorder;
mod text;
