//! Polling: which descriptors became ready, and which goroutines that wakes.
//!
//! This layer finds goroutines and hands them back. It does not schedule; docs/design/netpoll.md
//! describes the protocol.

pub(crate) mod desc;
pub(crate) mod poller;
#[cfg(test)]
mod tests;
