//! The read-write lock without its data: the word, the mutex of the writers, and two queues.
//!
//! `heist_core::rw_word` decides which readers and writers may enter. A writer waits in two places:
//! for its turn among the writers, at the mutex, and then, announced, until the readers have left.
//! A writer that gives up in the second place leaves as if it had entered, so that the readers
//! behind it continue.
//!
//! # Upgradable readers
//! An upgradable reader holds the mutex of the writers and does not announce itself: readers come
//! and go beside it, and no writer and no other upgradable reader can enter. It is not counted in
//! the word, because nothing waits for it there. To upgrade, it announces itself as a writer does
//! that has its turn.
//!
//! GO: sync/rwmutex.go, which has no upgradable readers.

use super::raw_mutex::{self, LockWait, Locked, RawMutex};
use crate::current::{self, InRuntime};
use crate::sys::clock::now_ns;
use crate::sys::lock::Lock;
use crate::wait::{self, Ended, Entry, FutureWait, Terms, WaitQueue, WaitReason, Wake, WakeAll};
use heist_core::lock_rank::Rank;
use heist_core::rw_word::{Entered, RwWord};
use std::ptr::null_mut;
use std::task::Waker;

struct Waiters {
    readers: WaitQueue,
    /// The announced writer, if it waits.
    writer: WaitQueue,
}

/// What a writer that gives up does with the mutex of the writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// The next writer has its turn.
    Passed,
    /// It is an upgradable reader again.
    Kept,
}

/// The wait of a future for the lock of a writer.
pub(super) struct WriteWait {
    /// For its turn among the writers.
    turn: LockWait,
    /// It has its turn and is announced.
    announced: bool,
    /// For the readers.
    wait: FutureWait,
}

impl WriteWait {
    pub(super) const fn new() -> Self {
        Self { turn: LockWait::new(), announced: false, wait: FutureWait::new() }
    }
}

/// A read-write lock without data.
pub(super) struct RawRwLock {
    word: RwWord,
    writers: RawMutex,
    waiters: Lock<Waiters>,
}

impl RawRwLock {
    pub(super) const fn new() -> Self {
        let waiters = Waiters { readers: WaitQueue::new(), writer: WaitQueue::new() };
        Self {
            word: RwWord::new(),
            writers: RawMutex::new(),
            waiters: Lock::new(Rank::WaitQueue, waiters),
        }
    }

    /// Takes the lock to read, unless the deadline comes first.
    #[inline]
    pub(super) fn read(&self, deadline_ns: Option<u64>) -> Locked {
        if self.word.read() == Entered::Yes {
            return Locked::Yes;
        }
        self.read_slow(deadline_ns)
    }

    /// Takes the lock to read if no writer holds it or waits.
    #[inline]
    pub(super) fn try_read(&self) -> bool {
        self.word.read() == Entered::Yes
    }

    #[cold]
    #[inline(never)]
    fn read_slow(&self, deadline_ns: Option<u64>) -> Locked {
        let terms = Terms::new(WaitReason::Read).until_some(deadline_ns);
        let rt = terms.enter();
        let since_ns = now_ns();
        let waiters = self.waiters.lock();
        match self.word.read_or_queue() {
            Entered::Yes => {
                drop(waiters);
                wait::leave_holding(rt, || self.read_done());
                return Locked::Yes;
            }
            Entered::Queue => {}
            Entered::TooMany => {
                drop(waiters);
                drop(rt);
                panic!("sync: too many readers of an RwLock: are read guards leaked?");
            }
        }
        let (rt, ended) = wait::wait_in(
            rt,
            waiters,
            terms,
            null_mut(),
            // SAFETY: the entry stays on the stack of `wait_in` until it is removed.
            |waiters, entry| unsafe { waiters.readers.push(entry) },
            |waiters, entry| {
                // SAFETY: it was queued here.
                unsafe { waiters.readers.remove(entry) };
                if waiters.readers.is_empty() {
                    self.word.none_queued();
                }
            },
        );
        if ended == Ended::TimedOut {
            return Locked::TimedOut;
        }
        raw_mutex::count_wait(rt.as_ref(), now_ns() - since_ns);
        wait::leave_holding(rt, || self.read_done());
        Locked::Yes
    }

    /// Takes the lock to read, or waits as a future. True: it is taken.
    ///
    /// # Safety
    /// `wait` is pinned, and [`leave_read`](Self::leave_read) is called before it is dropped.
    pub(super) unsafe fn poll_read(&self, wait: &FutureWait, waker: &Waker) -> bool {
        if wait.is_queued() {
            return wait.poll(&self.waiters, waker).is_some();
        }
        if self.word.read() == Entered::Yes {
            return true;
        }
        wait.prepare(waker);
        let rt = current::enter();
        let mut waiters = self.waiters.lock();
        let entered = self.word.read_or_queue();
        if entered == Entered::Queue {
            let push = |entry: &Entry| {
                // SAFETY: by the caller's promise.
                unsafe { waiters.readers.push(entry) };
                true
            };
            // SAFETY: by the caller's promise.
            unsafe { wait.queue(null_mut(), push) };
        }
        drop(waiters);
        drop(rt);
        assert!(
            entered != Entered::TooMany,
            "sync: too many readers of an RwLock: are read guards leaked?"
        );
        entered == Entered::Yes
    }

    /// Ends the wait of a future that reads.
    pub(super) fn leave_read(&self, wait: &FutureWait) {
        let left = wait.leave(&self.waiters, |waiters, entry| {
            // SAFETY: it was queued here.
            unsafe { waiters.readers.remove(entry) };
            if waiters.readers.is_empty() {
                self.word.none_queued();
            }
        });
        if left.is_some() {
            self.read_done();
        }
    }

    /// Takes the lock to write, or waits as a future. True: it is taken.
    ///
    /// # Safety
    /// `waits` is pinned, and [`leave_write`](Self::leave_write) is called before it is dropped.
    pub(super) unsafe fn poll_write(&self, waits: &mut WriteWait, waker: &Waker) -> bool {
        if !waits.announced {
            // SAFETY: passed on.
            if !unsafe { self.writers.poll_lock(&mut waits.turn, waker) } {
                return false;
            }
            if self.word.announce() {
                return true;
            }
            waits.announced = true;
        } else if waits.wait.is_queued() {
            let entered = waits.wait.poll(&self.waiters, waker).is_some();
            waits.announced = !entered;
            return entered;
        }
        waits.wait.prepare(waker);
        let rt = current::enter();
        let mut waiters = self.waiters.lock();
        let entered = self.word.is_drained();
        if !entered {
            let push = |entry: &Entry| {
                // SAFETY: by the caller's promise.
                unsafe { waiters.writer.push(entry) };
                true
            };
            // SAFETY: by the caller's promise.
            unsafe { waits.wait.queue(null_mut(), push) };
        }
        drop(waiters);
        drop(rt);
        waits.announced = !entered;
        entered
    }

    /// Ends the wait of a future that writes.
    pub(super) fn leave_write(&self, waits: &mut WriteWait) {
        if !waits.announced {
            return self.writers.leave(&mut waits.turn);
        }
        let left = waits.wait.leave(&self.waiters, |waiters, entry| {
            // SAFETY: it was queued here.
            unsafe { waiters.writer.remove(entry) };
        });
        if left.is_some() { self.write_done() } else { self.write_done_slow() }
    }

    /// Releases the lock of a reader.
    #[inline]
    pub(super) fn read_done(&self) {
        if self.word.read_done() {
            self.wake_writer();
        }
    }

    #[cold]
    #[inline(never)]
    fn wake_writer(&self) {
        let rt = current::enter();
        let mut waiters = self.waiters.lock();
        // This reader may be late. The writer that it was to wake may have found the lock empty by
        // itself, or given up. Then the writer that waits now waits for other readers, and the last
        // of those wakes it.
        let writer = if self.word.is_drained() { Some(&mut waiters.writer) } else { None };
        // A writer that gives up meanwhile admits the readers behind it by itself.
        let writer = writer.and_then(WaitQueue::claim_first);
        drop(waiters);
        if let Some(writer) = writer {
            writer.wake(Ended::Done, rt.as_ref());
        }
    }

    /// Takes the lock to write, unless the deadline comes first.
    #[inline]
    pub(super) fn write(&self, deadline_ns: Option<u64>) -> Locked {
        match deadline_ns {
            None => self.writers.lock(WaitReason::Write),
            Some(deadline_ns) => {
                if self.writers.lock_until(WaitReason::Write, deadline_ns) == Locked::TimedOut {
                    return Locked::TimedOut;
                }
            }
        }
        if self.word.announce() {
            return Locked::Yes;
        }
        self.wait_for_readers(deadline_ns, Turn::Passed)
    }

    /// Takes the lock to read with the right to upgrade, unless the deadline comes first.
    pub(super) fn upgradable(&self, deadline_ns: Option<u64>) -> Locked {
        match deadline_ns {
            None => {
                self.writers.lock(WaitReason::Read);
                Locked::Yes
            }
            Some(deadline_ns) => self.writers.lock_until(WaitReason::Read, deadline_ns),
        }
    }

    /// Takes the lock to read with the right to upgrade, if nobody has that right or writes.
    pub(super) fn try_upgradable(&self) -> bool {
        self.writers.try_lock()
    }

    /// Releases the lock of an upgradable reader.
    pub(super) fn upgradable_done(&self) {
        self.writers.unlock();
    }

    /// Turns the lock of an upgradable reader into that of a writer, unless the deadline comes
    /// first: then the caller is an upgradable reader as before. A caller that is cancelled
    /// unwinds without the lock.
    pub(super) fn upgrade(&self, deadline_ns: Option<u64>) -> Locked {
        if self.word.announce() {
            return Locked::Yes;
        }
        self.wait_for_readers(deadline_ns, Turn::Kept)
    }

    /// As [`upgrade`](Self::upgrade), if there are no readers.
    pub(super) fn try_upgrade(&self) -> bool {
        self.word.try_announce()
    }

    /// Turns the lock of an upgradable reader into that of a reader. False if there are too many
    /// readers to count one more.
    #[must_use]
    pub(super) fn downgrade_upgradable(&self) -> bool {
        // No writer is announced, because the caller has the mutex of the writers.
        let entered = self.word.read() == Entered::Yes;
        if entered {
            self.writers.unlock();
        }
        entered
    }

    /// Turns the lock of a writer into that of an upgradable reader, and admits readers.
    pub(super) fn downgrade_to_upgradable(&self) {
        if !self.word.write_done() {
            let rt = current::enter();
            self.let_readers_in(rt.as_ref());
        }
    }

    /// Takes the lock to write if it is free.
    pub(super) fn try_write(&self) -> bool {
        if !self.writers.try_lock() {
            return false;
        }
        let entered = self.word.try_announce();
        if !entered {
            self.writers.unlock();
        }
        entered
    }

    #[cold]
    #[inline(never)]
    fn wait_for_readers(&self, deadline_ns: Option<u64>, on_timeout: Turn) -> Locked {
        // Entering must not unwind while the writer is announced; the wait itself can be cancelled.
        let rt = current::enter();
        let since_ns = now_ns();
        let waiters = self.waiters.lock();
        if self.word.is_drained() {
            drop(waiters);
            wait::leave_holding(rt, || self.write_done());
            return Locked::Yes;
        }
        let (rt, ended) = wait::sleep_in(
            rt,
            waiters,
            Terms::new(WaitReason::Write).until_some(deadline_ns),
            null_mut(),
            // SAFETY: the entry stays on the stack of `sleep_in` until it is removed.
            |waiters, entry| unsafe { waiters.writer.push(entry) },
            // SAFETY: it was queued here.
            |waiters, entry| unsafe { waiters.writer.remove(entry) },
        );
        if !ended.gave_up() {
            if !self.word.is_drained() {
                heist_core::throw!("RawRwLock::write: woken while others read");
            }
            raw_mutex::count_wait(rt.as_ref(), now_ns() - since_ns);
            wait::leave_holding(rt, || self.write_done());
            return Locked::Yes;
        }
        self.let_readers_in(rt.as_ref());
        if ended == Ended::Cancelled || on_timeout == Turn::Passed {
            self.writers.unlock_within(rt.as_ref());
        }
        if ended == Ended::Cancelled {
            wait::unwind(rt);
        }
        Locked::TimedOut
    }

    /// Releases the lock of a writer.
    #[inline]
    pub(super) fn write_done(&self) {
        if self.word.write_done() {
            self.writers.unlock();
        } else {
            self.write_done_slow();
        }
    }

    #[cold]
    #[inline(never)]
    fn write_done_slow(&self) {
        let rt = current::enter();
        self.let_readers_in(rt.as_ref());
        self.writers.unlock_within(rt.as_ref());
    }

    /// Turns the lock of a writer into that of a reader, and admits other readers.
    pub(super) fn downgrade(&self) {
        let rt = current::enter();
        self.admit_readers(1, rt.as_ref());
        self.writers.unlock_within(rt.as_ref());
    }

    /// The writer no longer excludes readers.
    fn let_readers_in(&self, rt: Option<&InRuntime>) {
        self.admit_readers(0, rt);
    }

    /// Admits the readers that wait, in addition to `more` that have entered already.
    fn admit_readers(&self, more: u32, rt: Option<&InRuntime>) {
        let mut waiters = self.waiters.lock();
        let readers = waiters.readers.claim_all();
        self.word.admit(readers.len() + more);
        drop(waiters);
        readers.wake_all(Ended::Done, rt);
    }

    /// Whether the lock is held, or a writer waits.
    pub(super) fn is_busy(&self) -> bool {
        self.word.n_readers() != 0 || self.word.is_pending() || self.writers.is_locked()
    }

    /// Whether a writer holds the lock, or is about to.
    pub(super) fn is_exclusive(&self) -> bool {
        self.word.is_pending()
    }
}
