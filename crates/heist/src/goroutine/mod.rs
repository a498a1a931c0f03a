//! Goroutines: spawning, joining, yielding, ending.
//!
//! ```
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| {
//! let answer = heist::go(|| 6 * 7);
//! assert_eq!(answer.join().unwrap(), 42);
//! # });
//! ```

mod abort;
mod builder;
mod class;
mod fork;
mod join;
mod join_error;
mod join_set;
pub(crate) mod measured;
mod no_preempt;
mod os_thread;
mod payload;
pub mod task;
mod with_stack;

pub use abort::AbortHandle;
pub use builder::{Builder, SpawnError};
pub use class::Class;
pub use fork::join;
pub use join::JoinHandle;
pub use join_error::JoinError;
pub use join_set::JoinSet;
pub use no_preempt::{NoPreempt, no_preempt};
pub use os_thread::{OsThreadGuard, lock_os_thread};
pub use with_stack::with_stack;
pub(crate) use with_stack::with_stack_if_possible;

pub use crate::leaks::{Leak, find_leaks};
pub use crate::snapshot::Group;

pub(crate) use crate::gmp::g::Extras;
pub(crate) use builder::{Beginning, cannot_spawn, spawn_here, spawn_later, spawn_on};

use crate::current;
use crate::gmp::flags::Flag;
use crate::sched::Sched;
use crate::sched::life;
use crate::sched::life::cancel;
use crate::sched::life::park;
use crate::traceback;
use std::fmt;

/// Whether the calling goroutine, or thread, unwinds because of a panic, and not because it was
/// cancelled or ends itself.
pub(crate) fn is_panicking() -> bool {
    std::thread::panicking() && !has(Flag::EXITING)
}

/// Whether the calling goroutine ends without having run because there was no memory for its stack.
pub(crate) fn has_no_stack() -> bool {
    has(Flag::STACKLESS)
}

fn has(flag: Flag) -> bool {
    current::goroutine().is_some_and(|gp| gp.flags.has(flag))
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
/// until it runs. Dropping the handle detaches the goroutine, which continues to run.
///
/// # Panics
/// Outside a runtime, or if there is no memory. [`try_go`] returns these as errors. While the
/// runtime shuts down, the call ends the caller, which is cancelled already. In a destructor that
/// runs because of the shutdown, it spawns a goroutine that is cancelled before it begins.
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

/// Runs `f` on a new goroutine, or returns why it cannot.
///
/// # Errors
/// Outside a runtime, while the runtime shuts down, or if there is no memory. The closure is
/// dropped. In a destructor that runs because of the shutdown, the goroutine is spawned, and
/// cancelled before it begins.
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

/// Lets every other runnable goroutine run first.
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

/// Every goroutine of this runtime as text, in the form of Go's dumps: its number, what it does or
/// waits for, its stack, which goroutine spawned it and where. Empty on a plain thread.
///
/// The goroutines continue to run meanwhile, so the entries are of slightly different moments.
/// Those that run or block are interrupted by a signal for some microseconds. See
/// [`docs::operating`](crate::docs::operating) for what a stack shows.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// assert!(rt.run(heist::dump_goroutines).starts_with("goroutine 1 [running]:"));
/// ```
#[doc(alias = "Stack")]
#[must_use]
#[inline(never)]
pub fn dump_goroutines() -> String {
    let here = traceback::here();
    current::with_sched(|sched| sched.dump(here)).unwrap_or_default()
}

/// The goroutines of this runtime, counted by spawn site and state, the largest group first. Empty
/// on a plain thread.
///
/// A leak is a group that grows. As for [`dump_goroutines`], the goroutines continue to run
/// meanwhile.
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

/// The class of the calling goroutine; that of most goroutines on a plain thread.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// use heist::goroutine::{self, Builder, Class};
/// let cleaner = Builder::new().class(Class::Idle).spawn(goroutine::current_class).unwrap();
/// assert_eq!(cleaner.join().unwrap(), Class::Idle);
/// # });
/// ```
#[must_use]
pub fn current_class() -> Class {
    [Class::Latency, Class::Idle].into_iter().find(|class| has(class.flag())).unwrap_or_default()
}

/// Whether the calling goroutine was cancelled, or its runtime shuts down. False on a plain thread.
///
/// The next park of a cancelled goroutine ends it, so most goroutines need not call this. It is for
/// a goroutine that computes for long and does not park, and for every goroutine of a program that
/// is built with `panic = "abort"`, where nothing is unwound.
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
/// Code on the stack cannot keep it alive: if it catches the unwinding, dropping the caught payload
/// resumes it. A caller that joins the goroutine gets an error for which [`JoinError::is_exited`]
/// is true.
///
/// # Panics
/// On a plain thread, and while the goroutine is panicking. A program that is built with `panic =
/// "abort"` cannot unwind: there the process ends with a message and exit code 2.
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
    assert!(
        !std::thread::panicking(),
        "heist::exit_current: the goroutine is panicking and ends anyway"
    );
    cancel::unwind(cancel::Why::Exited)
}
