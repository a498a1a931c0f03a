//! A discrete-event model of the heist scheduler.
//!
//! It links the real algorithms (heist-core): the run queues, the global queue, the walks of
//! thieves, the idle masks, the count of spinners, the timer heap, the watch and the policy. What
//! heist adds to them, threads and their loop, is modelled: each step of that loop costs simulated
//! nanoseconds ([`Costs`]). So there are answers for machines that we do not have.
//!
//! A run is determined by its seed:
//!
//! ```
//! use heist_sim::{Config, Sim, workloads::OpenLoop};
//!
//! let run = || {
//!     let mut requests = OpenLoop::poisson(10_000, 20_000.0, 5_000.0);
//!     Sim::new(Config::new(64, 7), &mut requests).run()
//! };
//! let report = run();
//! assert_eq!(report.counts.finished, 10_000);
//! assert_eq!(run(), report);
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`costs`] | what each step costs, and where the figure is from |
//! | [`tuning`] | the policy: the runtime's, and what could replace parts of it |
//! | [`topology`] | CPUs and nodes |
//! | [`workload`] | the seam to what is simulated |
//! | [`workloads`] | arrivals, closed loops, trees, scripts |
//! | [`stats`] | the result of a run |
//! | [`experiments`] | questions with answers, tables and pictures |
//! | [`svg`], [`table`] | how answers are shown |
//!
//! docs/simulation.md says what the model leaves out.
#![warn(missing_docs)]

pub mod costs;
mod engine;
mod events;
pub mod experiments;
pub mod latencies;
mod machines;
mod queues;
pub mod random;
pub mod stats;
pub mod svg;
pub mod table;
pub mod topology;
pub mod tuning;
pub mod workload;
pub mod workloads;

pub use costs::Costs;
pub use engine::{Config, Sim};
pub use stats::{Report, Spent};
pub use topology::Topology;
pub use tuning::Tuning;
pub use workload::{Op, Task, Workload};
