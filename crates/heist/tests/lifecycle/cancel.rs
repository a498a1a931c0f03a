//! Cancelling goroutines: at which points it takes effect, and which code still runs.

use crate::matrix;

use crate::unwinding::{Counted, open};
use heist::sync::WaitGroup;
use heist::{go, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// A goroutine that waits forever, with a flag that says it has begun and a count of destructors.
fn sleeper() -> (heist::JoinHandle<()>, Arc<AtomicBool>, Arc<AtomicUsize>) {
    let (began, drops) = (Arc::new(AtomicBool::new(false)), Arc::default());
    let (tell, count) = (Arc::clone(&began), Counted(Arc::clone(&drops)));
    let handle = go(move || {
        let _count = count;
        tell.store(true, Ordering::SeqCst);
        open().wait();
        unreachable!("it is never opened");
    });
    (handle, began, drops)
}

/// A parked goroutine unwinds at once and its destructors run.
#[test]
fn a_parked_goroutine_unwinds() {
    matrix::run(|| {
        let (handle, began, drops) = sleeper();
        matrix::yield_until("begun", || began.load(Ordering::SeqCst));
        handle.cancel();
        handle.cancel();
        let error = handle.join().unwrap_err();
        assert!(error.is_cancelled());
        assert_eq!(error.to_string(), format!("goroutine {} was cancelled", error.id()));
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    });
}

/// A running goroutine continues until its next park, and not further.
#[test]
fn a_running_goroutine_unwinds_at_its_next_park() {
    matrix::each_of(&matrix::cases_with(&[2, 4, 16]), |_, rt| {
        let (began, go_on, beyond) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicUsize::new(0)),
        );
        let (tell, wait, count) = (Arc::clone(&began), Arc::clone(&go_on), Arc::clone(&beyond));
        let handle = rt.handle().spawn(move || {
            tell.store(true, Ordering::SeqCst);
            while !wait.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            count.fetch_add(1, Ordering::SeqCst);
            yield_now();
            count.fetch_add(1, Ordering::SeqCst);
        });
        matrix::eventually("begun", || began.load(Ordering::SeqCst));
        handle.cancel();
        assert!(!handle.is_finished());
        go_on.store(true, Ordering::SeqCst);
        assert!(handle.join().unwrap_err().is_cancelled());
        assert_eq!(beyond.load(Ordering::SeqCst), 1);
    });
}

/// A goroutine that has not started never does; its closure is dropped.
#[test]
fn a_goroutine_that_has_not_started_never_does() {
    for case in matrix::cases_with(&[1]) {
        matrix::each_of(&[case], |_, rt| {
            rt.run(|| {
                let drops = Arc::default();
                let count = Counted(Arc::clone(&drops));
                // One processor, and this goroutine holds it.
                let handle = go(move || {
                    let _count = count;
                    unreachable!("cancelled before it started");
                });
                handle.cancel();
                assert!(handle.join().unwrap_err().is_cancelled());
                assert_eq!(drops.load(Ordering::SeqCst), 1);
            });
        });
    }
}

/// A goroutine that has ended keeps its result.
#[test]
fn a_finished_goroutine_keeps_its_result() {
    matrix::run(|| {
        let handle = go(|| 5);
        matrix::yield_until("the end", || handle.is_finished());
        handle.cancel();
        assert_eq!(handle.join().unwrap(), 5);
        // Another goroutine has the record now, and must not be cancelled.
        assert_eq!(go(|| 6).join().unwrap(), 6);
    });
}

/// A goroutine that returns without parking again is not stopped.
#[test]
fn a_goroutine_that_never_parks_is_not_stopped() {
    matrix::each_of(&matrix::cases_with(&[2, 4]), |_, rt| {
        let (began, go_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (tell, wait) = (Arc::clone(&began), Arc::clone(&go_on));
        let handle = rt.handle().spawn(move || {
            tell.store(true, Ordering::SeqCst);
            while !wait.load(Ordering::SeqCst) {
                std::hint::spin_loop();
            }
            9
        });
        matrix::eventually("begun", || began.load(Ordering::SeqCst));
        handle.cancel();
        go_on.store(true, Ordering::SeqCst);
        assert_eq!(handle.join().unwrap(), 9);
    });
}

/// Cancelling a goroutine that joins another ends the one that waits; the other is detached and
/// continues.
#[test]
fn a_joining_goroutine_leaves_the_other_alone() {
    matrix::run(|| {
        let gate = open();
        let ended = Arc::new(AtomicBool::new(false));
        let (wait, tell) = (gate.clone(), Arc::clone(&ended));
        let target = go(move || {
            wait.wait();
            tell.store(true, Ordering::SeqCst);
        });
        let began = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&began);
        let joiner = go(move || {
            tell.store(true, Ordering::SeqCst);
            target.join().unwrap();
        });
        matrix::yield_until("begun", || began.load(Ordering::SeqCst));
        yield_now();
        joiner.cancel();
        assert!(joiner.join().unwrap_err().is_cancelled());
        assert!(!ended.load(Ordering::SeqCst));
        gate.done();
        matrix::yield_until("the end of the other", || ended.load(Ordering::SeqCst));
    });
}

/// Destructors of a cancelled goroutine may park: they yield, join, and wait for a group.
#[test]
fn destructors_may_park() {
    struct Parks(Arc<AtomicUsize>);
    impl Drop for Parks {
        fn drop(&mut self) {
            yield_now();
            let n = go(|| {
                yield_now();
                20
            });
            self.0.fetch_add(n.join().unwrap(), Ordering::SeqCst);
            let group = WaitGroup::new();
            group.add(1);
            let done = group.clone();
            let count = Arc::clone(&self.0);
            go(move || {
                count.fetch_add(300, Ordering::SeqCst);
                done.done();
            });
            group.wait();
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    matrix::run(|| {
        let sums: Vec<Arc<AtomicUsize>> = (0..20).map(|_| Arc::default()).collect();
        let began = Arc::new(AtomicUsize::new(0));
        let handles: Vec<_> = sums
            .iter()
            .map(|sum| {
                let (parks, began) = (Parks(Arc::clone(sum)), Arc::clone(&began));
                go(move || {
                    let _parks = parks;
                    began.fetch_add(1, Ordering::SeqCst);
                    open().wait();
                })
            })
            .collect();
        matrix::yield_until("all begun", || began.load(Ordering::SeqCst) == 20);
        handles.iter().for_each(heist::JoinHandle::cancel);
        for handle in handles {
            assert!(handle.join().unwrap_err().is_cancelled());
        }
        for sum in sums {
            assert_eq!(sum.load(Ordering::SeqCst), 321);
        }
    });
}

/// A second cancellation does not disturb destructors that wait.
#[test]
fn cancelling_again_leaves_waiting_destructors_alone() {
    struct Waits(WaitGroup, Arc<AtomicBool>, Arc<AtomicBool>);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.1.store(true, Ordering::SeqCst);
            self.0.wait();
            self.2.store(true, Ordering::SeqCst);
        }
    }
    matrix::run(|| {
        let gate = open();
        let [began, dropping, dropped] = <[Arc<AtomicBool>; 3]>::default();
        let waits = Waits(gate.clone(), Arc::clone(&dropping), Arc::clone(&dropped));
        let tell = Arc::clone(&began);
        let handle = go(move || {
            let _waits = waits;
            tell.store(true, Ordering::SeqCst);
            open().wait();
        });
        matrix::yield_until("begun", || began.load(Ordering::SeqCst));
        handle.cancel();
        matrix::yield_until("its destructor", || dropping.load(Ordering::SeqCst));
        for _ in 0..10 {
            handle.cancel();
            yield_now();
        }
        assert!(!dropped.load(Ordering::SeqCst) && !handle.is_finished());
        gate.done();
        assert!(handle.join().unwrap_err().is_cancelled());
        assert!(dropped.load(Ordering::SeqCst));
    });
}

/// Plain threads and goroutines of other runtimes may cancel.
#[test]
fn threads_and_other_runtimes_may_cancel() {
    matrix::each(|_, rt| {
        let other = matrix::plain(2);
        for from_runtime in [false, true] {
            let (handle, began, drops) = rt.run(sleeper);
            matrix::eventually("begun", || began.load(Ordering::SeqCst));
            if from_runtime {
                other.run(|| handle.cancel());
            } else {
                handle.cancel();
            }
            assert!(handle.join().unwrap_err().is_cancelled());
            assert_eq!(drops.load(Ordering::SeqCst), 1);
        }
    });
}

/// Catching the unwinding does not save the goroutine: dropping the caught payload resumes it.
#[test]
fn a_catch_does_not_swallow_a_cancellation() {
    matrix::run(|| {
        let began = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&began);
        let handle = go(move || {
            tell.store(true, Ordering::SeqCst);
            let _ = std::panic::catch_unwind(|| open().wait());
            panic!("the cancelled call returned");
        });
        matrix::yield_until("begun", || began.load(Ordering::SeqCst));
        handle.cancel();
        assert!(handle.join().unwrap_err().is_cancelled());
    });
}

/// Reports when its destructor, which waits meanwhile, has finished.
struct Waits(heist::chan::Sender<&'static str>);

impl Drop for Waits {
    fn drop(&mut self) {
        yield_now();
        let _ = self.0.send("to the end");
    }
}

/// The destructors of a goroutine that was cancelled before it began, and of a result that is not
/// wanted, may wait like those of one that is unwound, and this is not a panic.
#[test]
fn destructors_of_unused_closures_and_results_may_wait() {
    for policy in [heist::PanicPolicy::Isolate, heist::PanicPolicy::Abort] {
        let rt = matrix::start(heist::Runtime::builder().procs(1).panic_policy(policy));
        rt.run(|| {
            let (tell, told) = heist::chan::bounded(1);
            let waits = Waits(tell);
            let unborn = go(move || {
                let _waits = waits;
                open().wait();
            });
            unborn.cancel();
            assert!(unborn.join().unwrap_err().is_cancelled());
            assert_eq!(told.recv(), Ok("to the end"), "a closure under {policy:?}");

            let (tell, told) = heist::chan::bounded(1);
            let began = Arc::new(AtomicBool::new(false));
            let begins = Arc::clone(&began);
            let unwanted = go(move || {
                begins.store(true, Ordering::SeqCst);
                while !heist::goroutine::is_cancelled() {
                    std::hint::spin_loop();
                }
                Waits(tell)
            });
            matrix::yield_until("begun", || began.load(Ordering::SeqCst));
            unwanted.cancel();
            drop(unwanted);
            assert_eq!(told.recv(), Ok("to the end"), "a result under {policy:?}");
        });
    }
}
