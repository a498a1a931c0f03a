//! Tests of sysmon's decisions, against everything that it can see: a clock and Ps that the test
//! simulates.
#![cfg(not(loom))]

use heist_core::m_word::{MWord, Place};
use heist_core::policy::sysmon::{
    Agenda, Demand, HandOff, Look, Mood, Naps, Offer, Verdict, Watch, hand_off, makes_progress,
    timer_late_ns,
};
use heist_core::policy::{
    BLOCKED_LATELY_NS, PROGRESS_VALID_NS, QUANTUM_NS, SYSCALL_MAX_NS, SYSMON_NAP_MAX_NS,
    SYSMON_NAP_NS, SYSMON_NAP_PROGRESS_NS, SYSMON_NAP_WANTED_NS,
};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A P with its M, as sysmon sees it.
struct FakeP {
    now_ns: u64,
    tick: u32,
    began_ns: u64,
    word: MWord,
    watch: Watch,
}

impl FakeP {
    fn new() -> Self {
        let (word, watch) = (MWord::new(), Watch::NEW);
        Self { now_ns: 7 * MS, tick: u32::MAX, began_ns: 0, word, watch }
    }

    fn go_to(&self, place: Place) {
        self.word.leave(place);
    }

    fn check_after_nap(&mut self, nap_ns: u64, demand: Demand) -> Verdict {
        self.now_ns += nap_ns;
        let Self { now_ns, tick, began_ns, .. } = *self;
        let (stamp, began) = (self.word.stamp(), self.word.marked());
        self.watch.look(Look { now_ns, tick, began_ns, began, stamp, slice_ns: QUANTUM_NS }, demand)
    }

    /// The verdict for a new slice, which is over in ten milliseconds.
    fn new_slice(&self) -> Verdict {
        Verdict::New { ends_ns: self.now_ns + 10 * MS }
    }
}

/// All demands: a goroutine that waits `here` also waits `anywhere`.
fn demands() -> Vec<Demand> {
    let mut demands = Vec::new();
    for others_free in [false, true] {
        for (here, anywhere) in [(false, false), (false, true), (true, true)] {
            demands.push(Demand { here, anywhere, others_free, elsewhere: false });
        }
    }
    demands
}

const NO_WAITERS: Demand =
    Demand { here: false, anywhere: false, others_free: true, elsewhere: false };
const WAITERS: Demand = Demand { here: true, anywhere: true, others_free: true, elsewhere: false };

/// Go's record of a P, and Go's decisions: whether to request a preemption, whether to take the P.
#[derive(Default)]
struct Go {
    sched_tick: Option<u32>,
    sched_when: u64,
    call: Option<u32>,
    call_when: u64,
}

impl Go {
    /// `call` is the number of the blocking call that the P is in, if it is in one.
    fn retake(&mut self, now: u64, tick: u32, call: Option<u32>, demand: Demand) -> (bool, bool) {
        let mut slice_is_over = false;
        if self.sched_tick != Some(tick) {
            self.sched_tick = Some(tick);
            self.sched_when = now;
        } else if self.sched_when + 10 * MS <= now {
            slice_is_over = true;
        }
        let Some(call) = call else { return (slice_is_over, false) };
        if !slice_is_over && self.call != Some(call) {
            self.call = Some(call);
            self.call_when = now;
            return (slice_is_over, false);
        }
        let keeps = !demand.here && demand.others_free && self.call_when + 10 * MS > now;
        (slice_is_over, !keeps)
    }
}

/// IN-27, PR-16: over all sequences of a few checks, with every nap, every move of the goroutine
/// and every demand: the P of a blocking call is taken exactly when Go takes it, and the slice of a
/// goroutine is over exactly when Go considers it over. Go asks the goroutine to yield even if no
/// other waits; here another one must wait.
#[test]
fn every_sequence_of_checks_is_decided_as_in_go() {
    #[derive(Clone, Copy)]
    enum Move {
        Stays,
        To(Place),
        NewSlice(Place),
    }
    let mut steps = Vec::new();
    for nap_ns in [20 * US, 5 * MS, 10 * MS - 1, 10 * MS] {
        for demand in demands() {
            let places = [Place::Runtime, Place::User, Place::Blocked];
            let moves = places.into_iter().flat_map(|at| [Move::To(at), Move::NewSlice(at)]);
            for moves in moves.chain([Move::Stays]) {
                steps.push((nap_ns, moves, demand));
            }
        }
    }
    let mut n_takes = 0;
    let n = steps.len();
    for code in 0..n * n * n {
        let mut p = FakeP::new();
        let mut go = Go::default();
        let mut call = 0;
        for (nap_ns, moves, demand) in [steps[code / n / n], steps[code / n % n], steps[code % n]] {
            match moves {
                Move::Stays => {}
                Move::To(place) => p.go_to(place),
                Move::NewSlice(place) => {
                    p.tick = p.tick.wrapping_add(1);
                    p.go_to(place);
                }
            }
            if !matches!(moves, Move::Stays) {
                call += 1;
            }
            let place = p.word.stamp().place();
            let verdict = p.check_after_nap(nap_ns, demand);
            let in_call = (place == Place::Blocked).then_some(call);
            let (over, takes) = go.retake(p.now_ns, p.tick, in_call, demand);
            assert_eq!(verdict == Verdict::Take, takes, "at {} ns", p.now_ns);
            n_takes += u64::from(takes);
            if let Verdict::Busy { ends_ns, .. } = verdict {
                assert_eq!(p.now_ns >= ends_ns, over, "at {} ns", p.now_ns);
                assert!(demand.anywhere && place == Place::User);
            } else if place == Place::User && demand.anywhere {
                assert!(
                    !over && verdict == p.new_slice(),
                    "goroutines wait and the P is left alone"
                );
            }
        }
    }
    assert!(n_takes > 1000, "{n_takes}");
}

/// IN-27, PR-16: the slice is 10 ms on an unchanged tick, to the nanosecond, however often it is
/// checked, and begins with the check that first sees the tick.
#[test]
fn a_slice_lasts_ten_milliseconds_on_the_same_tick() {
    assert_eq!(QUANTUM_NS, 10 * MS);
    for nap_ns in [20 * US, 333 * US, MS, 10 * MS - 1] {
        let mut p = FakeP::new();
        p.go_to(Place::User);
        let new = p.check_after_nap(0, WAITERS);
        assert_eq!(new, p.new_slice());
        let begun_ns = p.now_ns;
        loop {
            let Verdict::Busy { ends_ns, .. } = p.check_after_nap(nap_ns, WAITERS) else {
                panic!("goroutines wait, so the P is busy");
            };
            assert_eq!(ends_ns, begun_ns + 10 * MS);
            if p.now_ns >= ends_ns {
                break;
            }
        }
        // Goroutines that follow through `run_next` share the slice; one with its own begins anew.
        p.go_to(Place::Runtime);
        p.go_to(Place::User);
        let Verdict::Busy { ends_ns, unmoved } = p.check_after_nap(0, WAITERS) else { panic!() };
        assert!(p.now_ns >= ends_ns && !unmoved);
        p.tick = p.tick.wrapping_add(1);
        let new = p.check_after_nap(0, WAITERS);
        assert_eq!(new, p.new_slice());
    }
}

/// A slice of a goroutine that had been preempted is counted from its beginning, if it is the only
/// one since the last check; otherwise from when it is first seen, as every other slice.
#[test]
fn a_slice_whose_beginning_is_known_is_counted_from_there() {
    for (n_slices, began_before_ns, counts) in [
        (1, 9 * MS, true),
        (1, MS, true),
        (1, 0, true),
        // Recorded before the last check: of an earlier slice.
        (1, 10 * MS, false),
        (1, 11 * MS, false),
        // Of one of several.
        (2, 9 * MS, false),
    ] {
        let mut p = FakeP::new();
        p.go_to(Place::User);
        let _ = p.check_after_nap(0, WAITERS);
        p.began_ns = p.now_ns + 10 * MS - began_before_ns;
        p.tick = p.tick.wrapping_add(n_slices);
        p.word.mark_next_stay();
        p.go_to(Place::User);
        let begun_ns = if counts { p.began_ns } else { p.now_ns + 10 * MS };
        let verdict = p.check_after_nap(10 * MS, WAITERS);
        let ends_ns = begun_ns + 10 * MS;
        let busy = Verdict::Busy { unmoved: true, ends_ns };
        assert_eq!(verdict, if counts { busy } else { Verdict::New { ends_ns } });
        let verdict = p.check_after_nap(MS, WAITERS);
        assert!(matches!(verdict, Verdict::Busy { ends_ns, .. } if ends_ns == begun_ns + 10 * MS));
        assert!(!p.watch.is_half_over(begun_ns + 5 * MS - 1, QUANTUM_NS));
        assert!(p.watch.is_half_over(begun_ns + 5 * MS, QUANTUM_NS));
    }
    // Of a P that no M held at the last check.
    let mut p = FakeP::new();
    p.go_to(Place::User);
    p.began_ns = p.now_ns + MS;
    assert_eq!(p.check_after_nap(2 * MS, WAITERS), p.new_slice());
}

/// PR-19: a P that was idle between two checks begins a slice when it is held again, although its
/// tick is the same: no goroutine is asked to yield for time in which the P was idle.
#[test]
fn idle_time_is_not_part_of_a_slice() {
    let mut p = FakeP::new();
    p.go_to(Place::User);
    let new = p.check_after_nap(0, WAITERS);
    assert_eq!(new, p.new_slice());
    p.watch = Watch::NEW;
    let new = p.check_after_nap(20 * MS, WAITERS);
    assert_eq!(new, p.new_slice());
    let Verdict::Busy { ends_ns, .. } = p.check_after_nap(20 * US, WAITERS) else { panic!() };
    assert_eq!(ends_ns, p.now_ns - 20 * US + QUANTUM_NS);
}

/// If goroutines wait only elsewhere, a goroutine in user code is suspected of sleeping after
/// 10 ms. If others wait too, those elsewhere change nothing.
#[test]
fn a_p_is_wanted_elsewhere_after_ten_milliseconds() {
    for demand in demands() {
        for place in [Place::User, Place::Blocked, Place::Runtime] {
            let (mut p, mut without) = (FakeP::new(), FakeP::new());
            for nap_ns in [0, MS, 9 * MS - 1, 1, MS] {
                if nap_ns != 1 {
                    p.go_to(place);
                    without.go_to(place);
                }
                let verdict = p.check_after_nap(nap_ns, Demand { elsewhere: true, ..demand });
                let expected = without.check_after_nap(nap_ns, demand);
                let is_long = p.now_ns >= FakeP::new().now_ns + SYSCALL_MAX_NS;
                if place == Place::User && !demand.anywhere && is_long {
                    assert_eq!(expected, Verdict::Leave);
                    assert_eq!(verdict, Verdict::Unhurried { unmoved: nap_ns == 1 });
                } else {
                    assert_eq!(verdict, expected);
                }
            }
        }
    }
}

/// IN-27, PR-16: a blocking call keeps its P at the first check, and loses it at the second if
/// goroutines wait there or no other P or M is free; otherwise when it has lasted 10 ms.
#[test]
fn a_blocking_call_loses_its_p_after_a_full_round() {
    assert_eq!(SYSCALL_MAX_NS, 10 * MS);
    for demand in demands() {
        let mut p = FakeP::new();
        p.go_to(Place::User);
        let new = p.check_after_nap(0, demand);
        assert_eq!(new, p.new_slice());
        p.go_to(Place::Blocked);
        assert_eq!(p.check_after_nap(SYSMON_NAP_NS, demand), Verdict::Leave, "first sight");
        let wanted = demand.here || !demand.others_free;
        let second = p.check_after_nap(SYSMON_NAP_NS, demand);
        assert_eq!(second, if wanted { Verdict::Take } else { Verdict::Leave }, "{demand:?}");
        // The same call, just before 10 ms after it was first seen, and then exactly 10 ms.
        let almost = p.check_after_nap(10 * MS - SYSMON_NAP_NS - 1, demand);
        assert_eq!(almost, second);
        assert_eq!(p.check_after_nap(1, demand), Verdict::Take);
    }
    // Many short calls are never seen twice.
    let mut p = FakeP::new();
    let last = (0..400).fold(Verdict::Leave, |_, _| {
        p.go_to(Place::Runtime);
        p.go_to(Place::Blocked);
        p.check_after_nap(SYSMON_NAP_NS, WAITERS)
    });
    assert_eq!(last, Verdict::Leave);
    // Until their slice is over.
    p.go_to(Place::Blocked);
    assert_eq!(p.check_after_nap(10 * MS, WAITERS), Verdict::Take);
}

/// A goroutine that has not moved between two checks is distinguished from one that has; there is
/// no such check if no other goroutine waits.
#[test]
fn only_an_unmoved_goroutine_may_be_asleep() {
    let mut p = FakeP::new();
    p.go_to(Place::User);
    let new = p.check_after_nap(0, WAITERS);
    assert_eq!(new, p.new_slice());
    let unmoved = |verdict| matches!(verdict, Verdict::Busy { unmoved: true, .. });
    assert!(unmoved(p.check_after_nap(MS, WAITERS)));
    assert_eq!(p.check_after_nap(MS, NO_WAITERS), Verdict::Leave);
    assert!(unmoved(p.check_after_nap(MS, WAITERS)));
    p.go_to(Place::Runtime);
    p.go_to(Place::User);
    assert!(!unmoved(p.check_after_nap(MS, WAITERS)));
}

/// A P makes progress if it had several slices since the last check and they were short. A slice
/// from time to time, as with hogs that take turns, is not enough, and neither is one slice between
/// two checks that are close to each other.
#[test]
fn a_p_with_short_slices_makes_progress() {
    for (n_slices, nap_ns, expected) in [
        (0, MS, false),
        (1, 20 * US, false),
        (1, MS, false),
        (2, 20 * US, true),
        (2, MS, false),
        (9, MS, false),
        (10, MS, true),
        (80, MS, true),
        (80, 10 * MS, false),
        (1000, 10 * MS, true),
    ] {
        let mut p = FakeP::new();
        p.go_to(Place::User);
        assert!(!p.watch.makes_progress(p.now_ns, p.tick), "there was no check before");
        // However long the slice before the last check was.
        let _ = p.check_after_nap(0, WAITERS);
        let _ = p.check_after_nap(20 * MS, WAITERS);
        let now_ns = p.now_ns + nap_ns;
        let makes_progress = p.watch.makes_progress(now_ns, p.tick.wrapping_add(n_slices));
        assert_eq!(makes_progress, expected, "{n_slices} in {nap_ns} ns");
    }
}

/// IN-26, PR-16: naps are 20 us; from the 51st round without a P taken on, each is twice as long as
/// the one before, up to 10 ms, or 1 ms while goroutines wait; a P taken makes them 20 us again.
#[test]
fn naps_grow_after_fifty_quiet_rounds() {
    for (wanted, most) in [(false, 10 * MS), (true, MS)] {
        let mut naps = Naps::new();
        for _ in 0..2 {
            for quiet in 0..=50 {
                assert_eq!(naps.next_ns(wanted), 20 * US, "after {quiet} quiet rounds");
                naps.after_round(false);
            }
            let mut expected = 20 * US;
            for _ in 0..200 {
                expected = (2 * expected).min(most);
                assert_eq!(naps.next_ns(wanted), expected);
                naps.after_round(false);
            }
            assert_eq!(expected, most);
            naps.after_round(true);
        }
    }
    // A goroutine begins to wait while naps are long already.
    let mut naps = Naps::new();
    (0..1000).for_each(|_| naps.after_round(false));
    let longest = (0..20).fold(0, |_, _| naps.next_ns(false));
    assert_eq!((longest, naps.next_ns(true)), (10 * MS, MS));
    // No goroutine waits any more.
    assert_eq!(naps.next_ns(false), 10 * MS);
}

#[test]
fn a_program_that_blocks_is_not_left_alone() {
    let long_ago = 100 * MS;
    assert!(makes_progress(long_ago + PROGRESS_VALID_NS - 1, long_ago, 0));
    assert!(
        !makes_progress(long_ago + PROGRESS_VALID_NS, long_ago, 0),
        "the progress is too long ago"
    );
    for after_ns in [0, MS, BLOCKED_LATELY_NS - 1] {
        let now_ns = long_ago + after_ns;
        assert!(!makes_progress(now_ns, now_ns, long_ago), "{after_ns} ns after a blocking call");
    }
    let now_ns = long_ago + BLOCKED_LATELY_NS;
    assert!(makes_progress(now_ns, now_ns, long_ago));
}

/// The end of a slice ends one nap. Regression: sysmon saw that all Ps were idle, so that no round
/// planned another moment, and looped without sleeping until one did.
#[test]
fn the_plan_of_a_round_ends_one_nap() {
    for idle in [false, true] {
        for left_alone in [false, true] {
            let mood = Mood { idle, makes_progress: left_alone };
            let (mut agenda, mut naps) = (Agenda::new(), Naps::new());
            agenda.look_at(7 * MS + 12 * US);
            agenda.look_at(7 * MS + 11 * US);
            agenda.suspect();
            assert_eq!(agenda.nap_until(&mut naps, 7 * MS, mood), 7 * MS + 11 * US, "{mood:?}");
            // Nothing was seen in the round after that, which is late.
            let next_ns = agenda.nap_until(&mut naps, 8 * MS, mood);
            assert!(next_ns >= 8 * MS + SYSMON_NAP_NS, "{mood:?}");
            assert_eq!(agenda.nap_until(&mut naps, 8 * MS, mood), next_ns, "{mood:?}");
        }
    }
}

#[test]
fn the_longest_nap_depends_on_what_the_program_does() {
    let longest = |mood: Mood, suspects: bool| {
        let (mut agenda, mut naps) = (Agenda::new(), Naps::new());
        let nap = |_| {
            if suspects {
                agenda.suspect();
            }
            naps.after_round(false);
            agenda.nap_until(&mut naps, 7 * MS, mood) - 7 * MS
        };
        (0..200).map(nap).max().unwrap()
    };
    let mood = |idle, makes_progress| Mood { idle, makes_progress };
    assert_eq!(longest(mood(false, false), false), SYSMON_NAP_MAX_NS);
    assert_eq!(longest(mood(true, false), false), SYSMON_NAP_MAX_NS);
    assert_eq!(longest(mood(false, true), false), SYSMON_NAP_PROGRESS_NS);
    assert_eq!(longest(mood(false, false), true), SYSMON_NAP_WANTED_NS);
}

/// A timer that an idle reserved P could run is not left for as long as one for which a goroutine
/// has to yield.
#[test]
fn timers_for_an_idle_reserved_p_run_sooner() {
    assert_eq!(timer_late_ns(MS, false), MS);
    assert_eq!(timer_late_ns(MS, true), MS / 4);
    assert_eq!(timer_late_ns(u64::MAX, false), u64::MAX);
}

/// IN-25: of all offers, an M is started for each with work, and if no other M would see network
/// events and timers; an M looks for work if no other could; otherwise the P becomes idle.
#[test]
fn a_p_is_handed_off_to_where_it_is_needed() {
    for bits in 0..8 {
        let [has_work, others_free, last_and_unattended] = [1, 2, 4].map(|bit| bits & bit != 0);
        let expected = match (has_work || last_and_unattended, others_free) {
            (true, _) => HandOff::Start,
            (false, false) => HandOff::Spin,
            (false, true) => HandOff::Rest,
        };
        let offer = Offer { has_work, others_free, last_and_unattended };
        assert_eq!(hand_off(offer), expected, "{offer:?}");
    }
}
