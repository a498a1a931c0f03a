//! The word of the mutex: its holder, its waiters, and whether newcomers may overtake.
//!
//! Goroutines that cannot get the mutex wait in a queue beside the word, which has its own lock.
//! The word holds everything that the fast paths must know, so that they do not read the queue.
//!
//! # Bits
//! - `LOCKED`: the mutex is held.
//! - `WOKEN`: the token. One contender holds it: a waiter that was woken and has not taken the
//!   mutex or queued again yet, or a newcomer that spins. While a contender holds the token no
//!   other is woken, so a releaser that finds it set is done.
//! - `STARVING`: a waiter has waited too long. The mutex is handed to the head of the queue, and no
//!   other contender takes it, even when it looks free.
//! - the rest: how many waiters are in the queue.
//!
//! # Rules
//! 1. The count of waiters, and `STARVING`, change only under the queue's lock. A waiter is counted
//!    exactly while it is in the queue.
//! 2. Only the holder of the token sets `STARVING` ([`MutexWord::enqueue`]), and gives the token up
//!    with it. So a starving mutex has no token, and has waiters.
//! 3. `LOCKED` is set by a compare-and-swap that sees neither `LOCKED` nor `STARVING`, or by
//!    [`MutexWord::hand_over`] under the queue's lock.
//!
//! # Why no waiter is forgotten
//! A waiter is counted by a compare-and-swap that sees `LOCKED` or `STARVING`. The releaser that
//! clears `LOCKED` later sees the count in what its read-modify-write returns. It wakes a waiter
//! unless the mutex is taken again (then that holder releases it later), or a contender holds the
//! token: that one takes the mutex (the same), or queues again and clears the token in the
//! compare-and-swap that sees `LOCKED` (the same). A waiter that gives up takes itself out of the
//! queue under the lock and passes nothing on, because it was not chosen: a chosen waiter has left
//! the queue. A chooser that finds the queue empty returns the token under the lock, before a
//! waiter can queue. A starving mutex that was released belongs to its releaser until it is handed
//! over: no other contender takes it, and it stays starving even if the last waiter gives up
//! meanwhile.
//!
//! The model `loom_mutex_word` runs it, with waiters that give up and with starvation.
//!
//! # Ordering
//! Taking is Acquire, releasing is Release. Where the mutex is handed over, the queue's lock and
//! the wake-up order memory. Everything else concerns one word, whose changes have one order.
//!
//! GO: internal/sync/mutex.go. There the queue is a semaphore in a table, and the count is changed
//! outside of its lock; here waiters can give up, which Go's design does not allow.

use crate::sync::{AtomicU32, Ordering};

const LOCKED: u32 = 1;
const WOKEN: u32 = 2;
const STARVING: u32 = 4;
const WAITER: u32 = 8;

/// A goroutine that wants the mutex and did not get it at once.
#[derive(Debug, Default)]
pub struct Contender {
    token: bool,
    starving: bool,
}

impl Contender {
    /// A newcomer.
    #[must_use]
    pub const fn new() -> Self {
        Self { token: false, starving: false }
    }

    /// Whether it holds the token.
    #[must_use]
    pub const fn has_token(&self) -> bool {
        self.token
    }

    /// Notes that it was chosen and woken, and holds the token now. `starving` says whether it has
    /// waited too long.
    pub const fn woken(&mut self, starving: bool) {
        self.token = true;
        self.starving = starving;
    }
}

/// The result of an attempt to take the mutex.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Attempt {
    /// The contender has it.
    Acquired,
    /// Not yet, but another attempt soon is worthwhile.
    Busy,
    /// Not yet, and the contender must queue.
    Starving,
}

/// The next step of a contender that wants to queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Enqueued {
    /// Nothing: the mutex became free and the contender has it.
    Acquired,
    /// The contender is counted: it must enter the queue before the queue's lock is released.
    Waiting,
}

/// The next step of a releaser.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Released {
    /// Nothing.
    Done,
    /// It took the token: under the queue's lock, give it to the first in the queue, or call
    /// [`MutexWord::return_token`].
    WakeOne,
    /// Under the queue's lock, hand the mutex to the first in the queue by
    /// [`MutexWord::hand_over`], or call [`MutexWord::stop_starving`].
    HandOver,
}

/// The state of a mutex.
#[derive(Debug)]
pub struct MutexWord(AtomicU32);

impl MutexWord {
    /// A free mutex.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// A free mutex.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Takes a mutex that has neither a holder nor waiters.
    #[inline]
    #[must_use]
    pub fn lock_fast(&self) -> bool {
        self.0.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Takes the mutex if it is free, ahead of its waiters.
    #[inline]
    #[must_use]
    #[doc(alias = "TryLock")]
    pub fn try_lock(&self) -> bool {
        self.attempt(&mut Contender::new()) == Attempt::Acquired
    }

    /// A contender tries to take the mutex. If it succeeds, it has returned its token.
    pub fn attempt(&self, me: &mut Contender) -> Attempt {
        let mut old = self.0.load(Ordering::Relaxed);
        loop {
            if old & STARVING != 0 {
                return Attempt::Starving;
            }
            if old & LOCKED != 0 {
                return Attempt::Busy;
            }
            let new = self.without_token(old, me) | LOCKED;
            match self.0.compare_exchange_weak(old, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    me.token = false;
                    return Attempt::Acquired;
                }
                Err(now) => old = now,
            }
        }
    }

    /// A contender that is about to spin takes the token, if there are waiters and the token is
    /// free: the holder need not wake a waiter while a contender is awake already.
    pub fn announce(&self, me: &mut Contender) {
        let old = self.0.load(Ordering::Relaxed);
        if !me.token && old & (LOCKED | WOKEN | STARVING) == LOCKED && old >= WAITER {
            let new = old | WOKEN;
            let taken = self.0.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed);
            me.token = taken.is_ok();
        }
    }

    /// A contender enters the queue, whose lock the caller holds. It has returned its token.
    pub fn enqueue(&self, me: &mut Contender) -> Enqueued {
        let mut old = self.0.load(Ordering::Relaxed);
        loop {
            let free = old & (LOCKED | STARVING) == 0;
            let mut new = self.without_token(old, me);
            if free {
                new |= LOCKED;
            } else {
                new += WAITER;
                // A free mutex has no holder that would hand it over.
                if me.starving && old & LOCKED != 0 {
                    new |= STARVING;
                }
            }
            match self.0.compare_exchange_weak(old, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => {
                    me.token = false;
                    return if free { Enqueued::Acquired } else { Enqueued::Waiting };
                }
                Err(now) => old = now,
            }
        }
    }

    fn without_token(&self, word: u32, me: &Contender) -> u32 {
        if !me.token {
            return word;
        }
        if word & WOKEN == 0 {
            crate::throw!("MutexWord: the token of a woken waiter is gone");
        }
        word & !WOKEN
    }

    /// The holder releases the mutex.
    #[inline]
    #[doc(alias = "Unlock")]
    pub fn unlock(&self) -> Released {
        let before = self.0.fetch_sub(LOCKED, Ordering::Release);
        if before == LOCKED {
            return Released::Done;
        }
        self.after_unlock(before.wrapping_sub(LOCKED))
    }

    fn after_unlock(&self, mut now: u32) -> Released {
        if now & LOCKED != 0 {
            crate::throw!("MutexWord::unlock: unlock of unlocked mutex");
        }
        if now & STARVING != 0 {
            return Released::HandOver;
        }
        loop {
            if now < WAITER || now & (LOCKED | WOKEN | STARVING) != 0 {
                return Released::Done;
            }
            let new = now | WOKEN;
            match self.0.compare_exchange_weak(now, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return Released::WakeOne,
                Err(other) => now = other,
            }
        }
    }

    /// A waiter left the queue, whose lock the caller holds: it was chosen or gave up. A mutex
    /// without waiters is not starving.
    pub fn dequeued(&self) {
        let mut old = self.0.load(Ordering::Relaxed);
        loop {
            if old < WAITER {
                crate::throw!("MutexWord::dequeued: no waiter was counted");
            }
            let mut new = old - WAITER;
            // A mutex that is being handed over stays starving until it is.
            if new < WAITER && old & LOCKED != 0 {
                new &= !STARVING;
            }
            match self.0.compare_exchange_weak(old, new, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Under the lock of the queue, which is empty: there is no waiter to give the token to.
    pub fn return_token(&self) {
        if self.0.fetch_and(!WOKEN, Ordering::Relaxed) & WOKEN == 0 {
            crate::throw!("MutexWord::return_token: the token is gone");
        }
    }

    /// Under the queue's lock: the waiter that was just taken out of the queue has the mutex. The
    /// mutex stays starving unless that waiter had not waited long, or was the last.
    pub fn hand_over(&self, waited_long: bool) {
        let old = self.0.load(Ordering::Relaxed);
        let more = waited_long && old >= WAITER;
        // No other thread changes a word that is starving and not locked.
        let new = if more { old | LOCKED } else { (old | LOCKED) & !STARVING };
        if old & (LOCKED | STARVING) != STARVING || self.0.swap(new, Ordering::Relaxed) != old {
            crate::throw!("MutexWord::hand_over: the caller may not hand the mutex over");
        }
    }

    /// Under the lock of the queue, which is empty: there is no waiter to hand the mutex to, so it
    /// is free.
    pub fn stop_starving(&self) {
        if self.0.fetch_and(!STARVING, Ordering::Relaxed) != STARVING {
            crate::throw!("MutexWord::stop_starving: the caller may not free the mutex");
        }
    }

    /// Whether it is held. For reports.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.0.load(Ordering::Relaxed) & (LOCKED | STARVING) != 0
    }

    /// How many waiters there are. For reports and tests.
    #[must_use]
    pub fn n_waiting(&self) -> u32 {
        self.0.load(Ordering::Relaxed) / WAITER
    }
}

impl Default for MutexWord {
    fn default() -> Self {
        Self::new()
    }
}
