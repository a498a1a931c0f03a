//! Wakers of futures that a plain thread calls when it has woken all others.
//!
//! Inside the runtime no foreign code runs: a goroutine of its own calls a foreign waker. A plain
//! thread calls it itself. Such a waker may do anything, such as polling or dropping another
//! future. If that future was claimed by the same thread and not woken yet, its owner would wait
//! for this thread forever (`FutureWait::leave`). So a thread that has claimed several waits first
//! ends them all, and then calls the wakers.

use super::Ended;
use super::record::{AllClaimed, Wake};
use crate::current::InRuntime;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::Waker;

/// Wakers, which are called when this is dropped. The caller then holds no lock.
pub(crate) struct Wakers(Vec<Waker>);

impl Wakers {
    #[inline]
    pub(crate) const fn new() -> Self {
        Self(Vec::new())
    }

    /// For a plain thread.
    pub(super) fn add(&mut self, waker: Waker) {
        // ALLOC: on a plain thread, in user code.
        self.0.push(waker);
    }
}

impl Drop for Wakers {
    #[inline]
    fn drop(&mut self) {
        if !self.0.is_empty() {
            call(std::mem::take(&mut self.0));
        }
    }
}

#[cold]
#[inline(never)]
fn call(wakers: Vec<Waker>) {
    for waker in wakers {
        // What the caller does is done, and there may be others to wake. The panic hook has
        // reported it; the payload is leaked, because dropping it could panic again.
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            std::mem::forget(payload);
        }
    }
}

/// The operations of the holder of several claimed waits, who holds no lock.
pub(crate) trait WakeAll {
    /// Wakes all, the first one first.
    fn wake_all(self, ended: Ended, rt: Option<&InRuntime>);
}

impl WakeAll for AllClaimed {
    fn wake_all(self, ended: Ended, rt: Option<&InRuntime>) {
        let mut later = Wakers::new();
        self.wake_in_order(|claimed| claimed.wake_or_collect(ended, rt, &mut later));
    }
}
