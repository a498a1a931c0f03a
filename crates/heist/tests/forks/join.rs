//! What `join` returns, where its halves run, and what they may do.

use crate::matrix;
use crate::{Sign, join_taken};
use heist::goroutine::Class;
use heist::{chan, current_id, goroutine, join};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const FORKS: &str = "/heist/steal/forks:goroutines";

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

#[test]
fn both_results_are_returned() {
    matrix::run(|| {
        assert_eq!(fib(18), 2584);
        let words = [String::from("left"), String::from("right")];
        let (left, right) = join(|| words[0].clone(), || words[1].clone());
        assert_eq!([left, right], words);
        assert_eq!(join(|| (), || [7_u64; 100]), ((), [7; 100]));
    });
}

/// A half that nobody takes is a plain call, after the first half and on its goroutine.
#[test]
fn an_untaken_half_runs_on_the_caller() {
    matrix::whole_slices(1).run(|| {
        let order = Mutex::new(Vec::new());
        let note = |what| {
            order.lock().unwrap().push(what);
            current_id()
        };
        let (a, b) = join(|| note("a"), || note("b"));
        assert_eq!((a, b), (current_id(), current_id()));
        assert_eq!(*order.lock().unwrap(), ["a", "b"]);
    });
}

/// A half that was taken is a goroutine of its own, named and listed.
#[test]
fn a_taken_half_is_a_goroutine() {
    matrix::each(|_, rt| {
        let before = rt.metrics().get(FORKS).unwrap();
        let forker = goroutine::Builder::new().name("forker").class(Class::Latency);
        let forker = rt.handle().spawn(|| {
            forker
                .spawn(|| {
                    let me = current_id();
                    let (parked, go_on) = (Sign::default(), Sign::default());
                    let (dump, id) = join_taken(
                        || {
                            parked.wait();
                            let dump = heist::dump_goroutines();
                            go_on.give();
                            dump
                        },
                        || {
                            parked.give();
                            go_on.wait();
                            current_id()
                        },
                    );
                    assert_ne!(id, me);
                    let by = format!("forked by goroutine {}\n", me.unwrap());
                    assert!(dump.contains(&by), "{dump}");
                    assert!(dump.contains("join.rs:"), "{dump}");
                })
                .unwrap()
                .join()
        });
        forker.join().unwrap().unwrap();
        assert_eq!(rt.metrics().get(FORKS).unwrap() - before, 1);
        matrix::eventually("all ended", || {
            rt.metrics().get("/heist/goroutines/live:goroutines").is_none_or(|n| n == 0)
        });
    });
}

/// The first half waits for a message of the second one, and the other way round: both park.
#[test]
fn halves_wait_for_each_other() {
    matrix::run(|| {
        let (tx, rx) = chan::bounded(0);
        let (back, answer) = chan::bounded(0);
        let (got, sent) = join(
            || {
                let n: u32 = rx.recv().unwrap();
                back.send(n + 1).unwrap();
                n
            },
            || {
                tx.send(42).unwrap();
                answer.recv().unwrap()
            },
        );
        assert_eq!((got, sent), (42, 43));
    });
}

/// The forker waits for the half that was taken, parked and not running other work.
#[test]
fn the_forker_parks_until_the_half_has_ended() {
    matrix::run(|| {
        let (tx, rx) = chan::bounded::<()>(0);
        heist::scope(|s| {
            s.go(|| join_taken(|| (), || rx.recv().unwrap()));
            matrix::until_parked(1, "fork join");
            tx.send(()).unwrap();
        });
    });
}

/// More forks are nested than a deque has room for: the oldest become goroutines.
#[test]
fn forks_nest_deeper_than_the_deque() {
    fn left(depth: u32) -> u32 {
        if depth == 0 { 0 } else { join(|| left(depth - 1), || 1).0 + 1 }
    }
    fn right(depth: u32) -> u32 {
        if depth == 0 { 0 } else { join(|| 1, || right(depth - 1)).1 + 1 }
    }
    matrix::run(|| {
        heist::with_stack(16 << 20, || assert_eq!((left(2000), right(2000)), (2000, 2000)));
        // The oldest halves wait for the youngest first half.
        fn wait(depth: u32, sign: &Sign) {
            match depth {
                0 => sign.give(),
                _ => drop(join(|| wait(depth - 1, sign), || sign.wait())),
            }
        }
        heist::with_stack(16 << 20, || wait(600, &Sign::default()));
    });
}

/// A half that was taken from a goroutine on a larger stack gets one as large.
#[test]
fn a_taken_half_has_the_forkers_stack() {
    fn count(n: u64) -> u64 {
        if n == 0 { 0 } else { 1 + std::hint::black_box(count(n - 1)) }
    }
    matrix::run(|| {
        let deep = || count(std::hint::black_box(100_000));
        let (a, b) = heist::with_stack(64 << 20, || join_taken(deep, deep));
        assert_eq!((a, b), (100_000, 100_000));
        let large = goroutine::Builder::new().stack_size(64 << 20);
        let (a, b) = large.spawn(move || join_taken(deep, deep)).unwrap().join().unwrap();
        assert_eq!((a, b), (100_000, 100_000));
    });
}

#[test]
fn a_plain_thread_runs_both() {
    assert_eq!(fib(12), 144);
    let id = || std::thread::current().id();
    assert_eq!(join(id, id), (id(), id()));
}

/// The halves of a goroutine that is locked to its thread run elsewhere; the first one does not.
#[test]
fn halves_of_a_locked_goroutine_run_elsewhere() {
    matrix::run(|| {
        let _locked = heist::lock_os_thread();
        let id = || std::thread::current().id();
        let (a, b) = join_taken(id, id);
        assert_eq!(a, id());
        assert_ne!(b, id());
        let on_thread = goroutine::Builder::new().os_thread();
        on_thread.spawn(|| join_taken(|| (), || ())).unwrap().join().unwrap();
    });
}

/// Locks, sleeps, blocking calls, scopes and guards against preemption inside both halves.
#[test]
fn halves_do_what_goroutines_do() {
    fn work(depth: u32, total: &heist::sync::Mutex<u64>) {
        match depth {
            0 => *total.lock() += 1,
            _ => {
                join(|| work(depth - 1, total), || work(depth - 1, total));
            }
        }
        match depth % 5 {
            0 => heist::time::sleep(Duration::from_micros(50)),
            1 => heist::yield_now(),
            2 => heist::blocking(|| std::thread::sleep(Duration::from_micros(20))),
            3 => heist::scope(|s| drop(s.go(|| *total.lock() += 1))),
            _ => drop(heist::no_preempt()),
        }
    }
    matrix::run(|| {
        let total = heist::sync::Mutex::new(0);
        work(8, &total);
        // 256 leaves, and 1 + 32 scopes at the depths 8 and 3.
        assert_eq!(*total.lock(), 256 + 1 + 32);
    });
}

/// The number of processors changes while deques are listed at those that are removed.
#[test]
fn processors_come_and_go() {
    for procs in [1, 2, 4, 16] {
        let rt = matrix::plain(procs);
        let done = Sign::default();
        rt.run(|| {
            heist::scope(|s| {
                s.go(|| {
                    for n in [1, 3, 8, 2, 5, 1, 16, procs].into_iter().cycle().take(100) {
                        heist::set_procs(n);
                        heist::yield_now();
                    }
                    done.give();
                });
                for _ in 0..4 {
                    s.go(|| {
                        while !done.0.load(Ordering::SeqCst) {
                            assert_eq!(fib(12), 144);
                            join_taken(heist::yield_now, heist::yield_now);
                        }
                    });
                }
            });
        });
    }
}

/// Many goroutines wait in both halves: every second half was taken.
#[test]
fn many_forkers_wait() {
    matrix::run(|| {
        let (tx, rx) = chan::bounded::<()>(0);
        let waiting = AtomicU64::new(0);
        let wait = || {
            waiting.fetch_add(1, Ordering::SeqCst);
            rx.recv().unwrap();
        };
        heist::scope(|s| {
            for _ in 0..200 {
                s.go(|| join(wait, wait));
            }
            matrix::yield_until("all wait", || waiting.load(Ordering::SeqCst) == 400);
            for _ in 0..400 {
                tx.send(()).unwrap();
            }
        });
    });
}

/// Goroutines that keep each other busy do not starve the other half of a parked goroutine.
#[test]
fn a_half_runs_beside_busy_goroutines() {
    let rt = matrix::whole_slices(1);
    rt.run(|| {
        let done = Sign::default();
        let turns = AtomicU64::new(0);
        heist::scope(|s| {
            for _ in 0..4 {
                s.go(|| {
                    while !done.0.load(Ordering::SeqCst) {
                        turns.fetch_add(1, Ordering::Relaxed);
                        heist::yield_now();
                    }
                });
            }
            let (tx, rx) = chan::bounded(0);
            join(|| rx.recv().unwrap(), || tx.send(()).unwrap());
            done.give();
        });
        println!("after {} turns", turns.into_inner());
    });
}
