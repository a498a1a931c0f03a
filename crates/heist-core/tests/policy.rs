//! The decisions that are pure functions.
#![cfg(not(loom))]

use heist_core::policy::{
    GLOBAL_BATCH_MAX, GLOBAL_CHECK_TICKS, LOCK_SPIN_PAUSES, LOCK_SPINS, RING_CAPACITY, STEAL_TRIES,
    UrgentStreak, global_batch, global_first, may_spin, may_spin_for_lock, stacks_to_release,
};
use heist_core::rng::Rng;

/// IN-10: a share is min(128, size, size / procs + 1).
#[test]
fn global_batch_is_a_fair_share() {
    for procs in 1..=64 {
        for size in 0..2000 {
            let share = 128.min(size).min(size / procs + 1);
            assert_eq!(global_batch(size, procs), share, "{size} among {procs}");
        }
    }
    assert_eq!(global_batch(u32::MAX - 1, 1), 128);
}

/// IN-10: a share of a non-empty queue is at least one, and always fits into an empty ring.
#[test]
fn global_batch_is_neither_nothing_nor_too_much() {
    for procs in [1, 2, 16, 4096] {
        assert_eq!(global_batch(0, procs), 0);
        for size in 1..2000 {
            let batch = global_batch(size, procs);
            assert!((1..=GLOBAL_BATCH_MAX.min(size)).contains(&batch));
        }
    }
    const { assert!(GLOBAL_BATCH_MAX < RING_CAPACITY) };
}

/// IN-11: one tick in 61 takes from the global queue first, from any starting tick.
#[test]
fn one_tick_in_61_is_global_first() {
    assert_eq!(GLOBAL_CHECK_TICKS, 61);
    assert!(global_first(0) && global_first(61) && global_first(122));
    for start in (0..1000).chain([u32::MAX - 61]) {
        assert_eq!((start..start + 61).filter(|&tick| global_first(tick)).count(), 1);
    }
}

/// IN-13: four passes.
#[test]
fn thieves_try_four_times() {
    assert_eq!(STEAL_TRIES, 4);
}

/// IN-14: one more M may spin only while twice the number of spinners is below the number of busy
/// Ps.
#[test]
fn spinning_is_capped_at_half_of_the_busy() {
    for procs in 1_u32..=64 {
        for n_idle in 0..=procs {
            for n_spinning in 0..=procs {
                let expected = 2 * i64::from(n_spinning) < i64::from(procs) - i64::from(n_idle);
                assert_eq!(may_spin(n_spinning, procs, n_idle), expected);
            }
        }
    }
    // The counts are read one after the other and may contradict each other.
    assert!(!may_spin(0, 4, 5));
}

/// IN-14: if every M asks before it spins, the spinners are never more than half of the busy Ps,
/// rounded up.
#[test]
fn asking_keeps_the_cap() {
    let seed = 14;
    println!("seed {seed}");
    let mut rng = Rng::new(seed);
    for procs in 1..=16 {
        let (mut n_idle, mut n_spinning) = (procs - 1, 0);
        for _ in 0..10_000 {
            match rng.below(4) {
                0 if may_spin(n_spinning, procs, n_idle) => {
                    n_spinning += 1;
                    assert!(n_spinning <= (procs - n_idle).div_ceil(2), "{procs} Ps");
                }
                1 => n_spinning = n_spinning.saturating_sub(1),
                2 => n_idle = n_idle.saturating_sub(1),
                // A P becomes idle only when its M has stopped spinning.
                3 if n_idle + 1 < procs && n_spinning == 0 => n_idle += 1,
                _ => {}
            }
        }
    }
}

/// A wait for a timer is exact, unless short waits follow one another.
#[test]
fn dense_timers_are_run_together() {
    use heist_core::policy::timers::{
        DENSE_WAIT_NS, FINE_WAIT_NS, Grain, SHORT_WAIT_NS, SHORT_WAITS_MAX, awake_at,
    };
    let now = 1_000_000;
    let exact = |short_waits| Grain { dense: false, short_waits };
    assert_eq!(Grain::of(now, now + SHORT_WAIT_NS, SHORT_WAITS_MAX), exact(0));
    for n in 0..SHORT_WAITS_MAX {
        assert_eq!(Grain::of(now, now + 1, n), exact(n + 1));
    }
    let dense = Grain { dense: true, short_waits: SHORT_WAITS_MAX };
    assert_eq!(Grain::of(now, now + 1, SHORT_WAITS_MAX), dense);
    assert_eq!(Grain::of(now, u64::MAX, SHORT_WAITS_MAX), exact(0));
    assert_eq!([0, 1, 2, 9].map(|n| Grain::short_waits_after(5, n)), [0, 0, 5, 5]);

    let long = |when| awake_at(now, when, 0);
    assert_eq!(long(now + 1), now + DENSE_WAIT_NS);
    assert_eq!(long(now + 2 * DENSE_WAIT_NS), now + 2 * DENSE_WAIT_NS);
    assert_eq!(long(u64::MAX), u64::MAX);
    let short = |when| awake_at(now, when, when);
    assert_eq!(short(now + 1), now + FINE_WAIT_NS);
    assert_eq!(short(now + FINE_WAIT_NS + 1), now + FINE_WAIT_NS + 1);
}

/// The end of a tiny sleep is polled without an alarm; the near timer of a longer sleep is not.
#[test]
fn the_end_of_a_tiny_sleep_is_polled() {
    use heist_core::policy::timers::{SHORT_SLEEP_NS, Sleep, TINY_SLEEP_NS, is_near};
    let now = 1_000_000;
    assert_eq!(Sleep::of(now, now - 1), Sleep::Tiny);
    assert_eq!(Sleep::of(now, now + TINY_SLEEP_NS), Sleep::Tiny);
    assert_eq!(Sleep::of(now, now + TINY_SLEEP_NS + 1), Sleep::Short);
    assert_eq!(Sleep::of(now, now + SHORT_SLEEP_NS), Sleep::Short);
    assert_eq!(Sleep::of(now, now + SHORT_SLEEP_NS + 1), Sleep::Long);
    let near = now + TINY_SLEEP_NS;
    assert!(is_near(now, near, near) && is_near(now, now - 1, near));
    assert!(!is_near(now, near, near - 1), "no goroutine asked for a tiny sleep");
    assert!(!is_near(now, near + 1, near + 1), "it is not near yet");
    assert!(!is_near(now, u64::MAX, near));
}

/// SY-06: a contender for a lock spins four times, thirty pauses apart, and only if another P is
/// busy and no goroutine waits for its own P.
#[test]
fn spinning_for_a_lock_only_when_it_can_help() {
    assert_eq!((LOCK_SPINS, LOCK_SPIN_PAUSES), (4, 30));
    for spins in 0..8 {
        assert_eq!(may_spin_for_lock(spins, 2, 0, 0, true), spins < 4);
        // No other goroutine could run and release it.
        assert!(!may_spin_for_lock(spins, 1, 0, 0, true));
        assert!(!may_spin_for_lock(spins, 4, 3, 0, true));
        assert!(!may_spin_for_lock(spins, 4, 1, 2, true));
        // Another goroutine could run here.
        assert!(!may_spin_for_lock(spins, 4, 0, 0, false));
    }
    assert!(may_spin_for_lock(0, 4, 1, 1, true));
}

/// IN-42, GM-05: the default number of processors is that of the CPUs or of the quota, whichever is
/// less; a quota is rounded up and gives at least two if there are two CPUs.
#[test]
fn default_procs_are_bounded_by_cpus_and_quota() {
    use heist_core::policy::{FractionalQuota, PROCS_MAX, Quota, default_procs};
    let up =
        |cpus, quota, period| default_procs(cpus, Quota::new(quota, period), FractionalQuota::Up);
    for cpus in 1..=64 {
        assert_eq!(default_procs(cpus, None, FractionalQuota::Up), cpus);
        for percent in 1..=7000u64 {
            let expected = (percent.div_ceil(100) as u32).max(2).min(cpus);
            assert_eq!(up(cpus, percent * 1000, 100_000), expected, "{cpus} CPUs, {percent} %");
        }
    }
    assert_eq!(default_procs(0, None, FractionalQuota::Down), 1);
    assert_eq!(up(u32::MAX, u64::MAX, 1), PROCS_MAX);
    assert_eq!((Quota::new(0, 1), Quota::new(1, 0)), (None, None));
    let (narrow, wide) = (Quota::new(1, 3).unwrap(), Quota::new(2, 5).unwrap());
    assert!(narrow.cmp_cpus(wide).is_lt() && wide.cmp_cpus(wide).is_eq());
    let huge = Quota::new(u64::MAX, u64::MAX - 1).unwrap();
    assert!(huge.cmp_cpus(Quota::new(1, 1).unwrap()).is_gt());
}

/// IN-34: there are no foreign threads if the process has only the threads that the runtime knows
/// of; if the system does not report the number, there may be others.
#[test]
fn foreign_threads_are_counted() {
    use heist_core::policy::only_ours;
    for ours in 1..20 {
        for threads in 1..20 {
            assert_eq!(only_ours(Some(threads), ours), threads <= ours);
        }
        assert!(!only_ours(None, ours));
    }
}

/// A few idle stacks are released at once, many an eighth at a time, and none is kept forever.
#[test]
fn idle_stacks_are_released_gradually() {
    let given = [0, 1, 1024, 1025, 8192, 8200, 1_000_000].map(stacks_to_release);
    assert_eq!(given, [0, 1, 1024, 1024, 1024, 1025, 125_000]);
    assert_eq!(stacks_to_release(u32::MAX), 1 << 29);
    let mut left = 1_000_000;
    let periods = (0..).take_while(|_| {
        left -= stacks_to_release(left);
        left > 0
    });
    assert_eq!(periods.count(), 43);
}

/// After four urgent goroutines in a row another goroutine runs; urgent goroutines between which
/// others run do not count as a row.
#[test]
fn urgent_goroutines_take_turns_with_the_others() {
    let mut streak = UrgentStreak::default();
    let in_a_row: Vec<_> = (10..20).map(|tick| streak.continues(tick)).collect();
    let expected: Vec<_> = (0..10).map(|i| i % 5 != 4).collect();
    assert_eq!(in_a_row, expected);
    let mut streak = UrgentStreak::default();
    assert!((0..100).all(|i| streak.continues(u32::MAX.wrapping_add(i * 2))));
}
