//! The symptoms that docs/OPERATING.md describes are there, and the remedies cure them.

#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/symptoms/main.rs"]
mod example;

use example::{ALL, Seen, show};
use std::time::Duration;

/// Makes a symptom and cures it, until a figure differs as it should. A machine that is busy with
/// other programs needs longer to show it.
#[track_caller]
fn differs(name: &str, figure: fn(&Seen) -> f64, is_expected: fn(f64, f64) -> bool) {
    let symptom = ALL.iter().find(|symptom| symptom.name == name).expect("it is listed");
    let mut found = Vec::new();
    for length_ms in [300, 600, 1_200, 2_400, 4_800] {
        let [sick, cured] = [false, true].map(|is_cured| {
            let seen = show(symptom, is_cured, Duration::from_millis(length_ms));
            figure(&seen.expect("the runtime starts"))
        });
        if is_expected(sick, cured) {
            return;
        }
        found.push((sick, cured));
    }
    panic!("{name}: the figure and the one after the cure were {found:?}");
}

#[test]
fn gentle_thieves_leave_processors_idle_beside_queued_work() {
    let is_expected = |sick, cured| sick > 20.0 && sick > 2.0 * cured;
    differs("gentle", Seen::idle_beside_queued, is_expected);
}

#[test]
fn reserved_processors_are_idle_beside_queued_work() {
    let is_expected = |sick, cured| sick > 90.0 && cured < 30.0;
    differs("reserved", Seen::idle_beside_queued, is_expected);
}

#[test]
fn threads_spin_for_single_items_of_work() {
    let searches = |seen: &Seen| seen.per_round("/heist/spin/starts:events");
    differs("spinning", searches, |sick, cured| sick > 0.01 && sick > 5.0 * cured);
}

#[test]
fn the_global_queue_grows_when_nobody_waits_for_the_workers() {
    let longest = |seen: &Seen| seen.peak("/heist/queue/global:goroutines");
    differs("global-queue", longest, |sick, cured| sick > 500.0 && cured < 100.0);
}

#[test]
fn a_locked_goroutine_needs_a_thread_switch_each_time() {
    let wake_ups = |seen: &Seen| seen.per_round("/heist/threads/unparks:events");
    differs("locked", wake_ups, |sick, cured| sick >= 1.0 && cured < 0.2);
}

#[test]
fn goroutines_behind_one_lock_do_not_move() {
    let waiting = |seen: &Seen| seen.per_second("/sync/mutex/wait/total:nanoseconds") / 1e9;
    differs("one-lock", waiting, |sick, cured| sick > 1.0 && sick > 10.0 * cured);
}

#[test]
fn a_ticker_is_late_beside_hogs() {
    let median = |seen: &Seen| seen.lateness_us(50);
    differs("late", median, |sick, cured| cured > 0.0 && sick > 2.0 * cured);
}

#[test]
fn hogs_are_preempted_by_signals() {
    differs("hogs", Seen::forced_share, |sick, cured| sick > 20.0 && cured < 5.0);
}

#[test]
fn threads_grow_with_calls_that_block() {
    let threads = |seen: &Seen| seen.peak("/sched/threads/total:threads");
    differs("blocking", threads, |sick, cured| sick > 25.0 && cured < 20.0);
}

#[test]
fn leaked_goroutines_stay() {
    differs("leak", Seen::share_that_stays, |sick, cured| sick > 90.0 && cured < 10.0);
}

#[test]
fn an_idle_goroutine_starves_beside_hogs() {
    let rounds = |seen: &Seen| seen.rounds() as f64;
    differs("idle-class", rounds, |sick, cured| sick == 0.0 && cured > 0.0);
}
