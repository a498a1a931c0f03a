//! Every interleaving of goroutines that end with the thread that waits for the last one:
//! `endings.rs`.
//!
//! A watcher that misses the last end sleeps forever, which loom reports as a deadlock.
//!
//! Mutations it catches, each tried on `endings.rs`:
//! - no fence between the count of an end and the check for a watcher,
//! - no fence between the announcement of the watcher and its first sum,
//! - a watcher that reads the count after the sum instead of before it.
#![cfg(loom)]

mod loom_kernel;

use heist_core::endings::Endings;
use heist_core::sync::{AtomicU32, Ordering, fence};
use loom::sync::Arc;
use loom::thread;
use loom_kernel::Kernel;

struct World {
    endings: Endings,
    /// The number of ends, counted per P.
    ended: [AtomicU32; 2],
    kernel: Kernel,
}

fn full_fence() {
    fence(Ordering::SeqCst);
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            endings: Endings::new(),
            ended: [AtomicU32::new(0), AtomicU32::new(0)],
            kernel: Kernel::default(),
        })
    }

    /// A goroutine ends on this P.
    fn end(&self, p: usize) {
        self.ended[p].store(1, Ordering::Relaxed);
        self.endings.tell(&self.kernel, full_fence);
    }

    /// Waits until `n` goroutines have ended.
    fn wait_for(&self, n: u32) {
        self.endings.watch(full_fence);
        loop {
            let seen = self.endings.seen();
            if self.ended.iter().map(|ended| ended.load(Ordering::Relaxed)).sum::<u32>() == n {
                return;
            }
            self.endings.sleep(&self.kernel, seen, None);
        }
    }
}

/// One goroutine ends while the watcher begins to wait for it.
#[test]
fn the_last_end_is_not_missed() {
    loom::model(|| {
        let world = World::new();
        let ends = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.end(0))
        };
        world.wait_for(1);
        ends.join().unwrap();
    });
}

/// Two goroutines end, on two Ps.
#[test]
fn two_ends_are_not_missed() {
    loom::model(|| {
        let world = World::new();
        let ends = [0, 1].map(|p| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.end(p))
        });
        world.wait_for(2);
        ends.map(|end| end.join().unwrap());
    });
}
