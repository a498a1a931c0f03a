//! Joining a task, and joining a goroutine from a future.
//!
//! # The waker of a joiner
//! It is packed into one word of the record and announced in the join word in place of a waiter's
//! address. While it is announced it belongs to the goroutine that ends. The handle takes it back
//! by withdrawing the announcement; that fails if the goroutine has ended, which then wakes it.

use super::super::GoroutineId;
use super::super::join::JoinHandle;
use super::super::join_error::{JoinError, take_error};
use super::abort::{self, AbortHandle};
use super::code;
use crate::gmp::G;
use crate::gmp::g::{Extras, Outcome};
use crate::sched::futures::waker::{self, JOINS, Packed};
use crate::wait::{self, Terms, WaitReason};
use heist_core::join::Dropped;
use std::any::Any;
use std::fmt;
use std::future::{Future, IntoFuture};
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::pin::Pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// The right to wait for a task and to take its result: as a future, or by [`join`](Self::join).
/// Dropping it detaches the task, which continues to run.
///
/// As a future it is ready with `Result<T, JoinError>`, as the handles of tokio are: a task that
/// panicked or was aborted has no result, and the caller says what that means for it.
///
/// Waiting is cancel-safe: a future that is dropped while it waits for a task through a reference
/// (`(&mut task).await`) loses nothing.
pub struct Task<T> {
    gp: NonNull<G>,
    id: GoroutineId,
    extras: Option<Arc<Extras>>,
    /// Whether the waker of a joiner may be announced.
    announced: bool,
    /// The result has been taken, and the record released.
    taken: bool,
    _result: PhantomData<T>,
}

// SAFETY: the handle moves a `T` that another thread made to the thread that joins.
unsafe impl<T: Send> Send for Task<T> {}
// SAFETY: a shared reference to the handle can only query the task or abort it.
unsafe impl<T: Send> Sync for Task<T> {}
// As std's handle: a result that a panic left half changed cannot be seen through it.
impl<T> UnwindSafe for Task<T> {}
impl<T> RefUnwindSafe for Task<T> {}
// The result is not in the handle.
impl<T> Unpin for Task<T> {}

impl<T> Task<T> {
    /// # Safety
    /// `gp` is a task with a `T` as result, and this is its only handle.
    pub(super) unsafe fn new(gp: NonNull<G>, extras: Option<Arc<Extras>>) -> Self {
        // SAFETY: records are never unmapped, and this one is not recycled while its handle lives.
        let id = GoroutineId(unsafe { gp.as_ref() }.id.get());
        Self { gp, id, extras, announced: false, taken: false, _result: PhantomData }
    }

    const fn g(&self) -> &G {
        // SAFETY: records are never unmapped, and this one is not recycled while its handle lives.
        unsafe { self.gp.as_ref() }
    }

    /// Waits for the task to end and returns its result. A goroutine parks meanwhile, a plain
    /// thread sleeps.
    ///
    /// # Errors
    /// If it panicked, was aborted, or ended in another way without a result.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().build() }?;
    /// let task = rt.spawn_async(async { 6 * 7 });
    /// assert_eq!(task.join().unwrap(), 42);
    /// let bad = rt.spawn_async(async { panic!("no luck") });
    /// assert_eq!(bad.join().unwrap_err().panic_message(), Some("no luck"));
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    pub fn join(mut self) -> Result<T, JoinError> {
        self.wait(Terms::new(WaitReason::Join));
        self.take()
    }

    fn wait(&mut self, terms: Terms) {
        self.withdraw();
        if !self.taken && !self.is_finished() {
            wait::wait_for_end(terms.enter(), self.g(), terms);
        }
    }

    /// Takes the outcome of a task that has ended.
    fn take(&mut self) -> Result<T, JoinError> {
        assert!(!self.taken, "heist::Task: polled or joined after its result was taken");
        let (gp, id) = (self.gp, self.id);
        // SAFETY: records are never unmapped, and this one is not recycled before the release.
        let g = unsafe { gp.as_ref() };
        self.taken = true;
        let outcome = if g.outcome.get() == Outcome::Returned {
            // SAFETY: the result is a `T`, which only this handle takes, once.
            Ok(unsafe { code::take::<T>(g) })
        } else {
            // SAFETY: it has ended, and only this handle takes the outcome, once.
            Err(unsafe { take_error(g, id) })
        };
        // SAFETY: the outcome was taken, and `taken` says so.
        unsafe { release(gp) };
        outcome
    }

    /// Takes back the waker of a joiner.
    fn withdraw(&mut self) {
        if std::mem::take(&mut self.announced) {
            let _ = withdraw(self.g());
        }
    }

    /// Whether the task has ended, so that its result can be had at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.taken || self.g().join.is_finished()
    }

    /// Asks the task to end. A task that is not being polled drops its future, on a thread of its
    /// runtime, and ends; one that is being polled does so when the poll returns, and if the poll
    /// waits for something of this library, as a goroutine does, it is unwound there. A task whose
    /// future is ready at the same time may still end with a result.
    ///
    /// This does not wait. A join of an aborted task returns an error for which
    /// [`JoinError::is_cancelled`] is true.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let task = heist::spawn(std::future::pending::<()>());
    /// task.abort();
    /// assert!(task.join().unwrap_err().is_cancelled());
    /// # });
    /// ```
    #[doc(alias = "cancel")]
    pub fn abort(&self) {
        if !self.taken {
            abort::abort(self.g());
        }
    }

    /// The right to abort the task, apart from this handle.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let task = heist::spawn(std::future::pending::<()>());
    /// let abort = task.abort_handle();
    /// heist::go(move || abort.abort());
    /// assert!(task.join().unwrap_err().is_cancelled());
    /// # });
    /// ```
    ///
    /// # Panics
    /// If the result was taken already.
    #[must_use]
    pub fn abort_handle(&self) -> AbortHandle {
        assert!(!self.taken, "heist::Task::abort_handle: the result was taken");
        // SAFETY: the handle keeps the record from being recycled.
        unsafe { AbortHandle::new(self.gp, self.id) }
    }

    /// The task's number. Tasks and goroutines are counted together.
    #[must_use]
    pub const fn id(&self) -> GoroutineId {
        self.id
    }

    /// The name its builder gave it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.extras.as_ref().and_then(|extras| extras.name.as_deref())
    }
}

/// Gives up the handle's share of a record, whose outcome was taken or dropped.
///
/// # Safety
/// The record is a task's, and the caller is its handle and does not use it again.
unsafe fn release(gp: NonNull<G>) {
    // SAFETY: records are never unmapped.
    if unsafe { gp.as_ref() }.join.release_handle() {
        // SAFETY: the runtime and the handle together have one reference, given up here.
        unsafe { waker::release(gp) };
    }
}

/// Announces `waker` as the joiner of `g`. False if it has ended.
fn announce(g: &G, waker: &Waker) -> bool {
    let packed = Packed::new(waker);
    g.joiner.set(packed.to_ticket());
    let announced = g.join.register(JOINS);
    if !announced {
        // SAFETY: it was not announced, so only this caller has it.
        drop(unsafe { packed.into_waker() });
    }
    announced
}

/// Withdraws the waker that was announced. False if the goroutine has ended: then the waker is the
/// goroutine's, which may just be about to take it.
#[must_use]
fn withdraw(g: &G) -> bool {
    let withdrawn = g.join.unregister(JOINS);
    if withdrawn {
        // SAFETY: the announcement was withdrawn, so only this caller has the waker.
        drop(unsafe { Packed::from_ticket(g.joiner.get()).into_waker() });
    }
    withdrawn
}

/// Whether the goroutine has ended; if it has not, `waker` is woken when it does.
fn poll_end(g: &G, announced: &mut bool, waker: &Waker) -> bool {
    if g.join.is_finished() {
        return true;
    }
    // While it is announced, the word is only compared: the waker may be in use.
    if *announced && Packed::from_ticket(g.joiner.get()).is_of(waker) {
        return false;
    }
    if std::mem::take(announced) && !withdraw(g) {
        // Nothing else may be announced: the goroutine has yet to read what was.
        return true;
    }
    *announced = announce(g, waker);
    !*announced
}

impl<T> Future for Task<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        assert!(!this.taken, "heist::Task: polled or joined after its result was taken");
        // SAFETY: the handle keeps the record from being recycled.
        let g = unsafe { this.gp.as_ref() };
        if poll_end(g, &mut this.announced, cx.waker()) {
            Poll::Ready(this.take())
        } else {
            Poll::Pending
        }
    }
}

impl<T> Drop for Task<T> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        self.withdraw();
        if self.g().join.drop_handle() == Dropped::HasResult {
            /// Releases the record even if the destructor of the result panics.
            struct Release(NonNull<G>);
            impl Drop for Release {
                fn drop(&mut self) {
                    // SAFETY: the handle is being dropped, and its result was taken.
                    unsafe { release(self.0) };
                }
            }
            let g = self.g();
            let _release = Release(self.gp);
            // SAFETY: the outcome says what the payload holds, and only this handle takes it.
            unsafe {
                match g.outcome.get() {
                    Outcome::Returned => drop(code::take::<T>(g)),
                    Outcome::Panicked => {
                        g.payload.as_ptr::<Box<dyn Any + Send>>().drop_in_place();
                    }
                    _ => {}
                }
            }
        }
    }
}

impl<T> fmt::Debug for Task<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("id", &self.id.as_u64())
            .field("name", &self.name())
            .field("finished", &self.is_finished())
            .finish()
    }
}

/// The future that joins a goroutine; made by awaiting a [`JoinHandle`].
///
/// Dropping it detaches the goroutine.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let task = heist::spawn(async { heist::go(|| 6 * 7).await.unwrap() });
/// assert_eq!(task.join().unwrap(), 42);
/// # });
/// ```
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct JoinFuture<T> {
    handle: Option<JoinHandle<T>>,
    announced: bool,
}

impl<T> Unpin for JoinFuture<T> {}

impl<T> IntoFuture for JoinHandle<T> {
    type Output = Result<T, JoinError>;
    type IntoFuture = JoinFuture<T>;

    fn into_future(self) -> JoinFuture<T> {
        JoinFuture { handle: Some(self), announced: false }
    }
}

impl<T> Future for JoinFuture<T> {
    type Output = Result<T, JoinError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let Some(handle) = this.handle.as_ref() else {
            panic!("heist::JoinFuture: polled after its result was taken");
        };
        if !poll_end(handle.g(), &mut this.announced, cx.waker()) {
            return Poll::Pending;
        }
        match this.handle.take() {
            Some(handle) => Poll::Ready(handle.take()),
            None => heist_core::throw!("JoinFuture::poll: the handle is gone"),
        }
    }
}

impl<T> Drop for JoinFuture<T> {
    fn drop(&mut self) {
        if let (true, Some(handle)) = (self.announced, &self.handle) {
            let _ = withdraw(handle.g());
        }
    }
}
