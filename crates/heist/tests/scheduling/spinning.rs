//! Threads that look for work: not too many, and always one if there is work and an idle processor.

use crate::matrix;

use crate::matrix::{Case, Policy};
use heist::testing::{self, Sample};
use heist::{Runtime, go, yield_now};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Keeps all processors busy with short goroutines of all kinds for one round.
fn load(width: usize) {
    let handles: Vec<_> = (0..width)
        .map(|i| {
            go(move || {
                let inner: Vec<_> = (0..10).map(|j| go(move || i * j)).collect();
                if i.is_multiple_of(3) {
                    yield_now();
                }
                inner.into_iter().map(|h| h.join().unwrap()).sum::<usize>()
            })
        })
        .collect();
    for (i, handle) in handles.into_iter().enumerate() {
        assert_eq!(handle.join().unwrap(), 45 * i);
    }
}

/// Calls `look` with samples of `rt` while it is under load.
fn sampled(rt: &Runtime, rounds: u64, mut look: impl FnMut(Sample)) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            matrix::stress(rounds, |_| rt.run(|| load(100)));
            done.store(true, Ordering::Relaxed);
        });
        while !done.load(Ordering::Relaxed) {
            look(testing::sample(rt));
        }
    });
}

/// IN-14: of the threads that hold a processor at most half look for work. The count is raised
/// after it is checked, so threads that start at the same time may exceed the limit briefly; they
/// may not stay there, and there are never more than processors.
#[test]
fn at_most_half_of_the_busy_processors_spin() {
    let cases = [2, 4, 16].map(|procs| Case { procs, policy: Policy::Go, chaos: None });
    matrix::each_of(&cases, |case, rt| {
        let (mut n, mut above) = (0_u64, 0_u64);
        sampled(rt, 20, |sample| {
            let busy = sample.procs - sample.n_idle;
            assert!(sample.n_spinning <= sample.procs, "{sample:?}");
            n += 1;
            // One more than the half may have been woken by a submitter.
            above += u64::from(sample.n_spinning > busy.div_ceil(2) + 1);
        });
        assert!(above <= n / 20 + 1, "{case}: {above} of {n} samples show too many spinners");
    });
}

/// IN-17: under load there is never runnable work and an idle processor without a spinning thread,
/// for longer than it takes to wake a thread. With the gentle policy a lone goroutine waits for its
/// own processor, so only Go's policy promises it.
#[test]
fn work_does_not_wait_beside_an_idle_processor() {
    for case in matrix::cases().into_iter().filter(|c| c.policy == Policy::Go) {
        matrix::each_of(&[case], |case, rt| {
            let mut since: Option<Instant> = None;
            sampled(rt, 3, |sample| {
                let runnable = sample.global + sample.queued.iter().sum::<u32>();
                let stuck = runnable > 0 && sample.n_idle > 0 && sample.n_spinning == 0;
                let began = since.filter(|_| stuck);
                since = stuck.then(|| began.unwrap_or_else(Instant::now));
                let waited = since.map_or(Duration::ZERO, |since| since.elapsed());
                assert!(waited < Duration::from_secs(10), "{case}: {sample:?}");
            });
        });
    }
}

/// IN-17, IN-20: when all is done, every processor becomes idle with empty queues and no thread
/// looks for work any more.
#[test]
fn all_processors_become_idle() {
    matrix::each(|case, rt| {
        for _ in 0..5 {
            rt.run(|| load(50));
            matrix::eventually("all processors are idle", || {
                let sample = testing::sample(rt);
                sample.n_idle == sample.procs && sample.n_spinning == 0
            });
            let sample = testing::sample(rt);
            assert_eq!(sample.procs as usize, case.procs);
            assert!(sample.idle.iter().all(|&idle| idle), "{sample:?}");
            assert!(sample.queued.iter().all(|&n| n == 0), "{sample:?}");
            assert_eq!(sample.global, 0);
        }
    });
}

/// Runs one goroutine per processor, all of which wait, without parking, until all of them run.
/// Returns the processors they ran on.
fn meet(procs: usize) -> HashSet<u32> {
    let here = Arc::new(AtomicUsize::new(0));
    let handles: Vec<_> = (0..procs)
        .map(|_| {
            let here = Arc::clone(&here);
            go(move || {
                here.fetch_add(1, Ordering::SeqCst);
                while here.load(Ordering::SeqCst) < procs {
                    std::thread::yield_now();
                }
                testing::m_and_p().unwrap().1
            })
        })
        .collect();
    handles.into_iter().map(|h| h.join().unwrap()).collect()
}

/// IN-13, IN-15, IN-16, IN-18: one submitter is enough to get all processors to work: a thread that
/// finds work wakes the next. The goroutines wait for each other without parking, so a missing one
/// is a hang.
#[test]
fn one_submitter_gets_all_processors_to_work() {
    let cases =
        matrix::cases().into_iter().filter(|case| case.policy == Policy::Go).collect::<Vec<_>>();
    // A goroutine whose slice ends may continue elsewhere.
    matrix::each_whole(&cases, |case, rt| {
        for _ in 0..10 {
            let ran_on = rt.run(|| meet(case.procs));
            assert_eq!(ran_on.len(), case.procs);
        }
    });
}

/// IN-13: a processor without work steals from one that has some, whatever the policy.
#[test]
fn idle_processors_steal_from_busy_ones() {
    for policy in [Policy::Go, Policy::Gentle] {
        let case = Case { procs: 2, policy, chaos: None };
        matrix::each_of(&[case], |_, rt| {
            matrix::eventually("a steal", || {
                rt.run(|| load(100));
                let metrics = rt.metrics();
                let of = |name| metrics.get(name).unwrap();
                let attempts = of("/heist/steal/attempts:events");
                let successes = of("/heist/steal/successes:events");
                let stolen = of("/heist/steal/goroutines:goroutines");
                assert!(attempts >= successes && stolen >= successes);
                if policy == Policy::Gentle {
                    assert_eq!(of("/heist/steal/run-next:goroutines"), 0);
                }
                let by_proc: u64 = rt.per_proc().iter().map(|pp| pp.stolen).sum();
                assert!(by_proc >= stolen);
                successes > 0
            });
        });
    }
}

/// IN-19: an idle runtime does nothing: no thread looks for work or is woken.
#[test]
fn an_idle_runtime_stays_idle() {
    let rt = matrix::plain(4);
    rt.run(|| load(100));
    matrix::eventually("all processors are idle", || {
        let sample = testing::sample(&rt);
        sample.n_idle == sample.procs && sample.n_spinning == 0
    });
    let counts = || {
        ["/heist/wake-ups:events", "/heist/spin/starts:events"]
            .map(|name| rt.metrics().get(name).unwrap())
    };
    let before = counts();
    let until = Instant::now() + Duration::from_millis(200);
    while Instant::now() < until {
        std::thread::yield_now();
    }
    assert_eq!(counts(), before);
}
