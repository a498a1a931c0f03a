//! Every interleaving of idle Ms that time out with a thread that has a P to give: `idle_ms.rs`
//! over `note.rs`.
//!
//! A P that is given to an M that has left, or an M that waits for a wake-up that does not come, is
//! a deadlock, which loom reports; a P that two Ms hold is a race on its cell.
//!
//! Mutations it catches, each tried on `idle_ms.rs` or on the steps below:
//! - an M that leaves without checking whether it is still listed,
//! - an M that is off the list and leaves instead of waiting for its wake-up,
//! - an M that leaves although there is no surplus (fewer are left than are kept),
//! - a giver that wakes the M before it stores the P.
#![cfg(loom)]

mod loom_kernel;

use heist_core::idle_ms::IdleMs;
use heist_core::list::{DoubleLink, DoublyLinked};
use heist_core::note::{Note, Woken};
use heist_core::policy::idle_ms_kept;
use loom::cell::UnsafeCell;
use loom::sync::Mutex;
use loom::thread;
use loom_kernel::Kernel;
use std::ptr::NonNull;
// Not loom's: it only owns the world.
use std::sync::Arc;

const PROCS: u32 = 1;

struct M {
    link: DoubleLink<Self>,
    note: Note,
    kernel: Kernel,
    /// The P that it is handed.
    next_p: UnsafeCell<u32>,
}

// SAFETY: the link is one field, and Ms stay where they are in the world's vector.
unsafe impl DoublyLinked for M {
    fn double_link(&self) -> &DoubleLink<Self> {
        &self.link
    }
}

struct World {
    idle: Mutex<IdleMs<M>>,
    ms: Vec<M>,
}

// SAFETY: links are used under the lock, the rest as in the runtime; loom checks `next_p`.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

/// How an M ended.
#[derive(Debug, PartialEq, Eq)]
enum Fate {
    Left,
    Got(u32),
}

impl World {
    fn new(n: u32) -> Arc<Self> {
        let m = || M {
            link: DoubleLink::new(),
            note: Note::new(),
            kernel: Kernel::default(),
            next_p: UnsafeCell::new(0),
        };
        let world =
            Arc::new(Self { idle: Mutex::new(IdleMs::new()), ms: (0..n).map(|_| m()).collect() });
        for m in &world.ms {
            // SAFETY: it stays where it is, and is in no list.
            unsafe { world.idle.lock().unwrap().push(NonNull::from(m)) };
        }
        world
    }

    /// Sleeps as an M that is on the list and was in surplus when it was added.
    fn sleep(&self, m: &M) -> Fate {
        // Loom has no clock: the timeout may come at any time, perhaps at once.
        if m.note.sleep_while(&m.kernel, || None) == Woken::TimedOut {
            // SAFETY: it is in this list or in none.
            if unsafe { self.idle.lock().unwrap().give_up(NonNull::from(m), PROCS) } {
                return Fate::Left;
            }
            m.note.sleep(&m.kernel);
        }
        // SAFETY: written before the wake-up; loom checks.
        Fate::Got(m.next_p.with(|p| unsafe { *p }))
    }

    /// Gives a P to an idle M. False if there is none.
    fn give(&self, p: u32) -> bool {
        let Some(m) = self.idle.lock().unwrap().pop() else { return false };
        // SAFETY: it does not move, and an M off the list is woken by this thread alone.
        let m = unsafe { m.as_ref() };
        // SAFETY: the M reads it only after the wake-up; loom checks.
        m.next_p.with_mut(|place| unsafe { *place = p });
        m.note.wake(&m.kernel);
        true
    }
}

/// One M that times out, among more than are kept, and one P to give: that M gets it, or another
/// does after it has left.
#[test]
fn a_p_is_not_given_to_an_m_that_has_left() {
    loom::model(|| {
        let n = idle_ms_kept(PROCS) + 2;
        let world = World::new(n);
        let sleeper = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.sleep(world.ms.last().unwrap()))
        };
        assert!(world.give(7), "the Ms that are kept are on the list");
        let left = match sleeper.join().unwrap() {
            Fate::Got(p) => {
                assert_eq!(p, 7);
                0
            }
            Fate::Left => {
                assert!(world.ms[n as usize - 2].note.is_noted(), "the next one got it");
                1
            }
        };
        assert_eq!(world.idle.lock().unwrap().len(), n - 1 - left);
    });
}

/// Two Ms with a surplus of one: one of them may leave, never both, and both Ps that are given
/// arrive.
#[test]
fn only_the_surplus_leaves() {
    let mut model = loom::model::Builder::new();
    // Three threads that take locks have too many interleavings to run them all.
    model.preemption_bound = Some(2);
    model.check(|| {
        let n = idle_ms_kept(PROCS) + 1;
        let world = World::new(n);
        let sleepers: Vec<_> = [n - 2, n - 1]
            .map(|i| {
                let world = Arc::clone(&world);
                thread::spawn(move || world.sleep(&world.ms[i as usize]))
            })
            .into();
        // Enough for both, so that the model ends.
        let given = (1..=n).filter(|&p| world.give(p)).count() as u32;
        let fates: Vec<_> = sleepers.into_iter().map(|sleeper| sleeper.join().unwrap()).collect();
        let left = fates.iter().filter(|&fate| *fate == Fate::Left).count() as u32;
        assert!(left <= 1, "{fates:?}");
        assert_eq!(given + left, n);
        assert!(fates[0] != fates[1], "a P was given twice");
    });
}
