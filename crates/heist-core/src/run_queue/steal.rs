//! The half of a run queue that steals.
//!
//! # Ordering
//! The whole protocol, both halves, is described at [`super`].
//!
//! GO: proc.go runqgrab, runqsteal.

use super::{Owner, RunQueue};
use crate::policy::{RING_CAPACITY, Share};
use crate::sync::Ordering;
use std::ptr::{NonNull, null_mut};

/// The result of a theft.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Stolen<T> {
    /// Nothing to take, or nothing that may be taken.
    Nothing,
    /// `n` goroutines: `run` is for the thief to run now, the others are in its ring.
    Batch {
        /// The last one taken.
        run: NonNull<T>,
        /// How many were taken, `run` included.
        n: u32,
    },
    /// The victim's `run_next`.
    RunNext(NonNull<T>),
}

/// Whether this theft may fall back to `run_next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunNext {
    /// Leave it alone.
    Leave,
    /// Take it if the ring is empty.
    Take,
}

/// The half of a [`RunQueue`] that other Ps use.
#[derive(Clone, Copy, Debug)]
pub struct Thief<'a, T>(&'a RunQueue<T>);

impl<'a, T> Thief<'a, T> {
    #[inline]
    pub(super) const fn new(queue: &'a RunQueue<T>) -> Self {
        Self(queue)
    }

    /// Moves a share of this queue into the ring of `thief` and gives it the last one to run.
    ///
    /// `back_off` is called before `run_next` is touched: the victim is most likely about to run
    /// it, and a goroutine that moves back and forth between Ps costs more than the wait. It
    /// returns whether to take `run_next` after all.
    #[doc(alias = "runqsteal")]
    #[doc(alias = "runqgrab")]
    pub fn steal_into(
        &self,
        thief: &Owner<'_, T>,
        share: Share,
        run_next: RunNext,
        mut back_off: impl FnMut() -> bool,
    ) -> Stolen<T> {
        let room = thief.room();
        let their_tail = thief.0.tail.load(Ordering::Relaxed);
        loop {
            let head = self.0.head.load(Ordering::Acquire);
            let tail = self.0.tail.load(Ordering::Acquire);
            let len = tail.wrapping_sub(head);
            if len > RING_CAPACITY {
                // Head and tail are of different moments.
                crate::sync::spin_loop();
                continue;
            }
            // The goroutine that the thief runs at once needs a slot only while it is copied.
            let n = share.of(len).min(room);
            if n == 0 {
                if len == 0 && run_next == RunNext::Take {
                    match self.steal_run_next(&mut back_off) {
                        RunNextFound::Taken(gp) => return Stolen::RunNext(gp),
                        RunNextFound::Left => return Stolen::Nothing,
                        RunNextFound::LostRace => continue,
                    }
                }
                return Stolen::Nothing;
            }
            for i in 0..n {
                let gp = self.0.slot(head.wrapping_add(i)).load(Ordering::Relaxed);
                thief.0.slot(their_tail.wrapping_add(i)).store(gp, Ordering::Relaxed);
            }
            let taken = head.wrapping_add(n);
            if self
                .0
                .head
                .compare_exchange(head, taken, Ordering::Release, Ordering::Relaxed)
                .is_ok()
            {
                return thief.keep_stolen(their_tail, n);
            }
        }
    }

    fn steal_run_next(&self, back_off: &mut impl FnMut() -> bool) -> RunNextFound<T> {
        let slot = &self.0.run_next;
        let Some(gp) = NonNull::new(slot.load(Ordering::Relaxed)) else {
            return RunNextFound::Left;
        };
        if !back_off() {
            return RunNextFound::Left;
        }
        match slot.compare_exchange(gp.as_ptr(), null_mut(), Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => RunNextFound::Taken(gp),
            Err(_) => RunNextFound::LostRace,
        }
    }
}

enum RunNextFound<T> {
    Taken(NonNull<T>),
    /// There is nothing, or the owner keeps it.
    Left,
    LostRace,
}

impl<T> Owner<'_, T> {
    /// Publishes the `n` goroutines that a theft copied behind `tail`, without the last.
    fn keep_stolen(&self, tail: u32, n: u32) -> Stolen<T> {
        let last = self.0.slot(tail.wrapping_add(n - 1)).load(Ordering::Relaxed);
        let Some(run) = NonNull::new(last) else {
            crate::throw!("RunQueue::steal_into: an empty slot was stolen");
        };
        let head = self.0.head.load(Ordering::Acquire);
        if tail.wrapping_sub(head).wrapping_add(n - 1) >= RING_CAPACITY {
            crate::throw!("RunQueue::steal_into: overflow after a steal");
        }
        if n > 1 {
            self.0.tail.store(tail.wrapping_add(n - 1), Ordering::Release);
        }
        Stolen::Batch { run, n }
    }
}
