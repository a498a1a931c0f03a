//! Stealing from other Ps.
//!
//! # A stalled victim
//! An M of a busy server always finds something in the poller. If it polls whenever its own queue
//! is empty, it never comes to the thefts that follow. Meanwhile another M may have lost its CPU
//! with a ring full of connections, and get it back at the next tick of the kernel, 4 ms later.
//! With two Ps and their client on two CPUs, this hit one request in fifty and made up the whole
//! tail of the latencies (docs/design/netpoll.md).
//!
//! So before an M polls, it checks whether a P is stalled (`heist_core::stalled`). If one is, the M
//! takes as much of its ring as the policy allows: those goroutines have waited longer than what is
//! in the poller. If no goroutine waits for the network, the M does not poll, and the usual thefts
//! come next anyway.
//!
//! GO: proc.go stealWork.

use super::find::{Found, Next, next_local, take_batch};
use crate::gmp::{G, Holder, P};
use crate::sched::{Sched, forks, outside, rest};
use crate::sys::clock;
use crate::sys::numa::Node;
use crate::trace::emit;
use heist_core::m_word::Place;
use heist_core::policy::{self, RunNextTheft};
use heist_core::run_queue::{RunNext, Stolen};
use heist_core::sync::{Ordering, fence};
use heist_core::timer_heap::NEVER;
use heist_trace::record::Found as Origin;
use std::ptr::NonNull;

/// A pass over the other Ps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Early,
    /// The last pass also runs the timers of other Ps, and may take their `run_next`.
    Last,
}

/// Whether an M holds this P and may be about to run its `run_next`. An M in a blocking call does
/// not run it soon.
pub(crate) fn is_running(pp: &P) -> bool {
    // SAFETY: null, or the record of an M, which lives as long as the runtime.
    unsafe { pp.m().as_ref() }.is_some_and(|m| m.word.stamp().place() != Place::Blocked)
}

/// Searches the other Ps for work, unless enough Ms do so already.
///
/// Not inlined: in the loop that finds the next goroutine it would cost every goroutine that runs
/// 50 instructions, for registers that only the search needs.
#[cold]
#[inline(never)]
pub(super) fn steal_work(sched: &Sched, m: Holder<'_>) -> Found {
    if !m.spinning.get() {
        if !policy::may_spin(
            sched.rest.n_spinning(),
            sched.common_procs(),
            sched.rest.idle().count(),
        ) {
            return Found::Nothing;
        }
        rest::become_spinning(sched, &m);
    }
    let pp = m.p();
    let node = sched.config.nodes.of_p(pp.id, sched.procs());
    if let Some(node) = node {
        pp.node.store(node, Ordering::Relaxed);
    }
    let steal = &sched.config.steal;
    let mut timer_ran = false;
    for attempt in 1..=steal.tries {
        let pass = if attempt == steal.tries { Pass::Last } else { Pass::Early };
        match steal_once(sched, m, node, pass, &mut timer_ran) {
            Found::Nothing if sched.global_len().get() != 0 => return Found::Retry,
            Found::Nothing => {}
            found => return found,
        }
        // Runnable goroutines come before latent halves, whose forkers may come to them first.
        if let Some(next) = forks::steal_fork(sched, m) {
            return Found::Run(next);
        }
    }
    // The goroutine that the timer woke may be in any queue.
    if timer_ran { Found::Retry } else { Found::Nothing }
}

/// Visits every other P once; those of its own node first, if there are several.
fn steal_once(
    sched: &Sched,
    m: Holder<'_>,
    node: Option<Node>,
    pass: Pass,
    timer_ran: &mut bool,
) -> Found {
    let seed = m.p().with_local(|local| local.rng.next_u32());
    let walk = sched.world.steal_order(m).walk(sched.config.steal.order, seed);
    match node {
        None => visit_all(sched, m, walk, pass, timer_ran),
        Some(node) => {
            let is_near = |id| sched.p(id).node.load(Ordering::Relaxed) == node;
            visit_all(sched, m, walk.near_first(is_near), pass, timer_ran)
        }
    }
}

/// Visits Ps until there is something to run. An idle P has no goroutines, but may have timers.
fn visit_all(
    sched: &Sched,
    m: Holder<'_>,
    walk: impl Iterator<Item = u32>,
    pass: Pass,
    timer_ran: &mut bool,
) -> Found {
    let pp = m.p();
    let run_next = match sched.config.steal.run_next {
        RunNextTheft::LastTry if pass == Pass::Last => RunNext::Take,
        _ => RunNext::Leave,
    };
    for id in walk {
        if sched.world.is_stopping() {
            return Found::Retry;
        }
        if id == pp.id {
            continue;
        }
        if pass == Pass::Last && steal_timers(sched, m, id) {
            *timer_ran = true;
            if let Some(next) = next_local(m) {
                return Found::Run(next);
            }
        }
        if !sched.rest.idle().idle.contains(id)
            && let Some(gp) = steal_from(sched, m, id, run_next)
        {
            return Found::Run(Next::fresh(gp, Origin::Stolen));
        }
    }
    Found::Nothing
}

/// Runs the timers that are due at another P. True if they woke a goroutine.
fn steal_timers(sched: &Sched, m: Holder<'_>, victim: u32) -> bool {
    let pp = sched.p(victim);
    sched.rest.idle().timers.contains(victim)
        && pp.timers.earliest() != NEVER
        && outside::run_timers_of(sched, m, pp)
}

fn steal_from(sched: &Sched, m: Holder<'_>, victim: u32, run_next: RunNext) -> Option<NonNull<G>> {
    steal_ring(sched, m, victim, run_next).or_else(|| steal_yielded(sched, m, victim))
}

/// Takes a share of the ring of another P, or its `run_next`.
fn steal_ring(sched: &Sched, m: Holder<'_>, victim: u32, run_next: RunNext) -> Option<NonNull<G>> {
    let pp = m.p();
    pp.stats.steal_attempts.bump();
    let back_off = || leaves_its_next(sched.p(victim));
    let own = m.p().owner();
    let stolen = sched.p(victim).queue.thief().steal_into(
        &own,
        sched.config.steal.share,
        run_next,
        back_off,
    );
    let (gp, n, is_next) = match stolen {
        Stolen::Nothing => return None,
        Stolen::Batch { run, n } => (run, n, false),
        Stolen::RunNext(gp) => {
            pp.stats.stolen_run_next.bump();
            (gp, 1, true)
        }
    };
    pp.stats.steals.bump();
    pp.stats.stolen.add(n.into());
    count_victim(m, victim, n);
    emit::steal(&m, victim, n, is_next);
    Some(gp)
}

/// Takes a share of the goroutines that yielded at another P.
fn steal_yielded(sched: &Sched, m: Holder<'_>, victim: u32) -> Option<NonNull<G>> {
    let yielded = &sched.p(victim).yielded;
    let n = sched.config.steal.share.of(yielded.len()).min(policy::GLOBAL_BATCH_MAX);
    if n == 0 {
        return None;
    }
    let mut batch = yielded.take(n);
    let stats = &m.p().stats;
    stats.steals.bump_if(!batch.is_empty());
    stats.stolen.add(batch.len().into());
    count_victim(m, victim, batch.len());
    if !batch.is_empty() {
        emit::steal(&m, victim, batch.len(), false);
    }
    take_batch(m, &mut batch).map(|next| next.gp)
}

/// Notes how many goroutines were taken from `victim`.
fn count_victim(thief: Holder<'_>, victim: u32, n: u32) {
    let pp = thief.p();
    if let Some(count) = pp.stolen_from.get(victim as usize) {
        count.add(n.into());
    }
    let node_of = |pp: &P| pp.node.load(Ordering::Relaxed);
    if node_of(&pp) != node_of(thief.sched().p(victim)) {
        pp.stats.stolen_far.add(n.into());
    }
}

/// Whether an M that waits for work has something to do: goroutines to take, or a stop of the
/// world.
pub(crate) fn has_work_to_take(sched: &Sched) -> bool {
    sched.global_len().get() != 0
        || sched.world.is_stopping()
        || sched.all_ps().any(|pp| is_stealable(sched, pp))
        || forks::has_fork(sched)
}

/// Whether a P has goroutines that the policy of this runtime lets other Ps take.
pub(crate) fn is_stealable(sched: &Sched, pp: &P) -> bool {
    let steal = &sched.config.steal;
    !sched.rest.idle().idle.contains(pp.id)
        && (pp.queue.has_stealable(steal) || steal.share.of(pp.yielded.len()) != 0)
}

/// Whether a P has goroutines besides `run_next` that the policy lets other Ps take.
fn is_ring_stealable(sched: &Sched, pp: &P) -> bool {
    let share = &sched.config.steal.share;
    !sched.rest.idle().idle.contains(pp.id)
        && (share.of(pp.queue.ring_len()) != 0 || share.of(pp.yielded.len()) != 0)
}

/// Whether the global queue or a P has goroutines or forks to take, not counting goroutines in
/// `run_next`.
pub(crate) fn has_stealable_ring(sched: &Sched) -> bool {
    sched.global_len().get() != 0
        || sched.all_ps().any(|pp| is_ring_stealable(sched, pp))
        || forks::has_fork(sched)
}

/// Whether there are goroutines to take. A goroutine in `run_next` counts only if its P does not
/// run it by itself.
pub(crate) fn has_stealable_work(sched: &Sched) -> bool {
    if has_stealable_ring(sched) {
        return true;
    }
    let mut nexts = sched.all_ps().filter(|pp| pp.queue.has_next());
    nexts.any(leaves_its_next)
}

/// Whether `pp` lets the goroutine in its `run_next` wait: it has run nothing new for a while, or
/// it cannot.
fn leaves_its_next(pp: &P) -> bool {
    if !is_running(pp) {
        return true;
    }
    let before = pp.stats.executed.get();
    clock::spin_for_ns(policy::RUN_NEXT_BACK_OFF_NS);
    pp.stats.executed.get() == before && pp.queue.has_next()
}

/// Takes what waits in the ring of a stalled P, if goroutines wait for the network; the header says
/// why.
pub(super) fn steal_from_stalled(sched: &Sched, m: Holder<'_>) -> Option<Next> {
    if !sched.outside.has_waiters() {
        return None;
    }
    let pp = m.p();
    let head_of = |id| sched.p(id).queue.waiting_head();
    // The reserved Ps have the lowest numbers. Their rings are empty, so they are never stalled.
    let n = sched.procs();
    let victim = pp.with_local(|local| local.suspect.look(pp.id, n, head_of))?;
    steal_whole_ring(sched, m, victim)
}

/// Takes share after share of a ring, and returns the first goroutine of all. A theft hands out the
/// last goroutine of its share to be run at once. If that one ran, two Ms that steal from each
/// other again and again would never come to the first.
#[cold]
fn steal_whole_ring(sched: &Sched, m: Holder<'_>, victim: u32) -> Option<Next> {
    let own = m.p().owner();
    while let Some(gp) = steal_ring(sched, m, victim, RunNext::Leave) {
        // A theft takes no more than there is room for, with the goroutine that it hands out.
        own.push_tail(gp, |_| heist_core::throw!("steal_whole_ring: no room for what was stolen"));
    }
    // No thread could see these goroutines between the two rings, and this M may not be counted as
    // a spinner. So it is a submitter (docs/design/spinning.md).
    // ORDERING: the submitter's fence of `heist_core::spinning`.
    fence(Ordering::SeqCst);
    let next = next_local(m);
    if !m.p().queue.ring_is_empty() {
        rest::wake_p(sched);
    }
    next
}

#[cfg(test)]
mod tests;
