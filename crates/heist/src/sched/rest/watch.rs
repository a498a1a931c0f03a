//! Watching: an M stays ready for goroutines that most likely need no other M.
//!
//! Examples are two goroutines that keep waking each other, a token that travels round a ring, a
//! caller and its callee. At every step one goroutine becomes runnable in `run_next`, and a moment
//! later its own P runs it. An M that is woken for it finds nothing, sleeps, and is woken again.
//! Each time this costs the P a system call and, while the other M looks, the cache line of its
//! `run_next`: together a third of its time.
//!
//! So a spinner that found nothing but such goroutines, or nothing at all while many became
//! runnable, does not search again. It sleeps for a short time as the watcher. While there is a
//! watcher, a goroutine that is alone in its P's queue wakes no M. When the time is over, the
//! watcher checks whether a goroutine stays in a `run_next` because its P runs another one that
//! continues. If so, the watcher takes a P and steals that goroutine. Otherwise it sleeps again
//! while goroutines still become runnable at a high rate, and ends the watch if not; after that,
//! the next goroutine wakes an M as usual. A goroutine in a ring or in the global queue wakes an M
//! at once, most likely the watcher.
//!
//! The price: a goroutine that is woken by one that then computes waits up to [`policy::WATCH_NS`]
//! longer than without the watch, if many goroutines before it were run at once by their P.
//!
//! `heist_core::watch` explains why no goroutine is forgotten.
//!
//! Go has no watcher: it wakes a thread each time.

use super::{descend, spin, wake};
use crate::gmp::{M, P};
use crate::sched::Sched;
use crate::sched::run::Found;
use crate::sched::{outside, run};
use crate::sys::clock;
use heist_core::policy;

/// Wakes an M as `wake_p` does, after a push into the `run_next` of `pp`; but not if an M watches
/// and the goroutine is alone in the queue.
#[inline]
pub(crate) fn wake_p_for_next(sched: &Sched, pp: &P) {
    if sched.rest.watch.is_on() && pp.queue.ring_is_empty() {
        return;
    }
    wake::wake_p(sched);
}

/// Whether many goroutines have become runnable since `m` began to spin, or ended its watch.
pub(super) fn others_are_busy(sched: &Sched, m: &M) -> bool {
    let readied = n_readied(sched).wrapping_sub(m.readied_before.get());
    readied >= policy::BUSY_MIN_READIED
}

/// Watches until there is work for this M, or few goroutines become runnable. The caller has no P
/// and has begun the watch. After the watch it looks through all queues.
pub(super) fn keep_watch(sched: &Sched, m: &M) -> Found {
    loop {
        let before = n_readied(sched);
        let until = clock::now_ns() + policy::WATCH_NS;
        let slept = outside::wait_in_poller(sched, m, until)
            .unwrap_or_else(|| descend::nap(sched, m, until));
        let busy = n_readied(sched).wrapping_sub(before) >= policy::WATCH_MIN_READIED;
        if !matches!(slept, Found::Nothing) || !busy || run::has_stealable_work(sched) {
            sched.rest.watch.end();
            // What happened before the watch is no reason for another one.
            m.readied_before.set(n_readied(sched));
            return slept;
        }
    }
}

/// Follows a watch that ended because this M has work, or a P to search with. Goroutines whose
/// submitters relied on the watcher must not wait for it, so this M or another one searches now.
pub(super) fn leave_watch(sched: &Sched, m: &M, found: Found) -> Found {
    match found {
        // An M does not search with a reserved P.
        Found::Retry if m.p().is_reserved => wake::wake_p(sched),
        Found::Retry if !m.spinning.get() => spin::become_spinning(sched, m),
        Found::Run(_) => wake::wake_p(sched),
        _ => {}
    }
    found
}

/// How many goroutines the live Ps have made runnable so far.
pub(super) fn n_readied(sched: &Sched) -> u64 {
    sched.all_ps().map(|pp| pp.stats.readied.get()).fold(0, u64::wrapping_add)
}
