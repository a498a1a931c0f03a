//! Go's GMP work-stealing scheduler as a Rust library.
//!
//! Plain blocking-style code runs on goroutines. They are cheap enough for a million of them,
//! spread over all cores by work stealing, and isolated from each other's panics.
//!
//! ```
//! let rt = unsafe { heist::Runtime::builder().build() }?;
//! let sum: u64 = rt.run(|| {
//!     let parts: Vec<_> = (0..8u64).map(|i| heist::go(move || i * i)).collect();
//!     parts.into_iter().map(|part| part.join().unwrap()).sum()
//! });
//! assert_eq!(sum, 140);
//! # Ok::<(), heist::BuildError>(())
//! ```
//!
//! Starting a runtime is the one `unsafe` act: a goroutine may move to another thread when it
//! parks, and the compiler cannot check what it keeps on its stack meanwhile. [`docs::safety`]
//! states the promise. Everything else is safe.
//!
//! [`docs::guide`] has programs and tables for readers who know Go or tokio, and
//! [`docs::operating`] has the environment variables, the metrics and the dumps.
//!
//! # Features
//! None is on by default. Each implements traits of another library for types of this one, and
//! depends on the smallest part of that library:
//!
//! | feature | has |
//! |---|---|
//! | `futures-core` | `Receiver::into_stream` |
//! | `futures-sink` | `Sender::into_sink` |
//! | `futures-io` | `AsyncRead` and `AsyncWrite` of the futures crates for the streams of [`net`] |
//! | `tokio` | `AsyncRead` and `AsyncWrite` of tokio for them; no runtime of tokio |
//! | `hyper` | the module `hyper`, and `Read` and `Write` of hyper for them |
//!
//! [`main`](macro@main) and [`test`](macro@test) run a program or a test as a goroutine.
#![warn(missing_docs)]

#[cfg(not(all(
    target_os = "linux",
    target_env = "gnu",
    target_pointer_width = "64",
    target_endian = "little",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "heist runs on 64-bit Linux with the GNU C library, on x86-64 and on little-endian aarch64 only: its \
     scheduler is built on futexes, epoll, signals, where that library puts thread-locals, and assembler \
     for these two."
);

mod builder;
pub mod chan;
pub mod context;
mod coro;
mod current;
pub mod debug;
mod diagnosis;
#[cfg(any(doc, doctest))]
pub mod docs;
pub mod fs;
mod gmp;
pub mod goroutine;
#[cfg(feature = "hyper")]
pub mod hyper;
mod leaks;
pub mod metrics;
pub mod net;
mod netpoll;
mod panic_report;
pub mod par;
pub mod process;
mod procs;
pub mod profile;
mod runtime;
mod sampler;
mod sched;
mod schedtrace;
mod scope;
pub mod signal;
mod snapshot;
pub mod sync;
mod sys;
#[doc(hidden)]
pub mod testing;
mod throw;
pub mod time;
mod tls_report;
pub mod trace;
mod traceback;
mod wait;
mod watchdog;

pub use builder::{BuildError, Builder};
pub use diagnosis::{Diagnosis, Finding};
#[doc(inline)]
pub use goroutine::task::{Task, block_on, spawn};
pub use goroutine::{
    AbortHandle, JoinError, JoinHandle, JoinSet, NoPreempt, OsThreadGuard, current_id,
    dump_goroutines, exit_current, go, join, lock_os_thread, no_preempt, num_goroutines, task,
    try_go, with_stack, yield_now,
};
#[doc(inline)]
pub use heist_core::policy::FractionalQuota;
/// # Examples
/// Go's policy, except that goroutines that were just spawned stay where they are:
/// ```
/// use heist::policy::RunNextTheft;
/// use heist::{Runtime, StealPolicy};
///
/// let mut policy = StealPolicy::go();
/// policy.run_next = RunNextTheft::Never;
/// let rt = unsafe { Runtime::builder().steal_policy(policy).build() }?;
/// # Ok::<(), heist::BuildError>(())
/// ```
#[doc(inline)]
pub use heist_core::policy::StealPolicy;
pub use heist_macros::{main, test};
pub use procs::{procs, set_default_procs, set_procs, with_procs};
pub use runtime::{AsyncHandle, AsyncRuntime, Handle, Runtime};
/// # Examples
/// ```
/// use heist::{PanicPolicy, Runtime};
///
/// let rt = unsafe { Runtime::builder().panic_policy(PanicPolicy::Isolate).build() }?;
/// rt.run(|| {
///     let error = heist::go(|| panic!("no luck")).join().unwrap_err();
///     assert_eq!(error.panic_message(), Some("no luck"));
/// });
/// # Ok::<(), heist::BuildError>(())
/// ```
pub use sched::PanicPolicy;
pub use sched::stacks::overflow::OverflowPolicy;
pub use scope::{Scope, ScopedJoinHandle, scope};

/// The parts of a [`StealPolicy`], and the names of policies.
///
/// Every policy is read from a text, for configurations, and those without fields are written as
/// one:
/// ```
/// use heist::goroutine::Class;
/// use heist::policy::Order;
/// use heist::{FractionalQuota, OverflowPolicy, PanicPolicy, StealPolicy};
///
/// assert_eq!("gentle".parse(), Ok(StealPolicy::gentle()));
/// assert_eq!("abort".parse(), Ok(PanicPolicy::Abort));
/// assert_eq!("abandon".parse(), Ok(OverflowPolicy::Abandon));
/// assert_eq!("down".parse(), Ok(FractionalQuota::Down));
/// assert_eq!("latency".parse(), Ok(Class::Latency));
/// assert_eq!(Order::Ring.to_string(), "ring");
/// let error = "never".parse::<PanicPolicy>().unwrap_err();
/// assert_eq!(error.to_string(), "`never` is no panic policy: there are isolate, abort");
/// ```
pub mod policy {
    #[doc(inline)]
    pub use heist_core::policy::{Order, ParsePolicyError, RunNextTheft, Share};
}

/// Runs `f`, which may block its thread for long, while other goroutines run.
///
/// Announcing is an optimisation: a blocking call that is not announced is detected a little later.
/// On a plain thread this only calls `f`.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().procs(1).build() }.unwrap();
/// # rt.run(|| {
/// let text = heist::blocking(|| std::fs::read_to_string("/proc/self/comm")).unwrap();
/// assert!(!text.is_empty());
/// # });
/// ```
#[doc(alias = "entersyscall")]
pub fn blocking<T>(f: impl FnOnce() -> T) -> T {
    sched::stall::blocking::blocking(f)
}
