//! Where a step runs: its runtime, its size, its bars.

use super::lanes::Lane;
use super::screen::Scene;
use heist::Runtime;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

const LOOK_EVERY: Duration = Duration::from_millis(100);
/// A step that makes no progress for this long has lost a wake-up.
const STUCK_AFTER: Duration = Duration::from_secs(60);
const EXIT_STUCK: i32 = 1;

/// The amount of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// A few seconds in all.
    Quick,
    /// Numbers worth looking at.
    Full,
}

/// The input of a step.
pub struct Stage<'a> {
    /// Its own runtime: its counters start at zero.
    pub rt: &'a Runtime,
    pub scale: Scale,
    /// Resident bytes before the first runtime was started.
    pub resident_at_start: u64,
    pub scene: &'a Scene<'a>,
}

impl Stage<'_> {
    /// One of two sizes.
    pub fn pick<T>(&self, quick: T, full: T) -> T {
        match self.scale {
            Scale::Quick => quick,
            Scale::Full => full,
        }
    }

    /// A counter of the runtime.
    pub fn metric(&self, name: &str) -> u64 {
        let value = self.rt.metrics().get(name);
        value.unwrap_or_else(|| panic!("the runtime has no metric {name}"))
    }

    /// Goroutines that have ended.
    pub fn n_finished(&self) -> u64 {
        self.metric("/heist/goroutines/finished:goroutines")
    }

    /// The counters of each P.
    pub fn lanes(&self) -> Vec<Lane> {
        self.rt.per_proc().into_iter().map(Lane::from).collect()
    }

    /// Runs `work` on the calling thread while another one shows the progress of `done`.
    ///
    /// The goroutines themselves report nothing, so watching them costs them nothing.
    pub fn follow<T>(
        &self,
        text: &str,
        total: u64,
        done: impl Fn() -> u64 + Send,
        work: impl FnOnce() -> T,
    ) -> T {
        self.scene.phase(text, total);
        let (alive, ended) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut last = (0, Instant::now());
                while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                    let (done, lanes) = (done(), self.lanes());
                    self.scene.show(done.min(total), &lanes);
                    let n_run: u64 = lanes.iter().map(|lane| lane.n_run).sum();
                    if last.0 != done + n_run {
                        last = (done + n_run, Instant::now());
                    } else if last.1.elapsed() > STUCK_AFTER {
                        self.give_up(text, done, total);
                    }
                }
            });
            // Dropped also when `work` panics, which ends the other thread.
            let _alive = alive;
            work()
        })
    }

    fn give_up(&self, text: &str, done: u64, total: u64) -> ! {
        self.scene.aside(|| {
            eprintln!(
                "heist demo: stuck in \"{text}\" at {done} of {total}: nothing ran for {} s. \
                 This is a bug of the runtime; its state:\n{:#?}",
                STUCK_AFTER.as_secs(),
                self.rt.per_proc()
            );
            for metric in self.rt.metrics().iter() {
                eprintln!("{:>14}  {}", metric.value, metric.description.name);
            }
        });
        std::process::exit(EXIT_STUCK)
    }
}
