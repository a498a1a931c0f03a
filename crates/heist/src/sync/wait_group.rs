//! Waiting until a number of tasks are done.

use crate::current;
use crate::sys::lock::Lock;
use crate::wait::{self, Ended, Entry, FutureWait, Terms, WaitQueue, WaitReason, WakeAll};
use heist_core::lock_rank::Rank;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};

/// The upper half of the word counts how often the count rose from zero; the lower half is the
/// count.
const ROUND: u64 = 1 << 32;
const COUNT: u64 = ROUND - 1;

/// Waits until a number of tasks are done, each announced by [`add`](Self::add) and finished by
/// [`done`](Self::done).
///
/// Clones share the count. Goroutines and plain threads may use it.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let group = heist::sync::WaitGroup::new();
/// for _ in 0..10 {
///     group.go(|| println!("one of ten"));
/// }
/// group.wait();
/// # });
/// ```
#[derive(Clone)]
pub struct WaitGroup {
    inner: Arc<Inner>,
}

/// The thread that brings the count to zero wakes all waiters that it finds in the list, a little
/// later. Meanwhile the group may be in use again, and the list may hold a waiter for the next
/// zero. So a waiter records the round in which it began to wait, and a waiter that is woken in the
/// same round with a count that is not zero continues to wait.
#[repr(C)]
struct Inner {
    /// First, so that it shares a cache line with the counts of the `Arc`: a task that calls `done`
    /// usually drops its clone next.
    word: AtomicU64,
    waiters: Lock<WaitQueue>,
}

impl WaitGroup {
    /// A group without announced tasks.
    #[must_use]
    pub fn new() -> Self {
        let waiters = Lock::new(Rank::WaitQueue, WaitQueue::new());
        Self { inner: Arc::new(Inner { word: AtomicU64::new(0), waiters }) }
    }

    /// Announces `n` more tasks to wait for.
    ///
    /// # Panics
    /// If more than four billion tasks are announced at a time.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let group = heist::sync::WaitGroup::new();
    /// group.add(2);
    /// for _ in 0..2 {
    ///     let group = group.clone();
    ///     heist::go(move || group.done());
    /// }
    /// group.wait();
    /// # });
    /// ```
    pub fn add(&self, n: usize) {
        if n == 0 {
            return;
        }
        let more = |word: u64| {
            let round = if word & COUNT == 0 { ROUND } else { 0 };
            let count = (word & COUNT).checked_add(n as u64).filter(|count| *count <= COUNT);
            count.map(|count| (word & !COUNT).wrapping_add(round) | count)
        };
        // ORDERING: AcqRel: see `done`.
        let added = self.inner.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        assert!(added.is_ok(), "sync: WaitGroup counter overflow");
    }

    /// Notes that one task is done.
    ///
    /// # Panics
    /// If more tasks are done than were announced.
    ///
    /// # Examples
    /// ```
    /// let group = heist::sync::WaitGroup::new();
    /// group.add(1);
    /// group.done();
    /// group.wait();
    /// ```
    pub fn done(&self) {
        // Not a subtraction that is undone if it was one too many: between the two steps, other
        // threads would see an invalid count.
        let less = |word: u64| (word & COUNT != 0).then(|| word - 1);
        // ORDERING: AcqRel pairs with itself and with the Acquire loads of `wait_in` and
        // `is_awaited`: a thread that sees zero sees everything the others did before they were
        // done.
        match self.inner.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less) {
            Ok(before) if before & COUNT == 1 => self.wake_all(),
            Ok(_) => {}
            Err(_) => panic!("sync: negative WaitGroup counter"),
        }
    }

    /// Runs `f` on a new goroutine. The task is announced here, and is done when the goroutine
    /// ends, however it ends.
    ///
    /// # Panics
    /// As [`go`](crate::go).
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let group = heist::sync::WaitGroup::new();
    /// group.go(|| println!("first"));
    /// group.go(|| println!("second"));
    /// group.wait();
    /// # });
    /// ```
    #[doc(alias = "Go")]
    #[track_caller]
    pub fn go(&self, f: impl FnOnce() + Send + 'static) {
        self.add(1);
        // The task is done even if the goroutine cannot be spawned: then the closure is dropped.
        let done = Done(self.clone());
        crate::goroutine::go(move || {
            let _done = done;
            f();
        });
    }

    /// Waits until every announced task is done. Returns at once if there is none.
    pub fn wait(&self) {
        self.wait_in(Terms::new(WaitReason::WaitGroup));
    }

    /// Whether an announced task is not done at this moment.
    pub(super) fn is_awaited(&self) -> bool {
        // ORDERING: Acquire: see `done`.
        self.inner.word.load(Ordering::Acquire) & COUNT != 0
    }

    /// As [`wait`](Self::wait), where the caller must not be unwound.
    pub(crate) fn wait_shielded(&self) {
        self.wait_in(Terms::new(WaitReason::Scope).shielded());
    }

    fn wait_in(&self, terms: Terms) {
        // ORDERING: Acquire: see `done`.
        let came = self.inner.word.load(Ordering::Acquire);
        if came & COUNT == 0 {
            return;
        }
        let done = || {
            // ORDERING: Acquire: see `done`.
            let now = self.inner.word.load(Ordering::Acquire);
            now & COUNT == 0 || now & !COUNT != came & !COUNT
        };
        while !done() {
            let rt = terms.enter();
            let waiters = self.inner.waiters.lock();
            if done() {
                return;
            }
            // However the wait ended, the count is checked again.
            let _ = wait::wait_in(
                rt,
                waiters,
                terms,
                null_mut(),
                // SAFETY: the entry stays on the stack of `wait_in` until it is removed.
                |waiters, entry| unsafe { waiters.push(entry) },
                // SAFETY: it was queued here.
                |waiters, entry| unsafe { waiters.remove(entry) },
            );
        }
    }

    /// Waits until every announced task is done, as a future.
    ///
    /// # Cancel safety
    /// A future that is dropped has waited for nothing.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let group = heist::sync::WaitGroup::new();
    /// (0..3).for_each(|_| group.go(|| ()));
    /// heist::spawn(async move { group.wait_async().await }).join().unwrap();
    /// # });
    /// ```
    pub fn wait_async(&self) -> WaitFuture<'_> {
        // ORDERING: Acquire: see `done`.
        let came = self.inner.word.load(Ordering::Acquire);
        WaitFuture { group: self, came, wait: FutureWait::new() }
    }

    fn wake_all(&self) {
        let rt = current::enter();
        let waiters = self.inner.waiters.lock().claim_all();
        waiters.wake_all(Ended::Changed, rt.as_ref());
    }
}

/// The future of [`WaitGroup::wait_async`].
#[must_use = "futures do nothing unless polled"]
pub struct WaitFuture<'a> {
    group: &'a WaitGroup,
    /// The word when it was made, which has the round.
    came: u64,
    wait: FutureWait,
}

impl Future for WaitFuture<'_> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.into_ref().get_ref();
        let inner = &this.group.inner;
        let done = || {
            // ORDERING: Acquire: see `done`.
            let now = inner.word.load(Ordering::Acquire);
            this.came & COUNT == 0 || now & COUNT == 0 || now & !COUNT != this.came & !COUNT
        };
        if this.wait.is_queued() && this.wait.poll(&inner.waiters, cx.waker()).is_none() {
            return Poll::Pending;
        }
        if done() {
            return Poll::Ready(());
        }
        this.wait.prepare(cx.waker());
        let rt = current::enter();
        let mut waiters = inner.waiters.lock();
        let done = done();
        if !done {
            let push = |entry: &Entry| {
                // SAFETY: the future is pinned, and leaves the queue when it is dropped.
                unsafe { waiters.push(entry) };
                true
            };
            // SAFETY: as above.
            unsafe { this.wait.queue(null_mut(), push) };
        }
        drop(waiters);
        drop(rt);
        if done { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for WaitFuture<'_> {
    fn drop(&mut self) {
        let _ = self.wait.leave(&self.group.inner.waiters, |waiters, entry| {
            // SAFETY: it was queued here.
            unsafe { waiters.remove(entry) };
        });
    }
}

impl fmt::Debug for WaitFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WaitFuture { .. }")
    }
}

/// Notes that one task is done, however its goroutine ends.
struct Done(WaitGroup);

impl Drop for Done {
    fn drop(&mut self) {
        self.0.done();
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.inner.word.load(Ordering::Relaxed) & COUNT;
        f.debug_struct("WaitGroup").field("count", &count).finish()
    }
}
