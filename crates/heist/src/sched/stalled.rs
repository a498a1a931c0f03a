//! Robbing a P that stands still before asking the network.
//!
//! A busy server always finds something in the poller, so an M that asks it whenever its own queue is
//! empty never comes to the thefts that follow. Meanwhile another M may have been driven from its CPU
//! with a ring full of connections, and get it back at the next tick of the kernel, 4 ms later: nobody
//! looked at those connections for so long. With two Ps and their client on two CPUs that was one
//! request in fifty, and the whole of the tail (docs/design/netpoll.md).
//!
//! So before an M asks the network it looks whether a P stands still (`heist_core::stalled`), and if so
//! takes all of its ring that the policy lets it take: it has waited longer than what is in the poller.
//! Where nobody waits for the network, the thefts come next anyway.

use super::Sched;
use super::find_runnable::{Next, next_local};
use crate::gmp::M;
use heist_core::run_queue::RunNext;
use heist_core::sync::{Ordering, fence};

impl Sched {
    /// What waits at a P that stands still, if there is a network to ask instead.
    pub(super) fn rob_stalled(&self, m: &M) -> Option<Next> {
        if !self.poll.has_waiters() {
            return None;
        }
        let pp = m.p();
        // SAFETY: this M holds its P, and no other reference to its data is alive.
        let suspect = unsafe { &mut pp.local().suspect };
        let head_of = |id| self.p(id).queue.waiting_head();
        let victim = suspect.look(pp.id, self.common_procs(), head_of)?;
        self.rob_all(m, victim)
    }

    /// Takes share after share of a ring, and runs the first of all. Not the one that a theft hands out to
    /// be run at once, which is the last of its share: two Ms that rob each other again and again would
    /// never come to the first.
    #[cold]
    fn rob_all(&self, m: &M, victim: u32) -> Option<Next> {
        // SAFETY: this M holds its P.
        let own = unsafe { m.p().owner() };
        while let Some(gp) = self.rob_ring(m, victim, RunNext::Leave) {
            // A theft takes no more than there is room for, this one included.
            own.push_tail(gp, |_| heist_core::throw!("rob_all: no room for what was stolen"));
        }
        // Between the two rings nobody could see them, and this M may not be counted as one that
        // looks for work: it is a submitter (docs/design/spinning.md).
        // ORDERING: the submitter's fence of `heist_core::spinning`.
        fence(Ordering::SeqCst);
        let next = next_local(m);
        if !m.p().queue.ring_is_empty() {
            self.wake_p();
        }
        next
    }
}
