//! The counters of one P.
//!
//! Only the holder of the P writes them, so a count is a load and a store, not a read-modify-write,
//! and no cache line is shared between writers. Readers add up the shards. A sum is of slightly
//! different moments, but each part only grows.

use heist_core::sync::{AtomicU64, Ordering};

/// The number of Ps, from P0 on, for which each P counts how much it took from them.
pub(crate) const VICTIMS: usize = 64;

/// One count with one writer.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Adds one. Only the holder of the P calls this.
    #[inline]
    pub(crate) fn bump(&self) {
        self.add(1);
    }

    /// Adds one if `so` is true. Only the holder of the P calls this.
    #[inline]
    pub(crate) fn bump_if(&self, so: bool) {
        self.add(so.into());
    }

    /// Adds one. A reader that sees it and fences sees everything that happened before. Only the
    /// holder of the P calls this.
    #[inline]
    pub(crate) fn bump_last(&self) {
        // ORDERING: Release pairs with the fence of `n_live` in `sched::life::shutdown`.
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(1), Ordering::Release);
    }

    /// Adds `n`. Only the holder of the P calls this.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// Adds `n` on any thread, for rare events without a P. Returns the previous count.
    pub(crate) fn add_shared(&self, n: u64) -> u64 {
        self.0.fetch_add(n, Ordering::Relaxed)
    }

    /// The count.
    #[inline]
    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

macro_rules! shard {
    ($($(#[$doc:meta])* $name:ident,)+) => {
        /// The counters of one P, or of everything that happens without one.
        #[derive(Debug, Default)]
        pub(crate) struct Shard { $($(#[$doc])* pub(crate) $name: Counter,)+ }

        /// The sum of all shards.
        #[derive(Clone, Copy, Debug, Default)]
        pub(crate) struct Totals { $($(#[$doc])* pub(crate) $name: u64,)+ }

        impl Totals {
            pub(crate) fn add(&mut self, shard: &Shard) {
                $(self.$name += shard.$name.get();)+
            }
        }
    };
}

shard! {
    /// Goroutines spawned.
    created,
    /// Goroutines that ended, in any way.
    finished,
    /// Goroutines that ended by a panic.
    panicked,
    /// Goroutines that were abandoned after a stack overflow.
    overflowed,
    /// Times a goroutine was run, from spawn or from a wake-up.
    executed,
    /// Times a goroutine parked with a deadline.
    timers,
    /// Times a goroutine yielded to one that the clock or the network woke.
    gave_way,
    /// Times an M waited in the poller.
    polls,
    /// Connections that a server closed without serving them.
    refused,
    /// Reports of stuck goroutines.
    stuck,
    /// Times a goroutine yielded by itself.
    yields,
    /// Times a parked goroutine was made runnable.
    readied,
    /// Nanoseconds that goroutines have waited for locks.
    lock_wait_ns,
    /// Times a goroutine yielded because it was asked to.
    preempted,
    /// Times a goroutine was preempted by a signal.
    forced,
    /// Signals sent to preempt one.
    signals,
    /// Blocking calls that were announced.
    announced,
    /// Blocking calls that were not announced and were detected.
    unannounced,
    /// Times a goroutine was expected to block, and gave its P away beforehand.
    foreseen,
    /// Times the P of a blocked M was given to another.
    handoffs,
    /// Times an M returned from a blocking call and had to get a P.
    regained,
    /// Looks at another P's queue.
    steal_attempts,
    /// Looks that brought goroutines.
    steals,
    /// Goroutines taken from other Ps.
    stolen,
    /// Goroutines taken from Ps of another NUMA node.
    stolen_far,
    /// Latent halves of forks that became goroutines.
    forks_taken,
    /// Goroutines taken from the `run_next` of other Ps.
    stolen_run_next,
    /// Times a goroutine continued on another thread than before.
    moves,
    /// Addresses of thread-locals that were moved with it.
    relocated_words,
    /// Times an M began to spin.
    spins,
    /// Time spent looking for work.
    spin_ns,
    /// CPU time spent returning memory to the system.
    scavenge_ns,
    /// Goroutines taken from the global queue.
    global_taken,
    /// Goroutines put into the global queue.
    global_put,
    /// Times a full ring spilled to the global queue.
    overflows,
    /// Stacks given to goroutines.
    stacks_attached,
    /// Stacks that goroutines returned.
    stacks_detached,
    /// Times an M was woken to look for work.
    wake_ups,
    /// Times an M went to sleep.
    m_parks,
    /// Times an M was woken up.
    m_unparks,
}
