//! Shows the goroutines and tasks of a [`heist`] program in [tokio-console].
//!
//! ```no_run
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| {
//! let console = heist_console::serve("127.0.0.1:6669")?;
//! // ... the program ...
//! # drop(console);
//! # std::io::Result::Ok(())
//! # }).unwrap();
//! ```
//!
//! Then `tokio-console` in a terminal shows each goroutine with its state, how long it ran (busy),
//! waited for a processor (scheduled) and waited for something else (idle), how often it ran
//! (polls), its name, where it was spawned, and what it waits for.
//!
//! | tokio-console | heist |
//! |---|---|
//! | task | a goroutine, or a task that polls a future: see *Kind* |
//! | ID | the number of the goroutine, as in dumps and traces |
//! | a poll | a run: from getting a processor to a wait, a yield, a preemption or the end |
//! | busy | the time of its runs, blocking calls among them |
//! | scheduled | the time in which it could run, and waited for a processor |
//! | idle | the time in which it waited for something |
//! | wakes | how often a wait ended, and how often it yielded; a yield is a self wake |
//! | field `awaits` | what it waits for, or waited for last |
//! | field `call` | `blocking` in a blocking call |
//! | field `class` | its class, if that is not the normal one |
//! | field `end` | how it ended, if it did not return |
//! | field `parent` | the goroutine that spawned it |
//!
//! A count of wakers does not exist: each living goroutine is shown with one, because tokio-console
//! warns of tasks without. Resources and async operations are empty.
//!
//! # Where it runs
//! On three threads of its own. The gRPC server is tonic, on a current-thread runtime of tokio on
//! the first one: so it answers even if no goroutine makes progress. No goroutine runs there, and
//! nothing of tokio runs on goroutines. The threads wake no goroutine and hide no deadlock
//! ([`heist::debug::bystander`]).
//!
//! # Where the data comes from
//! From an execution trace ([`heist::trace::Recording`]), which is read while it is recorded: all
//! times are exact, and nothing was added to the scheduler. It is recorded while somebody watches,
//! and for ten seconds after; otherwise the program pays nothing, and a goroutine that existed
//! before is shown as created when the recording began. [`Builder::record_always`] records from the
//! start.
//!
//! # What is bounded
//! A client that reads slowly is sent fewer updates, each with the latest values: nothing is queued
//! for it. Ended goroutines are kept for a while ([`Builder::retention`], at most
//! [`Builder::ended_max`]), living ones up to [`Builder::goroutines_max`]. If the program does more
//! than the reader of the trace can follow, events are lost: tokio-console shows how many, and the
//! states are read anew.
//!
//! [tokio-console]: https://docs.rs/tokio-console

#![warn(missing_docs)]

mod book;
mod builder;
mod client;
mod describe;
mod goroutine;
mod pipe;
mod record;
mod serve;
mod service;
mod shared;
mod spread;

pub use builder::{Builder, Console};

use std::io;
use std::net::ToSocketAddrs;

/// Where `tokio-console` looks if it is not told an address.
pub const DEFAULT_ADDR: &str = "127.0.0.1:6669";

/// Shows the runtime of the calling goroutine at a loopback address; port 0 lets the system choose.
/// [`Builder`] has more.
///
/// # Errors
/// If the caller is not a goroutine, the address is not a loopback address, or the system refuses
/// the address or a thread.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let console = heist_console::serve("127.0.0.1:0")?;
/// println!("tokio-console http://{}", console.local_addr());
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub fn serve(addr: impl ToSocketAddrs) -> io::Result<Console> {
    Builder::new().serve(addr)
}
