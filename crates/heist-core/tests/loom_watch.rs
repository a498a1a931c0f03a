//! A submitter that relies on the watcher, against a watcher that stops watching: nobody is
//! forgotten.
//!
//! Mutations it catches, each tried:
//! - no fence in `Watch::end`,
//! - a push into `run_next` that is no full fence,
//! - a last look before the end of the watch.
#![cfg(loom)]

use heist_core::run_queue::{RunQueue, Slot};
use heist_core::watch::Watch;
use loom::sync::Arc;
use loom::thread;
use std::ptr::NonNull;

struct World {
    queue: RunQueue<u32>,
    watch: Watch,
}

#[test]
fn nobody_is_forgotten_at_the_end_of_a_watch() {
    loom::model(|| {
        let world = Arc::new(World { queue: RunQueue::new(), watch: Watch::new() });
        assert!(world.watch.begin());
        let watcher = {
            let world = world.clone();
            thread::spawn(move || {
                world.watch.end();
                world.queue.has_next()
            })
        };
        // SAFETY: this thread owns the P. The goroutine is never looked at.
        let owner = unsafe { world.queue.owner() };
        owner.push(NonNull::dangling(), Slot::Next, |_| unreachable!("one does not overflow"));
        let relies = world.watch.is_on();
        let seen = watcher.join().unwrap();
        assert!(!relies || seen, "nobody was woken, and the watcher saw nothing");
    });
}
