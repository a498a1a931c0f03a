//! Goroutines that work on parts of one task.

use super::{Mutex, OwnedSemaphorePermit, Semaphore, WaitGroup};
use crate::context::{Canceller, Cause, Context, ContextError};
use crate::goroutine;
use std::error::Error;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs goroutines that work on parts of one task, and collects the first error.
///
/// With a context, the first error cancels it, so that the others can stop. Clones are the same
/// group.
///
/// # Examples
/// ```
/// use heist::sync::ErrGroup;
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let (group, ctx) = ErrGroup::with_context(&heist::context::background());
/// for name in ["one", "two", "three"] {
///     let ctx = ctx.clone();
///     group.go(move || {
///         if name == "two" {
///             return Err(format!("{name} failed"));
///         }
///         ctx.wait(); // Stops when another has failed.
///         Ok(())
///     });
/// }
/// assert_eq!(group.wait(), Err("two failed".into()));
/// # });
/// ```
#[doc(alias = "errgroup")]
pub struct ErrGroup<E> {
    inner: Arc<Inner<E>>,
}

struct Inner<E> {
    running: WaitGroup,
    failed: Mutex<Option<E>>,
    panicked: AtomicBool,
    context: Option<OfContext<E>>,
    /// A semaphore with one permit for each goroutine that may run at a time; None without a limit.
    slots: Mutex<Option<Arc<Semaphore>>>,
}

/// The context of a group, and how an error becomes its cause.
struct OfContext<E> {
    canceller: Canceller,
    /// Makes the cause of the cancellation from an error.
    cause_of: fn(&E) -> Cause,
}

// As for `Mutex`.
impl<E> UnwindSafe for ErrGroup<E> {}
impl<E> RefUnwindSafe for ErrGroup<E> {}

impl<E: Send + 'static> ErrGroup<E> {
    /// A group without a context and without a limit.
    #[must_use]
    pub fn new() -> Self {
        Self::build(None)
    }

    /// A group, and a context below `parent` that is cancelled by the first error, whose text
    /// becomes its cause, by a panic, or when [`wait`](Self::wait) returns.
    ///
    /// [`wait`](Self::wait) returns the error itself.
    /// [`with_context_cause`](Self::with_context_cause) makes it the cause as well, if it can be
    /// cloned.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let background = heist::context::background();
    /// let (group, ctx) = heist::sync::ErrGroup::with_context(&background);
    /// group.go(|| Err("broken"));
    /// assert!(group.wait().is_err());
    /// assert_eq!(ctx.cause().unwrap().to_string(), "broken");
    /// # });
    /// ```
    #[doc(alias = "WithContext")]
    pub fn with_context(parent: &Context) -> (Self, Context)
    where
        E: fmt::Display,
    {
        Self::below(parent, |error| Cause::new(error.to_string()))
    }

    /// As [`with_context`](Self::with_context), but the cause is a clone of the first error.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// use std::num::ParseIntError;
    /// let background = heist::context::background();
    /// let (group, ctx) = heist::sync::ErrGroup::with_context_cause(&background);
    /// group.go(|| "x".parse::<u8>().map(drop));
    /// assert!(group.wait().is_err());
    /// assert!(ctx.cause().unwrap().downcast_ref::<ParseIntError>().is_some());
    /// # });
    /// ```
    pub fn with_context_cause(parent: &Context) -> (Self, Context)
    where
        E: Clone + Into<Box<dyn Error + Send + Sync>>,
    {
        Self::below(parent, |error| Cause::new(error.clone()))
    }

    fn below(parent: &Context, cause_of: fn(&E) -> Cause) -> (Self, Context) {
        let (context, canceller) = parent.with_cancel();
        (Self::build(Some(OfContext { canceller, cause_of })), context)
    }

    /// The same group with at most `n` goroutines at a time. The limit holds for its clones as
    /// well.
    ///
    /// # Panics
    /// If goroutines of the group are running.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let group = heist::sync::ErrGroup::<String>::new().limit(2);
    /// for n in 0..10 {
    ///     group.go(move || {
    ///         println!("{n}");
    ///         Ok(())
    ///     }); // Waits until fewer than two run.
    /// }
    /// group.wait().unwrap();
    /// # });
    /// ```
    #[must_use]
    #[doc(alias = "SetLimit")]
    pub fn limit(self, n: usize) -> Self {
        // The goroutines that run were started under another limit.
        assert!(!self.inner.running.is_awaited(), "errgroup: limit of a group that is in use");
        *self.inner.slots.lock_shielded() = Some(Arc::new(Semaphore::new(n)));
        self
    }

    fn build(context: Option<OfContext<E>>) -> Self {
        let inner = Inner {
            running: WaitGroup::new(),
            failed: Mutex::new(None),
            panicked: AtomicBool::new(false),
            context,
            slots: Mutex::new(None),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Runs `f` on a new goroutine. If there is a limit, waits until the limit allows it.
    ///
    /// # Panics
    /// As [`go`](crate::go), and if the limit is zero.
    #[doc(alias = "Go")]
    #[track_caller]
    pub fn go(&self, f: impl FnOnce() -> Result<(), E> + Send + 'static) {
        let slot = self.slots().map(|slots| slots.acquire_owned(1));
        self.spawn(slot, f);
    }

    /// As [`go`](Self::go), but fails when the context is done before the limit allows another
    /// goroutine, or before the call: then `f` is dropped.
    ///
    /// With the context of the group itself, no more goroutines are started after the first error.
    ///
    /// # Errors
    /// How the context was cancelled.
    ///
    /// # Panics
    /// As [`go`](crate::go).
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let background = heist::context::background();
    /// let (group, ctx) = heist::sync::ErrGroup::with_context(&background);
    /// let group = group.limit(2);
    /// for n in 1.. {
    ///     let work = move || if n == 5 { Err("broken") } else { Ok(()) };
    ///     if group.go_context(&ctx, work).is_err() {
    ///         break;
    ///     }
    /// }
    /// assert_eq!(group.wait(), Err("broken"));
    /// # });
    /// ```
    #[track_caller]
    pub fn go_context(
        &self,
        ctx: &Context,
        f: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) -> Result<(), ContextError> {
        let slot = match self.slots() {
            Some(slots) => Some(slots.acquire_owned_context(ctx, 1)?),
            None => None,
        };
        match ctx.err() {
            Some(error) => Err(error),
            None => {
                self.spawn(slot, f);
                Ok(())
            }
        }
    }

    /// Runs `f` on a new goroutine, unless the limit does not allow it now: then it returns false
    /// and drops `f`.
    ///
    /// # Panics
    /// As [`go`](crate::go).
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let group = heist::sync::ErrGroup::<String>::new().limit(1);
    /// let (stop, stopped) = heist::chan::bounded::<()>(0);
    /// assert!(group.try_go(move || Ok(stopped.recv().unwrap_or(()))));
    /// assert!(!group.try_go(|| Ok(())));
    /// drop(stop);
    /// group.wait().unwrap();
    /// # });
    /// ```
    #[doc(alias = "TryGo")]
    #[track_caller]
    pub fn try_go(&self, f: impl FnOnce() -> Result<(), E> + Send + 'static) -> bool {
        let slot = match self.slots() {
            None => None,
            Some(slots) => match slots.try_acquire_owned(1) {
                None => return false,
                slot => slot,
            },
        };
        self.spawn(slot, f);
        true
    }

    fn slots(&self) -> Option<Arc<Semaphore>> {
        self.inner.slots.lock_shielded().clone()
    }

    #[track_caller]
    fn spawn(
        &self,
        slot: Option<OwnedSemaphorePermit>,
        f: impl FnOnce() -> Result<(), E> + Send + 'static,
    ) {
        self.inner.running.add(1);
        // It ends even if it cannot be spawned: then the closure is dropped.
        let member = Member { slot, inner: Arc::clone(&self.inner) };
        goroutine::go(move || {
            let member = member;
            if let Err(error) = f() {
                member.inner.fail(error);
            }
        });
    }

    /// Waits until all goroutines have ended, and returns the first error, once.
    ///
    /// # Errors
    /// The first error that one of the goroutines returned.
    ///
    /// # Panics
    /// If one of the goroutines panicked.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let group = heist::sync::ErrGroup::new();
    /// group.go(|| Err("broken"));
    /// assert_eq!(group.wait(), Err("broken"));
    /// # });
    /// ```
    #[doc(alias = "Wait")]
    pub fn wait(&self) -> Result<(), E> {
        self.inner.running.wait();
        self.inner.cancel();
        assert!(
            !self.inner.panicked.swap(false, Ordering::Relaxed),
            "errgroup: a goroutine of the group panicked"
        );
        self.inner.failed.lock().take().map_or(Ok(()), Err)
    }
}

impl<E> Inner<E> {
    fn cancel(&self) {
        if let Some(context) = &self.context {
            context.canceller.cancel();
        }
    }

    fn fail(&self, error: E) {
        let cause = self.context.as_ref().map(|context| (context.cause_of)(&error));
        let mut failed = self.failed.lock_shielded();
        if failed.is_some() {
            return;
        }
        *failed = Some(error);
        drop(failed);
        if let (Some(context), Some(cause)) = (&self.context, cause) {
            context.canceller.cancel_with(cause);
        }
    }
}

/// A goroutine of a group. Counts itself off, however it ends.
struct Member<E> {
    slot: Option<OwnedSemaphorePermit>,
    inner: Arc<Inner<E>>,
}

impl<E> Drop for Member<E> {
    fn drop(&mut self) {
        if goroutine::is_panicking() {
            self.inner.panicked.store(true, Ordering::Relaxed);
            self.inner.cancel();
        }
        drop(self.slot.take());
        self.inner.running.done();
    }
}

impl<E> Clone for ErrGroup<E> {
    fn clone(&self) -> Self {
        Self { inner: Arc::clone(&self.inner) }
    }
}

impl<E: Send + 'static> Default for ErrGroup<E> {
    fn default() -> Self {
        Self::new()
    }
}

impl<E> fmt::Debug for ErrGroup<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ErrGroup").field("running", &self.inner.running).finish_non_exhaustive()
    }
}
