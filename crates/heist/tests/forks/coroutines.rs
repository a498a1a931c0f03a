//! Forks in coroutines of another library, which can end in any order.

use crate::child;
use crate::coroutine::Suspended;
use heist::{Runtime, go, join, par};

/// Runs `f` on a goroutine that stays on its thread, as a coroutine must.
fn on_a_pinned_goroutine(f: fn()) {
    let rt = Runtime::builder().procs(1).build_async().unwrap();
    rt.block_on(async move { go(f).join().unwrap() });
}

#[test]
fn forks_that_end_in_reverse_order_are_right() {
    on_a_pinned_goroutine(|| {
        let begin = |n: u32| {
            Suspended::begin(move |yielder| {
                let own = Box::new(n);
                let ((), seen) = join(|| yielder.suspend(()), || *own);
                assert_eq!(seen, n);
            })
        };
        let (first, second) = (begin(1), begin(2));
        second.end();
        first.end();
    });
}

#[test]
fn a_fork_that_ends_before_one_that_began_later_ends_the_process() {
    let ended = child::run(|| {
        on_a_pinned_goroutine(|| {
            let _guard = heist::no_preempt();
            let begin = |n: u32| {
                Suspended::begin(move |yielder| {
                    let own = Box::new(n);
                    let ((), seen) = join(|| yielder.suspend(()), || *own);
                    assert_eq!(seen, n, "the second half of another fork ran");
                })
            };
            let (first, second) = (begin(1), begin(2));
            first.end();
            second.end();
        });
    });
    ended.was_killed_by(libc::SIGABRT);
    ended.said("a fork ended before one that began after it");
}

#[test]
fn a_measurement_that_ends_before_one_that_began_later_ends_the_process() {
    let ended = child::run(|| {
        on_a_pinned_goroutine(|| {
            let begin = || {
                Suspended::begin(|yielder| {
                    par::measure(|| yielder.suspend(()));
                })
            };
            let (first, second) = (begin(), begin());
            first.end();
            second.end();
        });
    });
    ended.was_killed_by(libc::SIGABRT);
    ended.said("a strand ended before one that began after it");
}
