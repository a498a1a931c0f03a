//! Threads of observers, for the search for deadlocks.

use crate::sys::bystanders;
use std::marker::PhantomData;

/// While it lives, the search for deadlocks assumes that the thread which called [`bystander`]
/// wakes no goroutine.
#[derive(Debug)]
#[must_use = "the thread counts as one that could wake a goroutine when this value is dropped"]
pub struct Bystander {
    _counted: bystanders::Bystander,
    /// It is about a thread.
    _not_send: PhantomData<*const ()>,
}

/// Says that the calling thread wakes no goroutine: a thread of an observer, such as the debug
/// server. "All goroutines are asleep" is reported although such threads exist; any other thread of
/// the program could wake a goroutine, so no deadlock is reported while it lives.
///
/// The search only counts such values. So if the thread does wake a goroutine, or if the value is
/// leaked and outlives its thread, or was made on a goroutine, another thread is overlooked: a
/// deadlock may be reported that is none, which ends the process.
///
/// # Examples
/// ```
/// std::thread::spawn(|| {
///     let _bystander = heist::debug::bystander();
///     // Look at the program from time to time.
/// });
/// ```
pub fn bystander() -> Bystander {
    Bystander { _counted: bystanders::Bystander::new(), _not_send: PhantomData }
}
