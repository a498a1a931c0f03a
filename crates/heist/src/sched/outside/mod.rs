//! The clock and the network, from which goroutines are woken.
//!
//! Both hand back goroutines that became runnable; `run` queues them. One M at a time waits in the
//! poller.

mod poll;
#[cfg(test)]
mod tests;
mod timers;

pub(crate) use poll::{break_poller, poll_now, poll_without_waiting, wait_in_poller};
pub(crate) use timers::{
    add_timer, await_tiny_sleep, earliest_timer, earliest_timer_hint, leave_timers, run_all_timers,
    run_own_timers, run_timers_of, watch_timer,
};

use crate::netpoll::poller::Poller;
use crossbeam_utils::CachePadded;
use poll::PollGate;

/// The poller of a runtime. Its timers are at the Ps.
pub(crate) struct Outside {
    gate: CachePadded<PollGate>,
}

impl Outside {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { gate: CachePadded::new(PollGate::new()?) })
    }

    /// The poller, for the registration of descriptors.
    pub(crate) fn poller(&self) -> &Poller {
        &self.gate.poller
    }

    /// Whether a goroutine waits for a descriptor.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        self.gate.has_waiters()
    }

    /// When a thread last polled, or None while an M waits in the poller.
    pub(super) fn last_poll_ns(&self) -> Option<u64> {
        self.gate.last_ns()
    }
}
