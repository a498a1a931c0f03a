//! Workloads: arrivals from outside, closed loops, trees, pipelines, scripts.

mod closed;
mod open;
mod script;
mod tree;

pub use closed::{ClosedLoop, PingPong};
pub use open::{Arrivals, OpenLoop};
pub use script::Script;
pub use tree::Tree;
