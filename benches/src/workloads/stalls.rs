//! hogs, blocking, unannounced: a 1 ms ticker next to tasks that hold their threads.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::ticker::Ticker;
use crate::contract::blocking::{Announce, Group as _, Tasks, Timers};
use crate::reading::{Figures, Outcome};

pub const N_HOGS: usize = 4;
pub const HOGS_LENGTH: Duration = Duration::from_secs(3);
pub const N_SLEEPERS: usize = 100;
pub const SLEEP: Duration = Duration::from_millis(50);
pub const SLEEPERS_LENGTH: Duration = Duration::from_secs(1);

static STOP: AtomicBool = AtomicBool::new(false);
static N_RAN: AtomicUsize = AtomicUsize::new(0);

/// Says when part of the load never got a worker, because then the ticker had it easy.
fn noting_absentees(figures: Figures, n_tasks: usize) -> Figures {
    let n_ran = N_RAN.load(Ordering::Relaxed);
    let note = format!("only {n_ran} of {n_tasks} tasks next to it ever ran");
    figures.with_note((n_ran < n_tasks).then_some(note.as_str()))
}

/// Ends the hogs from its own thread: where hogs starve all tasks, no task could.
fn stop_after(length: Duration) {
    thread::spawn(move || {
        thread::sleep(length);
        STOP.store(true, Ordering::Relaxed);
    });
}

fn hog() {
    if !STOP.load(Ordering::Relaxed) {
        N_RAN.fetch_add(1, Ordering::Relaxed);
    }
    while !STOP.load(Ordering::Relaxed) {
        hint::spin_loop();
    }
}

fn count_first(n_naps: usize) {
    if n_naps == 0 {
        N_RAN.fetch_add(1, Ordering::Relaxed);
    }
}

fn tick<R: Timers>(mut ticker: Ticker) -> Figures {
    while let Some(pause) = ticker.next_sleep() {
        R::sleep(pause);
        ticker.woke();
    }
    ticker.into_figures()
}

pub fn hogs<R: Timers>(procs: usize) -> Outcome {
    Ok(R::run(procs, || {
        stop_after(HOGS_LENGTH);
        let ticker = Ticker::new(HOGS_LENGTH);
        let group = R::Group::new();
        group.add(N_HOGS);
        for _ in 0..N_HOGS {
            let group = group.clone();
            R::spawn(move || {
                hog();
                group.done();
            });
        }
        let figures = R::join(R::fork(|| tick::<R>(ticker)));
        group.wait();
        noting_absentees(figures, N_HOGS)
    }))
}

fn sleepers<R: Tasks + Timers>(procs: usize, nap: fn()) -> Figures {
    R::run(procs, move || {
        let end = Instant::now() + SLEEPERS_LENGTH;
        let ticker = Ticker::new(SLEEPERS_LENGTH);
        let group = R::Group::new();
        group.add(N_SLEEPERS);
        for _ in 0..N_SLEEPERS {
            let group = group.clone();
            R::spawn(move || {
                let mut n_naps = 0;
                while Instant::now() < end {
                    count_first(n_naps);
                    nap();
                    n_naps += 1;
                    R::yield_now();
                }
                group.done();
            });
        }
        let figures = R::join(R::fork(|| tick::<R>(ticker)));
        group.wait();
        noting_absentees(figures, N_SLEEPERS)
    })
}

pub fn blocking<R: Timers + Announce>(procs: usize) -> Outcome {
    Ok(sleepers::<R>(procs, || R::blocking(|| thread::sleep(SLEEP))))
}

pub fn unannounced<R: Timers>(procs: usize) -> Outcome {
    Ok(sleepers::<R>(procs, || thread::sleep(SLEEP)))
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub use stackless::{blocking_futures, hogs_futures, unannounced_futures};

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
mod stackless {
    use std::future::Future;

    use super::*;
    use crate::contract::futures::{Announce, Group as _, Timers};

    async fn tick<R: Timers>(mut ticker: Ticker) -> Figures {
        while let Some(pause) = ticker.next_sleep() {
            R::sleep(pause).await;
            ticker.woke();
        }
        ticker.into_figures()
    }

    pub fn hogs_futures<R: Timers>(procs: usize) -> Outcome {
        Ok(R::run(procs, async {
            stop_after(HOGS_LENGTH);
            let ticker = Ticker::new(HOGS_LENGTH);
            let group = R::Group::new();
            group.add(N_HOGS);
            for _ in 0..N_HOGS {
                let group = group.clone();
                R::spawn(async move {
                    hog();
                    group.done();
                });
            }
            let figures = R::join(R::fork(tick::<R>(ticker))).await;
            group.wait().await;
            noting_absentees(figures, N_HOGS)
        }))
    }

    fn sleepers<R: Timers, F: Future<Output = ()> + Send + 'static>(
        procs: usize,
        nap: fn() -> F,
    ) -> Figures {
        R::run(procs, async move {
            let end = Instant::now() + SLEEPERS_LENGTH;
            let ticker = Ticker::new(SLEEPERS_LENGTH);
            let group = R::Group::new();
            group.add(N_SLEEPERS);
            for _ in 0..N_SLEEPERS {
                let group = group.clone();
                R::spawn(async move {
                    let mut n_naps = 0;
                    while Instant::now() < end {
                        count_first(n_naps);
                        nap().await;
                        n_naps += 1;
                        R::yield_now().await;
                    }
                    group.done();
                });
            }
            let figures = R::join(R::fork(tick::<R>(ticker))).await;
            group.wait().await;
            noting_absentees(figures, N_SLEEPERS)
        })
    }

    pub fn blocking_futures<R: Timers + Announce>(procs: usize) -> Outcome {
        Ok(sleepers::<R, _>(procs, || R::blocking(|| thread::sleep(SLEEP))))
    }

    pub fn unannounced_futures<R: Timers>(procs: usize) -> Outcome {
        Ok(sleepers::<R, _>(procs, || async { thread::sleep(SLEEP) }))
    }
}
