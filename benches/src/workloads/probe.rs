//! The probe: when did the task just spawned begin to run?
//!
//! One probe is in flight at a time, so a static word does and no sample allocates.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

static RAN_AT_NS: AtomicU64 = AtomicU64::new(0);
static BEHIND_RAN: AtomicBool = AtomicBool::new(true);

/// A clock that fits into one word.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    epoch: Instant,
}

impl Probe {
    pub fn new() -> Self {
        Self { epoch: Instant::now() }
    }

    pub fn now_ns(&self) -> u64 {
        // One is added so that zero can mean "not yet".
        self.epoch.elapsed().as_nanos() as u64 + 1
    }

    pub fn arm(&self) {
        RAN_AT_NS.store(0, Ordering::Relaxed);
    }

    /// Called by the spawned task first thing.
    pub fn ran(&self) {
        // ORDERING: Release, pairs with the Acquire in `read`.
        RAN_AT_NS.store(self.now_ns(), Ordering::Release);
    }

    pub fn read(&self) -> Option<u64> {
        // ORDERING: Acquire, pairs with the Release in `ran`.
        match RAN_AT_NS.load(Ordering::Acquire) {
            0 => None,
            at_ns => Some(at_ns),
        }
    }

    /// A second task is about to be spawned behind the measured one.
    pub fn arm_behind(&self) {
        BEHIND_RAN.store(false, Ordering::Relaxed);
    }

    /// Called by that second task.
    pub fn behind_ran(&self) {
        BEHIND_RAN.store(true, Ordering::Relaxed);
    }

    /// Whether nothing of this sample is queued any more.
    pub fn is_over(&self) -> bool {
        self.read().is_some() && BEHIND_RAN.load(Ordering::Relaxed)
    }

    /// Waits without giving the worker away; `None` if no worker took the task in time.
    pub fn spin_until_ran(&self, patience: Duration) -> Option<u64> {
        let deadline_ns = self.now_ns() + patience.as_nanos() as u64;
        loop {
            if let Some(at_ns) = self.read() {
                return Some(at_ns);
            }
            if self.now_ns() > deadline_ns {
                return None;
            }
            hint::spin_loop();
        }
    }

    /// Keeps the worker busy.
    pub fn spin_for(&self, pause: Duration) {
        let until_ns = self.now_ns() + pause.as_nanos() as u64;
        while self.now_ns() < until_ns {
            hint::spin_loop();
        }
    }
}
