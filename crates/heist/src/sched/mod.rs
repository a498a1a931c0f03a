//! The scheduler of one runtime.
//!
//! # The cycle
//! A goroutine that parks, yields or ends switches to the scheduler on its M's own stack (Go's g0).
//! The scheduler does what the goroutine asked for, finds the next one and switches to it.
//!
//! # The rooms
//! Each folder is a room. It owns one part of [`Sched`], with private fields, and has a few
//! functions that other rooms call; its `mod.rs` lists them. ARCHITECTURE.md has a map of the
//! rooms, and docs/walks.md follows goroutines through them.
//!
//! # Rules
//! The scheduler cannot be preempted, and most of it runs with a P. It does not allocate, free,
//! print, panic, or take a lock that user code can hold: a goroutine that was frozen inside the
//! allocator may hold the allocator's lock, and an M that waits for that lock while it holds a P
//! waits for ever. The helper thread does what needs any of these.

mod config;
pub(crate) mod forks;
pub(crate) mod futures;
pub(crate) mod life;
mod locked;
pub(crate) mod outside;
pub(crate) mod report;
pub(crate) mod rest;
pub(crate) mod run;
pub(crate) mod stacks;
pub(crate) mod stall;
pub(crate) mod threads;
pub(crate) mod waiter;
pub(crate) mod world;

pub use config::PanicPolicy;
pub(crate) use config::{Config, Detail};
pub(crate) use life::Phase;
pub(crate) use locked::Locked;

use crate::gmp::proc_table::ProcTable;
use crate::gmp::{G, P};
use crate::metrics::shard::Shard;
use crate::sys::lock::Lock;
use crate::sys::{clock, membarrier};
use crate::trace::recorder::Recorder;
use crossbeam_utils::CachePadded;
use heist_core::global_queue::GlobalLen;
use heist_core::idle::{IdleProcs, IdleView};
use heist_core::level_time::LevelTime;
use heist_core::lock_rank::Rank;
use heist_core::policy::PROCS_MAX;
use heist_core::status::Status;
use std::sync::{Arc, Weak};

/// The scheduler of a runtime: its rooms, and the parts that all of them use.
pub(crate) struct Sched {
    pub(crate) config: Config,
    pub(crate) lock: CachePadded<Lock<Locked, GlobalLen>>,
    pub(crate) run: run::Run,
    pub(crate) forks: forks::Forks,
    pub(crate) rest: rest::Rest,
    pub(crate) threads: threads::Threads,
    pub(crate) stall: stall::Stall,
    pub(crate) world: world::World,
    pub(crate) outside: outside::Outside,
    pub(crate) life: life::Life,
    pub(crate) stacks: stacks::Stacks,
    /// Records what happens, if a trace runs.
    pub(crate) recorder: Arc<Recorder>,
    /// Counts what happens without a P.
    pub(crate) stats: CachePadded<Shard>,
}

// SAFETY: a part that is not Sync by itself is behind the lock, belongs to the holder of a P, or
// changes only while the world is stopped.
unsafe impl Sync for Sched {}
// SAFETY: as above.
unsafe impl Send for Sched {}

impl Sched {
    /// Makes the scheduler of a new runtime. It never moves after that.
    pub(crate) fn start(config: Config) -> std::io::Result<Arc<Self>> {
        let outside = outside::Outside::new()?;
        Ok(Arc::new_cyclic(|this| Self::new(config, outside, Weak::clone(this))))
    }

    fn new(config: Config, outside: outside::Outside, this: Weak<Self>) -> Self {
        let procs = config.procs;
        let idle = IdleView::with_reserved(PROCS_MAX, config.latency_procs);
        // The time of the Ps starts before the first one is idle: their idle time must not exceed
        // it.
        let proc_time = LevelTime::new(procs, clock::now_ns());
        let mut idle_ps = IdleProcs::with_clock(PROCS_MAX, clock::now_ns);
        for id in (0..procs).rev() {
            idle_ps.put(&idle, id, false);
        }
        let table = ProcTable::new();
        for id in 0..procs {
            table.add(Box::new(config.new_p(id))); // ALLOC: when the runtime is built
        }
        table.set_live(procs);
        let locked = Locked::new(idle_ps, proc_time);
        Self {
            lock: CachePadded::new(Lock::with_beside(Rank::Sched, locked, GlobalLen::new())),
            run: run::Run::new(),
            forks: forks::Forks::new(),
            rest: rest::Rest::new(idle),
            threads: threads::Threads::new(),
            stall: stall::Stall::new(!membarrier::is_asymmetric()),
            world: world::World::new(table, config.procs_choice),
            outside,
            life: life::Life::new(this),
            stacks: stacks::Stacks::new(),
            recorder: Arc::new(Recorder::new()), // ALLOC: when the runtime is built
            stats: CachePadded::new(Shard::default()),
            config,
        }
    }

    /// The length of the global queue, without the lock.
    #[inline]
    pub(crate) fn global_len(&self) -> &GlobalLen {
        self.lock.beside()
    }

    /// How many Ps there are.
    #[inline]
    #[doc(alias = "gomaxprocs")]
    pub(crate) fn procs(&self) -> u32 {
        self.world.table().n_live()
    }

    /// How many Ps are not reserved for the latency class: any goroutine may run on them.
    #[inline]
    pub(crate) fn common_procs(&self) -> u32 {
        self.procs() - self.rest.idle().n_reserved()
    }

    /// A P by number.
    #[inline]
    pub(crate) fn p(&self, id: u32) -> &P {
        self.world.table().get(id)
    }

    /// The Ps that run goroutines.
    #[inline]
    pub(crate) fn all_ps(&self) -> impl Iterator<Item = &P> {
        self.world.table().live()
    }

    /// The phase of the runtime.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        self.life.phase()
    }

    /// Whether a record is a live goroutine of this runtime.
    pub(crate) fn is_mine(&self, gp: &G) -> bool {
        gp.status.get() != Status::Dead && std::ptr::eq(gp.sched.get(), self)
    }
}
