//! A submitter that relies on the watcher, against a watcher that stops watching: no goroutine is
//! forgotten.
//!
//! Mutations it catches, each tried:
//! - no fence in `Watch::end`,
//! - a push into `run_next` that is not a full fence,
//! - a last check before the end of the watch.
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
fn no_goroutine_is_forgotten_at_the_end_of_a_watch() {
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
        // SAFETY: this thread owns the P. The pointer to the goroutine is never dereferenced.
        let owner = unsafe { world.queue.owner() };
        owner.push(NonNull::dangling(), Slot::Next, |_| unreachable!("one does not overflow"));
        let relies = world.watch.is_on();
        let seen = watcher.join().unwrap();
        assert!(!relies || seen, "no M was woken, and the watcher saw nothing");
    });
}
