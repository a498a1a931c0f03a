//! Execution traces: what the scheduler did, event by event.
//!
//! A [`Recording`] writes every event of a runtime to a file: goroutines that are made, run, wait,
//! wake and end; processors and threads that change hands; blocking calls, preemptions, polls. A
//! [`FlightRecorder`] keeps the latest events in memory and writes them when something went wrong.
//! [`region`], [`log`] and [`Task`] put the program's own events beside them.
//!
//! `HEIST_TRACE=FILE` records a whole program without changing it, and `HEIST_TRACE=FILE,10` its
//! first ten seconds. While nothing records, an event costs a load and a branch.
//!
//! The file is read by `heist trace`, and by the crate `heist-trace`.
//!
//! # Examples
//! ```
//! use heist::trace;
//!
//! # let rt = unsafe { heist::Runtime::builder().procs(2).build() }.unwrap();
//! # let path = std::env::temp_dir().join(format!("heist-doc-{}.trace", std::process::id()));
//! # rt.run(|| {
//! let recording = trace::Recording::start(std::fs::File::create(&path)?)?;
//! trace::region("squares", || {
//!     let squares: Vec<_> = (0..10).map(|i| heist::go(move || i * i)).collect();
//!     squares.into_iter().for_each(|square| drop(square.join()));
//! });
//! let summary = recording.stop()?;
//! assert!(summary.records > 30);
//! assert_eq!(summary.dropped, 0);
//! # std::fs::remove_file(&path)
//! # }).unwrap();
//! # Ok::<(), std::io::Error>(())
//! ```

mod annotate;
mod collect;
mod consumer;
mod convert;
pub(crate) mod emit;
mod flight;
mod hub;
pub(crate) mod recorder;
mod recording;
mod text;

pub use annotate::{Region, Task, enter_region, log, region};
pub use consumer::Summary;
pub use flight::FlightRecorder;
pub use recording::Recording;
