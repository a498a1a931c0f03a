//! The read-write lock without its data: the word, the mutex of the writers, and two queues.
//!
//! `heist_core::rw_word` says who may go in. A writer waits in two places: for its turn among
//! writers, by the mutex, and then, announced, for the readers to leave. A writer that gives up in
//! the second place leaves as if it had been in, so that the readers behind it go on.
//!
//! GO: sync/rwmutex.go.

use super::raw_mutex::{self, Locked, RawMutex};
use super::wait_list::{self, Caller, ChosenList, Ended, Entry, Shield, Wait, WaitList};
use crate::current::{self, InRuntime};
use crate::gmp::g::WaitReason;
use crate::sys::clock::now_ns;
use crate::sys::lock::Lock;
use heist_core::list::DoubleList;
use heist_core::lock_rank::Rank;
use heist_core::rw_word::{Entered, RwWord};
use std::ptr::NonNull;

struct Waiters {
    readers: WaitList,
    /// The one that is announced, if it waits.
    writer: WaitList,
}

/// A read-write lock without data.
pub(super) struct RawRwLock {
    word: RwWord,
    writers: RawMutex,
    waiters: Lock<Waiters>,
}

// SAFETY: the lists hold pointers to waiters' stacks, used under their lock.
unsafe impl Sync for RawRwLock {}
// SAFETY: as above; a lock that moves has no waiters.
unsafe impl Send for RawRwLock {}

impl RawRwLock {
    pub(super) const fn new() -> Self {
        let waiters = Waiters { readers: DoubleList::new(), writer: DoubleList::new() };
        Self {
            word: RwWord::new(),
            writers: RawMutex::new(),
            waiters: Lock::new(Rank::WaitQueue, waiters),
        }
    }

    /// Goes in to read, unless the deadline comes first.
    #[inline]
    pub(super) fn read(&self, deadline_ns: Option<u64>) -> Locked {
        if self.word.read() == Entered::Yes {
            return Locked::Yes;
        }
        self.read_slow(deadline_ns)
    }

    /// Goes in to read if no writer is in or waits.
    #[inline]
    pub(super) fn try_read(&self) -> bool {
        self.word.read() == Entered::Yes
    }

    #[cold]
    #[inline(never)]
    fn read_slow(&self, deadline_ns: Option<u64>) -> Locked {
        let mut caller = Caller::enter(Shield::Down);
        let since_ns = now_ns();
        let entry = Entry::new(0);
        let mut waiters = self.waiters.lock();
        match self.word.read_or_queue() {
            Entered::Yes => {
                drop(waiters);
                caller.leave_holding(|| self.read_done());
                return Locked::Yes;
            }
            Entered::Queue => {}
            Entered::TooMany => {
                drop(waiters);
                drop(caller);
                panic!("sync: too many readers of an RwLock");
            }
        }
        // SAFETY: the entry stays on this stack until it is taken out.
        unsafe { waiters.readers.push_back(NonNull::from(&entry)) };
        let wait = Wait { deadline_ns, ..Wait::new(WaitReason::Read) };
        let ended = caller.wait(waiters, &entry, wait, |waiters| {
            entry.leave(&mut waiters.readers);
            if waiters.readers.is_empty() {
                self.word.none_queued();
            }
        });
        match ended {
            Ended::Served => {
                raw_mutex::count_wait(&caller, now_ns() - since_ns);
                caller.leave_holding(|| self.read_done());
                Locked::Yes
            }
            Ended::TimedOut => Locked::TimedOut,
            Ended::Cancelled => caller.unwind(),
        }
    }

    /// Leaves, having read.
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
        // It may come late: the writer that it was the last in front of has found the lock empty by itself,
        // or given up, and the one that waits now waits for others, of whom the last wakes it.
        let writer = if self.word.is_drained() { Some(&mut waiters.writer) } else { None };
        // A writer that gives up meanwhile lets the readers behind it go in by itself.
        let chosen = writer.and_then(wait_list::choose).flatten();
        drop(waiters);
        if let Some(chosen) = chosen {
            chosen.wake(rt.as_ref());
        }
    }

    /// Goes in to write, unless the deadline comes first.
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
        self.wait_for_readers(deadline_ns)
    }

    /// Goes in to write if nobody is in.
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
    fn wait_for_readers(&self, deadline_ns: Option<u64>) -> Locked {
        // Not to be unwound on the way in, with the writer announced; the wait itself can be
        // cancelled.
        let mut caller = Caller::enter(Shield::Up);
        let since_ns = now_ns();
        let entry = Entry::new(0);
        let mut waiters = self.waiters.lock();
        if self.word.is_drained() {
            drop(waiters);
            caller.leave_holding(|| self.write_done());
            return Locked::Yes;
        }
        // SAFETY: the entry stays on this stack until it is taken out.
        unsafe { waiters.writer.push_back(NonNull::from(&entry)) };
        let wait = Wait { deadline_ns, ..Wait::new(WaitReason::Write) };
        let ended = caller.wait(waiters, &entry, wait, |waiters| entry.leave(&mut waiters.writer));
        if ended == Ended::Served {
            if !self.word.is_drained() {
                heist_core::throw!("RawRwLock::write: woken while others read");
            }
            raw_mutex::count_wait(&caller, now_ns() - since_ns);
            caller.leave_holding(|| self.write_done());
            return Locked::Yes;
        }
        self.let_readers_in(caller.rt());
        self.writers.unlock_within(caller.rt());
        match ended {
            Ended::Cancelled => caller.unwind(),
            _ => Locked::TimedOut,
        }
    }

    /// Leaves, having written.
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

    /// Stays in to read, and lets others read.
    pub(super) fn downgrade(&self) {
        let rt = current::enter();
        let mut waiters = self.waiters.lock();
        let all = ChosenList::take(&mut waiters.readers);
        self.word.admit(all.len() + 1);
        drop(waiters);
        all.wake(rt.as_ref());
        self.writers.unlock_within(rt.as_ref());
    }

    /// The writer does not keep readers out any more.
    fn let_readers_in(&self, rt: Option<&InRuntime>) {
        let mut waiters = self.waiters.lock();
        let all = ChosenList::take(&mut waiters.readers);
        self.word.admit(all.len());
        drop(waiters);
        all.wake(rt);
    }

    /// Whether somebody is in, or a writer waits.
    pub(super) fn is_busy(&self) -> bool {
        self.word.n_readers() != 0 || self.word.is_pending()
    }
}
