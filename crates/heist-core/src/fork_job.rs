//! The word of a latent job: who took it, whether it was cancelled, and its end.
//!
//! A job is in the frame of the goroutine that forked it. Once a thief has taken it from the
//! deque, the forker does not leave that frame before the job has ended. Three threads of control
//! meet here.
//!
//! - The *taker* makes a goroutine of the job, and names it ([`JobWord::taken_by`]) before it can
//!   run.
//! - The *forker* may pass on its own cancellation ([`JobWord::cancel`]), at most once. Whichever
//!   of the two comes second sees the other: either the forker gets the goroutine and cancels it,
//!   or the taker learns that it must begin cancelled.
//! - The *goroutine* ends the job ([`JobWord::finish`]) as its last access to the frame. The forker
//!   waits until then ([`JobWord::register`]).
//!
//! The forker that waits leaves the ticket of its wait in the word, and not its address: the
//! goroutine knows the forker by the deque of the job, as long as the job has not ended. So the
//! goroutine that ends the job gets the forker's wait in the same step, and whatever the forker
//! does after the end, a late wake-up names a wait that is over. If it read the ticket after the
//! end, it could name the forker's next wait before that is committed, or a wait of a goroutine
//! that has the record of the forker by then.
//!
//! The forker owns the handle of the goroutine, so the record that it cancels, or releases after
//! the end, is not recycled.
//!
//! # Ordering
//! All read-modify-writes are AcqRel: a forker that sees the goroutine sees its record; a forker
//! that sees the end sees the result, and who the goroutine was. The model `loom_fork_job` runs
//! the three.

use crate::join::{Finished, JoinWord};
use crate::status::Ticket;
use crate::sync::{AtomicUsize, Ordering};
use std::num::NonZeroUsize;

/// Set in `taker` by a forker that was cancelled. Records are aligned, so the bit is free.
const CANCELLED: usize = 1;

/// The state of a latent job.
#[derive(Debug)]
pub struct JobWord {
    end: JoinWord,
    taker: AtomicUsize,
}

impl JobWord {
    /// A job that nobody has taken.
    #[inline(always)]
    #[must_use]
    pub fn new() -> Self {
        Self { end: JoinWord::new(), taker: AtomicUsize::new(0) }
    }

    /// Names the goroutine that the job became. True if it was cancelled before that.
    #[must_use]
    pub fn taken_by(&self, record: NonZeroUsize) -> bool {
        debug_assert!(record.get() & CANCELLED == 0, "JobWord::taken_by: unaligned record");
        let before = self.taker.fetch_or(record.get(), Ordering::AcqRel);
        if before & !CANCELLED != 0 {
            crate::throw!("JobWord::taken_by: taken twice");
        }
        before & CANCELLED != 0
    }

    /// Cancels the job. Returns the goroutine that the caller has to cancel, if it has been named;
    /// if not, the taker does it.
    #[must_use]
    pub fn cancel(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.taker.fetch_or(CANCELLED, Ordering::AcqRel) & !CANCELLED)
    }

    /// The goroutine of a job that has ended.
    #[must_use]
    pub fn taker(&self) -> Option<NonZeroUsize> {
        NonZeroUsize::new(self.taker.load(Ordering::Acquire) & !CANCELLED)
    }

    /// Ends the job. The frame with this word may be gone when this returns. Returns the ticket of
    /// the forker, if it waits.
    pub fn finish(&self) -> Option<Ticket> {
        match self.end.finish() {
            Finished::Published => None,
            Finished::Wake(ticket) => Some(Ticket::from_bits(ticket.get() as u64)),
            Finished::Unwanted => crate::throw!("JobWord::finish: nobody waits for the job"),
        }
    }

    /// Whether the job has ended.
    #[inline]
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.end.is_finished()
    }

    /// Stores the ticket of the forker, which is about to wait. False if the job has ended.
    #[must_use]
    pub fn register(&self, wait: Ticket) -> bool {
        self.end.register(bits(wait))
    }

    /// Removes the ticket of the forker, which was woken before the end. False if the job has
    /// ended.
    pub fn unregister(&self, wait: Ticket) -> bool {
        self.end.unregister(bits(wait))
    }
}

/// A ticket in place of an address: its low bits are free, too.
fn bits(ticket: Ticket) -> NonZeroUsize {
    match NonZeroUsize::new(ticket.to_bits() as usize) {
        Some(bits) => bits,
        None => crate::throw!("JobWord: a forker without a ticket"),
    }
}

const _: () = assert!(size_of::<usize>() == size_of::<u64>());

impl Default for JobWord {
    fn default() -> Self {
        Self::new()
    }
}
