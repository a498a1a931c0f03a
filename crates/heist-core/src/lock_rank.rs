//! The lock order, as data, and the check that it is kept.
//!
//! A thread may take a lock only if every lock it holds comes before it in the order. The order is
//! a small graph rather than a line: locks that are never held together are not compared, so a new
//! combination has to be added here first. Debug builds check every acquisition; release builds
//! compile the check away.
//!
//! GO: mklockrank.go, lockrank_on.go.

use std::cell::Cell;

/// A class of runtime locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Rank {
    /// Held across a stop of the world.
    World = 0,
    /// The scheduler lock: global queue, idle Ps, idle Ms.
    Sched = 1,
    /// A P's timers.
    Timers = 2,
    /// The free goroutine records shared by all Ps.
    FreeGs = 3,
    /// The stacks shared by all Ps.
    Stacks = 4,
    /// The list of all goroutine records.
    AllGs = 5,
    /// A wait queue of a channel or a lock of the public API.
    WaitQueue = 6,
    /// A single timer.
    Timer = 7,
    /// A descriptor of the network poller.
    PollDesc = 8,
    /// The goroutines that yielded at a P.
    Yielded = 9,
    /// The wait queue of a condition variable.
    Condvar = 10,
    /// The buffers of an execution trace.
    Trace = 11,
    /// The deques of forks that are listed at a P, and the free ones.
    Forks = 12,
}

impl Rank {
    /// How many there are.
    pub const COUNT: usize = 13;
}

const N_RANKS: usize = Rank::COUNT;

/// `(a, b)`: b may be taken while a is held. Chains follow.
pub const ORDER: &[(Rank, Rank)] = &[
    (Rank::World, Rank::Timers),
    (Rank::World, Rank::Sched),
    (Rank::PollDesc, Rank::Timer),
    (Rank::Condvar, Rank::WaitQueue),
    (Rank::WaitQueue, Rank::Timer),
    (Rank::Timer, Rank::Timers),
    (Rank::Timers, Rank::Sched),
    (Rank::WaitQueue, Rank::Sched),
    (Rank::Sched, Rank::FreeGs),
    (Rank::FreeGs, Rank::AllGs),
    (Rank::Sched, Rank::Stacks),
    (Rank::Sched, Rank::Yielded),
    (Rank::Sched, Rank::Trace),
    (Rank::World, Rank::Forks),
];

/// For each rank, the ranks that may be held when it is taken.
const BEFORE: [u16; N_RANKS] = closure();

const fn closure() -> [u16; N_RANKS] {
    let mut before = [0u16; N_RANKS];
    // One round per rank reaches the end of the longest chain.
    let mut round = 0;
    while round < N_RANKS {
        let mut i = 0;
        while i < ORDER.len() {
            let (a, b) = (ORDER[i].0 as usize, ORDER[i].1 as usize);
            before[b] |= 1 << a | before[a];
            i += 1;
        }
        round += 1;
    }
    let mut rank = 0;
    while rank < N_RANKS {
        assert!(before[rank] & (1 << rank) == 0, "the lock order has a cycle");
        rank += 1;
    }
    before
}

/// The locks that one thread holds. The runtime keeps one per thread in debug builds.
#[derive(Debug, Default)]
pub struct Held(Cell<u16>);

impl Held {
    /// No lock.
    #[must_use]
    pub const fn new() -> Self {
        Self(Cell::new(0))
    }

    /// Records that `rank` is being taken; throws if a held lock does not come before it.
    pub fn acquire(&self, rank: Rank) {
        let held = self.0.get();
        let wrong = held & !BEFORE[rank as usize];
        if wrong != 0 {
            crate::throw!("Held::acquire: {rank:?} taken while holding ranks {wrong:#b}");
        }
        self.0.set(held | 1 << rank as u8);
    }

    /// Records that `rank` was released.
    pub fn release(&self, rank: Rank) {
        let held = self.0.get();
        if held & (1 << rank as u8) == 0 {
            crate::throw!("Held::release: {rank:?} is not held");
        }
        self.0.set(held & !(1 << rank as u8));
    }

    /// Whether no lock is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.get() == 0
    }
}
