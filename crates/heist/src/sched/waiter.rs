//! `Waiter`: a goroutine or a plain thread that waits for something of this library.
//!
//! Both can wait for everything in this library. A goroutine parks and a plain thread sleeps on a
//! note; the waker need not know which of them it wakes.

use crate::current::InRuntime;
use crate::gmp::{G, task};
use crate::sched::life::{self, park};
use crate::sys::clock;
use crate::sys::futex::Kernel;
use heist_core::note::{Note, Woken};
use heist_core::status::Ticket;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::time::Duration;

/// A plain thread that waits. It lives on the stack of that thread.
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

    /// Sleeps until woken, at the latest until `deadline_ns`. Returns false if the deadline came
    /// first. Then a waker that has the address may still be about to use it. Before the
    /// `ThreadWaiter` is dropped, the caller must keep the waker from that, or wait for it with
    /// [`sleep`](Self::sleep).
    pub(crate) fn sleep_until(&self, deadline_ns: u64) -> bool {
        let woken = self.note.sleep_while(&Kernel, || {
            let left = deadline_ns.saturating_sub(clock::now_ns());
            (left != 0).then(|| Duration::from_nanos(left))
        });
        woken == Woken::Noted
    }

    /// The address by which a waker finds it.
    pub(crate) fn address(&self) -> NonZeroUsize {
        // The tag is below the alignment, so the sum neither overflows nor is zero.
        NonZeroUsize::MIN.saturating_add(std::ptr::from_ref(self).addr() + THREAD - 1)
    }
}

/// A bit that is set in the address of a plain thread. The records of goroutines are aligned to
/// more than that, so the bit is clear in theirs.
const THREAD: usize = 8;

/// A goroutine, with the ticket of its wait, or a plain thread.
pub(crate) enum Waiter {
    Goroutine(NonNull<G>, Ticket),
    Thread(*const ThreadWaiter),
    /// A task that left its address; see `gmp::task`.
    Task(NonNull<G>),
}

impl From<(NonNull<G>, Ticket)> for Waiter {
    fn from((gp, ticket): (NonNull<G>, Ticket)) -> Self {
        if ticket == task::MARK { Self::Task(gp) } else { Self::Goroutine(gp, ticket) }
    }
}

impl Waiter {
    /// The waiter that joins `gp`, from the address in its join word.
    ///
    /// # Safety
    /// The address came out of the join word of `gp`.
    pub(crate) unsafe fn joiner_of(gp: &G, address: NonZeroUsize) -> Self {
        if address.get() & THREAD != 0 {
            return Self::Thread((address.get() & !THREAD) as *const ThreadWaiter);
        }
        let ticket = gp.joiner.get();
        // SAFETY: the address is not zero.
        Self::Goroutine(unsafe { NonNull::new_unchecked(address.get() as *mut G) }, ticket)
    }

    /// The address by which a waker finds a goroutine.
    pub(crate) fn address_of(gp: &G) -> NonZeroUsize {
        NonZeroUsize::MIN.saturating_add(std::ptr::from_ref(gp).addr() - 1)
    }

    /// Wakes the waiter, unless a canceller did so before.
    ///
    /// # Safety
    /// The waiter waits for the caller, and the caller wakes it once.
    pub(crate) unsafe fn wake(&self, rt: Option<&InRuntime>) {
        if self.claim() {
            // SAFETY: it was just claimed; the caller promises the rest.
            unsafe { self.wake_claimed(rt) };
        }
    }

    /// Claims the waiter. True for one caller only, which must then wake it. False for a goroutine
    /// whose wait was cancelled. A plain thread waits until it is woken, so the claim always
    /// succeeds.
    pub(crate) fn claim(&self) -> bool {
        match *self {
            // SAFETY: records are never unmapped. A goroutine that was cancelled meanwhile is awake
            // or in another wait; then the ticket does not fit.
            Self::Goroutine(gp, ticket) => unsafe { gp.as_ref() }.status.claim(ticket),
            Self::Thread(_) | Self::Task(_) => true,
        }
    }

    /// If it is an unborn goroutine, it is born by the wake-up that follows.
    pub(crate) fn count_born(&self) {
        if let Self::Goroutine(gp, _) = *self {
            // SAFETY: records are never unmapped; the caller has claimed it, so its runtime lives.
            unsafe { life::count_one_born(&*gp.as_ref().sched.get(), gp.as_ref()) };
        }
    }

    /// Wakes a waiter that was claimed.
    ///
    /// # Safety
    /// The caller has claimed the waiter, and wakes it once.
    pub(crate) unsafe fn wake_claimed(&self, rt: Option<&InRuntime>) {
        match *self {
            // SAFETY: it is claimed, by the caller's promise.
            Self::Goroutine(gp, _) => unsafe { park::ready_anywhere(rt, gp) },
            // SAFETY: by the caller's promise the thread still waits, so the note is alive.
            Self::Thread(thread) => unsafe { (*thread).note.wake(&Kernel) },
            Self::Task(gp) => {
                // SAFETY: by the caller's promise it took the address, once.
                if unsafe { task::claim_left(gp) } {
                    // SAFETY: just claimed.
                    unsafe { park::ready_anywhere(rt, gp) };
                }
            }
        }
    }
}
