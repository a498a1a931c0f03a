//! Goroutines that borrow.
//!
//! # Why it is sound
//! The values that a scoped goroutine borrows outlive the scope, and the scope does not return, nor
//! unwind, before all of its goroutines have released them. A goroutine counts itself off when its
//! closure and everything the closure owned are gone, and its result too, unless the goroutine's
//! handle has it. Its record may live on, but holds nothing borrowed. A handle cannot leave the
//! body of the scope, or of one of its goroutines.
//!
//! The scope waits for the count in a way that cancellation cannot end.
//!
//! A goroutine that overflowed its stack and was abandoned never counts itself off, so its scope
//! does not return: others may still use, through its frames, what it borrowed.

use crate::current;
use crate::goroutine::{
    self, AbortHandle, Beginning, Extras, GoroutineId, JoinError, JoinHandle, SpawnError,
};
use crate::sched::Sched;
use crate::sync::WaitGroup;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Runs `body`, which may spawn goroutines that borrow from outside, and returns when all of them
/// have ended.
///
/// The calling goroutine cannot be unwound before that, not even by cancellation; a panic of `body`
/// continues afterwards. A goroutine that was abandoned because it overflowed its stack (see
/// [`OverflowPolicy`](crate::OverflowPolicy)) never ends, so neither does its scope.
///
/// # Panics
/// If `body` panics, or if a goroutine of the scope panicked and was not joined.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let words = vec!["a", "few", "words"];
/// let mut total = 0;
/// heist::scope(|s| {
///     let lengths: Vec<_> = words.iter().map(|word| s.go(|| word.len())).collect();
///     s.go(|| println!("{words:?}"));
///     total = lengths.into_iter().map(|length| length.join().unwrap()).sum();
/// });
/// assert_eq!(total, 9);
/// # });
/// ```
pub fn scope<'env, F, T>(body: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope { data: Arc::default(), _scope: PhantomData, _env: PhantomData };
    let result = catch_unwind(AssertUnwindSafe(|| body(&scope)));
    scope.data.running.wait_shielded();
    match result {
        Ok(_) if scope.data.has_unseen_panic() => panic!("a scoped goroutine panicked"),
        Ok(value) => value,
        Err(payload) => resume_unwind(payload),
    }
}

/// The data that the goroutines of a scope share with it.
#[derive(Default)]
struct Data {
    running: WaitGroup,
    n_panicked: AtomicUsize,
    /// Panics that were returned by a handle.
    n_seen: AtomicUsize,
}

impl Data {
    /// Called when all goroutines of the scope have ended.
    fn has_unseen_panic(&self) -> bool {
        self.n_panicked.load(Ordering::Relaxed) > self.n_seen.load(Ordering::Relaxed)
    }
}

/// Spawns goroutines that may borrow; see [`scope`].
pub struct Scope<'scope, 'env: 'scope> {
    data: Arc<Data>,
    /// Neither lifetime may be shortened or lengthened.
    _scope: PhantomData<&'scope mut &'scope ()>,
    _env: PhantomData<&'env mut &'env ()>,
}

impl<'scope> Scope<'scope, '_> {
    /// Runs `f` on a new goroutine of the calling goroutine's runtime. Goroutines of the scope may
    /// spawn more.
    ///
    /// # Panics
    /// As [`go`](crate::go).
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let mut numbers = vec![1, 2, 3];
    /// heist::scope(|s| {
    ///     for number in &mut numbers {
    ///         s.go(|| *number *= 2);
    ///     }
    /// });
    /// assert_eq!(numbers, [2, 4, 6]);
    /// # });
    /// ```
    #[track_caller]
    pub fn go<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        match self.try_go(f) {
            Ok(handle) => handle,
            Err(error) => goroutine::cannot_spawn("Scope::go", error),
        }
    }

    /// Runs `f` on a new goroutine, or returns why it cannot.
    ///
    /// # Errors
    /// As [`try_go`](crate::try_go).
    #[track_caller]
    pub fn try_go<F, T>(&'scope self, f: F) -> Result<ScopedJoinHandle<'scope, T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        self.spawn(f, Location::caller(), None)
    }

    pub(crate) fn spawn<F, T>(
        &'scope self,
        f: F,
        site: &'static Location<'static>,
        extras: Option<Arc<Extras>>,
    ) -> Result<ScopedJoinHandle<'scope, T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        // SAFETY: the scope does not end before all that `data` counts have ended.
        let spawn = |sched: &Sched| unsafe { spawn_counted(&self.data, sched, f, site, extras) };
        current::with_sched(spawn).unwrap_or(Err(SpawnError::NoRuntime))
    }
}

/// Spawns a goroutine that `data` counts for as long as it borrows.
///
/// # Safety
/// The values that `f` and `T` borrow live until `data` no longer counts the goroutine.
unsafe fn spawn_counted<'scope, F, T>(
    data: &Arc<Data>,
    sched: &Sched,
    f: F,
    site: &'static Location<'static>,
    extras: Option<Arc<Extras>>,
) -> Result<ScopedJoinHandle<'scope, T>, SpawnError>
where
    F: FnOnce() -> T + Send + 'scope,
    T: Send + 'scope,
{
    let result = Arc::new(Packet(UnsafeCell::new(None)));
    data.running.add(1);
    let task = Task { f, result: Arc::clone(&result), _end: End(Arc::clone(data)) };
    // SAFETY: by the caller's promise. Dropping `task` is the last thing that the goroutine does
    // with the values it borrows, and that counts it off; the result is not kept in its record.
    let handle = unsafe {
        goroutine::spawn_on(sched, move || task.run(), site, Beginning::Anywhere, extras)
    }?;
    Ok(ScopedJoinHandle { handle, result, data: Arc::clone(data), _scope: PhantomData })
}

/// Runs `f` on a goroutine of `sched` and waits for its end, for a caller that is a goroutine
/// itself. The caller is not cancelled meanwhile, but its stack may overflow. Then it continues
/// only when nothing borrows from it any more, as in a scope.
pub(crate) fn run_on<F, T>(
    sched: &Sched,
    f: F,
    site: &'static Location<'static>,
) -> Result<Result<T, JoinError>, SpawnError>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    let data = Arc::<Data>::default();
    let result = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: this function neither returns nor unwinds before all that `data` counts have
        // ended.
        unsafe { spawn_counted(&data, sched, f, site, None) }.map(ScopedJoinHandle::join_shielded)
    }));
    data.running.wait_shielded();
    result.unwrap_or_else(|payload| resume_unwind(payload))
}

impl goroutine::Builder {
    /// Runs `f` on a new goroutine of a scope, as [`Scope::try_go`].
    ///
    /// # Errors
    /// As [`try_go`](crate::try_go), and if the stack is larger than 1 GiB.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let words = ["one", "two"];
    /// heist::scope(|s| {
    ///     let counter = heist::goroutine::Builder::new().name("counter");
    ///     let counter = counter.spawn_scoped(s, || words.len()).unwrap();
    ///     assert_eq!(counter.name(), Some("counter"));
    ///     assert_eq!(counter.join().unwrap(), 2);
    /// });
    /// # });
    /// ```
    #[track_caller]
    pub fn spawn_scoped<'scope, F, T>(
        self,
        scope: &'scope Scope<'scope, '_>,
        f: F,
    ) -> Result<ScopedJoinHandle<'scope, T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let site = Location::caller();
        scope.spawn(f, site, Some(self.extras()?))
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scope").field("running", &self.data.running).finish()
    }
}

/// The place of the result. The goroutine writes it before it finishes; its handle takes it
/// afterwards.
struct Packet<T>(UnsafeCell<Option<T>>);

// SAFETY: the goroutine and the handle use it one after the other; joining orders the two.
unsafe impl<T: Send> Sync for Packet<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Packet<T> {}

/// The values that a scoped goroutine owns, in the order in which they are dropped.
struct Task<F, T> {
    f: F,
    result: Arc<Packet<T>>,
    _end: End,
}

impl<F: FnOnce() -> T, T> Task<F, T> {
    fn run(self) {
        // Variables are dropped in the reverse order.
        let Self { _end, result, f } = self;
        let value = f();
        // SAFETY: the handle reads it after this goroutine has finished.
        unsafe { *result.0.get() = Some(value) };
        // If the handle is gone, this drops the value.
        drop(result);
    }
}

/// Counts a goroutine off, however it ends.
struct End(Arc<Data>);

impl Drop for End {
    fn drop(&mut self) {
        // A goroutine that never ran counts as one that panicked.
        if goroutine::has_no_stack() || goroutine::is_panicking() {
            self.0.n_panicked.fetch_add(1, Ordering::Relaxed);
        }
        self.0.running.done();
    }
}

/// The right to wait for a goroutine of a [`scope`] and to take its result. Dropping it detaches
/// the goroutine from the handle, not from the scope.
pub struct ScopedJoinHandle<'scope, T> {
    handle: JoinHandle<()>,
    result: Arc<Packet<T>>,
    data: Arc<Data>,
    _scope: PhantomData<&'scope ()>,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the goroutine to end and returns what its closure returned.
    ///
    /// # Errors
    /// If it panicked, overflowed its stack, was cancelled or ended itself. A panic that is
    /// returned here is not repeated by the scope.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// heist::scope(|s| {
    ///     assert_eq!(s.go(|| 6 * 7).join().unwrap(), 42);
    ///     let bad = s.go(|| -> u32 { panic!("no luck") }).join().unwrap_err();
    ///     assert_eq!(bad.panic_message(), Some("no luck"));
    /// });
    /// # });
    /// ```
    pub fn join(self) -> Result<T, JoinError> {
        let Self { handle, result, data, .. } = self;
        result_of(handle.join(), &result, &data)
    }

    /// As [`join`](Self::join), but it cannot be cancelled.
    fn join_shielded(self) -> Result<T, JoinError> {
        let Self { handle, result, data, .. } = self;
        result_of(handle.join_shielded(), &result, &data)
    }

    /// Whether the goroutine has ended, so that [`join`](Self::join) returns at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// The name its builder gave it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.handle.name()
    }

    /// Asks the goroutine to end: its current park, or else its next, unwinds it.
    pub fn cancel(&self) {
        self.handle.cancel();
    }

    /// A handle that cancels the goroutine, also after this one is gone.
    #[must_use]
    pub fn abort_handle(&self) -> AbortHandle {
        self.handle.abort_handle()
    }

    /// The goroutine's number.
    #[must_use]
    pub const fn id(&self) -> GoroutineId {
        self.handle.id()
    }
}

/// The result that a goroutine which has ended left in its packet.
fn result_of<T>(
    ended: Result<(), JoinError>,
    result: &Packet<T>,
    data: &Data,
) -> Result<T, JoinError> {
    if let Err(error) = ended {
        if error.is_panic() || error.is_stack_overflow() || error.is_out_of_memory() {
            data.n_seen.fetch_add(1, Ordering::Relaxed);
        }
        return Err(error);
    }
    // SAFETY: the goroutine has finished, and only its handle takes the result.
    match unsafe { (*result.0.get()).take() } {
        Some(value) => Ok(value),
        None => heist_core::throw!("ScopedJoinHandle::join: finished without a result"),
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScopedJoinHandle")
            .field("id", &self.id())
            .field("finished", &self.is_finished())
            .finish()
    }
}
