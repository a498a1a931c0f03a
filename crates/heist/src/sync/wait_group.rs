//! Waiting for a number of things to be done.

use crate::current;
use crate::sys::lock::Lock;
use crate::wait::{self, Ended, Terms, WaitQueue, WaitReason, Wake};
use heist_core::lock_rank::Rank;
use std::fmt;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The upper half of the word counts the times the count rose from zero, the lower half is the
/// count.
const ROUND: u64 = 1 << 32;
const COUNT: u64 = ROUND - 1;

/// Waits until a number of things have been done, each announced by [`add`](Self::add) and
/// finished by [`done`](Self::done).
///
/// Clones share the count. Goroutines and plain threads may use it alike.
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

/// Whoever brings the count to zero wakes all it finds in the list, a little later. Meanwhile the
/// group may be in use again, and the list hold somebody who waits for the next zero. So a waiter
/// remembers the round in which it came, and one that is woken in the same round with a count that
/// is not zero goes on waiting.
#[repr(C)]
struct Inner {
    /// First, so that it shares a cache line with the counts of the `Arc`: whoever is done drops
    /// its share next.
    word: AtomicU64,
    waiters: Lock<WaitQueue>,
}

impl WaitGroup {
    /// Nothing to wait for yet.
    #[must_use]
    pub fn new() -> Self {
        let waiters = Lock::new(Rank::WaitQueue, WaitQueue::new());
        Self { inner: Arc::new(Inner { word: AtomicU64::new(0), waiters }) }
    }

    /// Announces `n` more things to wait for.
    ///
    /// # Panics
    /// If more than four billion are announced at a time.
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

    /// One thing is done.
    ///
    /// # Panics
    /// If more is done than was announced.
    ///
    /// # Examples
    /// ```
    /// let group = heist::sync::WaitGroup::new();
    /// group.add(1);
    /// group.done();
    /// group.wait();
    /// ```
    pub fn done(&self) {
        // Not a subtraction that is taken back when it was one too many: between the two, others
        // would see a count that never was.
        let less = |word: u64| (word & COUNT != 0).then(|| word - 1);
        // ORDERING: AcqRel: a thread that sees zero sees everything the others did before they were
        // done.
        match self.inner.word.fetch_update(Ordering::AcqRel, Ordering::Relaxed, less) {
            Ok(before) if before & COUNT == 1 => self.wake_all(),
            Ok(_) => {}
            Err(_) => panic!("sync: negative WaitGroup counter"),
        }
    }

    /// Runs `f` on a new goroutine that is announced here and done when it ends, however it ends.
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
        // It is done even if it cannot be spawned: then the closure is dropped.
        let done = Done(self.clone());
        crate::goroutine::go(move || {
            let _done = done;
            f();
        });
    }

    /// Waits until everything announced is done. Returns at once if nothing is.
    pub fn wait(&self) {
        self.wait_in(Terms::new(WaitReason::WaitGroup));
    }

    /// Whether something announced is not done at this moment.
    pub(super) fn is_awaited(&self) -> bool {
        // ORDERING: Acquire: see `done`.
        self.inner.word.load(Ordering::Acquire) & COUNT != 0
    }

    /// The same where the caller must not be unwound.
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
            // However it ended, the count is looked at again.
            let _ = wait::wait_in(
                rt,
                waiters,
                terms,
                null_mut(),
                // SAFETY: the entry stays on the stack of `wait_in` until it is taken out.
                |waiters, entry| unsafe { waiters.push(entry) },
                // SAFETY: it was queued here.
                |waiters, entry| unsafe { waiters.remove(entry) },
            );
        }
    }

    fn wake_all(&self) {
        let rt = current::enter();
        let waiters = self.inner.waiters.lock().claim_all();
        waiters.wake_in_order(|waiter| waiter.wake(Ended::Changed, rt.as_ref()));
    }
}

/// Says that one thing is done, however its goroutine ends.
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
