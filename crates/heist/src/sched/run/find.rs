//! The search for the next goroutine, from near to far and from cheap to expensive.
//!
//! GO: proc.go findRunnable.

use super::{lanes, steal};
use crate::gmp::{G, Holder, P};
use crate::sched::Sched;
use crate::sched::{forks, outside, rest, world};
use heist_core::global_queue::Lane;
use heist_core::list::List;
use heist_core::policy;
use heist_core::run_queue::Popped;
use heist_trace::record::Found as Origin;
use std::ptr::NonNull;

/// A goroutine to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Next {
    pub(crate) gp: NonNull<G>,
    /// Where it was found. This is also what says which slice it runs on: with a third field the
    /// compiler would pass a `Next` in memory, at 40 instructions for each goroutine that runs.
    pub(crate) origin: Origin,
}

/// The slice that a goroutine runs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slice {
    /// The rest of the slice of the goroutine that ran before.
    Inherited,
    /// A slice of its own.
    Fresh,
}

/// The result of a search for work, or of a sleep.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) enum Found {
    /// This goroutine is to run.
    Run(Next),
    /// Something changed: the M searches again from the beginning.
    Retry,
    /// There is nothing to run.
    Nothing,
    /// The runtime has ended, or the thread is no longer needed: the M leaves its loop.
    Leave,
}

impl Next {
    pub(crate) const fn fresh(gp: NonNull<G>, origin: Origin) -> Self {
        Self { gp, origin }
    }

    /// The slice that it runs on.
    #[inline]
    pub(crate) const fn slice(self) -> Slice {
        match self.origin {
            Origin::Next => Slice::Inherited,
            _ => Slice::Fresh,
        }
    }
}

impl From<Popped<G>> for Next {
    fn from(popped: Popped<G>) -> Self {
        match popped {
            Popped::Inherits(gp) => Self { gp, origin: Origin::Next },
            Popped::Fresh(gp) => Self::fresh(gp, Origin::Local),
        }
    }
}

/// Finds a goroutine for `m` to run. Meanwhile `m` may sleep, lose its P and get another. None: the
/// runtime has ended, or the thread is no longer needed.
#[doc(alias = "findRunnable")]
pub(super) fn find_runnable(sched: &Sched, m: Holder<'_>) -> Option<Next> {
    let next = search(sched, m)?;
    outside::leave_timers(sched, &m);
    Some(next)
}

fn search(sched: &Sched, m: Holder<'_>) -> Option<Next> {
    let mut lingered = false;
    loop {
        if sched.world.is_stopping() {
            match world::stop_searching(sched, m.m()) {
                Found::Leave => return None,
                _ => continue,
            }
        }
        let reserved = m.p().is_reserved;
        let near = if reserved { lanes::find_latency(sched, m) } else { find_with_p(sched, m) };
        if near.is_some() {
            return near;
        }
        if let Some(next) = outside::await_tiny_sleep(sched, m) {
            return Some(next);
        }
        let mut found = if reserved { Found::Nothing } else { steal::steal_work(sched, m) };
        if matches!(found, Found::Nothing) && m.spinning.get() && !lingered {
            lingered = true;
            found = rest::linger(sched);
        }
        if matches!(found, Found::Nothing) {
            lingered = false;
            found = rest::sleep(sched, m);
        }
        match found {
            Found::Run(next) => return Some(next),
            Found::Retry | Found::Nothing => {}
            Found::Leave => return None,
        }
    }
}

/// Tries the sources that come before a search at all other Ps.
#[inline]
fn find_with_p(sched: &Sched, m: Holder<'_>) -> Option<Next> {
    outside::run_own_timers(sched, m);
    if m.p().forks.len() != 0
        && let Some(gp) = forks::next_in_turn(sched, m)
    {
        return Some(Next::fresh(gp, Origin::Local));
    }
    urgent(sched, m)
        .or_else(|| global_in_turn(sched, &m.p()))
        .or_else(|| next_local(m))
        .or_else(|| next_global(sched, m))
        .or_else(|| steal::steal_from_stalled(sched, m))
        .or_else(|| outside::poll_now(sched, m))
}

/// Takes a goroutine of the latency class or an urgent one, unless this P has run too many of them
/// in a row: the others must not starve.
#[inline]
fn urgent(sched: &Sched, m: Holder<'_>) -> Option<Next> {
    if sched.global_len().urgent() == 0 {
        return None;
    }
    take_urgent(sched, m)
}

#[cold]
fn take_urgent(sched: &Sched, m: Holder<'_>) -> Option<Next> {
    let pp = m.p();
    if !pp.with_local(|local| local.urgent_streak.continues(pp.tick())) {
        return None;
    }
    let gp = sched.lock.lock().global.pop_urgent(sched.global_len());
    pp.stats.global_taken.bump_if(gp.is_some());
    gp.map(|gp| Next::fresh(gp, Origin::Global))
}

/// Takes from the global queue first at every tick that the policy selects, so that the local queue
/// cannot starve it.
#[inline]
fn global_in_turn(sched: &Sched, pp: &P) -> Option<Next> {
    if !policy::global_first(pp.tick()) {
        return None;
    }
    let mut first = None;
    if sched.global_len().get() != 0 {
        first = sched.lock.lock().global.pop(sched.global_len());
    }
    if first.is_none() && pp.yielded.len() != 0 {
        first = pp.yielded.take(1).pop_front();
    }
    pp.stats.global_taken.bump_if(first.is_some());
    first.map(|gp| Next::fresh(gp, Origin::Global))
}

/// Takes a fair share of the global queue: the first to run, the others into the own ring.
fn next_global(sched: &Sched, m: Holder<'_>) -> Option<Next> {
    let mut batch = match (sched.global_len().get(), m.p().yielded.len()) {
        (0, 0) => return None,
        (0, yielded) => m.p().yielded.take(policy::global_batch(yielded, sched.common_procs())),
        _ => pop_global(sched, &m.p()),
    };
    take_batch(m, &mut batch)
}

/// Moves the goroutines that yielded at `pp` to the end of the global queue, and takes a fair share
/// of it.
fn pop_global(sched: &Sched, pp: &P) -> List<G> {
    let mut yielded = pp.yielded.take(u32::MAX);
    let mut locked = sched.lock.lock();
    locked.global.append(sched.global_len(), Lane::Normal, &mut yielded);
    let batch = locked.global.pop_batch(sched.global_len(), sched.common_procs());
    drop(locked);
    fetch(&batch);
    batch
}

/// Prefetches what an M needs to run a batch from the global queue. Its goroutines may have waited
/// for long, before they became runnable and in the queue, and be in no cache. All are fetched
/// together, not each at its turn.
fn fetch(batch: &List<G>) {
    batch.iter().for_each(|gp| G::prefetch(gp, 3));
    batch.iter().for_each(G::prefetch_stack);
}

/// Takes from the own queue.
#[inline]
pub(crate) fn next_local(m: Holder<'_>) -> Option<Next> {
    let own = m.p().owner();
    let popped = own.pop()?;
    // Another core may have written the next one. It is fetched while this one runs.
    G::prefetch(own.upcoming(), 2);
    Some(Next::from(popped))
}

/// Keeps a batch of goroutines: returns the first to run, and puts the others into the ring.
pub(crate) fn take_batch(m: Holder<'_>, batch: &mut List<G>) -> Option<Next> {
    let pp = m.p();
    pp.stats.global_taken.add(batch.len().into());
    let first = batch.pop_front()?;
    pp.owner().push_batch(batch);
    if !batch.is_empty() {
        heist_core::throw!("take_batch: {} goroutines do not fit into the ring", batch.len());
    }
    Some(Next::fresh(first, Origin::Global))
}
