//! Panics: isolated by default, the end of the process if so configured.

use crate::child;
use crate::matrix;

use heist::sync::WaitGroup;
use heist::{PanicPolicy, Runtime, go, yield_now};
use std::fmt;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ThreadId;

/// SP-13: by default a panic ends its goroutine and no other; the handle has the text.
#[test]
fn a_panic_is_isolated_in_its_handle() {
    matrix::run(|| {
        let handles: Vec<_> = (0..30_u32)
            .map(|i| {
                go(move || {
                    if i.is_multiple_of(3) {
                        yield_now();
                    }
                    if i.is_multiple_of(10) {
                        panic!("number {i}");
                    }
                    i
                })
            })
            .collect();
        for (i, handle) in (0..).zip(handles) {
            match handle.join() {
                Ok(n) => assert_eq!(n, i),
                Err(error) => {
                    assert!(i % 10 == 0 && error.is_panic());
                    assert_eq!(error.panic_message(), Some(&*format!("number {i}")));
                }
            }
        }
    });
}

/// SP-13: the report of a panic names the goroutine, its name and where it was spawned.
#[test]
fn a_panic_is_reported_with_its_goroutine() {
    let ended = child::run(|| {
        matrix::plain(2).run(|| {
            let named = heist::goroutine::Builder::new().name("parser");
            let handle = named.spawn(|| panic!("no luck")).unwrap();
            assert_eq!(handle.id().as_u64(), 2);
            drop(heist::JoinHandle::<()>::join(handle));
        });
    });
    ended.succeeded();
    ended.said("no luck");
    ended.said("in goroutine 2 'parser', spawned at ");
    ended.said("panics.rs:");
}

/// A panic is isolated though it cannot be reported: standard error is a full disk.
#[test]
fn a_panic_that_cannot_be_reported_is_isolated() {
    let ended = child::run(|| {
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        // SAFETY: both are descriptors of this process, and std's standard error tolerates the
        // change.
        assert_eq!(unsafe { libc::dup2(full.as_raw_fd(), 2) }, 2);
        let rt = matrix::plain(2);
        let own = Arc::new(rt);
        let error = own.run(|| go(|| panic!("nobody hears it")).join().unwrap_err());
        assert_eq!(error.panic_message(), Some("nobody hears it"));
        // Nor can a runtime report that one of its own goroutines dropped it.
        let handle = own.handle();
        let dropped = handle.spawn(move || drop(own));
        assert!(dropped.join().is_ok());
    });
    ended.succeeded();
}

/// SP-13, SP-14: with `PanicPolicy::Abort` an uncaught panic ends the process as in Go: `panic: `
/// and the text, the goroutine, exit code 2. Other goroutines do not continue.
#[test]
fn an_uncaught_panic_ends_the_process_if_so_configured() {
    let ended = child::run(|| {
        let builder = Runtime::builder().panic_policy(PanicPolicy::Abort);
        matrix::start(builder.procs(2)).run(|| {
            assert!(std::panic::catch_unwind(|| panic!("caught")).is_err());
            let handle = go(|| panic!("nobody {}", "catches me"));
            drop(heist::JoinHandle::<()>::join(handle));
            eprintln!("went on");
        });
    });
    ended.exited(2);
    assert!(ended.stderr.starts_with("panic: nobody catches me\n"), "{}", ended.stderr);
    ended.said("[running]");
    ended.said("created by goroutine 1 at ");
    assert!(!ended.stderr.contains("went on"));
}

/// SP-14: the main goroutine has number 1, and its report says so.
#[test]
fn main_is_goroutine_one() {
    matrix::each(|_, rt| {
        let id = rt.run(|| heist::current_id().unwrap().as_u64());
        assert_eq!(id, 1);
    });
    let ended = child::run(|| {
        let builder = Runtime::builder().panic_policy(PanicPolicy::Abort);
        matrix::start(builder).run(|| panic!("main fails"));
    });
    ended.exited(2);
    ended.said("panic: main fails\n\ngoroutine 1 [running]:");
}

/// A panic of the main goroutine comes out of `run` with its payload.
#[test]
fn a_panic_of_main_comes_out_of_run() {
    matrix::each(|_, rt| {
        let out = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            rt.run(|| std::panic::resume_unwind(Box::new(42_u8)));
        }));
        assert_eq!(*out.unwrap_err().downcast::<u8>().unwrap(), 42);
        assert_eq!(rt.run(|| 1), 1, "the runtime works as before");
    });
}

/// Text that runs the scheduler while it is formatted.
struct Busy(u32);

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for _ in 0..3 {
            yield_now();
        }
        let n = self.0;
        let n = go(move || {
            yield_now();
            n
        });
        write!(f, "busy {}", n.join().unwrap())
    }
}

/// SP-17: a panic whose text yields and joins while it is formatted is reported nevertheless.
#[test]
fn the_text_of_a_panic_may_use_the_scheduler() {
    matrix::run(|| {
        let handles: Vec<_> = (0..8).map(|i| go(move || panic!("{}", Busy(i)))).collect();
        for (i, handle) in handles.into_iter().enumerate() {
            let error = heist::JoinHandle::<()>::join(handle).unwrap_err();
            assert_eq!(error.panic_message(), Some(&*format!("busy {i}")));
        }
    });
}

/// SP-18: a panic inside the text of a panic ends the process with a notice, not in a loop.
#[test]
fn a_panic_in_the_text_of_a_panic_ends_with_a_notice() {
    struct Bad;
    impl fmt::Display for Bad {
        fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
            panic!("inner");
        }
    }
    let ended = child::run(|| {
        matrix::plain(2).run(|| {
            let handle = go(|| panic!("{Bad}"));
            drop(heist::JoinHandle::<()>::join(handle));
        });
    });
    ended.was_killed_by(libc::SIGABRT);
    ended.said("panicked");
}

/// The observations of a destructor that parks while its goroutine panics.
#[derive(Default)]
struct Seen {
    before: std::sync::Mutex<Option<ThreadId>>,
    after: std::sync::Mutex<Option<ThreadId>>,
    n_parks: AtomicUsize,
}

/// Parks several times while it is dropped.
struct ParksOnDrop(Arc<Seen>);

impl Drop for ParksOnDrop {
    fn drop(&mut self) {
        assert!(std::thread::panicking());
        *self.0.before.lock().unwrap() = Some(std::thread::current().id());
        for i in 0..5 {
            let other = go(move || {
                // Another goroutine, wherever it runs, does not look as if it panicked.
                assert!(!std::thread::panicking());
                yield_now();
                assert!(!std::thread::panicking());
                i
            });
            yield_now();
            assert_eq!(other.join().unwrap(), i);
            self.0.n_parks.fetch_add(1, Ordering::SeqCst);
        }
        assert!(std::thread::panicking());
        *self.0.after.lock().unwrap() = Some(std::thread::current().id());
    }
}

/// SP-17: a goroutine that parks while it panics returns to its thread, and no other goroutine runs
/// there meanwhile.
#[test]
fn parking_while_panicking_stays_on_the_thread() {
    matrix::run(|| {
        let noise = Arc::new(AtomicBool::new(true));
        let noisy: Vec<_> = (0..4)
            .map(|_| {
                let noise = Arc::clone(&noise);
                go(move || {
                    while noise.load(Ordering::Relaxed) {
                        assert!(!std::thread::panicking());
                        yield_now();
                    }
                })
            })
            .collect();
        let all: Vec<Arc<Seen>> = (0..10).map(|_| Arc::default()).collect();
        let handles: Vec<_> = all
            .iter()
            .map(|seen| {
                let parks = ParksOnDrop(Arc::clone(seen));
                go(move || {
                    let _parks = parks;
                    std::panic::resume_unwind(Box::new("quietly"));
                })
            })
            .collect();
        for handle in handles {
            let error = heist::JoinHandle::<()>::join(handle).unwrap_err();
            assert_eq!(error.panic_message(), Some("quietly"));
        }
        noise.store(false, Ordering::Relaxed);
        for handle in noisy {
            handle.join().unwrap();
        }
        for seen in all {
            assert_eq!(seen.n_parks.load(Ordering::SeqCst), 5);
            let before = seen.before.lock().unwrap().unwrap();
            assert_eq!(Some(before), *seen.after.lock().unwrap());
        }
    });
}

/// A goroutine that waits for a panicking one gets the outcome although its thread was tied up.
#[test]
fn many_goroutines_may_be_panicking_at_once() {
    matrix::run(|| {
        let gate = WaitGroup::new();
        gate.add(1);
        let inside = Arc::new(AtomicUsize::new(0));
        struct Waits(WaitGroup, Arc<AtomicUsize>);
        impl Drop for Waits {
            fn drop(&mut self) {
                self.1.fetch_add(1, Ordering::SeqCst);
                self.0.wait();
            }
        }
        let handles: Vec<_> = (0..20_usize)
            .map(|i| {
                let waits = Waits(gate.clone(), Arc::clone(&inside));
                go(move || {
                    let _waits = waits;
                    std::panic::resume_unwind(Box::new(i));
                })
            })
            .collect();
        matrix::yield_until("all of them wait", || inside.load(Ordering::SeqCst) == 20);
        gate.done();
        for (i, handle) in handles.into_iter().enumerate() {
            let payload = heist::JoinHandle::<()>::join(handle).unwrap_err().into_panic();
            assert_eq!(*payload.unwrap().downcast::<usize>().unwrap(), i);
        }
    });
}

/// A wait group whose worker panics is done by its destructor, and the waiter learns of the panic
/// from the handle.
#[test]
fn a_guard_is_done_although_its_goroutine_panics() {
    struct Done(WaitGroup);
    impl Drop for Done {
        fn drop(&mut self) {
            self.0.done();
        }
    }
    matrix::run(|| {
        let group = WaitGroup::new();
        group.add(1);
        let done = Done(group.clone());
        let handle = go(move || {
            let _done = done;
            std::panic::resume_unwind(Box::new("after all"));
        });
        group.wait();
        assert!(heist::JoinHandle::<()>::join(handle).unwrap_err().is_panic());
    });
}

/// SP-19: main ends while another goroutine crashes: the crash is reported, with its text and where
/// the goroutine was spawned, at least once in ten runs, and the exit code then says so.
#[test]
fn a_crash_that_races_with_the_end_of_main_is_reported() {
    struct Done(WaitGroup);
    impl Drop for Done {
        fn drop(&mut self) {
            self.0.done();
        }
    }
    let mut reported = 0;
    for _ in 0..10 {
        let ended = child::run(|| {
            let rt = matrix::start(Runtime::builder().procs(2).panic_policy(PanicPolicy::Abort));
            rt.run(|| {
                let group = WaitGroup::new();
                group.add(1);
                let done = Done(group.clone());
                go(move || {
                    let _done = done;
                    panic!("crash");
                });
                group.wait();
            });
        });
        if ended.status.success() {
            continue;
        }
        ended.exited(2);
        ended.said("panic: crash");
        ended.said("panics.rs:");
        reported += 1;
    }
    assert!(reported > 0, "main was faster ten times");
}
