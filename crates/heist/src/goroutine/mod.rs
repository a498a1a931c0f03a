//! Goroutines: spawning, joining, yielding, ending.
//!
//! ```
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| {
//! let answer = heist::go(|| 6 * 7);
//! assert_eq!(answer.join().unwrap(), 42);
//! # });
//! ```

mod builder;
mod class;
mod join;
mod no_preempt;
mod os_thread;
mod payload;
mod with_stack;

pub use builder::{Builder, SpawnError};
pub use class::Class;
pub use join::{JoinError, JoinHandle};
pub use no_preempt::{NoPreempt, no_preempt};
pub use os_thread::{OsThreadGuard, lock_os_thread};
pub use with_stack::with_stack;

pub use crate::snapshot::Group;

pub(crate) use crate::gmp::g::Extras;
pub(crate) use builder::{Beginning, cannot_spawn, spawn_here, spawn_later, spawn_on};

use crate::current;
use crate::gmp::g;
use crate::sched::Sched;
use crate::sched::life;
use crate::sched::life::cancel;
use crate::sched::life::park;
use std::fmt;

/// Whether the calling goroutine, or thread, unwinds because of a panic, and not because it was cancelled
/// or ends itself.
pub(crate) fn is_panicking() -> bool {
    std::thread::panicking() && !has(g::EXITING)
}

/// Whether the calling goroutine ends without having run, because there was no stack for it.
pub(crate) fn has_no_stack() -> bool {
    has(g::STACKLESS)
}

fn has(flag: u32) -> bool {
    current::goroutine().is_some_and(|gp| gp.has_flag(flag))
}

/// The number of a goroutine: unique in its runtime, counted from 1, never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[doc(alias = "goid")]
pub struct GoroutineId(pub(crate) u64);

impl GoroutineId {
    /// The number itself.
    #[must_use]
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl fmt::Display for GoroutineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Runs `f` on a new goroutine.
///
/// It costs little more than a closure: no thread, no allocation for small closures, and no stack
/// until it runs. Dropping the handle lets the goroutine run on by itself.
///
/// # Panics
/// Outside a runtime, or if there is no memory. [`try_go`] returns these as errors. While the runtime shuts
/// down it ends the caller, which is cancelled already; in a destructor that runs for that reason it spawns a
/// goroutine that is cancelled before it begins.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let handles: Vec<_> = (0..10).map(|i| heist::go(move || i * i)).collect();
/// let sum: i32 = handles.into_iter().map(|handle| handle.join().unwrap()).sum();
/// assert_eq!(sum, 285);
/// # });
/// ```
#[doc(alias = "newproc")]
#[inline]
#[track_caller]
pub fn go<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    match try_go(f) {
        Ok(handle) => handle,
        Err(error) => builder::cannot_spawn("go", error),
    }
}

/// Runs `f` on a new goroutine, or says why it cannot.
///
/// # Errors
/// Outside a runtime, while the runtime shuts down, or if there is no memory. The closure is
/// dropped. In a destructor that runs because the runtime shuts down the goroutine is spawned, and cancelled
/// before it begins.
///
/// # Examples
/// ```
/// assert_eq!(heist::try_go(|| ()).unwrap_err(), heist::goroutine::SpawnError::NoRuntime);
/// ```
#[inline]
#[track_caller]
pub fn try_go<F, T>(f: F) -> Result<JoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    builder::spawn_here(f, std::panic::Location::caller(), None)
}

/// Lets every other goroutine that is ready run first.
///
/// On a plain thread it yields to other threads.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().procs(1).build() }.unwrap();
/// # rt.run(|| {
/// let other = heist::go(|| "ran");
/// heist::yield_now();
/// assert!(other.is_finished());
/// # });
/// ```
#[doc(alias = "Gosched")]
#[inline]
pub fn yield_now() {
    match current::enter() {
        Some(rt) => drop(cancel::check(park::yield_now(cancel::check(rt)))),
        None => std::thread::yield_now(),
    }
}

/// How many goroutines of this runtime have been spawned and have not ended. Zero on a plain
/// thread.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// assert_eq!(rt.run(heist::num_goroutines), 1);
/// ```
#[doc(alias = "NumGoroutine")]
#[must_use]
pub fn num_goroutines() -> usize {
    current::enter().map_or(0, |rt| life::n_live(rt.sched()) as usize)
}

/// Every goroutine of this runtime as text, in the form of Go's dumps: number, what it does or
/// waits for, who made it where. Empty on a plain thread.
///
/// The goroutines run on meanwhile, so the list is of slightly different moments.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// assert!(rt.run(heist::dump_goroutines).starts_with("goroutine 1 [running]:"));
/// ```
#[doc(alias = "Stack")]
#[must_use]
pub fn dump_goroutines() -> String {
    current::with_sched(Sched::dump).unwrap_or_default()
}

/// How many goroutines of this runtime do what, by the place where they were spawned: the largest group
/// first. Empty on a plain thread.
///
/// A leak is a group that grows. As for [`dump_goroutines`], the goroutines run on meanwhile.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// let groups = rt.run(heist::goroutine::census);
/// assert_eq!((groups[0].count, groups[0].state), (1, "running"));
/// ```
#[doc(alias = "GoroutineProfile")]
#[must_use]
pub fn census() -> Vec<Group> {
    current::with_sched(Sched::census).unwrap_or_default()
}

/// The id of the calling goroutine, None on a plain thread.
///
/// # Examples
/// ```
/// assert!(heist::current_id().is_none());
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// assert_eq!(rt.run(|| heist::current_id().unwrap().as_u64()), 1);
/// ```
#[must_use]
pub fn current_id() -> Option<GoroutineId> {
    current::goroutine().map(|gp| GoroutineId(gp.id.get()))
}

/// Whether the calling goroutine was cancelled, or its runtime shuts down. False on a plain thread.
///
/// Its next park ends it, so most goroutines need not ask. One that computes for long and does not park can,
/// and so can every goroutine of a program that is built with `panic = "abort"`, where nothing is unwound.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().procs(2).build() }.unwrap();
/// # rt.run(|| {
/// let computes = heist::go(|| {
///     let mut rounds = 0_u64;
///     while !heist::goroutine::is_cancelled() {
///         rounds += 1;
///     }
///     rounds
/// });
/// heist::yield_now();
/// computes.cancel();
/// // It ended by itself, or before it began.
/// assert!(computes.join().map_or_else(|error| error.is_cancelled(), |_| true));
/// # });
/// ```
#[must_use]
pub fn is_cancelled() -> bool {
    cancel::will_be()
}

/// Ends the calling goroutine here: its stack is unwound and its destructors run.
///
/// Code in between cannot keep it alive: catching the unwinding and dropping what was caught goes
/// on with it. Whoever joins it gets [`JoinError::is_exited`].
///
/// # Panics
/// On a plain thread, and while the goroutine is panicking already. A program that is built with
/// `panic = "abort"` cannot unwind: there the process ends with a message and exit code 2.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let handle = heist::go(|| {
///     let _ = std::panic::catch_unwind(|| heist::exit_current());
///     unreachable!();
/// });
/// assert!(handle.join().unwrap_err().is_exited());
/// # });
/// ```
#[doc(alias = "Goexit")]
pub fn exit_current() -> ! {
    assert!(
        current::goroutine().is_some(),
        "heist::exit_current: not on a goroutine; on a plain thread return from its main function"
    );
    assert!(!std::thread::panicking(), "heist::exit_current: the goroutine is panicking");
    cancel::unwind(cancel::Why::Exited)
}
