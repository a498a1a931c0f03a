//! Execution traces of the heist runtime.
//!
//! The runtime writes [`Record`](record::Record)s into buffers, one buffer per thread.

#![warn(missing_docs)]

pub mod record;
