//! Execution traces of the heist runtime.
//!
//! The runtime writes [`Record`](record::Record)s into buffers, one buffer per thread, and the
//! buffers into a [`file`](mod@file). The tools read it.

#![warn(missing_docs)]

pub mod check;
pub mod file;
pub mod follow;
pub mod go;
pub mod model;
pub mod perfetto;
pub mod record;
pub mod summary;
