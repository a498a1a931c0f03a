//! Random sequences of operations on two runtimes, against a model of their possible results.

use crate::matrix;

use heist::chan::{self, Sender};
use heist::time::{self, AfterFunc};
use heist::{JoinHandle, Runtime};
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Which runtime: there are two places for one.
type Side = bool;

#[derive(Clone, Debug)]
enum Step {
    /// A goroutine that waits until it is released.
    Spawn(Side),
    /// One that sleeps for an hour.
    Sleep(Side),
    /// A function that is due in an hour.
    Later(Side),
    Release(usize),
    Cancel(usize, Where),
    /// Joins one that is known to end.
    Join(usize, Where),
    Detach(usize, Where),
    Stop(usize, Where),
    /// Drops a runtime and starts another.
    Replace(Side, Where),
}

/// Where the operation is done.
#[derive(Clone, Copy, Debug)]
enum Where {
    Thread,
    /// A goroutine of the other runtime.
    Goroutine,
}

fn side() -> impl Strategy<Value = Side> {
    any::<bool>()
}

fn place() -> impl Strategy<Value = Where> {
    prop_oneof![Just(Where::Thread), Just(Where::Goroutine)]
}

fn step() -> impl Strategy<Value = Step> {
    let which = || 0..16_usize;
    prop_oneof![
        4 => side().prop_map(Step::Spawn),
        1 => side().prop_map(Step::Sleep),
        2 => side().prop_map(Step::Later),
        3 => which().prop_map(Step::Release),
        2 => (which(), place()).prop_map(|(i, at)| Step::Cancel(i, at)),
        3 => (which(), place()).prop_map(|(i, at)| Step::Join(i, at)),
        1 => (which(), place()).prop_map(|(i, at)| Step::Detach(i, at)),
        2 => (which(), place()).prop_map(|(i, at)| Step::Stop(i, at)),
        1 => (side(), place()).prop_map(|(on, at)| Step::Replace(on, at)),
    ]
}

/// A goroutine, and how it may end.
struct Goroutine {
    handle: JoinHandle<usize>,
    number: usize,
    side: Side,
    release: Option<Sender<()>>,
    released: bool,
    cancelled: bool,
}

/// A function that is due later.
struct Function {
    function: AfterFunc,
    side: Side,
    captured: Arc<()>,
    /// Stopped, or its runtime is gone.
    over: bool,
}

struct World {
    runtimes: [Runtime; 2],
    goroutines: Vec<Goroutine>,
    functions: Vec<Function>,
    n: usize,
}

fn start() -> Runtime {
    matrix::plain(2)
}

const AN_HOUR: Duration = Duration::from_secs(3600);

impl World {
    fn rt(&self, side: Side) -> &Runtime {
        &self.runtimes[usize::from(side)]
    }

    /// Does something on a plain thread or on a goroutine of that runtime.
    fn at<T: Send>(&self, at: Where, side: Side, f: impl FnOnce() -> T + Send) -> T {
        match at {
            Where::Thread => f(),
            Where::Goroutine => self.rt(side).run(f),
        }
    }

    fn take(&mut self, i: usize, is_meant: impl Fn(&Goroutine) -> bool) -> Option<Goroutine> {
        let n = self.goroutines.len();
        let found = (0..n).map(|step| (i + step) % n).find(|&i| is_meant(&self.goroutines[i]))?;
        Some(self.goroutines.swap_remove(found))
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::Spawn(side) => {
                let (release, released) = chan::bounded::<()>(1);
                let number = self.n;
                let handle = self.rt(side).handle().spawn(move || {
                    released.recv().expect("it is not closed before it was released");
                    number
                });
                self.add(handle, side, Some(release));
            }
            Step::Sleep(side) => {
                let number = self.n;
                let handle = self.rt(side).handle().spawn(move || {
                    time::sleep(AN_HOUR);
                    number
                });
                self.add(handle, side, None);
            }
            Step::Later(side) => {
                let captured = Arc::new(());
                let kept = Arc::clone(&captured);
                let function = self.rt(side).run(|| time::after_func(AN_HOUR, move || drop(kept)));
                self.functions.push(Function { function, side, captured, over: false });
            }
            Step::Release(i) => {
                let n = self.goroutines.len().max(1);
                if let Some(goroutine) = self.goroutines.get_mut(i % n)
                    && let Some(release) = &goroutine.release
                {
                    goroutine.released |= release.try_send(()).is_ok();
                }
            }
            Step::Cancel(i, at) => {
                if let Some(mut goroutine) = self.take(i, |_| true) {
                    self.at(at, !goroutine.side, || goroutine.handle.cancel());
                    goroutine.cancelled = true;
                    self.goroutines.push(goroutine);
                }
            }
            Step::Join(i, at) => {
                if let Some(goroutine) = self.take(i, |one| one.released || one.cancelled) {
                    self.join(goroutine, at);
                }
            }
            Step::Detach(i, at) => {
                if let Some(goroutine) = self.take(i, |_| true) {
                    self.at(at, !goroutine.side, move || drop(goroutine.handle));
                }
            }
            Step::Stop(i, at) => self.stop(i, at),
            Step::Replace(side, at) => self.replace(side, at),
        }
    }

    fn add(&mut self, handle: JoinHandle<usize>, side: Side, release: Option<Sender<()>>) {
        let (released, cancelled) = (false, false);
        let number = self.n;
        self.n += 1;
        self.goroutines.push(Goroutine { handle, number, side, release, released, cancelled });
    }

    fn join(&self, goroutine: Goroutine, at: Where) {
        let Goroutine { handle, number, side, released, cancelled, .. } = goroutine;
        match self.at(at, !side, move || handle.join()) {
            Ok(result) => assert!(released && result == number, "{result}, not {number}"),
            Err(error) => assert!(cancelled && error.is_cancelled(), "{error}"),
        }
    }

    fn stop(&mut self, i: usize, at: Where) {
        let n = self.functions.len().max(1);
        let Some(function) = self.functions.get(i % n) else { return };
        let stopped = self.at(at, !function.side, || function.function.stop());
        assert_eq!(stopped, !function.over);
        let captured = Arc::clone(&function.captured);
        self.functions[i % n].over = true;
        matrix::eventually("what it captured is dropped", || Arc::strong_count(&captured) == 2);
    }

    /// Everything of that runtime is cancelled, and has ended when it is gone.
    fn replace(&mut self, side: Side, at: Where) {
        let old = std::mem::replace(&mut self.runtimes[usize::from(side)], start());
        self.at(at, !side, move || drop(old));
        for goroutine in self.goroutines.iter_mut().filter(|one| one.side == side) {
            assert!(goroutine.handle.is_finished());
            goroutine.cancelled = true;
        }
        for function in self.functions.iter_mut().filter(|one| one.side == side) {
            assert!(function.function.is_finished());
            assert_eq!(Arc::strong_count(&function.captured), 1);
            function.over = true;
        }
    }
}

/// For all operations on two runtimes, from threads and from each other's goroutines: a goroutine
/// ends as it was told to, it ends with its own runtime only, and the captures of a function are
/// dropped once.
#[test]
fn two_runtimes_agree_with_a_model() {
    static N_RUN: AtomicUsize = AtomicUsize::new(0);
    let cases = matrix::stress_time().map_or(48, |time| 48 * time.as_secs().max(1) as u32);
    let config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    let watchdog = matrix::Watchdog::new(matrix::patience(), String::new);
    proptest!(config, |(steps in prop::collection::vec(step(), 1..60))| {
        let mut world = World {
            runtimes: [start(), start()],
            goroutines: Vec::new(),
            functions: Vec::new(),
            n: 0,
        };
        for step in steps {
            world.run(step);
            N_RUN.fetch_add(1, Ordering::Relaxed);
        }
        let [first, second] = [false, true].map(|side| world.goroutines.iter().any(|one| one.side == side));
        if first || second {
            world.replace(false, Where::Goroutine);
            world.replace(true, Where::Thread);
        }
        while let Some(goroutine) = world.goroutines.pop() {
            world.join(goroutine, Where::Thread);
        }
    });
    drop(watchdog);
    assert!(N_RUN.load(Ordering::Relaxed) > 0);
}
