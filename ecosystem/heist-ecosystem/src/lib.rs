//! What programs on heist share that use other people's libraries.
//!
//! The programs are in `examples`, each for one library or two; docs/ecosystem.md has the table.
//! The modules here are adapters that a user may copy:
//!
//! | module | has |
//! |---|---|
//! | [`serve`] | a listener whose connections hyper serves: limits, timeouts, a graceful end |
//! | [`client`] | hyper-util's client with a pool, over heist's sockets |
//! | [`redis`] | a connection of the crate redis over heist's sockets |
//! | [`ureq`] | a transport of the crate ureq over heist's sockets |
#![warn(missing_docs)]

pub mod client;
pub mod redis;
pub mod serve;
pub mod ureq;
