//! `Waiter`: whoever waits for something of ours, a goroutine or a plain thread.
//!
//! Everything in this library can be waited for by both. A goroutine parks, a plain thread sleeps
//! on a note; whoever wakes them does not care which it is.

use crate::current::InRuntime;
use crate::gmp::G;
use crate::sched::life::park;
use crate::sys::clock;
use crate::sys::futex::Kernel;
use heist_core::note::{Note, Woken};
use heist_core::status::Ticket;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::time::Duration;

/// A plain thread that waits. Lives on that thread's stack.
#[repr(align(16))]
pub(crate) struct ThreadWaiter {
    note: Note,
}

impl ThreadWaiter {
    pub(crate) fn new() -> Self {
        Self { note: Note::new() }
    }

    /// Sleeps until woken.
    pub(crate) fn sleep(&self) {
        self.note.sleep(&Kernel);
    }

    /// Sleeps until woken, at the latest until `deadline_ns`. False if that came first: then whoever
    /// has its address may still be about to wake it, and must be kept from that, or waited for by
    /// [`sleep`](Self::sleep), before it goes.
    pub(crate) fn sleep_until(&self, deadline_ns: u64) -> bool {
        let woken = self.note.sleep_while(&Kernel, || {
            let left = deadline_ns.saturating_sub(clock::now_ns());
            (left != 0).then(|| Duration::from_nanos(left))
        });
        woken == Woken::Noted
    }

    /// The address by which it is woken.
    pub(crate) fn address(&self) -> NonZeroUsize {
        // The tag is below the alignment, so the sum neither overflows nor is zero.
        NonZeroUsize::MIN.saturating_add(std::ptr::from_ref(self).addr() + THREAD - 1)
    }
}

/// Set in the address of a plain thread. Goroutine records are aligned to more than that.
const THREAD: usize = 8;

/// Somebody to wake.
pub(crate) enum Waiter {
    Goroutine(NonNull<G>, Ticket),
    Thread(*const ThreadWaiter),
}

impl From<(NonNull<G>, Ticket)> for Waiter {
    fn from((gp, ticket): (NonNull<G>, Ticket)) -> Self {
        Self::Goroutine(gp, ticket)
    }
}

impl Waiter {
    /// Who waits for `gp` to end, given the address from its join word.
    ///
    /// # Safety
    /// The address came out of the join word of `gp`.
    pub(crate) unsafe fn joiner_of(gp: &G, address: NonZeroUsize) -> Self {
        if address.get() & THREAD != 0 {
            return Self::Thread((address.get() & !THREAD) as *const ThreadWaiter);
        }
        let ticket = gp.joiner.get();
        // SAFETY: not zero.
        Self::Goroutine(unsafe { NonNull::new_unchecked(address.get() as *mut G) }, ticket)
    }

    /// The address of a goroutine.
    pub(crate) fn address_of(gp: &G) -> NonZeroUsize {
        NonZeroUsize::MIN.saturating_add(std::ptr::from_ref(gp).addr() - 1)
    }

    /// Wakes it, if a canceller did not.
    ///
    /// # Safety
    /// It waits for the caller, and the caller wakes it once.
    pub(crate) unsafe fn wake(&self, rt: Option<&InRuntime>) {
        if self.claim() {
            // SAFETY: just claimed; the rest is passed on.
            unsafe { self.wake_claimed(rt) };
        }
    }

    /// Claims it: true for one caller only, who must then wake it. A goroutine may have been
    /// cancelled; a plain thread waits until it is woken.
    pub(crate) fn claim(&self) -> bool {
        match *self {
            // SAFETY: records are never unmapped. A goroutine that was cancelled meanwhile is
            // awake, or in another wait: then the ticket does not fit.
            Self::Goroutine(gp, ticket) => unsafe { gp.as_ref() }.status.claim(ticket),
            Self::Thread(_) => true,
        }
    }

    /// Wakes one that was claimed.
    ///
    /// # Safety
    /// The caller has claimed it, and wakes it once.
    pub(crate) unsafe fn wake_claimed(&self, rt: Option<&InRuntime>) {
        match *self {
            // SAFETY: claimed.
            Self::Goroutine(gp, _) => unsafe { park::ready_anywhere(rt, gp) },
            // SAFETY: by the caller's promise it still waits.
            Self::Thread(thread) => unsafe { (*thread).note.wake(&Kernel) },
        }
    }
}
