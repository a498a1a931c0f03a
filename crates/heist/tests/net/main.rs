//! Sockets, pipes and servers.

#[path = "../harness/child.rs"]
mod child;
#[path = "../harness/matrix/mod.rs"]
mod matrix;
#[path = "../harness/wire.rs"]
mod wire;

mod bind;
mod close;
mod deadlines;
mod edges;
mod example_servers;
mod fairness;
mod kinds;
mod many;
mod tcp;
mod tls;
