//! `AbortHandle` and `JoinSet`.

use crate::matrix;

use heist::goroutine::{self, JoinSet};
use heist::{JoinHandle, OverflowPolicy, chan, go, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Counts how many of its kind were dropped.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// An abort handle cancels a goroutine whose handle is gone, and nothing else: the record is not
/// reused while there is one.
#[test]
fn an_abort_handle_cancels_its_goroutine_only() {
    matrix::run(|| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let guard = Counted(Arc::clone(&dropped));
        let detached = go(move || {
            let _guard = guard;
            chan::never::<u8>().recv()
        });
        let abort = detached.abort_handle();
        drop(detached);
        matrix::until_parked(1, "chan receive (nil chan)");
        let early = go(|| ()).abort_handle();
        matrix::yield_until("it ends", || early.is_finished());
        // Records of goroutines that have ended are reused; that of `early` is not.
        let waiting: Vec<_> = (0..50).map(|_| go(|| chan::never::<u8>().recv())).collect();
        early.cancel();
        abort.clone().cancel();
        matrix::yield_until("it ends", || abort.is_finished());
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        for _ in 0..3 {
            yield_now();
        }
        assert!(waiting.iter().all(|handle| !handle.is_finished()));
        waiting.iter().for_each(JoinHandle::cancel);
        assert_eq!(waiting.into_iter().filter_map(|handle| handle.join().err()).count(), 50);
        abort.cancel();
    });
}

/// The result of a goroutine is dropped once, whatever the order of the ends: the goroutine's, that
/// of its handle, and that of its abort handle, here or on another thread.
#[test]
fn a_result_is_dropped_once_beside_abort_handles() {
    matrix::run(|| {
        for order in 0..6 {
            let dropped = Arc::new(AtomicUsize::new(0));
            let result = Counted(Arc::clone(&dropped));
            let (go_on, wait) = chan::bounded::<()>(0);
            let handle = go(move || {
                let _ = wait.recv();
                result
            });
            let abort = handle.abort_handle();
            match order {
                0 => {
                    drop((go_on, handle));
                    matrix::yield_until("it ends", || abort.is_finished());
                }
                1 => {
                    drop(go_on);
                    matrix::yield_until("it ends", || abort.is_finished());
                    drop(handle);
                    assert_eq!(dropped.load(Ordering::Relaxed), 1, "with the handle");
                }
                2 => {
                    drop(go_on);
                    drop(handle.join());
                }
                3 => {
                    drop((abort.clone(), handle));
                    drop(go_on);
                }
                4 => {
                    drop(go_on);
                    let thread = std::thread::spawn(move || drop((handle, abort)));
                    heist::blocking(|| thread.join().unwrap());
                    matrix::yield_until("it is dropped", || dropped.load(Ordering::Relaxed) == 1);
                    continue;
                }
                _ => {
                    abort.cancel();
                    assert!(handle.join().unwrap_err().is_cancelled());
                }
            }
            drop(abort);
            matrix::yield_until("it is dropped", || dropped.load(Ordering::Relaxed) == 1);
            assert_eq!(dropped.load(Ordering::Relaxed), 1, "order {order}");
        }
    });
}

/// Abort handles may be used and dropped after the runtime has ended.
#[test]
fn an_abort_handle_outlives_its_runtime() {
    for procs in [1, 4] {
        let rt = matrix::plain(procs);
        let (left, ended) = rt.run(|| {
            let left = go(|| chan::never::<u8>().recv());
            let ended = go(|| String::from("result"));
            matrix::yield_until("it ends", || ended.is_finished());
            (left.abort_handle(), ended.abort_handle())
        });
        drop(rt);
        assert!(left.is_finished() && ended.is_finished());
        left.cancel();
        ended.cancel();
        let rt = matrix::plain(procs);
        rt.run(move || {
            ended.cancel();
            drop((left, ended));
            assert_eq!(go(|| 1).join().unwrap(), 1);
        });
    }
}

/// A set returns each of its goroutines once, in the order of their ends, however they end.
#[test]
fn a_set_returns_each_end_once() {
    matrix::run(|| {
        let mut set = JoinSet::new();
        for i in 0..40 {
            set.spawn(move || match i % 4 {
                0 => i,
                1 => panic!("{i}"),
                2 => heist::exit_current(),
                _ => chan::never::<i32>().recv().unwrap(),
            });
        }
        let mut ends = [0; 3];
        while ends.iter().sum::<i32>() < 30 {
            match set.join_next().unwrap() {
                Ok(i) => {
                    assert_eq!(i % 4, 0);
                    ends[0] += 1;
                }
                Err(error) if error.is_panic() => ends[1] += 1,
                Err(error) => {
                    assert!(error.is_exited());
                    ends[2] += 1;
                }
            }
        }
        assert_eq!((ends, set.len()), ([10; 3], 10));
        assert!(set.try_join_next().is_none());
        assert!(set.join_next_timeout(Duration::from_millis(1)).is_none());
        set.cancel_all();
        let rest = set.join_all();
        assert!(rest.len() == 10 && rest.into_iter().all(|end| end.unwrap_err().is_cancelled()));
    });
}

/// Dropping a set cancels its goroutines, detaching lets them run on.
#[test]
fn dropping_a_set_cancels() {
    matrix::run(|| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let (go_on, wait) = chan::bounded::<()>(0);
        let (mut detached, mut cancelled) = (JoinSet::new(), JoinSet::new());
        for set in [&mut detached, &mut cancelled] {
            let (guard, wait) = (Counted(Arc::clone(&dropped)), wait.clone());
            set.spawn(move || {
                let _guard = guard;
                wait.recv().is_ok()
            });
        }
        matrix::until_parked(2, "chan receive");
        drop(cancelled);
        matrix::yield_until("it unwinds", || dropped.load(Ordering::Relaxed) == 1);
        detached.detach_all();
        assert!(detached.is_empty() && detached.join_next().is_none());
        drop(detached);
        yield_now();
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
        drop(go_on);
        matrix::yield_until("it ends", || dropped.load(Ordering::Relaxed) == 2);
    });
}

/// A waiter that is cancelled in `join_next` cancels the goroutines of its set.
#[test]
fn a_cancelled_owner_cancels_its_set() {
    matrix::run(|| {
        let dropped = Arc::new(AtomicUsize::new(0));
        let guard = Counted(Arc::clone(&dropped));
        let owner = go(move || {
            let mut set = JoinSet::new();
            set.spawn(move || {
                let _guard = guard;
                chan::never::<u8>().recv()
            });
            set.join_next();
        });
        matrix::until_parked(1, "chan receive (nil chan)");
        owner.cancel();
        assert!(owner.join().unwrap_err().is_cancelled());
        matrix::yield_until("it unwinds", || dropped.load(Ordering::Relaxed) == 1);
    });
}

/// A goroutine that was abandoned drops nothing, and its set still reports it.
#[test]
fn a_set_reports_abandoned_goroutines() {
    fn deep(n: u64) -> u64 {
        if n == 0 { 0 } else { std::hint::black_box(deep(n - 1)) + n }
    }
    let builder = heist::Runtime::builder().procs(2).overflow_policy(OverflowPolicy::Abandon);
    let rt = matrix::start(builder);
    rt.run(|| {
        let mut set = JoinSet::new();
        set.spawn(|| deep(u64::MAX));
        set.spawn(|| 1);
        let mut ends: Vec<_> = std::iter::from_fn(|| set.join_next()).collect();
        ends.sort_by_key(Result::is_err);
        assert_eq!(*ends[0].as_ref().unwrap(), 1);
        assert!(ends[1].as_ref().unwrap_err().is_stack_overflow());
    });
    // Its frames are never dropped, so neither is the runtime.
    std::mem::forget(rt);
}

/// The class of a goroutine can be asked for.
#[heist::test(unsafe, procs = [1, 2, 4, 16])]
fn a_goroutine_knows_its_class() {
    use goroutine::{Builder, Class};
    for class in [Class::Latency, Class::Normal, Class::Idle] {
        let asked = Builder::new().class(class).spawn(goroutine::current_class).unwrap();
        assert_eq!(asked.join().unwrap(), class);
    }
}
