//! The kernel's futex for models, made of loom's mutex.

use heist_core::note::Futex;
use heist_core::sync::{AtomicU32, Ordering};
use loom::sync::{Condvar, Mutex};
use loom::thread;
use std::time::Duration;

/// A futex with the kernel's guarantee: the word is compared and the thread queued in one step.
#[derive(Default)]
pub struct Kernel {
    bucket: Mutex<()>,
    sleepers: Condvar,
}

impl Futex for Kernel {
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        let bucket = self.bucket.lock().unwrap();
        if word.load(Ordering::Relaxed) != expected {
            return;
        }
        match timeout {
            None => drop(self.sleepers.wait(bucket).unwrap()),
            // Loom has no clock: the timeout may come at once.
            Some(_) => {
                drop(bucket);
                thread::yield_now();
            }
        }
    }

    fn wake(&self, _: &AtomicU32) {
        let _bucket = self.bucket.lock().unwrap();
        self.sleepers.notify_one();
    }
}
