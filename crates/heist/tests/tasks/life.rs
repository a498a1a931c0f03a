//! Spawning, joining, aborting and dropping tasks.

use crate::matrix;

use heist::task::{self, AbortHandle};
use heist::{Task, go, spawn};
use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// Counts its drops.
pub struct Counted(pub Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

pub fn counter() -> Arc<AtomicUsize> {
    Arc::new(AtomicUsize::new(0))
}

/// Waits until the number of drops is `n`.
pub fn await_drops(drops: &AtomicUsize, n: usize) {
    while drops.load(Ordering::SeqCst) < n {
        std::thread::yield_now();
    }
    assert_eq!(drops.load(Ordering::SeqCst), n);
}

#[test]
fn a_task_returns_its_result() {
    matrix::each(|_, rt| {
        // In the record, and in a box: the future, and the result.
        assert_eq!(rt.spawn_async(async { 5_u8 }).join().unwrap(), 5);
        let large = [7_u64; 100];
        let task = rt.spawn_async(async move {
            task::yield_now().await;
            large
        });
        assert_eq!(task.join().unwrap(), large);
    });
}

#[test]
fn goroutines_and_tasks_spawn_and_join_each_other() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let task = spawn(async {
                let inner = spawn(async { 1 }).await.unwrap();
                let goroutine = go(|| spawn(async { 2 }).join().unwrap()).await.unwrap();
                inner + goroutine
            });
            assert_eq!(task.join().unwrap(), 3);
        });
    });
}

#[test]
fn many_tasks_are_joined_by_a_task() {
    matrix::each(|_, rt| {
        let n = 2000_u64;
        let all = rt.spawn_async(async move {
            let tasks: Vec<_> = (0..n)
                .map(|i| {
                    spawn(async move {
                        for _ in 0..i % 4 {
                            task::yield_now().await;
                        }
                        i
                    })
                })
                .collect();
            let mut sum = 0;
            for task in tasks {
                sum += task.await.unwrap();
            }
            sum
        });
        assert_eq!(all.join().unwrap(), n * (n - 1) / 2);
    });
}

#[test]
fn a_panic_is_the_error_of_its_task() {
    matrix::each(|_, rt| {
        let drops = counter();
        let held = Counted(Arc::clone(&drops));
        let task = rt.spawn_async(async move {
            let _held = held;
            task::yield_now().await;
            panic!("no luck");
        });
        let error: heist::JoinError = task.join().unwrap_err();
        assert_eq!(error.panic_message(), Some("no luck"));
        assert_eq!(drops.load(Ordering::SeqCst), 1, "the future was dropped once");
        // A panic of the destructor of a future that is ready.
        struct Loud;
        impl Drop for Loud {
            fn drop(&mut self) {
                panic!("loud");
            }
        }
        struct Ready(
            #[allow(dead_code, reason = "its drop is what is tested")] Loud,
            Option<Counted>,
        );
        impl Future for Ready {
            type Output = Counted;
            fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Counted> {
                Poll::Ready(self.1.take().unwrap())
            }
        }
        let task = rt.spawn_async(Ready(Loud, Some(Counted(Arc::clone(&drops)))));
        assert_eq!(task.join().err().unwrap().panic_message(), Some("loud"));
        assert_eq!(drops.load(Ordering::SeqCst), 2, "the result was dropped once");
    });
}

/// The states in which a handle can be dropped, or its task aborted.
fn in_every_state(end: impl Fn(Task<Counted>) + Clone) {
    matrix::each(|_, rt| {
        for yields in [0, 1, 3] {
            let (held, result) = (counter(), counter());
            let n = 200;
            for i in 0..n {
                let (holds, returns) = (Counted(Arc::clone(&held)), Counted(Arc::clone(&result)));
                let task = rt.spawn_async(async move {
                    let _holds = holds;
                    for _ in 0..yields {
                        task::yield_now().await;
                    }
                    returns
                });
                match i % 4 {
                    0 => {}
                    1 => std::thread::yield_now(),
                    2 => {
                        while !task.is_finished() {
                            std::thread::yield_now();
                        }
                    }
                    _ => std::hint::spin_loop(),
                }
                end(task);
            }
            await_drops(&held, n);
            await_drops(&result, n);
        }
    });
}

#[test]
fn a_task_dropped_in_any_state_drops_everything_once() {
    in_every_state(drop);
}

#[test]
fn a_task_aborted_in_any_state_drops_everything_once() {
    in_every_state(|task| task.abort());
    in_every_state(|task| {
        task.abort();
        match task.join() {
            Ok(result) => drop(result),
            Err(error) => assert!(error.is_cancelled()),
        }
    });
}

#[test]
fn an_idle_task_is_aborted() {
    matrix::each(|_, rt| {
        let drops = counter();
        for _ in 0..100 {
            let held = Counted(Arc::clone(&drops));
            let began = Arc::new(AtomicBool::new(false));
            let begins = Arc::clone(&began);
            let task = rt.spawn_async(async move {
                let _held = held;
                begins.store(true, Ordering::SeqCst);
                pending::<()>().await;
            });
            while !began.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            task.abort();
            assert!(task.join().unwrap_err().is_cancelled());
        }
        assert_eq!(drops.load(Ordering::SeqCst), 100);
    });
}

#[test]
fn abort_handles_outlive_the_task() {
    let aborts: Vec<AbortHandle> = {
        // SAFETY: the goroutines keep nothing across a park that is bound to a thread.
        let rt = unsafe { heist::Runtime::builder().procs(2).build() }.unwrap();
        let tasks: Vec<_> = (0..10).map(|_| rt.spawn_async(pending::<()>())).collect();
        let aborts = tasks.iter().map(Task::abort_handle).collect::<Vec<_>>();
        aborts[..5].iter().for_each(AbortHandle::abort);
        for task in tasks.into_iter().take(5) {
            assert!(task.join().unwrap_err().is_cancelled());
        }
        aborts
    };
    for abort in aborts {
        assert!(abort.is_finished());
        abort.clone().abort();
    }
}

#[test]
fn a_runtime_that_ends_drops_the_futures_of_its_tasks() {
    for case in matrix::cases() {
        let rt = case.runtime();
        let drops = counter();
        let n = 1000;
        for i in 0..n {
            let held = Counted(Arc::clone(&drops));
            let task = rt.spawn_async(async move {
                let _held = held;
                if i % 2 == 0 {
                    pending::<()>().await;
                }
                loop {
                    task::yield_now().await;
                }
            });
            drop(task);
        }
        drop(rt);
        assert_eq!(drops.load(Ordering::SeqCst), n);
    }
}

#[test]
fn the_drop_of_an_aborted_future_may_wait() {
    matrix::each(|_, rt| {
        struct Waits(heist::chan::Receiver<u32>, Arc<AtomicUsize>);
        impl Drop for Waits {
            fn drop(&mut self) {
                self.1.fetch_add(self.0.recv().unwrap() as usize, Ordering::SeqCst);
            }
        }
        let (tx, rx) = heist::chan::bounded(0);
        let sum = counter();
        let waits = Waits(rx, Arc::clone(&sum));
        let task = rt.spawn_async(async move {
            let _waits = waits;
            pending::<()>().await;
        });
        task.abort();
        tx.send(5).unwrap();
        assert!(task.join().unwrap_err().is_cancelled());
        assert_eq!(sum.load(Ordering::SeqCst), 5);
    });
}

/// A poll is code of a goroutine: it may wait for a channel, and then it keeps its stack.
#[test]
fn a_poll_may_wait_as_a_goroutine_does() {
    matrix::each(|_, rt| {
        let (tx, rx) = heist::chan::bounded(0);
        let task = rt.spawn_async(async move {
            let first: u32 = rx.recv().unwrap();
            task::yield_now().await;
            first + rx.recv().unwrap()
        });
        tx.send(1).unwrap();
        tx.send(2).unwrap();
        assert_eq!(task.join().unwrap(), 3);
        // An abort unwinds it there.
        let (_tx, rx) = heist::chan::bounded::<u32>(0);
        let task = rt.spawn_async(async move { rx.recv() });
        task.abort();
        assert!(task.join().unwrap_err().is_cancelled());
    });
}

#[test]
fn a_future_that_never_returns_stalls_no_other() {
    for procs in [1, 2, 4] {
        // With the usual slices.
        let rt = matrix::start(heist::Runtime::builder().procs(procs));
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stop);
        let hog = rt.spawn_async(async move {
            while !stops.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let others: Vec<_> = (0..10)
            .map(|i| {
                rt.spawn_async(async move {
                    task::yield_now().await;
                    i
                })
            })
            .collect();
        for (i, task) in others.into_iter().enumerate() {
            assert_eq!(task.join().unwrap(), i);
        }
        stop.store(true, Ordering::Relaxed);
        hog.join().unwrap();
    }
}

#[test]
fn a_future_that_wakes_itself_stalls_no_other() {
    matrix::each(|_, rt| {
        let stop = Arc::new(AtomicBool::new(false));
        let stops = Arc::clone(&stop);
        let busy = rt.spawn_async(async move {
            while !stops.load(Ordering::Relaxed) {
                task::yield_now().await;
            }
        });
        assert_eq!(rt.spawn_async(async { 5 }).join().unwrap(), 5);
        assert_eq!(rt.run(|| go(|| 6).join().unwrap()), 6);
        stop.store(true, Ordering::Relaxed);
        busy.join().unwrap();
    });
}

#[test]
fn a_future_that_blocks_its_thread_stalls_no_other() {
    matrix::each(|_, rt| {
        let (tx, rx) = std::sync::mpsc::channel::<()>();
        let blocked = rt.spawn_async(async move { rx.recv().is_ok() });
        for _ in 0..10 {
            assert_eq!(rt.spawn_async(async { 5 }).join().unwrap(), 5);
        }
        tx.send(()).unwrap();
        assert!(blocked.join().unwrap());
    });
}

#[test]
fn a_task_exits_and_reports_its_name() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let exits = spawn(async { heist::exit_current() });
            assert!(exits.join().unwrap_err().is_exited());
            let named = task::Builder::new().name("waits for ever").spawn(pending::<()>()).unwrap();
            heist::yield_now();
            while !heist::dump_goroutines().contains("[future pending]") {
                heist::yield_now();
            }
            assert_eq!(named.name(), Some("waits for ever"));
            named.abort();
        });
    });
}

/// The result is dropped by a handle that is dropped without a join.
#[test]
fn a_handle_that_awaits_and_is_dropped_detaches() {
    matrix::each(|_, rt| {
        let drops = counter();
        let n = 200;
        for i in 0..n {
            let result = Counted(Arc::clone(&drops));
            let mut task = rt.spawn_async(async move {
                if i % 2 == 0 {
                    task::yield_now().await;
                }
                result
            });
            let polled = heist::block_on(std::future::poll_fn(|cx| {
                Poll::Ready(Pin::new(&mut task).poll(cx).is_ready())
            }));
            assert!(!polled || task.is_finished());
            drop(task);
        }
        await_drops(&drops, n);
    });
}

/// A poll may fork, and its stack goes back without the deque of its forks.
#[test]
fn a_poll_may_fork() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let forker = |k: u64| async move {
                for n in 0..20 {
                    let (a, b) = heist::join(|| k + n, || k * n);
                    assert_eq!((a, b), (k + n, k * n));
                    task::yield_now().await;
                }
            };
            let tasks: Vec<_> = (0..10).map(|k| spawn(forker(k))).collect();
            tasks.into_iter().for_each(|task| task.join().unwrap());
        });
    });
}
