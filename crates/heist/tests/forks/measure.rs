//! What `par::measure` counts: laws that hold for every schedule.

use crate::matrix;
use crate::{Sign, join_taken};
use heist::par::{self, Measurement, measure};
use heist::{join, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

const FORKS: &str = "/heist/steal/forks:goroutines";
const PAUSE: Duration = Duration::from_millis(5);

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

/// How many forks `fib` makes.
fn forks_of_fib(n: u32) -> u64 {
    if n < 2 { 0 } else { 1 + forks_of_fib(n - 1) + forks_of_fib(n - 2) }
}

fn compute(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Measures until the machine has let a run be as it is on an idle one.
#[track_caller]
fn eventually(run: impl Fn() -> Measurement, wanted: impl Fn(&Measurement) -> bool) {
    let mut last = run();
    for _ in 0..200 {
        if wanted(&last) {
            return;
        }
        last = run();
    }
    panic!("not once in 200 runs; the last one:\n{last}");
}

#[test]
fn the_shape_of_a_tree_does_not_depend_on_the_schedule() {
    matrix::run(|| {
        let (value, m) = measure(|| fib(12));
        assert_eq!(value, 144);
        assert_eq!((m.forks, m.chain, m.depth), (forks_of_fib(12), 11, 11), "{m}");
        assert!(m.work >= m.span && m.parallelism() >= 1.0, "{m}");
        assert!(m.open >= m.depth && m.taken <= m.forks, "{m}");
        assert_eq!(m.procs as usize, heist::procs());
        assert_eq!((m.latency, m.suspended), (Duration::ZERO, 0), "nothing waits:\n{m}");
    });
}

#[test]
fn a_serial_chain_has_parallelism_one() {
    matrix::run(|| {
        let (sum, m) = measure(|| (0..1000_u64).fold(0, |a, b| std::hint::black_box(a + b)));
        assert_eq!(sum, 499_500);
        assert_eq!(m.work, m.span);
        assert_eq!((m.forks, m.taken, m.depth, m.open), (0, 0, 0, 0));
        assert!((m.parallelism() - 1.0).abs() < 1e-9 && m.work <= m.elapsed, "{m}");
    });
}

/// Forks in a row are a chain, although each is parallel.
#[test]
fn a_row_of_forks_is_as_long_as_it_is() {
    matrix::run(|| {
        let halves = || join(|| compute(Duration::from_micros(20)), || ());
        let ((), m) = measure(|| (0..10).for_each(|_| _ = halves()));
        assert_eq!((m.forks, m.chain, m.depth), (10, 10, 1));
        assert!(m.span >= Duration::from_micros(10 * 15), "{m}");
    });
}

/// On one P nothing overlaps: the parts of the time are no longer than the whole.
#[test]
fn one_processor_takes_at_least_the_work() {
    matrix::whole_slices(1).run(|| {
        let (_, m) = measure(|| fib(16));
        assert!(m.span <= m.work && m.work + m.books <= m.elapsed, "{m}");
        assert_eq!((m.taken, m.open), (0, m.depth), "one processor needs S1");
        assert_eq!((m.space_bound(), m.theft_bound()), (15, 15));
    });
}

/// The parts of a computation on several Ps are no longer than the time of all Ps.
#[test]
fn several_processors_do_no_more_than_they_can() {
    for procs in [2, 4, 16] {
        matrix::whole_slices(procs).run(|| {
            // Nothing here blocks, so at most one strand runs at a time on each P.
            eventually(|| measure(|| fib(16)).1, |m| m.work <= m.elapsed * m.procs);
        });
    }
}

#[test]
fn halves_that_were_taken_are_counted() {
    matrix::each(|_, rt| {
        let before = rt.metrics().get(FORKS).unwrap();
        let m = rt.run(|| {
            let (pair, m) = measure(|| join_taken(|| 1, || 2));
            assert_eq!((pair, m.forks, m.taken, m.open), ((1, 2), 1, 1, 1), "{m}");
            measure(|| fib(14)).1
        });
        assert_eq!(rt.metrics().get(FORKS).unwrap() - before, 1 + m.taken);
    });
}

#[test]
fn latency_is_span_and_no_work() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let sleep = || heist::time::sleep(PAUSE);
            eventually(
                || measure(|| join(sleep, sleep)).1,
                |m| {
                    assert!(m.span <= m.elapsed && m.suspended <= 2, "{m}");
                    m.suspended == 2
                        && m.latency >= PAUSE * 19 / 10
                        && m.span >= PAUSE * 9 / 10
                        && m.span < PAUSE * 2
                        && m.work < PAUSE
                },
            );
        });
    });
}

#[test]
fn a_wait_for_a_spawned_goroutine_is_latency() {
    matrix::run(|| {
        let ((), m) = measure(|| {
            let (tx, rx) = heist::chan::bounded(0);
            let spawned = heist::go(move || rx.recv().unwrap());
            tx.send(7).unwrap();
            assert_eq!(spawned.join().unwrap(), 7);
        });
        assert!(m.suspended <= 1 && m.forks == 0 && m.span >= m.work, "{m}");
    });
}

/// A strand that does not run, although it could, counts nothing.
#[test]
fn time_in_a_queue_is_neither_work_nor_span() {
    let run = || {
        let computing = heist::go(|| {
            for _ in 0..10 {
                compute(PAUSE / 5);
                yield_now();
            }
        });
        let ((), m) = measure(|| {
            while !computing.is_finished() {
                yield_now();
            }
        });
        assert!(m.elapsed >= PAUSE && m.work == m.span, "{m}");
        m
    };
    matrix::whole_slices(1).run(|| eventually(run, |m| m.span < m.elapsed / 2));
}

/// The same for a strand that is preempted, by force or when it enters the runtime.
#[test]
fn time_in_which_a_strand_is_preempted_is_no_work() {
    let rt = matrix::start(heist::Runtime::builder().procs(1).exact_quantum(PAUSE / 5));
    let run = || {
        let stop = Sign::default();
        heist::scope(|scope| {
            scope.go(|| {
                matrix::yield_until("the end", || {
                    compute(PAUSE);
                    stop.is_given()
                })
            });
            let ((), m) = measure(|| {
                compute(PAUSE * 4);
                fib(10);
            });
            stop.give();
            assert!(m.work + m.books <= m.elapsed, "{m}");
            m
        })
    };
    rt.run(|| eventually(run, |m| m.work < m.elapsed - PAUSE));
}

#[test]
fn an_inner_measurement_is_a_part_of_the_outer_one() {
    matrix::run(|| {
        let (inner, outer) = measure(|| {
            let (_, left) = join(|| (), || measure(|| fib(8)).1);
            let (_, here) = measure(|| fib(6));
            (left, here)
        });
        let (left, here) = inner;
        assert_eq!((left.forks, here.forks), (forks_of_fib(8), forks_of_fib(6)));
        assert_eq!(outer.forks, 1 + left.forks + here.forks);
        assert_eq!((outer.chain, outer.depth), (1 + 7 + 5, 8));
        assert!(outer.work >= left.work + here.work, "{outer}");
        assert!(outer.span >= here.span + left.span && outer.open >= outer.depth, "{outer}");
    });
}

#[test]
fn a_panic_ends_a_measurement_and_is_counted_by_the_outer_one() {
    matrix::run(|| {
        let fails = || {
            let broken = || join_taken(|| panic!("left"), || fib(5));
            let inner = || measure(broken).0;
            assert!(catch_unwind(AssertUnwindSafe(inner)).is_err());
            let right = || join(|| fib(5), || -> u64 { panic!("right") });
            assert!(catch_unwind(AssertUnwindSafe(right)).is_err());
        };
        let ((), m) = measure(fails);
        assert_eq!(m.forks, 2 + 2 * forks_of_fib(5), "{m}");
        assert!(m.taken >= 1 && m.work >= m.span, "{m}");
        // Forks are as they were.
        assert_eq!(fib(10), 55);
        assert_eq!(measure(|| fib(3)).1.forks, 2);
    });
}

#[test]
fn a_goroutine_that_ends_in_a_measurement_ends_it() {
    matrix::run(|| {
        let ends = heist::go(|| {
            measure(|| join(|| heist::exit_current(), || ()));
        });
        assert!(ends.join().is_err());
        let cancelled = heist::go(|| {
            measure(|| join(|| heist::time::sleep(Duration::from_secs(3600)), || fib(5)));
        });
        cancelled.cancel();
        assert!(cancelled.join().unwrap_err().is_cancelled());
        assert_eq!(measure(|| fib(3)).1.forks, 2);
    });
}

#[test]
fn loops_and_sorts_split_as_if_somebody_were_idle() {
    let slowly = |n: usize| {
        compute(Duration::from_micros(10));
        n
    };
    matrix::run(|| {
        let (results, m) = measure(|| par::map(0..100_usize, slowly));
        assert_eq!(results, (0..100).collect::<Vec<_>>());
        assert!(m.forks >= 3 && m.span < m.work, "{m}");
        let mut numbers: Vec<u32> = (0..50_000).rev().collect();
        let ((), m) = measure(|| par::sort(&mut numbers));
        assert!(numbers.is_sorted() && m.forks >= 3 && m.span < m.work, "{m}");
    });
}

#[test]
fn a_plain_thread_is_one_strand() {
    let (value, m) = measure(|| fib(12));
    assert_eq!(value, 144);
    assert_eq!((m.work, m.span, m.procs, m.forks), (m.elapsed, m.elapsed, 1, 0));
    assert!((m.parallelism() - 1.0).abs() < 1e-9 && m.constant() < 1e-9);
}

/// Several goroutines measure at the same time, with waits, and each counts its own forks.
#[test]
fn measurements_at_the_same_time_do_not_mix() {
    fn tree(n: u32) -> u64 {
        if n.is_multiple_of(5) {
            heist::time::sleep(Duration::from_micros(50));
        }
        if n < 2 {
            return n.into();
        }
        let (a, b) = join(|| tree(n - 1), || tree(n - 2));
        a + b
    }
    matrix::run(|| {
        let spawned: Vec<_> = (0..8).map(|n| heist::go(move || measure(|| tree(n)))).collect();
        let unmeasured = heist::go(|| fib(12));
        for (n, spawned) in (0..).zip(spawned) {
            let (value, m) = spawned.join().unwrap();
            assert_eq!((value, m.forks), (fib(n), forks_of_fib(n)), "{m}");
            assert_eq!(m.depth, u64::from(n.saturating_sub(1)));
        }
        assert_eq!(unmeasured.join().unwrap(), 144);
    });
}

#[test]
fn a_measurement_is_written_as_a_table() {
    let (_, m) = matrix::plain(2).run(|| measure(|| fib(10)));
    let text = m.to_string();
    assert_eq!(text.lines().count(), 10, "{text}");
    assert!(text.lines().all(|line| line.len() <= 80), "{text}");
    assert!(text.contains("on 2 procs") && text.contains("9 deep"), "{text}");
}
