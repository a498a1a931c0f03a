//! The way of an M from work to sleep and back.
//!
//! An M without work spins, lingers, gives its P back, looks once more, watches, waits in the
//! poller and sleeps, in this order (`descend`). A submitter of work wakes one (`wake`). The counts
//! by which the two find each other are private to this room: only its functions make a P idle or
//! change the number of spinning Ms. Other rooms take idle Ps themselves, under the scheduler lock.
//! The protocol is in `heist_core::spinning` and docs/design/spinning.md.

mod descend;
mod linger;
mod spin;
mod wake;
mod watch;

pub(crate) use descend::{put_idle, sleep, sleep_idle, stop_m, take_over};
pub(crate) use linger::linger;
pub(crate) use spin::{become_spinning, begin_spin, end_spin, stop_spinning};
pub(crate) use wake::{
    Start, announce_work, find_taker, hand_over, has_taker, next_frozen, start_m, wake_p,
    wake_p_if_work,
};
pub(crate) use watch::wake_p_for_next;

use crossbeam_utils::CachePadded;
use heist_core::idle::IdleView;
use heist_core::spinning::Spinning;
use heist_core::watch::Watch;
use linger::Linger;

/// The idle Ps, the number of spinning Ms, and whether an M watches.
pub(crate) struct Rest {
    idle: CachePadded<IdleView>,
    spinning: Spinning,
    linger: Linger,
    watch: Watch,
}

impl Rest {
    pub(super) fn new(idle: IdleView) -> Self {
        Self {
            idle: CachePadded::new(idle),
            spinning: Spinning::new(),
            linger: Linger::new(),
            watch: Watch::new(),
        }
    }

    /// The idle Ps, as any thread can see them without the lock.
    #[inline]
    pub(crate) fn idle(&self) -> &IdleView {
        &self.idle
    }

    /// How many Ms spin.
    #[inline]
    pub(crate) fn n_spinning(&self) -> u32 {
        self.spinning.n()
    }

    /// Whether a spinning M was requested, by a submitter that found neither an idle P nor a
    /// spinning M.
    pub(crate) fn wants_spinner(&self) -> bool {
        self.spinning.requested()
    }

    /// Counts the M that the caller is about to start as spinning, if no other M spins.
    pub(super) fn claim_first_spinner(&self) -> bool {
        self.spinning.try_be_first()
    }

    /// Discounts an M that was counted as spinning and is not started, and requests a spinning M
    /// instead. The caller holds the scheduler lock.
    pub(super) fn withdraw_spinner(&self) {
        self.spinning.withdraw();
    }

    /// Discounts an M that was counted as spinning and does not begin to spin.
    pub(super) fn discount_spinner(&self) {
        self.spinning.stop();
    }
}
