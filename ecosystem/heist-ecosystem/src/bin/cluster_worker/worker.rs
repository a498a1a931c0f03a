//! A worker: takes jobs, runs a goroutine for each, and looks after those of workers that died.

use crate::settings::Settings;
use crate::store::{Job, Store};
use heist::context::Context;
use heist::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use heist::time;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long a worker waits for a job before it looks whether it should stop.
const LOOK: Duration = Duration::from_millis(200);
/// The most jobs that are taken in one request.
const BATCH: usize = 16;
/// How long a worker waits when Redis does not answer.
const OUTAGE: Duration = Duration::from_millis(500);

/// What a worker has done, and left.
#[derive(Debug, Default)]
#[allow(dead_code, reason = "it is printed")]
pub struct Left {
    done: u64,
    failed: u64,
    /// Jobs that still ran when the grace period was over. Others claim them.
    running: usize,
}

struct Worker {
    store: Store,
    settings: Settings,
    room: Arc<Semaphore>,
    /// The jobs that this worker works on, by their ids.
    running: Mutex<HashSet<String>>,
    n_done: AtomicU64,
    n_failed: AtomicU64,
}

/// Works until the context is done and the jobs that ran then have ended.
pub fn run(store: Store, settings: &Settings, stop: &Context) -> Left {
    let worker = Arc::new(Worker {
        store,
        settings: settings.clone(),
        room: Arc::new(Semaphore::new(settings.at_once)),
        running: Mutex::default(),
        n_done: AtomicU64::new(0),
        n_failed: AtomicU64::new(0),
    });
    heist::scope(|scope| {
        scope.go(|| worker.take_jobs(stop));
        scope.go(|| worker.claim_jobs(stop));
    });
    // Keeps the claims on the jobs that still run.
    let (finished, finish) = stop.without_cancel().with_cancel();
    let refresher = {
        let worker = Arc::clone(&worker);
        heist::go(move || worker.refresh_until(&finished))
    };
    let _ = worker.room.acquire_timeout(settings.at_once, settings.grace);
    finish.cancel();
    let _ = refresher.join();
    Left {
        done: worker.n_done.load(Ordering::Relaxed),
        failed: worker.n_failed.load(Ordering::Relaxed),
        running: worker.running.lock().len(),
    }
}

impl Worker {
    /// Takes new jobs, never more than there is room for.
    fn take_jobs(self: &Arc<Self>, stop: &Context) {
        while let Ok(first) = self.room.acquire_owned_context(stop, 1) {
            let more = std::iter::from_fn(|| self.room.try_acquire_owned(1));
            let room: Vec<_> = std::iter::once(first).chain(more.take(BATCH - 1)).collect();
            match self.store.take(room.len(), LOOK) {
                Ok(jobs) => {
                    jobs.into_iter().zip(room).for_each(|(job, room)| self.start(job, room))
                }
                Err(error) => outage(stop, "taking jobs", &error),
            }
        }
    }

    /// Refreshes the claims on the own jobs, and claims those of workers that are silent.
    fn claim_jobs(self: &Arc<Self>, stop: &Context) {
        while wait(stop, self.settings.claim_after / 3) {
            self.refresh();
            while let Some(room) = self.room.try_acquire_owned(1) {
                // One at a time: a job that was claimed and waits here would be done by nobody.
                match self.store.claim(self.settings.claim_after) {
                    Ok(Some(job)) => self.start_claimed(job, room),
                    Ok(None) => break,
                    Err(error) => {
                        outage(stop, "claiming jobs", &error);
                        break;
                    }
                }
            }
        }
    }

    /// A job that ends its workers is given up before it has ended all of them.
    fn start_claimed(self: &Arc<Self>, job: Job, room: OwnedSemaphorePermit) {
        eprintln!("claimed {}", job.id);
        match self.store.handed_out(&job.id) {
            Ok(n) if n > self.settings.tries => self.end(&job, "failed", &self.n_failed),
            _ => self.start(job, room),
        }
    }

    /// Works on a job, on a goroutine of its own.
    fn start(self: &Arc<Self>, job: Job, room: OwnedSemaphorePermit) {
        if !self.running.lock().insert(job.id.clone()) {
            // Its claim was not refreshed in time, and this worker took it from itself.
            return;
        }
        let worker = Arc::clone(self);
        heist::go(move || {
            let _room = room;
            match worker.try_often(&job) {
                Ok(()) => worker.end(&job, "done", &worker.n_done),
                Err(error) => {
                    eprintln!("{} is given up: {error}", job.id);
                    worker.end(&job, "failed", &worker.n_failed);
                }
            }
            worker.running.lock().remove(&job.id);
        });
    }

    fn try_often(&self, job: &Job) -> Result<(), String> {
        let mut pause = self.settings.pause;
        for attempt in 1.. {
            match self.attempt(job, attempt) {
                Err(_) if attempt < self.settings.tries => time::sleep(pause),
                other => return other,
            }
            pause *= 2;
        }
        unreachable!("the loop has no end")
    }

    /// The work. A job may ask for a number of failures, for the tests.
    fn attempt(&self, job: &Job, attempt: usize) -> Result<(), String> {
        time::sleep(self.settings.work);
        if attempt as u64 <= job.number("failures") {
            return Err(format!("attempt {attempt} failed"));
        }
        Ok(())
    }

    /// Notes how a job ended. Without an answer of Redis it is claimed and done again some day.
    fn end(&self, job: &Job, ending: &str, counter: &AtomicU64) {
        match self.store.end(job, ending) {
            Ok(()) => {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => eprintln!("{} has ended, which Redis does not know: {error}", job.id),
        }
    }

    fn refresh(&self) {
        let ids: Vec<_> = self.running.lock().iter().cloned().collect();
        if let Err(error) = self.store.refresh(&ids) {
            eprintln!("refreshing the claims: {error}");
        }
    }

    fn refresh_until(&self, stop: &Context) {
        while wait(stop, self.settings.claim_after / 3) {
            self.refresh();
        }
    }
}

/// Waits. False: the context is done.
fn wait(stop: &Context, duration: Duration) -> bool {
    let (pause, _over) = stop.with_timeout(duration);
    pause.wait();
    !stop.is_cancelled()
}

fn outage(stop: &Context, what: &str, error: &redis::RedisError) {
    eprintln!("{what}: {error}");
    wait(stop, OUTAGE);
}
