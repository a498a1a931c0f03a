//! Thread-locals of a goroutine that goes on on another thread.
//!
//! The compiler takes the address of a thread-local to be constant inside a function. It keeps the
//! address, or the thread pointer itself, in a register or on the stack across the call that parks. When
//! the goroutine goes on on another thread, its next access would be to the variable of the thread that
//! it has left. So the M that is about to resume it looks through the part of its stack that is in use,
//! on which all its registers are while it is suspended, and moves every address in the area of the old
//! thread's variables to the area of its own (`sys::tls`).
//!
//! # Threads that end
//! The address space of a thread that has ended may be used for something else, and then a word in it is
//! no address of a thread-local. So the mapping of an ended thread is kept (`sched::ended_threads`)
//! until a *sweep* has moved what waiting goroutines have of it into an area that belongs to nobody.
//!
//! # Who may move
//! The head of each stack has the thread pointer of the thread that ran its goroutine last. The right to
//! move the addresses of a stack belongs to the thread that changes this word:
//! - an M, from the old thread's pointer to its own; it owns the goroutine, so it is the only M,
//! - the sweeper, from the pointer of an ended thread to the same with a mark, and when it is done to the
//!   pointer of nobody.
//!
//! An M that finds a mark waits for its end. The sweeper finds stacks through the records of goroutines,
//! which may have ended. Then the stack belongs to another goroutine, which its head says, or is free. The
//! memory of a free stack, with its head, may be given back at any moment, by the helper of another runtime:
//! it then reads as zeroes. A goroutine that starts on a stack while it is swept writes its own pointer over
//! the mark. The sweeper changes only words that hold an address of the ended thread, which no goroutine that
//! started later can have.
//!
//! # Ordering
//! The M's exchange is an Acquire and the sweeper's last one a Release: what the sweeper has moved, the M
//! sees. Everything a goroutine wrote before it parked is visible to both: the M got it from a queue, and
//! the sweeper has taken the scheduler lock after the ended thread gave it back for the last time.

use super::switch::Coro;
use crate::gmp::G;
use crate::sys::tls;
use heist_core::sync::Ordering;

/// The mark. Thread pointers are even.
const SWEPT: usize = 1;

impl Coro {
    /// Moves the addresses of thread-locals on the stack of a goroutine to the calling thread, which has
    /// the thread pointer `to`. Calls `found` with the place of each.
    ///
    /// # Safety
    /// The caller owns the goroutine, which has run and is suspended.
    pub(crate) unsafe fn move_to(&self, to: usize, found: impl FnMut(usize)) {
        // SAFETY: it has run, and stacks are never unmapped.
        let thread = unsafe { &(*self.head()).thread };
        let from = loop {
            let from = thread.load(Ordering::Relaxed);
            if from & SWEPT != 0 {
                // The sweeper may have lost its CPU.
                std::thread::yield_now();
                continue;
            }
            // ORDERING: see above.
            if thread.compare_exchange(from, to, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                break from;
            }
        };
        // SAFETY: the goroutine is suspended, and the right to move is this thread's.
        unsafe {
            let frames = self.frames();
            tls::relocate(frames.start, frames.end, from, to, found);
        }
    }

    /// The sweeper's part: if the goroutine ran last on one of the ended threads, moves what its stack has
    /// of that to nobody.
    ///
    /// # Safety
    /// This is the context of `gp`, a record that was in use once; the threads have ended, and their
    /// mappings are still there.
    pub(crate) unsafe fn sweep(&self, gp: &G, ended: &[usize], nobody: usize) {
        // SAFETY: null, or the head of a stack, which is never unmapped.
        let Some(head) = (unsafe { self.head().as_ref() }) else { return };
        // ORDERING: Acquire pairs with `Coro::start`.
        let from = head.thread.load(Ordering::Acquire);
        let marked = from | SWEPT;
        let is_its_own = std::ptr::eq(head.owner.load(Ordering::Relaxed), gp);
        // ORDERING: as above.
        if !is_its_own
            || !ended.contains(&from)
            || head
                .thread
                .compare_exchange(from, marked, Ordering::Acquire, Ordering::Relaxed)
                .is_err()
        {
            return;
        }
        if let Some(bytes) = head.stack_bytes_if_kept() {
            // SAFETY: no goroutine runs on this stack that ran on the ended thread, and the mark keeps it so;
            // the pointer is of this stack, which is mapped.
            unsafe {
                let frames = self.frames_within(bytes);
                tls::relocate(frames.start, frames.end, from, nobody, |_| ());
            }
        }
        // ORDERING: see above. It fails if a new goroutine has started there.
        let _ = head.thread.compare_exchange(marked, nobody, Ordering::Release, Ordering::Relaxed);
    }
}

/// A sweep may look at the head of a free stack while the helper of another runtime gives its memory back.
#[test]
fn a_stack_whose_memory_was_given_back_has_no_size() {
    use super::guard::{self, GUARD_BYTES};
    use super::stack::{self, Class, MIN_BYTES};
    let class = Class::for_bytes(MIN_BYTES).expect("there is a smallest class");
    let stack = stack::take(class).expect("there is memory for a stack");
    // SAFETY: the head of a stack that is mapped for ever.
    let head = unsafe { &*stack.head() };
    let (low, bytes) = (stack.bounds().guard().end, stack.bounds().usable_bytes());
    assert_eq!(head.stack_bytes_if_kept(), Some(GUARD_BYTES + bytes));
    // SAFETY: nobody uses the stack.
    unsafe { crate::sys::memory::discard_all(std::iter::once((guard::at(low), bytes))) };
    // It has lost the way to its slot, so it does not go back to the pool.
    assert_eq!(head.stack_bytes_if_kept(), None);
}
