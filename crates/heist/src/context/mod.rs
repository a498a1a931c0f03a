//! Contexts: cancellation, deadlines and values that accompany a call.
//!
//! A context is passed to every function that works on a request. Code that waits also waits for
//! [`done`](Context::done); code that computes checks [`err`](Context::err) from time to time.
//! Contexts form a tree. Cancelling one cancels everything below it, and nothing above.
//!
//! Cancelling a context unwinds no goroutine. The work that should stop sees the cancellation and
//! returns. This is the difference from [`JoinHandle::cancel`](crate::JoinHandle::cancel).
//!
//! # Examples
//! ```
//! use heist::context::{self, ContextError};
//! use std::time::Duration;
//!
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| {
//! let (ctx, canceller) = context::background().with_timeout(Duration::from_secs(60));
//! let worker = {
//!     let ctx = ctx.clone();
//!     heist::go(move || {
//!         let mut rounds = 0u64;
//!         while ctx.err().is_none() {
//!             rounds += 1;
//!             heist::yield_now();
//!         }
//!         rounds
//!     })
//! };
//! canceller.cancel();
//! worker.join().unwrap();
//! assert_eq!(ctx.err(), Some(ContextError::Canceled));
//! # });
//! ```

mod canceller;
mod deadlines;
mod error;
mod func;
mod node;
mod value;

pub use canceller::{CancelOnDrop, Canceller};
pub use error::{Cause, ContextError};
pub use func::ContextFunc;
pub use value::Key;

use crate::chan::{self, Receiver};
use node::Node;
use std::convert::Infallible;
use std::error::Error;
use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};
use value::Values;

/// The root context: it is never cancelled, has no deadline and no values.
///
/// # Examples
/// ```
/// assert!(heist::context::background().err().is_none());
/// ```
#[must_use]
#[doc(alias = "Background")]
pub const fn background() -> Context {
    Context { node: None, values: None }
}

/// The same as [`background`], for code where the right context is not decided yet.
#[must_use]
#[doc(alias = "TODO")]
pub const fn todo() -> Context {
    background()
}

/// Tells work when to stop, and carries values. Clones are the same context.
#[derive(Clone)]
pub struct Context {
    /// The nearest context above, or this one, that can be cancelled.
    node: Option<Arc<Node>>,
    values: Option<Arc<Values>>,
}

// Its own state changes under a lock and by steps that do not panic; its values do not change.
impl UnwindSafe for Context {}
impl RefUnwindSafe for Context {}

impl Context {
    /// A context below this one that can be cancelled by itself.
    ///
    /// # Examples
    /// ```
    /// use heist::context::{self, ContextError};
    /// let (parent, canceller) = context::background().with_cancel();
    /// let (child, _) = parent.with_cancel();
    /// canceller.cancel();
    /// assert_eq!(child.err(), Some(ContextError::Canceled));
    /// assert_eq!(child.err().unwrap().to_string(), "context canceled");
    /// ```
    #[doc(alias = "WithCancel")]
    pub fn with_cancel(&self) -> (Self, Canceller) {
        self.below(Node::new(self.node.clone(), None, None))
    }

    /// The same as [`with_cancel`](Self::with_cancel): every [`Canceller`] can give a cause, with
    /// [`cancel_with`](Canceller::cancel_with).
    #[doc(alias = "WithCancelCause")]
    pub fn with_cancel_cause(&self) -> (Self, Canceller) {
        self.with_cancel()
    }

    /// A context below this one that is cancelled at `deadline` at the latest.
    ///
    /// The runtime of the calling goroutine keeps the deadline. On a plain thread, and after that
    /// runtime has ended, one thread keeps the deadlines of all such contexts; it lives as long as
    /// there are any.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// use std::time::{Duration, Instant};
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// let (ctx, _) = heist::context::background().with_deadline(soon);
    /// assert_eq!(ctx.wait().to_string(), "context deadline exceeded");
    /// # });
    /// ```
    #[doc(alias = "WithDeadline")]
    pub fn with_deadline(&self, deadline: Instant) -> (Self, Canceller) {
        self.below(Node::new(self.node.clone(), Some(deadline), None))
    }

    /// As [`with_deadline`](Self::with_deadline), with a cause for the case that the deadline
    /// passes.
    #[doc(alias = "WithDeadlineCause")]
    pub fn with_deadline_cause(
        &self,
        deadline: Instant,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> (Self, Canceller) {
        let cause = Cause::from(cause.into());
        self.below(Node::new(self.node.clone(), Some(deadline), Some(cause)))
    }

    /// A context below this one that is cancelled when `timeout` is over, at the latest.
    ///
    /// # Examples
    /// ```
    /// use heist::context::{self, ContextError};
    /// use std::time::Duration;
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let (ctx, _) = context::background().with_timeout(Duration::from_millis(1));
    /// assert_eq!(ctx.wait(), ContextError::DeadlineExceeded);
    /// # });
    /// ```
    #[doc(alias = "WithTimeout")]
    pub fn with_timeout(&self, timeout: Duration) -> (Self, Canceller) {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.with_deadline(deadline),
            None => self.with_cancel(),
        }
    }

    /// As [`with_timeout`](Self::with_timeout), with a cause for the case that the time is over.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// use std::time::Duration;
    /// let background = heist::context::background();
    /// let (ctx, _) = background.with_timeout_cause(Duration::ZERO, "the printer is slow");
    /// assert_eq!(ctx.err().unwrap().to_string(), "context deadline exceeded");
    /// assert_eq!(ctx.cause().unwrap().to_string(), "the printer is slow");
    /// # });
    /// ```
    #[doc(alias = "WithTimeoutCause")]
    pub fn with_timeout_cause(
        &self,
        timeout: Duration,
        cause: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> (Self, Canceller) {
        match Instant::now().checked_add(timeout) {
            Some(deadline) => self.with_deadline_cause(deadline, cause),
            None => self.with_cancel(),
        }
    }

    /// How many contexts and functions are registered below it. For tests.
    pub(crate) fn n_children(&self) -> usize {
        self.node.as_ref().map_or(0, |node| node.n_children())
    }

    fn below(&self, node: Arc<Node>) -> (Self, Canceller) {
        let context = Self { node: Some(Arc::clone(&node)), values: self.values.clone() };
        (context, Canceller { node })
    }

    /// This context with one more value, which `K` names.
    ///
    /// # Examples
    /// ```
    /// use heist::context;
    ///
    /// struct RequestId;
    /// impl context::Key for RequestId {
    ///     type Value = u64;
    /// }
    ///
    /// let ctx = context::background().with_value::<RequestId>(7);
    /// assert_eq!(ctx.value::<RequestId>(), Some(&7));
    /// ```
    #[must_use]
    #[doc(alias = "WithValue")]
    pub fn with_value<K: Key>(&self, value: K::Value) -> Self {
        let values = Values::with::<K>(self.values.clone(), value);
        Self { node: self.node.clone(), values: Some(values) }
    }

    /// The value that `K` names, from the nearest context that has one.
    #[must_use]
    #[doc(alias = "Value")]
    pub fn value<K: Key>(&self) -> Option<&K::Value> {
        self.values.as_ref()?.find::<K>()
    }

    /// A context with the same values that is not cancelled with this one and has no deadline.
    ///
    /// # Examples
    /// ```
    /// let (ctx, canceller) = heist::context::background().with_cancel();
    /// let detached = ctx.without_cancel();
    /// canceller.cancel();
    /// assert!(ctx.err().is_some() && detached.err().is_none());
    /// ```
    #[must_use]
    #[doc(alias = "WithoutCancel")]
    pub fn without_cancel(&self) -> Self {
        Self { node: None, values: self.values.clone() }
    }

    /// Runs `f` on its own goroutine when this context is cancelled; at once if it is cancelled
    /// already. [`ContextFunc::stop`] prevents it. Dropping the returned value changes nothing.
    ///
    /// The goroutine belongs to the runtime of the caller, or to that of the canceller if the
    /// caller is outside a runtime. If both are outside a runtime, `f` runs on its own thread, or
    /// on the canceller's thread if the system refuses one. If the runtime of the caller has shut
    /// down when the context is cancelled, `f` never runs and is dropped, like all other work of
    /// that runtime.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::WaitGroup;
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let (ctx, canceller) = heist::context::background().with_cancel();
    /// let called = WaitGroup::new();
    /// called.add(1);
    /// let call = called.clone();
    /// ctx.after_func(move || call.done());
    /// let stopped = ctx.after_func(|| unreachable!());
    /// assert!(stopped.stop());
    /// canceller.cancel();
    /// called.wait();
    /// # });
    /// ```
    #[doc(alias = "AfterFunc")]
    #[track_caller]
    pub fn after_func(&self, f: impl FnOnce() + Send + 'static) -> ContextFunc {
        ContextFunc::new(self.node.clone(), Box::new(f), Some(Location::caller()))
    }

    /// Calls `f` when this context is cancelled, or now if it is, on the goroutine or thread that
    /// cancels. `f` does not wait, panic or call user code.
    pub(crate) fn when_done(&self, f: impl FnOnce(ContextError) + Send + 'static) -> ContextFunc {
        // The node owns the function, so the function does not own the node.
        let node = self.node.as_ref().map(Arc::downgrade).unwrap_or_default();
        let f = move || {
            if let Some(error) = node.upgrade().and_then(|node| node.err()) {
                f(error);
            }
        };
        ContextFunc::new(self.node.clone(), Box::new(f), None)
    }

    /// A channel that is closed when this context is cancelled, for a `select` or a plain wait. It
    /// never has a message. It belongs to the context: [`Receiver::close`] has no effect on it.
    /// When the last clone of the context and of its [`Canceller`] is gone, it is closed as well.
    ///
    /// # Examples
    /// ```
    /// let (ctx, canceller) = heist::context::background().with_cancel();
    /// assert!(ctx.done().try_recv().unwrap_err().is_empty());
    /// canceller.cancel();
    /// assert!(ctx.done().recv().is_err());
    /// ```
    #[must_use]
    #[doc(alias = "Done")]
    pub fn done(&self) -> Receiver<Infallible> {
        self.node.as_ref().map_or_else(chan::never, |node| node.done())
    }

    /// Waits until this context is cancelled, and returns how. If it cannot be cancelled, this
    /// waits forever.
    ///
    /// # Examples
    /// ```
    /// let (ctx, canceller) = heist::context::background().with_cancel();
    /// let waiter = std::thread::spawn(move || ctx.wait().to_string());
    /// canceller.cancel();
    /// assert_eq!(waiter.join().unwrap(), "context canceled");
    /// ```
    pub fn wait(&self) -> ContextError {
        loop {
            if let Some(error) = self.err() {
                return error;
            }
            if let Some(node) = &self.node {
                node.wait();
            } else {
                let Err(_closed) = self.done().recv();
            }
        }
    }

    /// Waits until this context is cancelled, and returns how, as a future. If it cannot be
    /// cancelled, this waits forever. The deadline of a context ends it only inside a runtime.
    ///
    /// # Cancel safety
    /// A future that is dropped has waited for nothing.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let (ctx, canceller) = heist::context::background().with_cancel();
    /// let task = heist::spawn(async move { ctx.cancelled().await.to_string() });
    /// canceller.cancel();
    /// assert_eq!(task.join().unwrap(), "context canceled");
    /// # });
    /// ```
    pub async fn cancelled(&self) -> ContextError {
        loop {
            if let Some(error) = self.err() {
                return error;
            }
            let Err(_closed) = self.done().recv_async().await;
        }
    }

    /// How this context was cancelled, or None if it is not cancelled. If it is,
    /// [`done`](Self::done) is closed.
    #[inline]
    #[must_use]
    #[doc(alias = "Err")]
    pub fn err(&self) -> Option<ContextError> {
        self.node.as_ref()?.err()
    }

    /// Whether this context was cancelled, by a [`Canceller`] or by its deadline.
    ///
    /// # Examples
    /// ```
    /// let (ctx, canceller) = heist::context::background().with_cancel();
    /// assert!(!ctx.is_cancelled());
    /// canceller.cancel();
    /// assert!(ctx.is_cancelled());
    /// ```
    #[inline]
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.err().is_some()
    }

    /// Why this context was cancelled: the given cause or, without one, the same as
    /// [`err`](Self::err).
    #[must_use]
    #[doc(alias = "Cause")]
    pub fn cause(&self) -> Option<Cause> {
        self.node.as_ref()?.cause()
    }

    /// When this context will be cancelled at the latest.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// use std::time::{Duration, Instant};
    /// let noon = Instant::now() + Duration::from_secs(60);
    /// let (outer, _) = heist::context::background().with_deadline(noon);
    /// let (inner, _) = outer.with_timeout(Duration::from_secs(3600));
    /// assert_eq!(inner.deadline(), Some(noon));
    /// # });
    /// ```
    #[must_use]
    #[doc(alias = "Deadline")]
    pub fn deadline(&self) -> Option<Instant> {
        self.node.as_ref()?.deadline()
    }
}

impl Default for Context {
    fn default() -> Self {
        background()
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("err", &self.err())
            .field("deadline", &self.deadline())
            .finish_non_exhaustive()
    }
}
