//! Spinning Ms: the count of Ms that look for work, and when a submitter must wake one.
//!
//! An M that ran out of work does not sleep at once: it spins, that is, it searches the queues of
//! the others. While at least one M spins, a submitter of work need not wake another; this makes
//! submitting cheap. The price is the race between "the last spinner gives up" and "work arrives
//! and its submitter relies on that spinner".
//!
//! # The protocol
//! Submitter:
//! 1. publishes the work in a queue,
//! 2. full fence,
//! 3. reads `n`; if it is zero, tries to raise it from 0 to 1 and wakes an M as a spinner.
//!
//! Waking an M is never wrong, so a submitter that sees zero at once and raises it may skip the
//! fence: only the decision to rely on another spinner needs it.
//!
//! Last spinner:
//! 1. gives its P back to the idle stack (under the scheduler lock),
//! 2. lowers `n`, full fence,
//! 3. checks all queues once more; if it finds work, it takes a P and spins again.
//!
//! # Why no wake-up is lost
//! Both sides write, fence, then read what the other wrote. By the total order of the fences either
//! the submitter's step 3 comes after the spinner's step 2, reads zero and wakes an M; or the
//! spinner's step 3 comes after the submitter's step 1 and finds the work. Either way the work is
//! found. If there is no idle P left to wake an M for, every P is busy, and `need` tells the next M
//! that is about to drop its P to spin instead; see [`Spinning::withdraw`].
//!
//! The model `loom_submit_versus_park` runs exactly these steps.
//!
//! # Ordering
//! Step 2 is a SeqCst fence on both sides, in [`Spinning::try_be_first`] and [`Spinning::stop`].
//! SeqCst accesses of `n` would not suffice: the queues are written with Release and read with
//! Acquire, and such a write may pass a later SeqCst load (x86 does it: both are plain moves). The
//! fences make every access before one visible to every access after the other, whatever their
//! order.
//!
//! GO: proc.go, "Worker thread parking/unparking"; wakep, resetspinning, becomeSpinning.

use crate::sync::{AtomicU32, Ordering, fence};
use crossbeam_utils::CachePadded;

/// The count of spinning Ms and the request for one more.
#[derive(Debug)]
pub struct Spinning {
    n: CachePadded<AtomicU32>,
    need: CachePadded<AtomicU32>,
}

impl Spinning {
    /// No M spins.
    #[must_use]
    pub fn new() -> Self {
        Self { n: CachePadded::new(AtomicU32::new(0)), need: CachePadded::new(AtomicU32::new(0)) }
    }

    /// How many Ms spin.
    #[inline]
    #[must_use]
    #[doc(alias = "nmspinning")]
    pub fn n(&self) -> u32 {
        self.n.load(Ordering::SeqCst)
    }

    /// Raises the count from zero to one on behalf of the M that is about to be woken. False if an
    /// M spins already: then that one finds the work, which the caller has published before.
    #[inline]
    #[must_use]
    pub fn try_be_first(&self) -> bool {
        if self.raise_from_zero() {
            return true;
        }
        // ORDERING: between publishing and relying on a spinner; its partner is in `stop`.
        fence(Ordering::SeqCst);
        self.raise_from_zero()
    }

    #[inline]
    fn raise_from_zero(&self) -> bool {
        self.n() == 0 && self.n.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }

    /// Counts one more spinning M. Clears the request, if there was one.
    #[doc(alias = "becomeSpinning")]
    pub fn start(&self) {
        self.n.fetch_add(1, Ordering::SeqCst);
        self.need.store(0, Ordering::SeqCst);
    }

    /// Counts one spinning M fewer. Returns how many are left. The queues that the caller reads
    /// afterwards are at least as new as the work of a submitter that still relied on it.
    pub fn stop(&self) -> u32 {
        let before = self.n.fetch_sub(1, Ordering::SeqCst);
        if before == 0 {
            crate::throw!("Spinning::stop: n_spinning would be negative");
        }
        // ORDERING: between lowering the count and the last check of the queues; its partner is in
        // `try_be_first`.
        fence(Ordering::SeqCst);
        before - 1
    }

    /// Lowers the count again, for a submitter that raised it and found no idle P to wake an M for.
    ///
    /// Call it with the scheduler lock held, so that an M which relied on the false count and then
    /// drops its P either did so before, and the P is on the stack, or sees the request. The count
    /// goes first: a spinner that starts in between clears the request, and from then on no
    /// submitter may rely on a spinner that never existed.
    pub fn withdraw(&self) {
        self.stop();
        self.request();
    }

    /// Asks the next M that would drop its P to spin instead.
    #[doc(alias = "needspinning")]
    pub fn request(&self) {
        self.need.store(1, Ordering::SeqCst);
    }

    /// Whether a spinner was requested.
    #[inline]
    #[must_use]
    pub fn requested(&self) -> bool {
        self.need.load(Ordering::SeqCst) != 0
    }
}

impl Default for Spinning {
    fn default() -> Self {
        Self::new()
    }
}
