//! Classes, seen from the scheduler.
//!
//! A goroutine of the latency class waits in the first part of the global queue, which every P
//! looks at first. The Ps that are reserved for the class look at nothing else, nobody robs them,
//! and their rings stay empty: what becomes runnable there and is not of the class goes to the
//! global queue.
//!
//! A goroutine of the idle class waits in a list that an M looks at when it would give its P back.
//! If somebody waits while it runs, it is asked to yield at once.
//!
//! # Why no wake-up is lost
//! The front part and the reserved Ps at rest are under the scheduler lock. Who queues a goroutine
//! takes a reserved P in the same critical section; an M that puts one to rest has seen the part
//! empty in the same critical section. For the idle class the same holds of the list, and of a P
//! that anybody may use, who queues then wakes as every submitter does.

use super::find_runnable::Next;
use super::wake::Start;
use super::{Locked, Sched};
use crate::gmp::g::{self, G};
use crate::gmp::{M, P};
use crate::sys::{clock, thread};
use heist_core::sync::{Ordering, fence};
use std::ptr::NonNull;

/// Whether a goroutine waits that was stopped together with its thread.
pub(super) fn has_stopped(locked: &Locked) -> bool {
    locked.global.has_stopped() || locked.idle_work.iter().any(is_bound)
}

fn is_bound(gp: &G) -> bool {
    !gp.bound_m.get().is_null()
}

impl Sched {
    /// How many Ps anybody may use.
    #[inline]
    pub(crate) fn common_procs(&self) -> u32 {
        self.procs() - self.idle.n_reserved()
    }

    /// Puts a runnable goroutine where its class waits.
    ///
    /// # Safety
    /// `gp` is runnable, in no queue, and the caller's to move.
    pub(crate) unsafe fn push_locked(&self, locked: &mut Locked, gp: NonNull<G>) {
        // SAFETY: valid, by the caller's promise.
        let g = unsafe { gp.as_ref() };
        // SAFETY: passed on.
        unsafe {
            if g.has_flag(g::LATENCY) {
                locked.global.push_latency(self.global_len(), gp);
            } else if g.has_flag(g::IDLE) {
                locked.idle_work.push_back(gp);
            } else {
                locked.global.push_back(self.global_len(), gp);
            }
        }
    }

    /// The same for one that was stopped together with its thread.
    ///
    /// # Safety
    /// As for `push_locked`.
    pub(crate) unsafe fn push_stopped(&self, locked: &mut Locked, gp: NonNull<G>) {
        // SAFETY: valid, by the caller's promise.
        let g = unsafe { gp.as_ref() };
        // SAFETY: passed on.
        unsafe {
            if g.has_flag(g::LATENCY) {
                locked.global.push_stopped_latency(self.global_len(), gp);
            } else if g.has_flag(g::IDLE) {
                locked.idle_work.push_back(gp);
            } else {
                locked.global.push_stopped(self.global_len(), gp);
            }
        }
    }

    /// Takes out a stopped goroutine whose M could take `pp` over: one of the idle class only if
    /// there is no other.
    pub(super) fn pop_stopped(&self, locked: &mut Locked, pp: &P) -> Option<NonNull<G>> {
        let Locked { global, idle_work, .. } = locked;
        let latency = global.pop_stopped_latency(self.global_len());
        if latency.is_some() || pp.is_reserved {
            return latency;
        }
        let normal = global.pop_stopped(self.global_len());
        normal.or_else(|| idle_work.take_first(u32::MAX, is_bound))
    }

    /// Queues a goroutine that does not belong into a ring, and wakes whom it needs.
    ///
    /// # Safety
    /// As for `push_locked`.
    #[cold]
    pub(crate) unsafe fn push_by_class(&self, gp: NonNull<G>) {
        // SAFETY: valid, by the caller's promise; not touched after it is queued.
        let latency = unsafe { gp.as_ref() }.has_flag(g::LATENCY);
        self.stats.global_put.add_shared(1);
        let mut locked = self.lock.lock();
        // SAFETY: passed on.
        unsafe { self.push_locked(&mut locked, gp) };
        let reserved = if latency { locked.idle_ps.take_reserved(&self.idle) } else { None };
        drop(locked);
        if let Some(id) = reserved {
            return self.start_reserved(id);
        }
        // ORDERING: the submitter's fence of `heist_core::spinning`.
        fence(Ordering::SeqCst);
        self.wake_p();
        if latency && self.idle.count() == 0 {
            self.bell.ring_before(clock::now_ns().saturating_add(self.config.wake_up_ns));
        }
    }

    /// Wakes an M for a reserved P, so that somebody watches the clock.
    pub(crate) fn wake_reserved(&self) {
        let reserved = self.lock.lock().idle_ps.take_reserved(&self.idle);
        if let Some(id) = reserved {
            self.start_reserved(id);
        }
    }

    fn start_reserved(&self, id: u32) {
        self.bell.ring();
        self.stats.wake_ups.add_shared(1);
        self.start_m(self.p(id), Start::Working);
    }

    /// Asks the kernel for short turns of a thread that serves the latency class, and for the usual
    /// ones again when it does not. Next to threads that compute, one that wakes up waits for the end
    /// of their turns, some milliseconds, unless its own are shorter.
    ///
    /// Who serves the class is woken by the poller or with a reserved P, so it costs nothing where no
    /// P is reserved, and a system call only where a thread changes sides.
    #[inline]
    pub(crate) fn suit_turns(&self, m: &M, latency: bool) {
        if self.idle.n_reserved() != 0 && m.short_turns.replace(latency) != latency {
            if latency { thread::short_turns() } else { thread::normal_turns() }
        }
    }

    /// The search of an M that holds a reserved P.
    pub(crate) fn find_latency(&self, m: &M) -> Option<Next> {
        self.run_own_timers(m);
        self.next_latency(m).or_else(|| {
            let woken = self.poll_without_waiting();
            self.inject(m, woken);
            self.next_latency(m)
        })
    }

    fn next_latency(&self, m: &M) -> Option<Next> {
        if self.global_len().latency() == 0 {
            return None;
        }
        let gp = self.lock.lock().global.pop_latency(self.global_len());
        m.p().stats.global_taken.bump_if(gp.is_some());
        gp.map(Next::fresh)
    }

    /// Whether somebody waits whom this P could run.
    pub(crate) fn has_work_for(&self, pp: &P) -> bool {
        if pp.is_reserved {
            return self.global_len().latency() != 0;
        }
        self.global_len().get() != 0 || !pp.is_empty()
    }
}
