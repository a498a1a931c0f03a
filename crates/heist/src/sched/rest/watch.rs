//! Watching: an M stays at hand for goroutines that most likely need nobody.
//!
//! Two goroutines that keep waking each other, a token that goes round a ring, a caller and its
//! callee: at every step one goroutine becomes runnable in `run_next`, and a moment later its own P
//! runs it. Whoever is woken for it finds nothing, sleeps, and is woken again. That costs the P a
//! system call each time and, while the other looks, the cache line of its `run_next`: together a
//! third of its time.
//!
//! So a spinner that found nothing but such goroutines does not look again. It sleeps for a short
//! time as the watcher, and while there is one, a goroutine that is alone in its P's queue wakes
//! nobody. When the time is over the watcher looks whether a `run_next` stays where it is, because its
//! P runs a goroutine that goes on: then it takes a P, and it. If goroutines are still being made
//! runnable at a high rate, it sleeps again; else the watch is over, and the next one wakes somebody as
//! ever. Whatever is in a ring or in the global queue wakes somebody at once, most likely the watcher.
//!
//! The price: a goroutine that is woken by one which then computes waits for [`policy::WATCH_NS`]
//! longer than it would, if many before it were run at once by their P.
//!
//! Why none is forgotten is in `heist_core::watch`.
//!
//! Go has no such thing: it wakes a thread each time.

use super::{descend, spin, wake};
use crate::gmp::{M, P};
use crate::sched::Sched;
use crate::sched::run::Found;
use crate::sched::{outside, run};
use crate::sys::clock;
use heist_core::policy;

/// As `wake_p`, after a push into the `run_next` of `pp`.
#[inline]
pub(crate) fn wake_p_for_next(sched: &Sched, pp: &P) {
    if sched.rest.watch.is_on() && pp.queue.ring_is_empty() {
        return;
    }
    wake::wake_p(sched);
}

/// Whether goroutines come and go while `m` is looking for one.
pub(super) fn others_are_busy(sched: &Sched, m: &M) -> bool {
    let readied = n_readied(sched).wrapping_sub(m.readied_before.get());
    readied >= policy::BUSY_MIN_READIED
}

/// Watches until there is work for this M, or nothing happens any more. The caller has no P and
/// began the watch; when it is over it looks through all queues.
pub(super) fn keep_watch(sched: &Sched, m: &M) -> Found {
    loop {
        let before = n_readied(sched);
        let until = clock::now_ns() + policy::WATCH_NS;
        let slept = outside::wait_in_poller(sched, m, until)
            .unwrap_or_else(|| descend::nap(sched, m, until));
        let busy = n_readied(sched).wrapping_sub(before) >= policy::WATCH_MIN_READIED;
        if !matches!(slept, Found::Nothing) || !busy || run::has_stealable_work(sched) {
            sched.rest.watch.end();
            return slept;
        }
    }
}

/// This M has work, or a P to search with: those who relied on the watcher must not wait for it.
pub(super) fn leave_watch(sched: &Sched, m: &M, found: Found) -> Found {
    match found {
        // Nobody looks for work with a reserved P.
        Found::Retry if m.p().is_reserved => wake::wake_p(sched),
        Found::Retry if !m.spinning.get() => spin::become_spinning(sched, m),
        Found::Run(_) => wake::wake_p(sched),
        _ => {}
    }
    found
}

/// How many goroutines were made runnable.
pub(super) fn n_readied(sched: &Sched) -> u64 {
    sched.all_ps().map(|pp| pp.stats.readied.get()).fold(0, u64::wrapping_add)
}
