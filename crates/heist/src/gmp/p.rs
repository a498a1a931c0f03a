//! `P`: a processor, the right to run goroutines.
//!
//! The holder of a P uses its queue as the owner and its `local` part freely. All other threads use
//! the queue as thieves and only read the counters.

use super::fork::Forks;
use super::g::WaitReason;
use super::yielded::Yielded;
use super::{G, M, pool};
use crate::coro::cache::StackCache;
use crate::coro::stack::Class;
use crate::current;
use crate::metrics::latency::Latencies;
use crate::metrics::shard::{Counter, Shard, VICTIMS};
use crate::time::timers::Timers;
use crossbeam_utils::CachePadded;
use heist_core::list::List;
use heist_core::policy::UrgentStreak;
use heist_core::rng::Rng;
use heist_core::run_queue::{Owner, RunQueue};
use heist_core::stalled::Suspect;
use heist_core::sync::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::cell::{Cell, UnsafeCell};
use std::ptr::{NonNull, null_mut};

/// The data that only the holder of the P uses.
pub(crate) struct Local {
    pub(crate) rng: Rng,
    pub(crate) free_gs: List<G>,
    /// Reserved goroutine ids: the next one, and the end of the block.
    pub(crate) next_id: u64,
    pub(crate) end_id: u64,
    pub(crate) stacks: StackCache,
    /// Goroutines that became runnable here; one in a few is measured.
    pub(crate) n_readied: u32,
    /// The P that may be stalled.
    pub(crate) suspect: Suspect,
    /// When it was last lent while threads were scarce; see `sched::threads::admission`.
    pub(crate) lent_ns: u64,
    /// Urgent goroutines run in a row.
    pub(crate) urgent_streak: UrgentStreak,
    /// Draws the disturbances of chaos mode.
    pub(crate) chaos: Option<Rng>,
}

impl Drop for Local {
    /// Stacks and records belong to the process: those that the P kept are returned.
    fn drop(&mut self) {
        // The last reference to a runtime may be dropped by a goroutine of another one.
        let _rt = current::enter();
        self.give_back();
    }
}

impl Local {
    /// Returns its stacks and records to the shared pools, for the other Ps.
    pub(crate) fn give_back(&mut self) {
        self.stacks.spill(0);
        pool::spill(&mut self.free_gs, 0);
    }
}

/// Whether a P has stopped for a stop of the world, and which M waits for it to start again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// It has not stopped.
    No,
    /// It has stopped, and no M waits for it.
    Free,
    /// This M looked for work with it, and sleeps until it is handed a P.
    Left(NonNull<M>),
    /// This M sleeps with its goroutine until it gets the P back.
    Awaited(NonNull<M>),
    /// It was taken from this M, which is in user code or in a blocking call and gets the P back.
    Lost(NonNull<M>),
}

/// A processor.
#[repr(C, align(128))]
pub(crate) struct P {
    pub(crate) id: u32,
    /// It is reserved for the latency class.
    pub(crate) is_reserved: bool,
    /// It is reserved, or disturbed by chaos mode: a goroutine that becomes runnable here does not
    /// simply go into its queue.
    pub(crate) is_unusual: bool,
    pub(crate) queue: RunQueue<G>,
    pub(crate) timers: CachePadded<Timers>,
    /// Its part of the global queue.
    pub(crate) yielded: CachePadded<Yielded>,
    /// The deques of goroutines that forked here.
    pub(crate) forks: CachePadded<Forks>,
    /// The number of goroutines executed with a slice of their own.
    tick: CachePadded<AtomicU32>,
    /// When a goroutine that had been preempted last began a slice here.
    began_ns: AtomicU64,
    /// The NUMA node on which its M last ran when it searched for work: a hint for thieves.
    pub(crate) node: AtomicU16,
    /// The M that holds it, for reports.
    m: AtomicPtr<M>,
    /// Counts the changes of its holder while a trace runs. The holder changes it, or the thread
    /// that takes the P.
    holder_number: AtomicU32,
    /// Under the scheduler lock.
    pub(crate) stopped: Cell<Stopped>,
    local: CachePadded<UnsafeCell<Local>>,
    /// Its holder uses `local`.
    #[cfg(debug_assertions)]
    is_local_used: Cell<bool>,
    pub(crate) stats: CachePadded<Shard>,
    pub(crate) latencies: Latencies,
    /// How often goroutines parked, by wait reason.
    pub(crate) parks: [Counter; WaitReason::ALL.len()],
    /// Goroutines that it took from each of the first Ps.
    pub(crate) stolen_from: [Counter; VICTIMS],
}

// SAFETY: only the holder of the P uses `local`; `stopped` is used under the scheduler lock; the
// rest is atomic.
unsafe impl Sync for P {}
// SAFETY: as above.
unsafe impl Send for P {}

impl P {
    pub(crate) fn new(
        id: u32,
        stacks: Class,
        seed: u64,
        chaos: Option<u64>,
        reserved: bool,
    ) -> Self {
        Self {
            id,
            is_reserved: reserved,
            is_unusual: reserved || chaos.is_some(),
            queue: RunQueue::new(),
            timers: CachePadded::new(Timers::new()),
            yielded: CachePadded::new(Yielded::new()),
            forks: CachePadded::new(Forks::new()),
            tick: CachePadded::new(AtomicU32::new(0)),
            began_ns: AtomicU64::new(0),
            node: AtomicU16::new(0),
            m: AtomicPtr::new(null_mut()),
            holder_number: AtomicU32::new(0),
            stopped: Cell::new(Stopped::No),
            local: CachePadded::new(UnsafeCell::new(Local {
                rng: Rng::new(seed ^ u64::from(id)),
                free_gs: List::new(),
                next_id: 0,
                end_id: 0,
                stacks: StackCache::new(stacks),
                n_readied: 0,
                suspect: Suspect::new(id),
                lent_ns: 0,
                urgent_streak: UrgentStreak::default(),
                chaos: chaos.map(|seed| Rng::new(seed.wrapping_add(u64::from(id)))),
            })),
            #[cfg(debug_assertions)]
            is_local_used: Cell::new(false),
            stats: CachePadded::new(Shard::default()),
            latencies: Latencies::new(),
            parks: std::array::from_fn(|_| Counter::default()),
            stolen_from: std::array::from_fn(|_| Counter::default()),
        }
    }

    /// The owner's half of the queue.
    ///
    /// # Safety
    /// The caller holds this P.
    #[inline]
    pub(crate) unsafe fn owner(&self) -> Owner<'_, G> {
        // SAFETY: passed on.
        unsafe { self.queue.owner() }
    }

    /// The owner's data.
    ///
    /// # Safety
    /// The caller holds this P, and no other reference to this data is alive.
    #[inline]
    #[expect(clippy::mut_from_ref, reason = "the P is the evidence, and M hands it out")]
    pub(crate) unsafe fn local(&self) -> &mut Local {
        // SAFETY: by the caller's promise.
        unsafe { &mut *self.local.get() }
    }

    /// While the result lives, the holder uses the data.
    #[cfg(debug_assertions)]
    pub(super) fn begin_local_use(&self) -> impl Drop {
        struct Use<'a>(&'a Cell<bool>);
        impl Drop for Use<'_> {
            fn drop(&mut self) {
                self.0.set(false);
            }
        }
        if self.is_local_used.replace(true) {
            heist_core::throw!("P{}: its data is used twice at once", self.id);
        }
        Use(&self.is_local_used)
    }

    /// Checked in debug builds only.
    #[cfg(not(debug_assertions))]
    #[inline]
    pub(super) const fn begin_local_use(&self) {}

    /// Empties a P that is being removed. Returns its goroutines in the order in which they would
    /// have run, and moves its timers and deques to `heir`. [`Local::give_back`] returns its memory
    /// later.
    ///
    /// # Safety
    /// The caller has stopped the world.
    #[doc(alias = "destroy")]
    pub(crate) unsafe fn retire(&self, heir: &Self) -> List<G> {
        if !heir.timers.take_over(&self.timers) {
            heist_core::throw!("P::retire: the system has no memory for the timers");
        }
        self.forks.move_to(heir);
        // SAFETY: by the caller's promise no M holds this P.
        let mut queued = unsafe { self.owner() }.drain();
        queued.append(&mut self.yielded.take(u32::MAX));
        queued
    }

    /// Whether no goroutine is queued here.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty() && self.yielded.len() == 0
    }

    /// The tick.
    #[inline]
    #[doc(alias = "schedtick")]
    pub(crate) fn tick(&self) -> u32 {
        self.tick.load(Ordering::Relaxed)
    }

    /// Notes that one more goroutine runs with a slice of its own. Only the holder calls this.
    #[inline]
    pub(crate) fn advance_tick(&self) {
        self.tick.store(self.tick().wrapping_add(1), Ordering::Relaxed);
    }

    /// Notes that a preempted goroutine begins a slice now, so that sysmon knows the time without
    /// sampling. Only the holder calls this.
    pub(crate) fn begin_slice(&self, now_ns: u64) {
        // A thread that reads the tick before this store takes the time for that of an earlier
        // slice.
        self.began_ns.store(now_ns, Ordering::Relaxed);
        self.advance_tick();
    }

    /// When a preempted goroutine last began a slice here.
    pub(crate) fn began_ns(&self) -> u64 {
        self.began_ns.load(Ordering::Relaxed)
    }

    /// Sets the tick, so that a test can choose the phase of the one-in-61 rule.
    pub(crate) fn set_tick(&self, tick: u32) {
        self.tick.store(tick, Ordering::Relaxed);
    }

    /// The number of the last change of its holder that a trace shows.
    pub(crate) fn holder_number(&self) -> u16 {
        self.holder_number.load(Ordering::Relaxed) as u16
    }

    /// Counts a change of its holder.
    pub(crate) fn count_holder(&self) {
        let next = self.holder_number.load(Ordering::Relaxed).wrapping_add(1);
        self.holder_number.store(next, Ordering::Relaxed);
    }

    pub(crate) fn set_m(&self, m: *const M) {
        // ORDERING: Release pairs with `m`: a reader that was told of a new M by nobody else sees
        // its record initialised.
        self.m.store(m.cast_mut(), Ordering::Release);
    }

    /// The M that holds it, or null.
    pub(crate) fn m(&self) -> *const M {
        // ORDERING: Acquire pairs with `set_m`.
        self.m.load(Ordering::Acquire)
    }

    /// Whether an M holds it.
    pub(crate) fn has_m(&self) -> bool {
        !self.m.load(Ordering::Relaxed).is_null()
    }
}
