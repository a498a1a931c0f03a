//! What the threads of a console share.

use crate::book::{Book, Limits};
use console_api::instrument::Temporality;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::watch;

pub(crate) struct Shared {
    book: Mutex<Book>,
    demand: Mutex<Demand>,
    changed: Condvar,
    /// Changes when clients may have something new to read.
    bell: watch::Sender<u64>,
    temporality: watch::Sender<Temporality>,
}

/// The consumer of the trace.
#[derive(Debug, Default)]
struct Demand {
    n_watchers: usize,
    /// When the last one left.
    left: Option<Instant>,
    stop: bool,
}

/// What the recording is wanted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Somebody watches.
    Now,
    /// Nobody has watched for so long.
    Unwatched(Duration),
    /// The console ends.
    Never,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            book: Mutex::new(Book::new(limits)),
            demand: Mutex::default(),
            changed: Condvar::new(),
            bell: watch::Sender::new(0),
            temporality: watch::Sender::new(Temporality::Live),
        }
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        lock(&self.book)
    }

    /// Tells the clients to look at the book.
    pub(crate) fn ring(&self) {
        self.bell.send_modify(|n| *n += 1);
    }

    pub(crate) fn bell(&self) -> watch::Receiver<u64> {
        self.bell.subscribe()
    }

    pub(crate) fn set_temporality(&self, temporality: Temporality) {
        self.temporality.send_replace(temporality);
        self.ring();
    }

    pub(crate) fn temporality(&self) -> watch::Receiver<Temporality> {
        self.temporality.subscribe()
    }

    pub(crate) fn is_paused(&self) -> bool {
        *self.temporality.borrow() == Temporality::Paused
    }

    /// A client came. False if there are `most` already.
    pub(crate) fn enter(&self, most: usize) -> bool {
        let mut demand = lock(&self.demand);
        if demand.n_watchers == most {
            return false;
        }
        demand.n_watchers += 1;
        self.changed.notify_all();
        true
    }

    /// A client left.
    pub(crate) fn leave(&self) {
        let mut demand = lock(&self.demand);
        demand.n_watchers -= 1;
        if demand.n_watchers == 0 {
            demand.left = Some(Instant::now());
            drop(demand);
            // Nobody would resume.
            self.temporality.send_replace(Temporality::Live);
        }
    }

    /// The console ends.
    pub(crate) fn stop(&self) {
        lock(&self.demand).stop = true;
        self.changed.notify_all();
    }

    pub(crate) fn wanted(&self) -> Wanted {
        lock(&self.demand).wanted()
    }

    /// Waits until somebody watches or the console ends.
    pub(crate) fn await_watcher(&self) -> Wanted {
        let mut demand = lock(&self.demand);
        while matches!(demand.wanted(), Wanted::Unwatched(_)) {
            demand = self.changed.wait(demand).unwrap_or_else(PoisonError::into_inner);
        }
        demand.wanted()
    }

    /// Waits for a time, or until the console ends.
    pub(crate) fn rest(&self, time: Duration) {
        let demand = lock(&self.demand);
        let rests = self.changed.wait_timeout_while(demand, time, |demand| !demand.stop);
        drop(rests);
    }
}

impl Demand {
    fn wanted(&self) -> Wanted {
        match self {
            Self { stop: true, .. } => Wanted::Never,
            Self { n_watchers: 0, left, .. } => {
                Wanted::Unwatched(left.map_or(Duration::MAX, |left| left.elapsed()))
            }
            _ => Wanted::Now,
        }
    }
}
