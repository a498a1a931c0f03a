//! From work to sleep and back.
//!
//! An M without work spins, lingers, gives its P back, looks once more, watches, waits in the poller and sleeps, in this
//! order (`descend`). A submitter of work wakes one (`wake`). The counts by which the two find each other are private
//! to this room: idle Ps and spinning Ms change only here, or by an M that takes an idle P under the scheduler lock.
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
    Start, announce_work, find_taker, hand_over, has_taker, next_stopped, start_m, wake_p,
    wake_p_if_work,
};
pub(crate) use watch::wake_p_for_next;

use crossbeam_utils::CachePadded;
use heist_core::idle::IdleView;
use heist_core::spinning::Spinning;
use heist_core::watch::Watch;
use linger::Linger;

/// Which Ps are idle, and which Ms look for work.
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

    /// The idle Ps, as anyone may see them without the lock.
    #[inline]
    pub(crate) fn idle(&self) -> &IdleView {
        &self.idle
    }

    /// How many Ms look for work.
    #[inline]
    pub(crate) fn n_spinning(&self) -> u32 {
        self.spinning.n()
    }

    /// Whether a submitter found neither an idle P nor a spinning M, and asked for one that looks.
    pub(crate) fn wants_spinner(&self) -> bool {
        self.spinning.requested()
    }

    /// Counts the caller as a spinning M, if there is none.
    pub(super) fn claim_first_spinner(&self) -> bool {
        self.spinning.try_be_first()
    }

    /// The caller of `claim_first_spinner` starts no M.
    pub(super) fn withdraw_spinner(&self) {
        self.spinning.withdraw();
    }

    /// An M that was counted as spinning does not begin to.
    pub(super) fn discount_spinner(&self) {
        self.spinning.stop();
    }
}
