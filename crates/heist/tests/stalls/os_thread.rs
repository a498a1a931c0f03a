//! Goroutines that are locked to their OS thread.

use crate::child;
use crate::matrix;

use heist::goroutine::Builder;
use heist::sync::WaitGroup;
use heist::{Runtime, go, lock_os_thread, testing, yield_now};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};
use std::time::Duration;

fn here() -> ThreadId {
    thread::current().id()
}

/// LT-01: a locked goroutine yields and sleeps ten times, stays on its thread, and may end without
/// unlocking.
#[test]
fn a_locked_goroutine_stays_and_may_end_locked() {
    matrix::run(|| {
        let handle = go(|| {
            std::mem::forget(lock_os_thread());
            let before = here();
            for _ in 0..10 {
                yield_now();
                assert_eq!(here(), before);
                heist::time::sleep(Duration::from_millis(1));
                assert_eq!(here(), before);
                thread::sleep(Duration::from_micros(100));
                yield_now();
                assert_eq!(here(), before);
            }
        });
        handle.join().unwrap();
    });
}

/// LT-02: a locked goroutine sends over a rendezvous channel to one that is not: the processor goes
/// back and forth between their threads.
#[test]
fn a_locked_goroutine_sends_to_an_unlocked_one() {
    matrix::run(|| {
        let (sender, receiver) = heist::chan::bounded(0);
        let locked = go(move || {
            let _guard = lock_os_thread();
            let before = here();
            for i in 0..10 {
                sender.send(i).unwrap();
                assert_eq!(here(), before);
            }
        });
        assert_eq!(receiver.iter().collect::<Vec<_>>(), (0..10).collect::<Vec<_>>());
        locked.join().unwrap();
    });
}

/// LT-06: first locks race with stops of the world, and nothing hangs.
#[test]
fn locks_race_with_stops_of_the_world() {
    matrix::stress(20, |_| {
        let rt = matrix::plain(4);
        rt.run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let stops = {
                let stop = Arc::clone(&stop);
                go(move || {
                    while !stop.load(Ordering::SeqCst) {
                        heist::set_procs(3);
                        heist::set_procs(4);
                    }
                })
            };
            let locks: Vec<_> = (0..2)
                .map(|_| {
                    go(|| {
                        std::mem::forget(lock_os_thread());
                        yield_now();
                    })
                })
                .collect();
            locks.into_iter().for_each(|lock| lock.join().unwrap());
            stop.store(true, Ordering::SeqCst);
            stops.join().unwrap();
        });
    });
}

/// LT-03, IN-44: locks nest and are counted; the goroutine is tied to the thread if and only if the
/// thread is tied to the goroutine, as long as the count is not zero.
#[test]
fn locks_nest() {
    matrix::run(|| {
        assert_eq!(testing::n_bindings(), Some(0));
        let first = lock_os_thread();
        assert_eq!(testing::n_bindings(), Some(1));
        let second = lock_os_thread();
        assert_eq!(testing::n_bindings(), Some(2));
        let before = here();
        // Not in the order in which they were taken.
        drop(first);
        assert_eq!(testing::n_bindings(), Some(1));
        for _ in 0..20 {
            yield_now();
            assert_eq!(here(), before);
        }
        drop(second);
        assert_eq!(testing::n_bindings(), Some(0));
        assert_eq!(go(testing::n_bindings).join().unwrap(), Some(0));
    });
}

/// LT-10: locked goroutines wait and are woken by others, and run on their own threads only; no
/// other goroutine ever runs there.
#[test]
fn no_other_goroutine_runs_on_a_locked_thread() {
    thread_local!(static OWNER: Cell<u64> = const { Cell::new(0) });
    matrix::run(|| {
        let locked: Vec<_> = (1..=4u64)
            .map(|i| {
                go(move || {
                    let _guard = lock_os_thread();
                    assert_eq!(OWNER.replace(i), 0, "two locked goroutines on one thread");
                    for _ in 0..10 {
                        let group = WaitGroup::new();
                        group.add(2);
                        for _ in 0..2 {
                            let group = group.clone();
                            go(move || {
                                assert_eq!(OWNER.get(), 0, "an unlocked goroutine on it");
                                group.done();
                            });
                        }
                        group.wait();
                        assert_eq!(OWNER.get(), i, "it moved");
                        yield_now();
                        assert_eq!(OWNER.get(), i, "it moved");
                    }
                    OWNER.set(0);
                })
            })
            .collect();
        for handle in locked {
            handle.join().unwrap();
        }
    });
}

/// `Builder::os_thread` locks from the start, and the thread ends with the goroutine: destructors
/// of thread-locals run, and no other goroutine gets the thread.
#[test]
fn a_thread_of_its_own_ends_with_its_goroutine() {
    struct Tells(Arc<AtomicUsize>);
    impl Drop for Tells {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    thread_local!(static TELLS: RefCell<Option<Tells>> = const { RefCell::new(None) });
    matrix::each(|_, rt| {
        let ended = Arc::new(AtomicUsize::new(0));
        let threads = Arc::new(Mutex::new(HashSet::new()));
        rt.run(|| {
            for _ in 0..5 {
                let (ended, threads) = (Arc::clone(&ended), Arc::clone(&threads));
                let own = Builder::new().os_thread().name("own").spawn(move || {
                    assert_eq!(testing::n_bindings(), Some(1));
                    let inside = here();
                    TELLS.set(Some(Tells(ended)));
                    yield_now();
                    assert_eq!(here(), inside);
                    assert!(threads.lock().unwrap().insert(inside), "a thread was used again");
                });
                own.unwrap().join().unwrap();
            }
            for _ in 0..20 {
                let threads = Arc::clone(&threads);
                let other = go(move || {
                    yield_now();
                    !threads.lock().unwrap().contains(&here())
                });
                assert!(other.join().unwrap(), "a goroutine on a thread that should have ended");
            }
        });
        matrix::eventually("the threads' ends", || ended.load(Ordering::SeqCst) == 5);
    });
}

/// The records of threads that have ended are used again: many more goroutines with threads of
/// their own than the limit allows at once, and the number of threads does not grow.
#[test]
fn threads_that_ended_do_not_count() {
    for procs in [1, 2, 4] {
        let rt = matrix::start(Runtime::builder().procs(procs).max_threads(procs + 32));
        rt.run(|| {
            for _ in 0..200 {
                Builder::new().os_thread().spawn(yield_now).unwrap().join().unwrap();
            }
        });
        let threads = rt.metrics().get("/sched/threads/total:threads").unwrap();
        assert!(threads <= procs as u64 + 32, "{threads}");
    }
}

/// A locked goroutine that panics is unwound on its thread and unlocked by its guard.
#[test]
fn a_panic_unlocks() {
    matrix::run(|| {
        let failed = go(|| {
            let _guard = lock_os_thread();
            yield_now();
            panic!("while locked");
        });
        let error = heist::JoinHandle::<()>::join(failed).unwrap_err();
        assert_eq!(error.panic_message(), Some("while locked"));
        assert_eq!(testing::n_bindings(), Some(0));
    });
}

/// A locked goroutine that waits can be cancelled, and a runtime that is dropped unwinds it on its
/// thread.
#[test]
fn waiting_locked_goroutines_are_unwound() {
    struct Checks(ThreadId, Arc<AtomicUsize>);
    impl Drop for Checks {
        fn drop(&mut self) {
            assert_eq!(here(), self.0, "it moved");
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    matrix::each_of(&matrix::cases(), |case, _| {
        let rt = case.runtime();
        let (began, ended) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let handles: Vec<_> = (0..6)
            .map(|i| {
                let (began, ended) = (Arc::clone(&began), Arc::clone(&ended));
                let wait = move || {
                    let _guard = (i % 3 > 0).then(lock_os_thread);
                    let _checks = (i % 3 > 0).then(|| Checks(here(), ended));
                    began.fetch_add(1, Ordering::SeqCst);
                    let group = WaitGroup::new();
                    group.add(1);
                    group.wait();
                };
                rt.handle().spawn(move || match i % 3 {
                    2 => Builder::new().os_thread().spawn(wait).unwrap().join().unwrap(),
                    _ => wait(),
                })
            })
            .collect();
        matrix::eventually("all begun", || began.load(Ordering::SeqCst) == 6);
        for handle in &handles[..3] {
            handle.cancel();
        }
        drop(rt);
        assert_eq!(ended.load(Ordering::SeqCst), 4);
    });
}

/// On a plain thread, which never runs anything else, the guard does nothing.
#[test]
fn locking_a_plain_thread_does_nothing() {
    let guard = lock_os_thread();
    assert_eq!(testing::n_bindings(), None);
    drop(guard);
}

/// A guard that user code keeps in a thread-local may outlive its goroutine, without effect.
#[test]
fn a_guard_may_outlive_its_goroutine() {
    thread_local!(static HIDDEN: RefCell<Vec<heist::OsThreadGuard>> = const { RefCell::new(vec![]) });
    matrix::run(|| {
        let hide = go(|| HIDDEN.with_borrow_mut(|hidden| hidden.push(lock_os_thread())));
        hide.join().unwrap();
        assert_eq!(go(|| 1).join().unwrap(), 1);
    });
}

/// The main goroutine can be locked too, and again in the next run.
#[test]
fn the_main_goroutine_can_be_locked() {
    matrix::each(|_, rt| {
        for _ in 0..3 {
            rt.run(|| {
                let _guard = lock_os_thread();
                let before = here();
                go(yield_now).join().unwrap();
                assert_eq!(here(), before);
            });
        }
    });
}

/// LT-10: locked goroutines and loops without calls share the processors.
#[test]
fn locked_goroutines_run_beside_hogs() {
    for procs in [1, 2] {
        // SAFETY: nothing bound to a thread is kept across a park, except while locked.
        let rt = unsafe {
            Runtime::builder().procs(procs).quantum(Duration::from_millis(1)).build().unwrap()
        };
        rt.run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let hogs: Vec<_> = (0..3)
                .map(|i| {
                    let stop = Arc::clone(&stop);
                    let hog = move || while !stop.load(Ordering::Relaxed) {};
                    match i {
                        0 => Builder::new().os_thread().spawn(hog).unwrap(),
                        _ => go(hog),
                    }
                })
                .collect();
            let locked = go(|| {
                let _guard = lock_os_thread();
                let before = here();
                for _ in 0..10 {
                    go(|| ()).join().unwrap();
                    assert_eq!(here(), before);
                }
            });
            locked.join().unwrap();
            stop.store(true, Ordering::Relaxed);
            hogs.into_iter().for_each(|hog| hog.join().unwrap());
        });
    }
}

/// DL-06: a limit of ten threads and a hundred goroutines that need one each: a message that names
/// the limit, then Go's fatal error and exit code 2.
#[test]
fn too_many_locked_goroutines_exhaust_the_threads() {
    let ended = child::run(|| {
        let rt = matrix::start(Runtime::builder().procs(2).max_threads(10));
        rt.run(|| {
            let group = WaitGroup::new();
            group.add(1);
            let handles: Vec<_> = (0..100)
                .map(|_| {
                    let group = group.clone();
                    Builder::new().os_thread().spawn(move || group.wait()).unwrap()
                })
                .collect();
            handles.into_iter().for_each(|handle| handle.join().unwrap());
        });
    });
    ended.exited(2);
    ended.said("heist: program exceeds 10-thread limit\nfatal error: thread exhaustion\n");
}

/// DL-07: a limit beyond all bounds is no limit.
#[test]
fn a_huge_thread_limit_saturates() {
    for most in [u32::MAX as usize, u32::MAX as usize + 1, usize::MAX] {
        let rt = matrix::start(Runtime::builder().procs(1).max_threads(most));
        rt.run(|| Builder::new().os_thread().spawn(|| ()).unwrap().join().unwrap());
    }
}

/// `run_here`: the result, panic, cancellation and borrows of a goroutine on the calling thread are
/// those of any other, in every configuration, and the thread can be used again and again.
#[test]
fn run_here_works_on_the_calling_thread() {
    matrix::each(|_, rt| {
        let own = std::thread::current().id();
        let is_here = || std::thread::current().id() == own;
        let words = ["a".to_owned(), "b".to_owned()];
        for _ in 0..3 {
            let joined = rt.run_here(|| {
                let others: Vec<_> = (0..10).map(|n| go(move || n)).collect();
                let sum: u64 = others.into_iter().map(|other| other.join().unwrap()).sum();
                assert!(is_here() && sum == 45);
                yield_now();
                assert!(is_here());
                words.concat()
            });
            assert_eq!(joined, "ab");
            let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                rt.run_here(|| std::panic::resume_unwind(Box::new(7)));
            }));
            assert_eq!(*panicked.unwrap_err().downcast::<i32>().unwrap(), 7);
        }
        let inside = rt
            .run(|| std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rt.run_here(|| ()))));
        assert!(inside.is_err(), "a goroutine has no thread of its own");
    });
}

/// Several threads do so at once, next to each other and to plain goroutines.
#[test]
fn run_here_works_on_several_threads_at_once() {
    let rt = matrix::plain(2);
    std::thread::scope(|threads| {
        for n in 0..4_u64 {
            let rt = &rt;
            threads.spawn(move || {
                let own = std::thread::current().id();
                for round in 0..50 {
                    let got = rt.run_here(move || {
                        let (tx, rx) = heist::chan::bounded(0);
                        go(move || tx.send(n * round).unwrap());
                        let got = rx.recv().unwrap();
                        assert_eq!(std::thread::current().id(), own);
                        got
                    });
                    assert_eq!(got, n * round);
                }
            });
        }
    });
}

/// LT-01: a guard that was left in a thread-local belongs to a lock that is over. Dropping it frees
/// no other goroutine of that thread, though it has the same number and the same record, in another
/// runtime.
#[test]
fn a_stale_guard_unlocks_no_other_goroutine() {
    thread_local! {
        static KEPT: std::cell::RefCell<Vec<heist::goroutine::OsThreadGuard>> =
            const { std::cell::RefCell::new(Vec::new()) };
    }
    for _ in 0..10 {
        let rt = matrix::plain(2);
        rt.run_here(|| KEPT.with_borrow_mut(|kept| kept.push(lock_os_thread())));
        drop(rt);
        let rt = matrix::plain(2);
        let own = std::thread::current().id();
        rt.run_here(|| {
            drop(KEPT.take());
            for _ in 0..20 {
                go(yield_now).join().unwrap();
                assert_eq!(std::thread::current().id(), own);
            }
        });
    }
}

/// `run_here` on a thread that blocks all signals, as programs with a thread for signals have them:
/// the goroutine is preempted nonetheless, and afterwards the thread blocks what it blocked before.
#[test]
fn run_here_unblocks_the_preemption_signal() {
    fn masked(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
        // SAFETY: a signal set is plain bits, and both are valid.
        unsafe {
            let mut before: libc::sigset_t = std::mem::zeroed();
            assert_eq!(libc::pthread_sigmask(how, set, &raw mut before), 0);
            before
        }
    }
    // SAFETY: a signal set is plain bits.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: it is a valid set.
    unsafe { libc::sigfillset(&raw mut all) };
    let before = masked(libc::SIG_BLOCK, &all);
    let rt = matrix::start(Runtime::builder().procs(1));
    let ran = rt.run_here(|| {
        let flag = Arc::new(AtomicBool::new(false));
        let other = Arc::clone(&flag);
        go(move || other.store(true, Ordering::Relaxed));
        let from = std::time::Instant::now();
        while !flag.load(Ordering::Relaxed) && from.elapsed() < Duration::from_secs(5) {
            std::hint::spin_loop();
        }
        flag.load(Ordering::Relaxed)
    });
    let after = masked(libc::SIG_SETMASK, &before);
    assert!(ran, "the goroutine could not be stopped");
    for signal in [libc::SIGURG, libc::SIGTERM] {
        // SAFETY: it is a valid set.
        assert_eq!(unsafe { libc::sigismember(&raw const after, signal) }, 1);
    }
}

/// A goroutine that is locked to its thread exchanges the P with the others all the time. With a
/// thread for each of them there are enough, also at the moment when one has given the P away and
/// is not idle yet.
#[test]
fn a_small_thread_limit_is_enough_for_threads_that_exchange_a_p() {
    let ended = child::run(|| {
        exchange_a_p(2, 1);
        exchange_a_p(3, 2);
    });
    ended.succeeded();
}

/// The same on a loaded machine: a thread that has given the P away gets no CPU for a long time.
#[test]
fn a_small_thread_limit_is_enough_for_threads_that_get_little_cpu() {
    if matrix::emulator::cannot_show("the threads get too little CPU to end") {
        return;
    }
    let ended = child::run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let n_loops = 2 * thread::available_parallelism().map_or(1, |n| n.get());
        let loops: Vec<_> = (0..n_loops)
            .map(|_| {
                let stop = Arc::clone(&stop);
                thread::spawn(move || while !stop.load(Ordering::Relaxed) {})
            })
            .collect();
        // SAFETY: a valid policy and parameter. The threads that this one makes inherit them.
        unsafe {
            let zero: libc::sched_param = std::mem::zeroed();
            libc::sched_setscheduler(0, libc::SCHED_IDLE, &raw const zero);
        }
        exchange_a_p(2, 1);
        stop.store(true, Ordering::Relaxed);
        loops.into_iter().for_each(|thread| thread.join().unwrap());
    });
    ended.succeeded();
}

/// A locked goroutine yields for two seconds beside two others that exchange messages.
fn exchange_a_p(threads: usize, procs: usize) {
    let rt = matrix::start(Runtime::builder().procs(procs).max_threads(threads));
    let until = std::time::Instant::now() + Duration::from_secs(2);
    let is_over = move || std::time::Instant::now() >= until;
    rt.run(|| {
        let locked = go(move || {
            let _locked = lock_os_thread();
            while !is_over() {
                yield_now();
            }
        });
        let (sender, receiver) = heist::chan::bounded::<u8>(0);
        let partner = go(move || while receiver.recv().is_ok() {});
        for n in 1.. {
            sender.send(1).unwrap();
            if n % 64 == 0 {
                heist::time::sleep(Duration::from_micros(50));
            }
            if is_over() {
                break;
            }
        }
        drop(sender);
        locked.join().unwrap();
        partner.join().unwrap();
    });
}
