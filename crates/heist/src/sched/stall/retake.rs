//! Taking the P of an M that blocks, and finding another M for it.
//!
//! GO: proc.go retake, handoffp.

use super::sysmon::overdue;
use crate::gmp::{M, P};
use crate::sched::rest::Start;
use crate::sched::{Sched, outside, rest, run, threads, world};
use crate::sys::membarrier;
use heist_core::m_word::{Place, Stamp};
use heist_core::policy::sysmon::{HandOff, Offer, hand_off};
use heist_core::sync::Ordering;
use heist_core::timer_heap::NEVER;
use heist_trace::record::Take;

/// The fence of a thread that takes the P of another M. The caller holds the scheduler lock. If the
/// kernel refuses `membarrier` now, the Ms are told to fence themselves, and have passed a fence
/// when this returns.
pub(crate) fn heavy_fence(sched: &Sched) {
    membarrier::heavy_fence();
    if !membarrier::is_asymmetric() && sched.stall.full_fences.load(Ordering::Relaxed) == 0 {
        sched.stall.full_fences.store(1, Ordering::Relaxed);
        // ORDERING: pairs with the fence of `AllMs::add`.
        heist_core::sync::fence(Ordering::SeqCst);
        for m in sched.threads.all_ms().iter() {
            m.word.use_full_fences();
        }
        membarrier::settle();
    }
}

/// Whether other Ms would find work that appears.
pub(super) fn has_others_free(sched: &Sched) -> bool {
    sched.rest.n_spinning() + sched.rest.idle().count() != 0
}

/// Takes the P of an M that blocks in the state `seen`, and hands it to another M. False if the M
/// has moved on or has lost the P already.
pub(crate) fn take_p(sched: &Sched, m: &M, pp: &P, seen: Stamp) -> bool {
    let locked = sched.lock.lock();
    if !std::ptr::eq(pp.m(), m) || !m.word.take(seen, || heavy_fence(sched)) {
        return false;
    }
    let announced = seen.place() == Place::Blocked;
    m.lose_p(if announced { Take::Announced } else { Take::Unannounced });
    drop(locked);
    pass_on(sched, pp);
    true
}

/// Hands on the P of a goroutine that blocks.
pub(super) fn pass_on(sched: &Sched, pp: &P) {
    sched.stats.handoffs.add_shared(1);
    handoff_p(sched, pp);
    if sched.lock.lock().idle_ms.is_empty() {
        // The M that takes the P over may block as well.
        sched.threads.helper().ask_for_spare();
    }
}

/// Finds an M for a P whose own M is about to sleep, or makes the P idle.
#[doc(alias = "handoffp")]
pub(crate) fn handoff_p(sched: &Sched, pp: &P) {
    if world::stop_instead(sched, pp) {
        return;
    }
    let mut offer = Offer {
        has_work: run::has_work_for(sched, pp),
        others_free: pp.is_reserved || has_others_free(sched),
        last_and_unattended: false,
    };
    match hand_off(offer) {
        HandOff::Start => return rest::start_m(sched, pp, Start::Working),
        HandOff::Spin if sched.rest.claim_first_spinner() => {
            return rest::start_m(sched, pp, Start::Spinning);
        }
        HandOff::Spin | HandOff::Rest => offer.others_free = true,
    }
    let mut locked = sched.lock.lock();
    if !pp.is_reserved {
        threads::admit(sched, &mut locked);
    }
    // Under the lock the lengths are exact.
    offer.has_work = run::has_work_for(sched, pp);
    offer.last_and_unattended =
        sched.rest.idle().count_all() == sched.procs() - 1 && overdue::is_unattended(sched);
    if hand_off(offer) == HandOff::Start {
        drop(locked);
        return rest::start_m(sched, pp, Start::Working);
    }
    rest::put_idle(sched, &mut locked, pp);
    drop(locked);
    // ORDERING: the P became idle before this fence; the request of a submitter that pushed work
    // before that and asked for a spinner is served here, as in `rest::sleep`.
    heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
    if sched.rest.wants_spinner() {
        rest::wake_p(sched);
    }
    if pp.timers.earliest() != NEVER {
        outside::watch_timer(sched, pp.timers.earliest());
    }
}
