//! The mutex without its data: the word, and the queue of its waiters.
//!
//! The fast paths are in the word (`heist_core::mutex_word`): a compare-and-swap to take it, a
//! subtraction to release it, and no call into the runtime. This file has the contended paths.
//!
//! # Waiting
//! A contender spins briefly if that can help, then queues. A waiter that is woken and loses to a
//! newcomer queues in front. A waiter that has waited for a millisecond puts the mutex into
//! starvation mode: from then on each holder hands the mutex to the first waiter in the queue and
//! yields, so that the new holder runs at once. That ends when the queue is empty or its first
//! waiter has not waited that long.
//!
//! GO: internal/sync/mutex.go lockSlow, unlockSlow; sema.go semrelease1.

use crate::current;
use crate::current::InRuntime;
use crate::sched::life::park;
use crate::sys::clock::now_ns;
use crate::sys::cpu;
use crate::sys::lock::Lock;
use crate::wait::{self, Ended, Entry, FutureWait, Terms, WaitQueue, WaitReason, Wake};
use heist_core::lock_rank::Rank;
use heist_core::mutex_word::{Attempt, Contender, Enqueued, MutexWord, Released};
use heist_core::policy::{LOCK_SPIN_PAUSES, LOCK_SPINS, STARVATION_NS, may_spin_for_lock};
use std::cell::UnsafeCell;
use std::task::Waker;

/// Whether the lock was taken, or the deadline came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Locked {
    Yes,
    TimedOut,
}

/// A mutex without data.
pub struct RawMutex {
    word: MutexWord,
    /// The place of each entry is the [`Came`] of its waiter.
    waiters: Lock<WaitQueue>,
}

/// The times of a waiter, in nanoseconds.
struct Came {
    /// When it first queued.
    since_ns: u64,
    /// Up to when the mutex profile has charged its wait to a holder.
    charged_ns: u64,
}

/// The wait of a future for a mutex.
pub(super) struct LockWait {
    wait: FutureWait,
    me: Contender,
    came: UnsafeCell<Came>,
}

// SAFETY: a holder of the queue's lock uses `came` while the wait is queued, the owner otherwise.
unsafe impl Sync for LockWait {}

impl LockWait {
    pub(super) const fn new() -> Self {
        let came = UnsafeCell::new(Came { since_ns: 0, charged_ns: 0 });
        Self { wait: FutureWait::new(), me: Contender::new(), came }
    }

    /// It was chosen to compete for the mutex.
    fn woken(&mut self) {
        let waited_ns = now_ns() - self.came.get_mut().since_ns;
        self.me.woken(waited_ns > STARVATION_NS);
    }
}

impl RawMutex {
    pub(super) const fn new() -> Self {
        Self { word: MutexWord::new(), waiters: Lock::new(Rank::WaitQueue, WaitQueue::new()) }
    }

    /// Takes it.
    #[inline]
    pub(super) fn lock(&self, reason: WaitReason) {
        if !self.word.lock_fast() {
            // Without a deadline the lock is always taken.
            let _ = self.lock_slow(Terms::new(reason));
        }
    }

    /// Takes it in a place where the caller must not be unwound.
    #[inline]
    pub(super) fn lock_shielded(&self, reason: WaitReason) {
        if !self.word.lock_fast() {
            let _ = self.lock_slow(Terms::new(reason).shielded());
        }
    }

    /// Takes it, unless the deadline comes first.
    #[inline]
    pub(super) fn lock_until(&self, reason: WaitReason, deadline_ns: u64) -> Locked {
        if self.word.lock_fast() {
            return Locked::Yes;
        }
        self.lock_slow(Terms::new(reason).until(deadline_ns))
    }

    /// Takes it if it is free.
    #[inline]
    pub(super) fn try_lock(&self) -> bool {
        self.word.lock_fast() || self.word.try_lock()
    }

    /// Whether it is held.
    pub(super) fn is_locked(&self) -> bool {
        self.word.is_locked()
    }

    #[cold]
    #[inline(never)]
    fn lock_slow(&self, terms: Terms) -> Locked {
        // Most newcomers overtake the waiters: a holder releases the mutex and takes it again
        // before the waiter that it woke runs. That needs no call into the runtime.
        if self.word.try_lock() {
            return Locked::Yes;
        }
        let mut rt = terms.enter();
        let mut me = Contender::new();
        let mut spins = 0;
        let mut came = Came { since_ns: 0, charged_ns: 0 };
        let mut waited_ns = 0;
        loop {
            match self.word.attempt(&mut me) {
                Attempt::Acquired => break,
                Attempt::Busy if may_spin(rt.as_ref(), spins) => {
                    self.word.announce(&mut me);
                    spin();
                    spins += 1;
                    continue;
                }
                Attempt::Busy | Attempt::Starving => {}
            }
            let again = came.since_ns != 0;
            if !again {
                let now = now_ns();
                came = Came { since_ns: now, charged_ns: now };
            }
            let waiters = self.waiters.lock();
            if self.word.enqueue(&mut me) == Enqueued::Acquired {
                break;
            }
            let ended;
            (rt, ended) = wait::wait_in(
                rt,
                waiters,
                terms,
                (&raw mut came).cast(),
                |waiters, entry| {
                    // SAFETY: the entry stays on the stack of `wait_in` until it is removed.
                    unsafe { if again { waiters.push_front(entry) } else { waiters.push(entry) } }
                },
                |waiters, entry| {
                    // SAFETY: it was queued here.
                    unsafe { waiters.remove(entry) };
                    self.word.dequeued();
                },
            );
            waited_ns = now_ns() - came.since_ns;
            match ended {
                // The mutex was handed over.
                Ended::Done => break,
                Ended::TimedOut => return Locked::TimedOut,
                // It was released, and this caller may compete for it.
                _ => {
                    me.woken(waited_ns > STARVATION_NS);
                    spins = 0;
                }
            }
        }
        if came.since_ns != 0 {
            count_wait(rt.as_ref(), waited_ns);
        }
        wait::leave_holding(rt, || self.unlock());
        Locked::Yes
    }

    /// Takes it, or waits as a future. True: it is taken.
    ///
    /// # Safety
    /// `waits` is pinned, and [`leave`](Self::leave) is called before it is dropped.
    pub(super) unsafe fn poll_lock(&self, waits: &mut LockWait, waker: &Waker) -> bool {
        if waits.wait.is_queued() {
            match waits.wait.poll(&self.waiters, waker) {
                None => return false,
                // The mutex was handed over.
                Some(Ended::Done) => return true,
                // It was released, and this caller may compete for it.
                Some(_) => waits.woken(),
            }
        }
        if self.word.attempt(&mut waits.me) == Attempt::Acquired {
            return true;
        }
        waits.wait.prepare(waker);
        // SAFETY: in no queue, so nothing else uses it.
        let came = unsafe { &mut *waits.came.get() };
        let again = came.since_ns != 0;
        if !again {
            let now = now_ns();
            *came = Came { since_ns: now, charged_ns: now };
        }
        let rt = current::enter();
        let mut waiters = self.waiters.lock();
        let acquired = self.word.enqueue(&mut waits.me) == Enqueued::Acquired;
        if !acquired {
            let push = |entry: &Entry| {
                // SAFETY: by the caller's promise.
                unsafe { if again { waiters.push_front(entry) } else { waiters.push(entry) } };
                true
            };
            // SAFETY: by the caller's promise.
            unsafe { waits.wait.queue(waits.came.get().cast(), push) };
        }
        drop(waiters);
        drop(rt);
        acquired
    }

    /// Ends the wait of a future. What it was given goes to the next waiter.
    pub(super) fn leave(&self, waits: &mut LockWait) {
        let left = waits.wait.leave(&self.waiters, |waiters, entry| {
            // SAFETY: it was queued here.
            unsafe { waiters.remove(entry) };
            self.word.dequeued();
        });
        match left {
            Some(Ended::Done) => return self.unlock(),
            Some(_) => waits.woken(),
            // It has the token if it was woken, and a foreign waker panicked in the poll.
            None if !waits.me.has_token() => return,
            None => {}
        }
        // It returns its token as a waiter that comes and gives up. If the mutex is free, nobody
        // else would wake the next.
        let rt = current::enter();
        let waiters = self.waiters.lock();
        let acquired = self.word.enqueue(&mut waits.me) == Enqueued::Acquired;
        if !acquired {
            self.word.dequeued();
        }
        drop(waiters);
        if acquired {
            self.unlock_within(rt.as_ref());
        }
    }

    /// Releases it.
    #[inline]
    pub(super) fn unlock(&self) {
        let released = self.word.unlock();
        if released != Released::Done {
            self.pass_on(released);
        }
    }

    #[cold]
    #[inline(never)]
    fn pass_on(&self, released: Released) {
        let rt = current::enter();
        if self.choose(released, rt.as_ref())
            && let Some(rt) = rt
        {
            drop(park::give_way(rt));
        }
    }

    /// Releases it from inside the runtime.
    pub(super) fn unlock_within(&self, rt: Option<&InRuntime>) {
        let released = self.word.unlock();
        if released != Released::Done {
            self.choose(released, rt);
        }
    }

    /// Wakes one waiter, or hands it the mutex. True if the caller should yield to it.
    fn choose(&self, released: Released, rt: Option<&InRuntime>) -> bool {
        let mut waiters = self.waiters.lock();
        let charge = if wait::mutex_profile_is_on() { Some(charge(&waiters)) } else { None };
        if let Some(((n, waited_ns), rt)) = charge.zip(rt) {
            wait::mutex_released(rt, n, waited_ns);
        }
        let chosen = loop {
            let Some(first) = waiters.take_first() else {
                match released {
                    Released::HandOver => self.word.stop_starving(),
                    _ => self.word.return_token(),
                }
                return false;
            };
            self.word.dequeued();
            if let Some(chosen) = first {
                break chosen;
            }
        };
        if released != Released::HandOver {
            drop(waiters);
            chosen.wake(Ended::Changed, rt);
            return false;
        }
        // SAFETY: a place in this queue has the times of a waiter, in its frame, and the waiter was
        // claimed.
        let since_ns = unsafe { (*chosen.place().cast::<Came>()).since_ns };
        self.word.hand_over(now_ns() - since_ns > STARVATION_NS);
        drop(waiters);
        let give_way = chosen.runs_next(rt);
        chosen.wake(Ended::Done, rt);
        give_way
    }
}

/// Charges the waits since the last charge to the holder, which releases the mutex: how many there
/// are, and their sum.
#[cold]
fn charge(waiters: &WaitQueue) -> (u64, u64) {
    let now = now_ns();
    let (mut n, mut sum_ns) = (0, 0);
    waiters.for_each_place(|place| {
        // SAFETY: a place in this queue has the times of a waiter, in its frame, which stays while
        // the waiter is queued. Only a holder of the lock uses this one.
        let charged_ns = unsafe { &mut (*place.cast::<Came>()).charged_ns };
        sum_ns += now.saturating_sub(std::mem::replace(charged_ns, now));
        n += 1;
    });
    (n, sum_ns)
}

/// Adds to the time that goroutines have waited for locks.
pub(super) fn count_wait(rt: Option<&InRuntime>, waited_ns: u64) {
    if let Some(rt) = rt {
        rt.m().p().stats.lock_wait_ns.add(waited_ns);
    }
}

#[doc(alias = "runtime_canSpin")]
fn may_spin(rt: Option<&InRuntime>, spins: u32) -> bool {
    let Some(rt) = rt else { return spins < LOCK_SPINS && !cpu::is_single() };
    let (sched, pp) = (rt.sched(), rt.m().p());
    let (n_idle, n_spinning) = (sched.rest.idle().count(), sched.rest.n_spinning());
    may_spin_for_lock(spins, sched.procs(), n_idle, n_spinning, pp.is_empty()) && !cpu::is_single()
}

#[doc(alias = "runtime_doSpin")]
fn spin() {
    for _ in 0..LOCK_SPIN_PAUSES {
        std::hint::spin_loop();
    }
}
