//! A tokio runtime beside heist, for futures of libraries that insist on tokio.
//!
//! Some libraries call `tokio::spawn`, open tokio's sockets or start tokio's timers. They panic
//! outside a runtime of tokio. Here such futures are polled by heist, and tokio's runtime is
//! entered for each poll:
//!
//! ```
//! use heist_tokio::TokioContext;
//! use std::time::Duration;
//!
//! #[heist::main(unsafe)]
//! fn main() -> std::io::Result<()> {
//!     let tokio = TokioContext::new(1)?;
//!     let task = tokio.spawn(async {
//!         tokio::time::sleep(Duration::from_millis(1)).await;
//!         tokio::spawn(async { 6 * 7 }).await.unwrap()
//!     });
//!     assert_eq!(task.join().unwrap(), 42);
//!     Ok(())
//! }
//! ```
//!
//! # What runs where
//! A wrapped future runs on heist: it is preempted, traced and counted as every task. What it gives
//! to `tokio::spawn` runs on the workers of the tokio runtime, and what it gives to
//! `spawn_blocking` on that runtime's threads. The workers also run tokio's sockets and timers, so
//! there is at least one. [`TokioContext::metrics`] says how much runs there.
//!
//! # The context and the thread
//! tokio keeps in a thread-local which runtime is entered. It must be left on the thread where it
//! was entered, and nothing else may run there between. So it is entered at the beginning of a poll
//! and left at its end. A poll that waits in blocking style, on a channel for example, would change
//! threads: so the goroutine is locked to its thread during a poll.
//!
//! A future is dropped inside the context as well: destructors of some libraries spawn tasks.
#![warn(missing_docs)]

mod context;
mod in_tokio;
mod metrics;

pub use context::TokioContext;
pub use in_tokio::InTokio;
pub use metrics::Metrics;
