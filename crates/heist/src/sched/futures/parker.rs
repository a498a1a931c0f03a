//! `Parker`: a goroutine or a thread that blocks on a future.
//!
//! Its wakers are those of tasks: the address of a record, with a `TaskWord`. The record is not a
//! goroutine's: it stays `Dead`, belongs to no runtime and is in no queue. A wake-up that finds the
//! word idle wakes the goroutine, or the thread, whose address the record holds. So a waker may
//! outlive the wait, its goroutine and its runtime.

use super::waker;
use crate::current::{self, InRuntime};
use crate::gmp::flags::Flag;
use crate::gmp::{G, pool};
use crate::sched::waiter::{ThreadWaiter, Waiter};
use heist_core::task_word::{Pended, TaskWord};
use std::mem::ManuallyDrop;
use std::ptr::{NonNull, null};
use std::task::Waker;

/// What the record holds before its word.
type Parked = Option<Waiter>;

const _: () = assert!(size_of::<Parked>() <= crate::gmp::g::TASK_INLINE_BYTES);

/// The record behind the wakers of something that blocks.
pub(crate) struct Parker {
    gp: NonNull<G>,
}

impl Parker {
    /// Called in user code. None if the system has no memory.
    pub(crate) fn new() -> Option<Self> {
        let gp = {
            // A thread must not be preempted while it holds the pool.
            let _rt = current::enter();
            pool::take_one().ok()?
        };
        // SAFETY: the record is free, so no other thread uses it; records are never unmapped.
        let g = unsafe { gp.as_ref() };
        g.flags.begin(Flag::NONE);
        g.sched.set(null());
        // SAFETY: as above; there is room for both.
        unsafe {
            g.payload.as_ptr::<Parked>().write(None);
            std::ptr::from_ref(g.task_word()).cast_mut().write(TaskWord::running());
        }
        Some(Self { gp })
    }

    const fn g(&self) -> &G {
        // SAFETY: records are never unmapped, and this one is not recycled before the drop.
        unsafe { self.gp.as_ref() }
    }

    fn word(&self) -> &TaskWord {
        // SAFETY: this has a reference.
        unsafe { self.g().task_word() }
    }

    /// The waker. It has no reference of its own.
    pub(crate) fn waker(&self) -> ManuallyDrop<Waker> {
        waker::borrowed(self.g())
    }

    /// Whether it was woken since the last poll began; then the next one begins.
    pub(crate) fn was_woken(&self) -> bool {
        let woken = self.word().pend_if_notified();
        if woken {
            self.resume();
        }
        woken
    }

    /// Lets wakers wake `waiter`. False if one was faster: then it must not wait. In both cases
    /// [`Self::resume`] follows.
    pub(crate) fn publish(&self, waiter: Waiter) -> bool {
        // SAFETY: the word says that it runs, so no waker reads this.
        unsafe { self.g().payload.as_ptr::<Parked>().write(Some(waiter)) };
        self.word().pend() == Pended::Idle
    }

    /// The wait is over, or was given up. A waker that was about to end a wait that was given up
    /// may still read what was published, so there is no other wait after that.
    pub(crate) fn resume(&self) {
        self.word().resume();
    }

    /// Blocks the calling thread, which is not a goroutine, until it is woken.
    pub(crate) fn block_thread(&self) {
        let thread = ThreadWaiter::new();
        if self.publish(Waiter::Thread(&raw const thread)) {
            thread.sleep();
        }
        self.resume();
    }
}

impl Drop for Parker {
    fn drop(&mut self) {
        self.word().finish();
        // SAFETY: the reference that it was made with.
        unsafe { waker::release(self.gp) };
    }
}

/// Wakes what waits.
///
/// # Safety
/// The record is a parker's. The caller has a reference and has just made it scheduled.
pub(super) unsafe fn wake(rt: Option<&InRuntime>, g: &G) {
    // SAFETY: it was published before the word became idle, and is not written before this caller
    // has ended the wait.
    let waiter = unsafe { &*g.payload.as_ptr::<Parked>() };
    if let Some(waiter) = waiter {
        // SAFETY: it waits for this caller. A thread waits until it is woken; a goroutine whose
        // wait was given up has another ticket.
        unsafe { waiter.wake(rt) };
    }
}
