//! Spawning tasks.

use super::super::builder::{cannot_spawn, share, unshare};
use super::super::{Class, SpawnError};
use super::code::{Code, StagedValue, write_word};
use super::join::Task;
use crate::current;
use crate::gmp::flags::Flag;
use crate::gmp::g::Extras;
use crate::sched::Sched;
use crate::sched::life::spawn::{self, Recipe};
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;

/// Runs a future as a new task of the runtime of the caller, a goroutine or a task.
///
/// Dropping the returned value detaches the task, which continues to run.
///
/// # Panics
/// Outside a runtime, or if there is no memory. [`try_spawn`] returns these as errors;
/// [`Handle::spawn_async`](crate::Handle::spawn_async) spawns from any thread. While the runtime
/// shuts down, the call ends the caller, which is cancelled already.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let sum = heist::spawn(async {
///     let parts: Vec<_> = (0..10).map(|i| heist::spawn(async move { i * i })).collect();
///     let mut sum = 0;
///     for part in parts {
///         sum += part.await.unwrap();
///     }
///     sum
/// });
/// assert_eq!(sum.join().unwrap(), 285);
/// # });
/// ```
/// A future that is not `Send` is refused by the compiler:
/// ```compile_fail
/// heist::spawn(async {
///     let not_send = std::rc::Rc::new(1);
///     heist::task::yield_now().await;
///     drop(not_send);
/// });
/// ```
#[track_caller]
pub fn spawn<F>(future: F) -> Task<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    match try_spawn(future) {
        Ok(task) => task,
        Err(error) => cannot_spawn("spawn", error),
    }
}

/// As [`spawn`], or returns why it cannot.
///
/// # Errors
/// Outside a runtime, while the runtime shuts down, or if there is no memory. The future is
/// dropped.
///
/// # Examples
/// ```
/// use heist::goroutine::SpawnError;
/// assert_eq!(heist::task::try_spawn(async {}).unwrap_err(), SpawnError::NoRuntime);
/// ```
#[track_caller]
pub fn try_spawn<F>(future: F) -> Result<Task<F::Output>, SpawnError>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // SAFETY: everything is `'static`.
    unsafe { spawn_on(None, future, Location::caller(), Flag::NONE, None) }
}

/// Spawns a task with a name or a class.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let task = heist::task::Builder::new().name("fetcher").spawn(async { 5 }).unwrap();
/// assert_eq!(task.name(), Some("fetcher"));
/// assert_eq!(task.join().unwrap(), 5);
/// # });
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it spawns"]
pub struct Builder {
    name: Option<Box<str>>,
    class: Class,
}

impl Builder {
    /// A task without a name, of the normal class.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names it in dumps and reports, and for [`Task::name`].
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into().into_boxed_str());
        self
    }

    /// How urgent it is.
    pub const fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Runs a future as a new task of the caller's runtime.
    ///
    /// # Errors
    /// As [`try_spawn`].
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> Result<Task<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        // SAFETY: everything is `'static`.
        unsafe { spawn_on(None, future, Location::caller(), Flag::NONE, Some(self.extras())) }
    }

    fn extras(self) -> Arc<Extras> {
        let class = self.class.flag();
        Arc::new(Extras { class, name: self.name, stack: None, os_thread: false })
    }
}

/// Spawns on a given runtime, from any thread, or on that of the caller. The future and its result
/// need not be `'static`.
///
/// # Safety
/// The values that they borrow outlive the task.
pub(crate) unsafe fn spawn_on<F>(
    sched: Option<&Sched>,
    future: F,
    site: &'static Location<'static>,
    flags: Flag,
    extras: Option<Arc<Extras>>,
) -> Result<Task<F::Output>, SpawnError>
where
    F: Future + Send,
    F::Output: Send,
{
    let staged = StagedValue::new(future);
    let recipe = Recipe {
        vtable: &Code::<F, F::Output>::VTABLE,
        site,
        extras: share(&extras),
        flags: Flag::TASK | flags,
    };
    // SAFETY: the record is new, and `staged` is used once: here, or by `discard` if this fails.
    let write = |place: *mut u8| unsafe {
        staged.write(place);
        write_word(place);
    };
    let rt = current::enter();
    let spawned = match (&rt, sched) {
        (Some(rt), None) => spawn::spawn(rt, recipe, write).map_err(SpawnError::from),
        (Some(rt), Some(sched)) if std::ptr::eq(rt.sched(), sched) => {
            spawn::spawn(rt, recipe, write).map_err(SpawnError::from)
        }
        (_, Some(sched)) => {
            spawn::spawn_from_outside(sched, recipe, write, None).map_err(SpawnError::from)
        }
        (None, None) => Err(SpawnError::NoRuntime),
    };
    // Before the guard `rt` leaves the runtime, which may unwind.
    // SAFETY: the record holds a task with this result, and this is its only handle.
    let spawned = spawned.map(|gp| unsafe { Task::new(gp, extras) });
    drop(rt);
    spawned.inspect_err(|_| {
        staged.discard();
        unshare(recipe.extras);
    })
}
