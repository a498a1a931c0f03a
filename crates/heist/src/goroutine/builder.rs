//! Spawning with options, and its errors.

use super::class::Class;
use super::join::JoinHandle;
use super::payload::{Code, Staged};
use crate::coro::stack;
use crate::current;
use crate::gmp::M;
use crate::gmp::flags::Flag;
use crate::gmp::g::Extras;
use crate::sched::Sched;
use crate::sched::life::cancel::{self, Why};
use crate::sched::life::spawn::{self, Recipe, Refused};
use heist_core::status::Ticket;
use std::error::Error;
use std::fmt;
use std::panic::Location;
use std::ptr::null;
use std::sync::Arc;

/// Why a goroutine could not be spawned.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SpawnError {
    /// The caller is not on a goroutine.
    NoRuntime,
    /// The runtime is shutting down or has ended.
    ShutDown,
    /// The system has no memory for it, or for the stacks of goroutines spawned before.
    NoMemory,
    /// The requested stack is larger than the maximum.
    StackTooLarge {
        /// The requested size.
        bytes: usize,
    },
}

impl fmt::Display for SpawnError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoRuntime => f.write_str(
                "not inside a heist runtime: call it from a goroutine (Runtime::run or \
                 #[heist::main(unsafe)] starts the first), or spawn with a Handle",
            ),
            Self::ShutDown => f.write_str("the runtime is shutting down or has ended"),
            Self::NoMemory => f.write_str(
                "the system has no memory for another goroutine (limits: ulimit -v, cgroup memory)",
            ),
            Self::StackTooLarge { bytes } => {
                let most = stack::MAX_BYTES;
                write!(f, "a stack of {bytes} bytes is more than the maximum, {most}")
            }
        }
    }
}

impl Error for SpawnError {}

impl From<Refused> for SpawnError {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Closing => Self::ShutDown,
            Refused::NoMemory => Self::NoMemory,
        }
    }
}

/// The failure of a spawn that cannot return an error. While the runtime shuts down this ends the
/// caller, which is cancelled, without a panic.
#[cold]
#[track_caller]
pub(crate) fn cannot_spawn(what: &str, error: SpawnError) -> ! {
    if error == SpawnError::ShutDown && !std::thread::panicking() && cancel::will_be() {
        cancel::unwind(Why::Cancelled);
    }
    panic!("heist::{what}: {error}")
}

/// Spawns a goroutine with a name, a stack size or a thread of its own.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let handle = heist::goroutine::Builder::new()
///     .name("parser")
///     .stack_size(1 << 20)
///     .spawn(|| 1 + 1)
///     .unwrap();
/// assert_eq!(handle.name(), Some("parser"));
/// assert_eq!(handle.join().unwrap(), 2);
/// # });
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until it spawns"]
pub struct Builder {
    name: Option<Box<str>>,
    stack_bytes: Option<usize>,
    os_thread: bool,
    class: Class,
}

impl Builder {
    /// A goroutine without a name, with the runtime's stack size.
    pub fn new() -> Self {
        Self::default()
    }

    /// Names it in reports of panics and overflows, and for [`JoinHandle::name`].
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into().into_boxed_str());
        self
    }

    /// Gives it a stack of at least this many bytes. The size is rounded up to a power of two; the
    /// smallest is 32 KiB.
    pub const fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_bytes = Some(bytes);
        self
    }

    /// Locks it to the OS thread on which it starts, from beginning to end, as if it held a guard
    /// of [`lock_os_thread`](super::lock_os_thread) that is never dropped: nothing else runs on
    /// that thread until the goroutine ends, and then the thread ends too.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let moved = heist::goroutine::Builder::new().os_thread().spawn(|| {
    ///     let before = std::thread::current().id();
    ///     heist::yield_now();
    ///     std::thread::current().id() != before
    /// });
    /// assert!(!moved.unwrap().join().unwrap());
    /// # });
    /// ```
    #[doc(alias = "LockOSThread")]
    pub const fn os_thread(mut self) -> Self {
        self.os_thread = true;
        self
    }

    /// How urgent it is. The goroutines that it spawns do not inherit its class.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().procs(2).latency_procs(1).build() }.unwrap();
    /// # rt.run(|| {
    /// use heist::goroutine::{Builder, Class};
    /// let heartbeat = Builder::new().class(Class::Latency).spawn(|| "alive").unwrap();
    /// let cleaning = Builder::new().class(Class::Idle).spawn(|| "clean").unwrap();
    /// assert_eq!(heartbeat.join().unwrap(), "alive");
    /// assert_eq!(cleaning.join().unwrap(), "clean");
    /// # });
    /// ```
    pub const fn class(mut self, class: Class) -> Self {
        self.class = class;
        self
    }

    /// Runs `f` on a new goroutine of the calling goroutine's runtime.
    ///
    /// # Errors
    /// As [`try_go`](super::try_go), and if the stack is larger than 1 GiB.
    #[track_caller]
    pub fn spawn<F, T>(self, f: F) -> Result<JoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        spawn_here(f, Location::caller(), Some(self.extras()?))
    }

    /// The options that the goroutine's record refers to.
    pub(crate) fn extras(self) -> Result<Arc<Extras>, SpawnError> {
        let stack = match self.stack_bytes {
            None => None,
            Some(bytes) => {
                let class = stack::Class::for_bytes(bytes);
                Some(class.ok_or(SpawnError::StackTooLarge { bytes })?)
            }
        };
        Ok(Arc::new(Extras {
            class: self.class.flag(),
            name: self.name,
            stack,
            os_thread: self.os_thread,
        }))
    }
}

/// Spawns on the calling goroutine's runtime.
#[inline]
pub(crate) fn spawn_here<F, T>(
    f: F,
    site: &'static Location<'static>,
    extras: Option<Arc<Extras>>,
) -> Result<JoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let staged = Staged::<F>::new(f);
    let recipe =
        Recipe { vtable: &Code::<F, T>::VTABLE, site, extras: share(&extras), flags: Flag::NONE };
    let Some(rt) = current::enter() else {
        staged.discard();
        unshare(recipe.extras);
        return Err(SpawnError::NoRuntime);
    };
    // SAFETY: the record is new, and `staged` is used once: here, or by `discard` if this fails.
    let spawned = spawn::spawn(&rt, recipe, |place| unsafe { staged.write(place) });
    // Before the guard `rt` leaves the runtime, which may unwind.
    // SAFETY: the record holds a goroutine that returns a `T`, and this is its only handle.
    let spawned = spawned.map(|gp| unsafe { JoinHandle::new(gp, extras) });
    drop(rt);
    match spawned {
        Ok(handle) => Ok(handle),
        Err(refused) => {
            staged.discard();
            unshare(recipe.extras);
            Err(refused.into())
        }
    }
}

/// Makes an unborn goroutine of the calling goroutine's runtime that begins at `when_ns`; see
/// [`spawn::spawn_later`].
pub(crate) fn spawn_later<F>(
    f: F,
    site: &'static Location<'static>,
    when_ns: u64,
) -> Result<(JoinHandle<()>, Ticket), SpawnError>
where
    F: FnOnce() + Send + 'static,
{
    let staged = Staged::<F>::new(f);
    let recipe = Recipe { vtable: &Code::<F, ()>::VTABLE, site, extras: null(), flags: Flag::NONE };
    let Some(rt) = current::enter() else {
        staged.discard();
        return Err(SpawnError::NoRuntime);
    };
    // SAFETY: the record is new, and `staged` is used once: here, or by `discard` if this fails.
    let write = |place: *mut u8| unsafe { staged.write(place) };
    let spawned = spawn::spawn_later(&rt, recipe, write, when_ns);
    // As in `spawn_here`.
    // SAFETY: the record holds a goroutine that returns nothing, and this is its only handle.
    let spawned = spawned.map(|(gp, ticket)| (unsafe { JoinHandle::new(gp, None) }, ticket));
    drop(rt);
    match spawned {
        Ok(later) => Ok(later),
        Err(refused) => {
            staged.discard();
            Err(refused.into())
        }
    }
}

/// How a goroutine begins if no goroutine of its own runtime spawns it.
#[derive(Clone, Copy)]
pub(crate) enum Beginning<'a> {
    /// On the M that finds it.
    Anywhere,
    /// As `Anywhere`; the calling plain thread does nothing but wait for the goroutine's end.
    Awaited,
    /// On this M, which is the calling plain thread. It stays there until it ends.
    On(&'a M),
}

/// Spawns on a given runtime from any thread. The closure and the result need not be `'static`.
///
/// # Safety
/// The values that `f` and `T` borrow outlive the goroutine.
pub(crate) unsafe fn spawn_on<F, T>(
    sched: &Sched,
    f: F,
    site: &'static Location<'static>,
    beginning: Beginning<'_>,
    extras: Option<Arc<Extras>>,
) -> Result<JoinHandle<T>, SpawnError>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let staged = Staged::<F>::new(f);
    let (m, flags) = match beginning {
        Beginning::Anywhere => (None, Flag::NONE),
        Beginning::Awaited => (None, Flag::AWAITED),
        Beginning::On(m) => (Some(m), Flag::AWAITED),
    };
    let recipe = Recipe { vtable: &Code::<F, T>::VTABLE, site, extras: share(&extras), flags };
    let rt = current::enter();
    // SAFETY: the record is new, and `staged` is used once: here, or by `discard` if this fails.
    let write = |place: *mut u8| unsafe { staged.write(place) };
    let spawned = match &rt {
        Some(rt) if std::ptr::eq(rt.sched(), sched) => spawn::spawn(rt, recipe, write),
        _ => spawn::spawn_from_outside(sched, recipe, write, m),
    };
    // As in `spawn_here`.
    // SAFETY: the record holds a goroutine that returns a `T`, and this is its only handle.
    let spawned = spawned.map(|gp| unsafe { JoinHandle::new(gp, extras) });
    drop(rt);
    match spawned {
        Ok(handle) => Ok(handle),
        Err(refused) => {
            staged.discard();
            unshare(recipe.extras);
            Err(refused.into())
        }
    }
}

/// The reference to the extras that the record holds.
pub(super) fn share(extras: &Option<Arc<Extras>>) -> *const Extras {
    extras.as_ref().map_or(null(), |extras| Arc::into_raw(Arc::clone(extras)))
}

/// Drops a reference from [`share`] that no record holds.
pub(super) fn unshare(extras: *const Extras) {
    if !extras.is_null() {
        // SAFETY: the pointer is from `share` and is in no record.
        drop(unsafe { Arc::from_raw(extras) });
    }
}
