//! Every interleaving of goroutines that are stopped together with their threads: how they pass a P
//! on, over the lists of stopped goroutines in `global_queue.rs` and over `note.rs`.
//!
//! There is one P. M0 and M1 have a hog each. M0's hog runs, and is stopped in the handler of the
//! signal: M0 finds a thread that takes the P over, queues its hog, hands the P on and sleeps until
//! it gets the P back. M1's hog has been stopped before, or returns from a call during which it
//! lost its P: it takes the P if the P is idle, otherwise it queues itself and sleeps. M2 has no
//! goroutine; it searches, finds a hog in the queue, lends its P to that hog's M and lists itself
//! as idle again. Every hog runs to its end.
//!
//! A hog that is lost, or a P that is handed to a thread that does not wake up, is a deadlock,
//! which loom reports; a P that two threads hold is a race on its cell.
//!
//! Mutations it catches, each tried on the steps below:
//! - a hog that queues itself after it has handed the P on (the thread that gets it finds no hog),
//! - a hog that returns and queues itself without checking whether the P is idle,
//! - a P that becomes idle after the lock was released under which the queue was seen empty.
#![cfg(loom)]

mod loom_kernel;

use heist_core::global_queue::{GlobalLen, GlobalQueue, Lane};
use heist_core::idle_ms::IdleMs;
use heist_core::list::{DoubleLink, DoublyLinked, Link, Linked};
use heist_core::note::Note;
use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::thread;
use loom_kernel::Kernel;
use std::ptr::NonNull;
// Not loom's: it only owns the world.
use std::sync::Arc;

/// A hog, bound to the M of the same number.
struct Hog {
    link: Link<Self>,
    m: usize,
}

// SAFETY: the link is one field, and hogs stay where they are in the world's array.
unsafe impl Linked for Hog {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

struct M {
    link: DoubleLink<Self>,
    id: usize,
    note: Note,
    kernel: Kernel,
    /// Whether it is woken with the P, or to leave.
    gets_p: UnsafeCell<bool>,
}

// SAFETY: as above.
unsafe impl DoublyLinked for M {
    fn double_link(&self) -> &DoubleLink<Self> {
        &self.link
    }
}

struct Locked {
    global: GlobalQueue<Hog>,
    idle: IdleMs<M>,
    p_rests: bool,
    n_left: u32,
}

struct World {
    locked: Mutex<Locked>,
    len: GlobalLen,
    hogs: [Hog; 2],
    ms: [M; 3],
    /// The P: how often a hog has run on it.
    p: UnsafeCell<u32>,
}

// SAFETY: links are used under the lock, the rest as in the runtime; loom checks the cells.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

impl World {
    fn new(n_hogs: u32) -> Arc<Self> {
        let hog = |m| Hog { link: Link::new(), m };
        let m = |id| M {
            link: DoubleLink::new(),
            id,
            note: Note::new(),
            kernel: Kernel::default(),
            gets_p: UnsafeCell::new(false),
        };
        let (global, idle) = (GlobalQueue::new(), IdleMs::new());
        let locked = Locked { global, idle, p_rests: false, n_left: n_hogs };
        Arc::new(Self {
            locked: Mutex::new(locked),
            len: GlobalLen::new(),
            hogs: [hog(0), hog(1)],
            ms: [m(0), m(1), m(2)],
            p: UnsafeCell::new(0),
        })
    }

    /// Only the holder of the P calls this.
    fn run_for_a_while(&self) {
        // SAFETY: one thread holds it at a time; loom checks.
        self.p.with_mut(|p| unsafe { *p += 1 });
    }

    fn hand_over(&self, to: usize, gets_p: bool) {
        let m = &self.ms[to];
        // SAFETY: the M reads it only after the wake-up; loom checks.
        m.gets_p.with_mut(|place| unsafe { *place = gets_p });
        m.note.wake(&m.kernel);
    }

    /// Sleeps until the P is handed over. False if that will not happen any more.
    fn wait(&self, own: usize) -> bool {
        let m = &self.ms[own];
        m.note.sleep(&m.kernel);
        m.note.clear();
        // SAFETY: written before the wake-up; loom checks.
        m.gets_p.with(|place| unsafe { *place })
    }

    /// The handler: the hog on `own` stops, if another thread can take the P over.
    fn stop(&self, own: usize) {
        let mut locked = self.locked.lock().unwrap();
        let next = locked.global.pop_frozen_in_turn(&self.len).map(|hog| m_of(hog));
        let idle = |locked: &mut Locked| locked.idle.pop().map(|m| id_of(m));
        let any = |locked: &mut Locked| {
            locked.global.pop_frozen(&self.len, Lane::Normal).map(|hog| m_of(hog))
        };
        let taker = next.or_else(|| idle(&mut locked)).or_else(|| any(&mut locked));
        let Some(taker) = taker else { return };
        // SAFETY: the hog is valid and in no queue.
        unsafe {
            locked.global.push_frozen(&self.len, Lane::Normal, NonNull::from(&self.hogs[own]))
        };
        drop(locked);
        self.hand_over(taker, true);
        assert!(self.wait(own), "it has not ended");
    }

    /// A hog without a P takes the idle P, or waits for its turn.
    fn regain(&self, own: usize) {
        let mut locked = self.locked.lock().unwrap();
        if std::mem::take(&mut locked.p_rests) {
            return;
        }
        // SAFETY: the hog is valid and in no queue.
        unsafe {
            locked.global.push_frozen(&self.len, Lane::Normal, NonNull::from(&self.hogs[own]))
        };
        drop(locked);
        assert!(self.wait(own), "it has not ended");
    }

    /// The hog on `own` has ended: its P goes to the next one, or becomes idle.
    fn end(&self, own: usize) {
        let mut locked = self.locked.lock().unwrap();
        locked.n_left -= 1;
        if let Some(next) = locked.global.pop(&self.len) {
            drop(locked);
            assert_ne!(m_of(next), own);
            return self.hand_over(m_of(next), true);
        }
        locked.p_rests = true;
        let idle = if locked.n_left == 0 { locked.idle.pop() } else { None };
        drop(locked);
        if let Some(m) = idle {
            self.hand_over(id_of(m), false);
        }
    }

    /// Checks that the hogs have run `n_runs` times, and that none is left.
    fn check(&self, n_runs: u32) {
        let locked = self.locked.lock().unwrap();
        assert!(locked.n_left == 0 && locked.p_rests && locked.global.is_empty());
        // SAFETY: no other thread is left.
        assert_eq!(self.p.with(|p| unsafe { *p }), n_runs);
    }

    fn hog(&self, own: usize) {
        self.run_for_a_while();
        self.stop(own);
        self.run_for_a_while();
        self.end(own);
    }

    /// An M without a goroutine.
    fn search(&self, own: usize) {
        loop {
            let mut locked = self.locked.lock().unwrap();
            if locked.n_left == 0 {
                return;
            }
            // SAFETY: it stays where it is, and is in no list.
            unsafe { locked.idle.push(NonNull::from(&self.ms[own])) };
            drop(locked);
            if !self.wait(own) {
                return;
            }
            self.run_for_a_while();
            // The hog that gave it the P has queued itself before.
            let found = self.locked.lock().unwrap().global.pop(&self.len);
            self.hand_over(m_of(found.expect("a hog is nowhere")), true);
        }
    }
}

fn m_of(hog: NonNull<Hog>) -> usize {
    // SAFETY: hogs stay where they are.
    unsafe { hog.as_ref() }.m
}

fn id_of(m: NonNull<M>) -> usize {
    // SAFETY: Ms stay where they are.
    unsafe { m.as_ref() }.id
}

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut model = loom::model::Builder::new();
    // Threads that take locks have too many interleavings to run them all.
    model.preemption_bound = Some(3);
    model.check(check);
}

/// Two hogs hand the P to each other, without another thread.
#[test]
fn two_hogs_take_turns() {
    model(|| {
        let world = World::new(2);
        let other = Arc::clone(&world);
        // SAFETY: the hog is valid and in no queue.
        unsafe {
            let mut locked = world.locked.lock().unwrap();
            locked.global.push_frozen(&world.len, Lane::Normal, NonNull::from(&world.hogs[1]));
        }
        let m1 = thread::spawn(move || {
            assert!(other.wait(1));
            other.hog(1);
        });
        world.hog(0);
        m1.join().unwrap();
        world.check(4);
    });
}

/// A hog and one that returns without a P, perhaps after the first has ended.
#[test]
fn a_hog_that_returns_gets_a_turn() {
    model(|| {
        let world = World::new(2);
        let other = Arc::clone(&world);
        let m1 = thread::spawn(move || {
            other.regain(1);
            other.hog(1);
        });
        world.hog(0);
        m1.join().unwrap();
        world.check(4);
    });
}

/// An M that has nothing to do takes the P over, finds the hog that gave it away, and lends it
/// back.
#[test]
fn an_idle_thread_finds_the_frozen_hog() {
    model(|| {
        let world = World::new(1);
        let two = Arc::clone(&world);
        let m2 = thread::spawn(move || two.search(2));
        world.hog(0);
        m2.join().unwrap();
        let locked = world.locked.lock().unwrap();
        assert!(locked.n_left == 0 && locked.global.is_empty() && locked.idle.is_empty());
    });
}
