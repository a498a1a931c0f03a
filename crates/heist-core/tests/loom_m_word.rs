//! The M word: an owner that enters the runtime and a taker never hold the P at the same time.
#![cfg(loom)]

use heist_core::m_word::{MWord, Place, TAKEN};
use loom::cell::UnsafeCell;
use loom::sync::atomic::{Ordering, fence};
use loom::sync::{Arc, Mutex};

/// The data of the scheduler lock, and the P, which its holder writes to without a lock.
struct World {
    word: MWord,
    light_fence: fn(),
    p_is_owners: Mutex<bool>,
    p: UnsafeCell<u32>,
}

fn full_fence() {
    fence(Ordering::SeqCst);
}

impl World {
    fn new(word: MWord, light_fence: fn()) -> Self {
        word.leave(Place::User);
        Self { word, light_fence, p_is_owners: Mutex::new(true), p: UnsafeCell::new(0) }
    }

    /// The owner calls into the runtime, uses its P if it has one, and returns. False if the P is
    /// gone: then it would have to get another first.
    fn call(&self) -> bool {
        let maybe_gone = self.word.enter(self.light_fence);
        let mine = if maybe_gone {
            let owners = self.p_is_owners.lock().unwrap();
            self.word.clear_attention(TAKEN);
            *owners
        } else {
            true
        };
        if mine {
            // SAFETY: the owner is in the runtime with its P; loom checks that no other thread uses
            // it.
            self.p.with_mut(|p| unsafe { *p += 1 });
        }
        self.word.leave(Place::User);
        mine
    }

    /// The taker reads the word twice and takes the P.
    fn take(&self) {
        let seen = self.word.stamp();
        if seen.place() == Place::Runtime {
            return;
        }
        let mut owners = self.p_is_owners.lock().unwrap();
        if *owners && self.word.take(seen, full_fence) {
            *owners = false;
            drop(owners);
            // SAFETY: the taker holds the P; loom checks that no other thread uses it.
            self.p.with_mut(|p| unsafe { *p += 1 });
        }
    }
}

/// In no interleaving do the taker and the owner use the P at the same time. Fails if the owner
/// reads the flag before it stores the word, if either fence is missing, or if the taker does not
/// read the word again.
#[test]
fn owner_and_taker_never_share_the_p() {
    never_shared(|| World::new(MWord::new(), full_fence));
}

/// The same without `membarrier`: the word itself demands the fence.
#[test]
fn owner_and_taker_never_share_the_p_without_membarrier() {
    never_shared(|| World::new(MWord::with_full_fences(), || ()));
}

fn never_shared(world: fn() -> World) {
    loom::model(move || {
        let world = Arc::new(world());
        let taker = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || world.take())
        };
        let _ = world.call() && world.call();
        taker.join().unwrap();
    });
}

/// An owner whose goroutine is expected to block gives its P away by itself, inside the runtime,
/// after a taker has set the flag for a stay that is over: the flag stays, so the next call finds
/// the P gone. Fails if the owner sets it without the lock: then the taker clears the flag when it
/// gives up.
#[test]
fn an_owner_that_gave_its_p_away_finds_it_gone() {
    loom::model(|| {
        let world = Arc::new(World::new(MWord::new(), full_fence));
        let taker = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || world.take())
        };
        let maybe_gone = world.word.enter(full_fence);
        let mut owners = world.p_is_owners.lock().unwrap();
        if maybe_gone {
            world.word.clear_attention(TAKEN);
        }
        if *owners {
            world.word.call_attention(TAKEN);
            *owners = false;
            drop(owners);
            world.word.leave(Place::User);
            assert!(world.word.enter(full_fence), "the P is gone and the flag is not set");
        } else {
            drop(owners);
        }
        taker.join().unwrap();
    });
}
