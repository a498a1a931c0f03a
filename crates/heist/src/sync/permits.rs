//! The permits of a semaphore, and the queue of those that wait for them.
//!
//! # The word
//! The word holds the number of free permits, and one bit that is set while there are waiters.
//! Without that bit, an acquisition is one compare-and-swap. With it, permits are taken only under
//! the lock of the queue and in the order of the queue: a request for many permits is not overtaken
//! by requests for few.
//!
//! The thread that releases permits takes them for a waiter when it claims the waiter. A waiter
//! that gives up has taken none, and serves the waiters behind it, which may need fewer.
//!
//! # Ordering
//! Taking permits is Acquire and releasing them is Release. Where they are handed to a waiter, the
//! lock and the wake-up order memory.

use crate::chan::{Closing, Receiver};
use crate::current::{self, InRuntime};
use crate::sys::lock::Lock;
use crate::wait::{
    self, AllClaimed, Both, Ended, Entry, FutureWait, HeldLocks, Terms, Wait, WaitQueue,
    WaitReason, WakeAll,
};
use heist_core::lock_rank::Rank;
use std::convert::Infallible;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;

/// There are waiters.
const QUEUED: u64 = 1;
/// One permit: the count begins at this bit.
const PERMIT: u64 = 2;

/// The wait of a future for permits.
pub(super) struct PermitWait {
    pub(super) n: u64,
    wait: FutureWait,
}

impl PermitWait {
    pub(super) const fn new(n: usize) -> Self {
        Self { n: n as u64, wait: FutureWait::new() }
    }
}

/// A number of permits that are free or taken.
pub(super) struct Permits {
    size: usize,
    word: AtomicU64,
    /// The place of each entry is the number of permits that its waiter needs, a `u64`.
    waiters: Lock<WaitQueue>,
}

impl Permits {
    /// All of `size` permits are free.
    ///
    /// # Panics
    /// If it is more than 2^63 - 1.
    pub(super) const fn new(size: usize) -> Self {
        assert!(size as u64 <= u64::MAX / PERMIT, "semaphore: too many permits");
        Self {
            size,
            word: AtomicU64::new(size as u64 * PERMIT),
            waiters: Lock::new(Rank::WaitQueue, WaitQueue::new()),
        }
    }

    /// The total.
    pub(super) const fn size(&self) -> usize {
        self.size
    }

    /// How many are free at this moment.
    pub(super) fn available(&self) -> usize {
        (self.word.load(Ordering::Relaxed) / PERMIT) as usize
    }

    /// Gives back permits.
    ///
    /// # Panics
    /// If more permits would be free than the total.
    pub(super) fn release(&self, n: usize) {
        let more = |word: u64| {
            let free = (word / PERMIT).checked_add(n as u64)?;
            (free <= self.size as u64).then(|| (free * PERMIT) | (word & QUEUED))
        };
        match self.word.fetch_update(Ordering::Release, Ordering::Relaxed, more) {
            Ok(before) if before & QUEUED == 0 => {}
            Ok(_) => self.grant_from_outside(),
            Err(_) => panic!("semaphore: released more than held"),
        }
    }

    #[inline]
    pub(super) fn take_free(&self, n: usize) -> bool {
        let less = |word: u64| {
            let needed = (n as u64).checked_mul(PERMIT)?;
            // While there are waiters the word is odd, and newcomers must not take permits.
            (word & QUEUED == 0).then(|| word.checked_sub(needed)).flatten()
        };
        self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, less).is_ok()
    }

    /// False if the deadline came first.
    #[inline]
    pub(super) fn take(&self, n: usize, deadline_ns: Option<u64>) -> bool {
        self.take_free(n) || self.wait(n, deadline_ns)
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, n: usize, deadline_ns: Option<u64>) -> bool {
        let terms = Terms::new(WaitReason::Semaphore).until_some(deadline_ns);
        let rt = terms.enter();
        if n > self.size {
            // A request for more permits than the total can never be served. It waits in no queue,
            // where it would delay others.
            wait::wait_alone(rt, terms);
            return false;
        }
        let waiters = self.waiters.lock();
        if self.take_as_first(&waiters, n, rt.as_ref()) {
            drop(waiters);
            wait::leave_holding(rt, || self.release(n));
            return true;
        }
        let mut needs = n as u64;
        let (rt, ended) = wait::sleep_in(
            rt,
            waiters,
            terms,
            (&raw mut needs).cast(),
            // SAFETY: the entry stays on the stack of `sleep_in` until it is removed.
            |waiters, entry| unsafe { waiters.push(entry) },
            // SAFETY: it was queued here.
            |waiters, entry| unsafe { waiters.remove(entry) },
        );
        if !ended.gave_up() {
            wait::leave_holding(rt, || self.release(n));
            return true;
        }
        // The waiters behind it may need less.
        self.grant(rt.as_ref());
        if ended == Ended::Cancelled {
            wait::unwind(rt);
        }
        false
    }

    /// As [`wait`](Self::wait), and false if the channel is closed first. The wait has an entry in
    /// the queue here and one at the channel: a claim at one of them, or a cancellation, ends the
    /// wait for both.
    #[cold]
    #[inline(never)]
    pub(super) fn wait_unless(&self, n: usize, done: &Receiver<Infallible>) -> bool {
        let Some(closing) = Closing::of(done) else { return self.wait(n, None) };
        let terms = Terms::new(WaitReason::Semaphore);
        let rt = terms.enter();
        let mut needs = n as u64;
        let wait = Wait::new(rt.as_ref());
        let here = Entry::new(&raw const wait, (&raw mut needs).cast());
        let there = Entry::new(&raw const wait, null_mut());
        let both = Both::new(&self.waiters, closing.lock());
        both.take();
        // SAFETY: just taken; these are the only references until the locks are released.
        let (waiters, queues) = unsafe { both.data() };
        let is_closed = closing.is_closed();
        let is_taken = !is_closed && self.take_as_first(waiters, n, rt.as_ref());
        if is_closed || is_taken {
            // SAFETY: taken above, and released once.
            unsafe { HeldLocks::release(&raw const both) };
            if is_taken {
                wait::leave_holding(rt, || self.release(n));
            }
            return is_taken;
        }
        // SAFETY: the entries stay in this frame until they are removed, below.
        unsafe {
            waiters.push(&here);
            closing.push(queues, &there);
        }
        // SAFETY: the wait was made with this `rt`; this thread holds the locks, which outlive the
        // call.
        let (rt, ended) = unsafe { wait.sleep(rt, terms, &both) };
        // The entry at which the wait was claimed has been removed. The other one is removed under
        // the lock of its queue.
        if !std::ptr::eq(wait.fired(), &raw const there) {
            closing.remove(&mut closing.lock().lock(), &there);
        }
        if std::ptr::eq(wait.fired(), &raw const here) {
            wait::leave_holding(rt, || self.release(n));
            return true;
        }
        let mut waiters = self.waiters.lock();
        if here.is_listed() {
            // SAFETY: it was queued here.
            unsafe { waiters.remove(&here) };
        }
        drop(waiters);
        // The waiters behind it may need less.
        self.grant(rt.as_ref());
        if ended == Ended::Cancelled {
            wait::unwind(rt);
        }
        false
    }

    /// Takes permits, or waits as a future. True: they are taken.
    ///
    /// # Safety
    /// `waits` is pinned, and [`leave`](Self::leave) is called before it is dropped.
    pub(super) unsafe fn poll(&self, waits: &PermitWait, waker: &Waker) -> bool {
        let n = waits.n as usize;
        if waits.wait.is_queued() {
            return waits.wait.poll(&self.waiters, waker).is_some();
        }
        if self.take_free(n) {
            return true;
        }
        if n > self.size {
            return false;
        }
        waits.wait.prepare(waker);
        let rt = current::enter();
        let mut waiters = self.waiters.lock();
        let taken = self.take_as_first(&waiters, n, None);
        if !taken {
            let push = |entry: &Entry| {
                // SAFETY: by the caller's promise.
                unsafe { waiters.push(entry) };
                true
            };
            let place = (&raw const waits.n).cast_mut().cast();
            // SAFETY: by the caller's promise; the number is only read.
            unsafe { waits.wait.queue(place, push) };
        }
        drop(waiters);
        drop(rt);
        taken
    }

    /// Ends the wait of a future. Permits that it was given are released.
    pub(super) fn leave(&self, waits: &PermitWait) {
        if !waits.wait.is_queued() {
            return;
        }
        // SAFETY: it was queued here.
        let left =
            waits.wait.leave(&self.waiters, |waiters, entry| unsafe { waiters.remove(entry) });
        if left.is_some() {
            self.release(waits.n as usize);
        } else {
            // The waiters behind it may need less.
            self.grant_from_outside();
        }
    }

    /// Sets `QUEUED`, after which permits are taken only under the lock, which the caller holds. If
    /// there are waiters already, permits that are released go to them through the releaser. If
    /// there are none, permits that were released just before are for the caller: true if they are
    /// enough, and then they are taken.
    fn take_as_first(&self, waiters: &WaitQueue, n: usize, rt: Option<&InRuntime>) -> bool {
        self.word.fetch_or(QUEUED, Ordering::Relaxed);
        let taken = waiters.is_empty() && !wait::is_cancelled(rt) && self.take_queued(n as u64);
        if taken {
            self.word.fetch_and(!QUEUED, Ordering::Relaxed);
        }
        taken
    }

    #[cold]
    fn grant_from_outside(&self) {
        let rt = current::enter();
        self.grant(rt.as_ref());
    }

    /// Gives permits to the first waiter, as long as there are enough for it. While there are
    /// waiters, only the holder of the lock takes permits.
    fn grant(&self, rt: Option<&InRuntime>) {
        let mut served = AllClaimed::new();
        let mut waiters = self.waiters.lock();
        loop {
            let Some(needs) = waiters.first_place() else {
                self.word.fetch_and(!QUEUED, Ordering::Relaxed);
                break;
            };
            // SAFETY: a place in this queue is a number in its waiter's frame, and the lock is
            // held.
            let needs = unsafe { needs.cast::<u64>().read() };
            if self.free() < needs {
                break;
            }
            if let Some(Some(waiter)) = waiters.take_first() {
                self.word.fetch_sub(needs * PERMIT, Ordering::Relaxed);
                served.push(waiter);
            }
        }
        drop(waiters);
        served.wake_all(Ended::Done, rt);
    }

    /// Takes permits while `QUEUED` is set, if there are enough. The caller holds the lock.
    fn take_queued(&self, needs: u64) -> bool {
        let enough = needs <= self.free();
        if enough {
            self.word.fetch_sub(needs * PERMIT, Ordering::Relaxed);
        }
        enough
    }

    /// How many permits are free.
    fn free(&self) -> u64 {
        // ORDERING: Acquire pairs with the Release of `release`: the caller that takes the permits
        // comes after the release.
        self.word.load(Ordering::Acquire) / PERMIT
    }
}
