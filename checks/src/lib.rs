//! Programs that check heist in builds, and with crates, that its own tests do not have.

pub mod offsets;
pub mod thread_locals;
