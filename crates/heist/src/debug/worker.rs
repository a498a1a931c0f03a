//! Threads for answers that take seconds: profiles and traces.

use super::response::{Response, Status};
use crate::sys::bystanders::Bystander;
use crate::sys::poll::Bell;
use crate::sys::thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The most answers that are worked on at a time.
const WORKERS_MAX: usize = 4;

/// The work for one answer.
pub(super) type Work = Box<dyn FnOnce(&Cancel) -> Response + Send>;

/// By which the work for an answer is told that nothing waits for it any more.
#[derive(Debug, Default)]
pub(super) struct Cancel {
    cancelled: Mutex<bool>,
    changed: Condvar,
}

impl Cancel {
    pub(super) fn cancel(&self) {
        *self.cancelled.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    /// Waits for a while. False if the work was cancelled.
    pub(super) fn wait(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        let mut cancelled = self.cancelled.lock().unwrap_or_else(PoisonError::into_inner);
        while !*cancelled {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            let waited = self.changed.wait_timeout(cancelled, left);
            cancelled = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }
}

/// An answer that is ready, and the number of its connection.
type Done = (u64, Response);

/// The workers of a server.
pub(super) struct Workers {
    name: String,
    running: Vec<JoinHandle<()>>,
    sender: mpsc::Sender<Done>,
    receiver: mpsc::Receiver<Done>,
    bell: Arc<Bell>,
}

impl Workers {
    pub(super) fn new(name: String, bell: Arc<Bell>) -> Self {
        let (sender, receiver) = mpsc::channel();
        Self { name, running: Vec::new(), sender, receiver, bell }
    }

    /// Starts to work for a connection, or returns why not.
    pub(super) fn start(&mut self, number: u64, work: Work) -> Result<Arc<Cancel>, Response> {
        self.running.retain(|worker| !worker.is_finished());
        if self.running.len() >= WORKERS_MAX {
            let why = "too many profiles and traces are being taken; try again later";
            return Err(Response::error(Status::Unavailable, why));
        }
        let cancel = Arc::new(Cancel::default());
        let given = Arc::clone(&cancel);
        let (done, bell) = (self.sender.clone(), Arc::clone(&self.bell));
        let main = move || {
            let _bystander = Bystander::new();
            let response = guarded(|| work(&given));
            // If the server has stopped, nothing waits for the answer.
            let _ = done.send((number, response));
            bell.ring();
        };
        match thread::spawn(self.name.clone(), main) {
            Ok(worker) => self.running.push(worker),
            Err(error) => {
                let why = format!("the system refuses a thread: {error}");
                return Err(Response::error(Status::Unavailable, &why));
            }
        }
        Ok(cancel)
    }

    /// The next answer that is ready.
    pub(super) fn next_done(&self) -> Option<Done> {
        self.receiver.try_recv().ok()
    }

    /// Waits for all workers, which were cancelled.
    pub(super) fn join(&mut self) {
        for worker in self.running.drain(..) {
            // A panic was caught inside.
            let _ = worker.join();
        }
    }
}

/// Calls `make`; a panic becomes an answer.
pub(super) fn guarded<T: From<Response>>(make: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(make)).unwrap_or_else(|_| {
        Response::error(Status::Internal, "heist::debug: making this answer panicked").into()
    })
}
