//! Leaving a goroutine early by `exit_current`.

use crate::child;
use crate::matrix;

use heist::sync::WaitGroup;
use heist::{exit_current, go, yield_now};
use std::panic::catch_unwind;
use std::sync::{Arc, Mutex};

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<&'static str>>>);

impl Log {
    fn add(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }

    fn read(&self) -> Vec<&'static str> {
        self.0.lock().unwrap().clone()
    }

    fn on_drop(&self, what: &'static str) -> OnDrop<impl FnMut() + use<>> {
        let log = self.clone();
        OnDrop(move || log.add(what))
    }
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// SP-08: destructors run, inner ones first, and release their waiters.
#[test]
fn destructors_run_and_release_waiters() {
    matrix::run(|| {
        let log = Log::default();
        let group = WaitGroup::new();
        group.add(1);
        let (outer, done) = (log.clone(), group.clone());
        let handle = go(move || {
            let _release = OnDrop(move || done.done());
            let _outer = outer.on_drop("outer");
            let leave = |log: &Log| {
                let _inner = log.on_drop("inner");
                exit_current();
            };
            leave(&outer);
        });
        group.wait();
        assert!(handle.join().unwrap_err().is_exited());
        assert_eq!(log.read(), ["inner", "outer"]);
    });
}

/// SP-08: a catch inside a destructor sees nothing to catch.
#[test]
fn a_destructor_has_nothing_to_catch() {
    matrix::run(|| {
        let log = Log::default();
        let noted = log.clone();
        let handle = go(move || {
            let _looks = OnDrop(move || {
                assert!(std::thread::panicking());
                match catch_unwind(|| ()) {
                    Ok(()) => noted.add("nothing"),
                    Err(_) => noted.add("something"),
                }
            });
            exit_current();
        });
        assert!(handle.join().unwrap_err().is_exited());
        assert_eq!(log.read(), ["nothing"]);
    });
}

/// SP-08, SP-12: dropping the caught payload resumes the unwinding, through any number of catches.
#[test]
fn a_catch_that_drops_does_not_swallow_it() {
    fn catching(depth: u32, log: &Log) {
        let log = log.clone();
        if depth == 0 {
            exit_current();
        }
        let _ = catch_unwind(std::panic::AssertUnwindSafe(|| catching(depth - 1, &log)));
        log.add("swallowed");
    }
    matrix::run(|| {
        let log = Log::default();
        let noted = log.clone();
        let handle = go(move || catching(5, &noted));
        assert!(handle.join().unwrap_err().is_exited());
        assert!(log.read().is_empty());
    });
}

/// SP-12: if the caught payload is kept, the goroutine ends at its next park.
#[test]
fn a_catch_that_keeps_it_ends_at_the_next_park() {
    matrix::run(|| {
        let log = Log::default();
        let noted = log.clone();
        let handle = go(move || {
            let _last = noted.on_drop("destructor");
            let caught = catch_unwind(|| exit_current()).unwrap_err();
            noted.add("kept");
            yield_now();
            noted.add("beyond the park");
            drop(caught);
        });
        assert!(handle.join().unwrap_err().is_exited());
        assert_eq!(log.read(), ["kept", "destructor"]);
    });
}

/// SP-12: if the caught payload is forgotten, the goroutine ends at its next park, and if it does
/// not park it still counts as ended: its result is dropped.
#[test]
fn a_catch_that_forgets_it_still_ends() {
    matrix::run(|| {
        let log = Log::default();
        let noted = log.clone();
        let handle = go(move || {
            std::mem::forget(catch_unwind(|| exit_current()).unwrap_err());
            noted.add("forgotten");
            WaitGroup::new().wait();
            yield_now();
            noted.add("beyond the park");
        });
        assert!(handle.join().unwrap_err().is_exited());
        assert_eq!(log.read(), ["forgotten"]);

        let log = Log::default();
        let noted = log.clone();
        let handle = go(move || {
            std::mem::forget(catch_unwind(|| exit_current()).unwrap_err());
            noted.on_drop("result")
        });
        assert!(handle.join().map(drop).unwrap_err().is_exited());
        assert_eq!(log.read(), ["result"]);
    });
}

/// SP-12: a panic that is caught inside a destructor does not stop the exit.
#[test]
fn a_panic_caught_in_a_destructor_does_not_stop_it() {
    matrix::run(|| {
        let log = Log::default();
        let noted = log.clone();
        let handle = go(move || {
            let _later = noted.on_drop("later");
            let inner = noted.clone();
            let _panics = OnDrop(move || {
                let caught = catch_unwind(|| std::panic::resume_unwind(Box::new("inner")));
                inner.add(caught.unwrap_err().downcast_ref::<&str>().unwrap());
            });
            exit_current();
        });
        assert!(handle.join().unwrap_err().is_exited());
        assert_eq!(log.read(), ["inner", "later"]);
    });
}

/// SP-12: a panic that was caught before has no influence.
#[test]
fn a_panic_caught_before_does_not_stop_it() {
    matrix::run(|| {
        let handle = go(|| {
            let caught = catch_unwind(|| std::panic::resume_unwind(Box::new(1)));
            assert!(caught.is_err());
            exit_current();
        });
        assert!(heist::JoinHandle::<()>::join(handle).unwrap_err().is_exited());
    });
}

/// SP-08: destructors that run during the exit may park, on any configuration.
#[test]
fn destructors_may_park_on_the_way_out() {
    matrix::run(|| {
        let handles: Vec<_> = (0..10)
            .map(|i| {
                let log = Log::default();
                let noted = log.clone();
                let handle = go(move || {
                    let _parks = OnDrop(move || {
                        yield_now();
                        assert_eq!(go(move || i).join().unwrap(), i);
                        noted.add("parked");
                    });
                    exit_current();
                });
                (log, handle)
            })
            .collect();
        for (log, handle) in handles {
            assert!(heist::JoinHandle::<()>::join(handle).unwrap_err().is_exited());
            assert_eq!(log.read(), ["parked"]);
        }
    });
}

/// SP-09: when the main goroutine exits, `run` reports it and the others continue to run.
#[test]
fn the_others_continue_when_main_exits() {
    matrix::each(|_, rt| {
        let (handle, group) = rt.run(|| {
            let group = WaitGroup::new();
            group.add(1);
            let gate = group.clone();
            (
                go(move || {
                    gate.wait();
                    77
                }),
                group,
            )
        });
        let text = catch_unwind(std::panic::AssertUnwindSafe(|| {
            rt.run(|| -> () { exit_current() });
        }));
        let text = text.unwrap_err();
        let text = text.downcast_ref::<String>().unwrap();
        assert!(text.contains("ended itself"), "{text}");
        group.done();
        assert_eq!(handle.join().unwrap(), 77);
    });
}

#[heist::main(unsafe, procs = 2)]
fn main_that_leaves() {
    go(|| {
        for _ in 0..1000 {
            heist::yield_now();
        }
        eprintln!("the other one ran to its end");
    });
    exit_current();
}

/// SP-09, DL-03: in a program, the others run to their end, and then it ends with Go's error.
#[test]
fn a_program_without_goroutines_ends_with_an_error() {
    let ended = child::run(|| {
        main_that_leaves();
    });
    ended.exited(2);
    ended.said("the other one ran to its end");
    ended.said("fatal error: no goroutines (main called runtime.Goexit) - deadlock!");
}

/// SP-10: `exit_current` while a panic unwinds is reported as an error, not a silent end.
#[test]
fn leaving_while_a_panic_unwinds_is_refused() {
    let ended = child::run(|| {
        matrix::plain(2).run(|| {
            go(|| {
                let _leaves = OnDrop(|| exit_current());
                panic!("first");
            })
            .join()
            .map(drop)
            .unwrap_err();
        });
    });
    ended.was_killed_by(libc::SIGABRT);
    ended.said("first");
    ended.said("heist::exit_current: the goroutine is panicking");
}

/// SP-11: a panic that leaves a destructor during the exit ends the process, with its text.
#[test]
fn a_panic_that_leaves_a_destructor_ends_the_process() {
    let ended = child::run(|| {
        matrix::plain(2).run(|| {
            let handle = go(|| {
                let _panics = OnDrop(|| panic!("on the way out"));
                exit_current();
            });
            drop(heist::JoinHandle::<()>::join(handle));
        });
    });
    ended.was_killed_by(libc::SIGABRT);
    ended.said("on the way out");
}

/// Outside a goroutine there is nothing to leave.
#[test]
fn a_plain_thread_cannot_leave() {
    let text = catch_unwind(|| exit_current()).unwrap_err();
    let text = heist_text(&*text);
    assert!(text.contains("not on a goroutine"), "{text}");
}

fn heist_text(payload: &(dyn std::any::Any + Send)) -> &str {
    payload
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
        .unwrap()
}
