//! Stopping the world: the P is counted once, has no other holder while the world is stopped, and
//! returns to its M.
#![cfg(loom)]

use heist_core::m_word::{MWord, Place, STOP, TAKEN};
use heist_core::stop::StopCount;
use loom::cell::UnsafeCell;
use loom::sync::atomic::{Ordering, fence};
use loom::sync::{Arc, Mutex};

/// The holder of the P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum P {
    /// Its M holds it.
    Held,
    /// Stopped; the M does not know yet.
    Lost,
    /// Stopped; the M sleeps until it gets it back.
    Awaited,
}

/// One M with one P, which its holder writes to without a lock.
struct World {
    word: MWord,
    stop: StopCount,
    scheduler_lock: Mutex<P>,
    p: UnsafeCell<u32>,
}

fn full_fence() {
    fence(Ordering::SeqCst);
}

impl World {
    fn new() -> Self {
        let word = MWord::new();
        word.leave(Place::User);
        Self {
            word,
            stop: StopCount::new(),
            scheduler_lock: Mutex::new(P::Held),
            p: UnsafeCell::new(0),
        }
    }

    fn use_p(&self) {
        // SAFETY: the caller holds the P; loom checks that no other thread does.
        self.p.with_mut(|p| unsafe { *p += 1 });
    }

    /// The M calls into the runtime, uses its P and leaves.
    fn call(&self) {
        if self.word.enter(full_fence) {
            self.regain();
        }
        self.use_p();
        while self.word.attention() & STOP != 0 {
            self.stop_here();
        }
        self.word.leave(Place::User);
    }

    fn regain(&self) {
        let mut p = self.scheduler_lock.lock().unwrap();
        self.word.clear_attention(TAKEN);
        if *p == P::Lost {
            *p = P::Awaited;
        }
        drop(p);
        self.wait_for_turn();
    }

    fn stop_here(&self) {
        let mut p = self.scheduler_lock.lock().unwrap();
        self.word.clear_attention(STOP);
        if !self.stop.pending() {
            return;
        }
        assert_eq!(*p, P::Held);
        *p = P::Awaited;
        let _ = self.stop.count();
        drop(p);
        self.wait_for_turn();
    }

    fn wait_for_turn(&self) {
        while *self.scheduler_lock.lock().unwrap() != P::Held {
            loom::thread::yield_now();
        }
    }

    /// Asks the M to stop, and takes the P of one that is in user code.
    fn press(&self, p: &mut P) {
        if *p != P::Held {
            return;
        }
        let seen = self.word.stamp();
        self.word.call_attention(STOP);
        if seen.place() == Place::User && self.word.take(seen, full_fence) {
            *p = P::Lost;
            let _ = self.stop.count();
        }
    }

    /// Stops the world, uses the P, starts it again.
    fn stop_and_start(&self) {
        let mut p = self.scheduler_lock.lock().unwrap();
        self.stop.begin(1);
        self.press(&mut p);
        drop(p);
        while self.stop.left() != 0 {
            self.press(&mut self.scheduler_lock.lock().unwrap());
            loom::thread::yield_now();
        }
        assert_ne!(*self.scheduler_lock.lock().unwrap(), P::Held);
        self.use_p();
        let mut p = self.scheduler_lock.lock().unwrap();
        self.stop.end();
        *p = P::Held;
    }
}

/// In no interleaving do the stopper and the M use the P at the same time; the count reaches zero
/// once, and the M continues. Fails if the M does not check under the lock for a P that was taken,
/// if a stop is counted without the lock, or if the flag of a P that was returned is cleared before
/// its M has checked it.
#[test]
fn stopper_and_m_never_share_the_p() {
    loom::model(|| {
        let world = Arc::new(World::new());
        let stopper = {
            let world = Arc::clone(&world);
            loom::thread::spawn(move || world.stop_and_start())
        };
        world.call();
        world.call();
        stopper.join().unwrap();
        world.call();
        assert_eq!(*world.scheduler_lock.lock().unwrap(), P::Held);
        // SAFETY: both threads are done.
        world.p.with(|p| assert_eq!(unsafe { *p }, 4));
    });
}
