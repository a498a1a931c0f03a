//! The scheduler of one runtime.
//!
//! # The cycle
//! A goroutine that parks, yields or ends switches to the scheduler on its M's own stack (Go's
//! g0); that one does what was asked, finds the next goroutine and switches to it. `schedule` is
//! that loop, `find_runnable` the search, `steal` and `idle` its last resorts, `wake` and `park`
//! the ways in and out of waiting.
//!
//! # Rules
//! Code here runs with a P and cannot be stopped. It does not allocate, free, print, panic, or
//! take a lock that user code can hold: a goroutine that was stopped inside the allocator may own
//! the allocator's lock, and whoever waits for that with a P in hand waits for ever. What needs
//! any of it goes to the helper thread.

pub(crate) mod abandon;
pub(crate) mod admission;
pub(crate) mod bell;
pub(crate) mod body;
pub(crate) mod bound;
pub(crate) mod cancel;
pub(crate) mod class;
pub(crate) mod deadlock;
pub(crate) mod find_runnable;
pub(crate) mod guest;
pub(crate) mod helper;
pub(crate) mod idle;
pub(crate) mod inject;
pub(crate) mod latency;
pub(crate) mod leave;
pub(crate) mod linger;
pub(crate) mod moves;
pub(crate) mod overflow;
pub(crate) mod park;
pub(crate) mod pless;
pub(crate) mod poll;
pub(crate) mod procs;
pub(crate) mod schedule;
pub(crate) mod shutdown;
pub(crate) mod spawn;
pub(crate) mod stackless;
pub(crate) mod stalled;
pub(crate) mod steal;
#[cfg(test)]
mod steal_tests;
pub(crate) mod stop;
pub(crate) mod syscall;
pub(crate) mod sysmon;
#[cfg(test)]
mod tests;
pub(crate) mod timers;
pub(crate) mod waiter;
pub(crate) mod wake;
pub(crate) mod watch;

use crate::coro::stack::Class;
use crate::gmp::m::AllMs;
use crate::gmp::proc_table::ProcTable;
use crate::gmp::{G, M, P};
use crate::metrics::shard::{Shard, Totals};
use crate::sys::lock::Lock;
use crate::sys::{clock, membarrier, stderr};
use crossbeam_utils::CachePadded;
use heist_core::block_predictor::BlockPredictor;
use heist_core::endings::Endings;
use heist_core::global_queue::{GlobalLen, GlobalQueue};
use heist_core::idle::{IdleProcs, IdleView};
use heist_core::idle_ms::IdleMs;
use heist_core::level_time::LevelTime;
use heist_core::list::{DoubleList, List};
use heist_core::lock_rank::Rank;
use heist_core::policy::{PROCS_MAX, StealPolicy};
use heist_core::spinning::Spinning;
use heist_core::stack_needs::StackNeeds;
use heist_core::status::Status;
use heist_core::steal_order::StealOrder;
use heist_core::stop::StopCount;
use heist_core::sync::{AtomicU32, AtomicU64, Ordering};
use heist_core::watch::Watch;
use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Weak;

/// What to do when a goroutine panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PanicPolicy {
    /// The panic ends its goroutine and is handed to whoever joins it.
    #[default]
    Isolate,
    /// Go's behaviour: a panic that nobody caught ends the process with exit code 2.
    Abort,
}

/// How much a trace of the scheduler says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// One line.
    Summary,
    /// One for each P, M and goroutine besides.
    All,
}

/// What a runtime was built with.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) procs: u32,
    /// The first so many are for goroutines of the latency class.
    pub(crate) latency_procs: u32,
    /// Whether that number was chosen, or is the default.
    pub(crate) procs_choice: procs::Choice,
    /// What the default is.
    pub(crate) procs_default: procs::Default,
    pub(crate) stack: Class,
    pub(crate) max_threads: u32,
    pub(crate) steal: StealPolicy,
    pub(crate) on_panic: PanicPolicy,
    pub(crate) on_overflow: overflow::OverflowPolicy,
    pub(crate) shutdown_timeout: std::time::Duration,
    /// How long a goroutine may run while others wait.
    pub(crate) quantum_ns: u64,
    /// How long somebody whom the clock or the network woke waits for a P that is not given back.
    pub(crate) wake_up_ns: u64,
    /// Whether goroutines that make no calls are stopped by a signal.
    pub(crate) forced_preemption: bool,
    /// Whether a process in which nothing can happen any more is ended.
    pub(crate) deadlock_detection: bool,
    /// Seeds the scheduler's random numbers.
    pub(crate) seed: u64,
    /// Chaos mode: the seed of its disturbances.
    pub(crate) chaos: Option<u64>,
    /// Whether the threads ask the kernel for short turns.
    pub(crate) short_turns: bool,
    /// Whether to note where goroutines that move have addresses of thread-locals.
    pub(crate) tls_report: bool,
    /// How often sysmon prints a line about the scheduler, and how much; never if None.
    pub(crate) trace: Option<(u64, Detail)>,
}

impl Config {
    /// A new P for this runtime.
    fn new_p(&self, id: u32) -> P {
        P::new(id, self.stack, self.seed, self.chaos, id < self.latency_procs)
    }
}

/// How far a runtime is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Phase {
    Running = 0,
    /// Goroutines are being unwound; no new ones.
    Closing = 1,
    /// Ms leave.
    Stopped = 2,
}

/// What the scheduler lock protects. The queue comes first: it is on the lock's own cache line.
#[repr(C)]
pub(crate) struct Locked {
    pub(crate) global: GlobalQueue<G>,
    pub(crate) idle_ps: IdleProcs,
    pub(crate) idle_ms: IdleMs<M>,
    /// Records whose threads have ended, for the helper to give to others.
    pub(crate) gone_ms: DoubleList<M>,
    /// Records of threads that were Ms for a while and are the runtime's no more.
    pub(crate) free_guests: DoubleList<M>,
    /// Ps that got work but no M yet: the helper makes one for each.
    pub(crate) orphans: helper::Orphans,
    /// Goroutines of the idle class.
    pub(crate) idle_work: List<G>,
    /// Goroutines that could not start because there was no memory for a stack.
    pub(crate) stackless: List<G>,
    /// Goroutines that do not start because threads are scarce.
    pub(crate) held_back: List<G>,
    /// Ms that have a thread.
    pub(crate) n_ms: u32,
    /// Of these, how many have not begun to run: each of them looks for an orphan first.
    pub(crate) n_starting: u32,
    /// How long there were how many Ps.
    pub(crate) proc_time: LevelTime,
}

/// A runtime's scheduler.
pub(crate) struct Sched {
    pub(crate) config: Config,
    /// No other runtime of the process has or had it.
    pub(crate) number: u64,
    pub(crate) lock: CachePadded<Lock<Locked, GlobalLen>>,
    pub(crate) idle: CachePadded<IdleView>,
    pub(crate) spinning: Spinning,
    pub(crate) linger: linger::Linger,
    pub(crate) watch: Watch,
    pub(crate) block_predictor: BlockPredictor,
    pub(crate) stack_needs: StackNeeds,
    /// Changes only while the world is stopped.
    steal_order: UnsafeCell<StealOrder>,
    pub(crate) table: ProcTable,
    pub(crate) all_ms: AllMs,
    /// Whether the world stops.
    pub(crate) stop: CachePadded<StopCount>,
    pub(crate) pauses: stop::Pauses,
    /// Held across a stop of the world.
    pub(crate) reins: Lock<stop::Reins>,
    phase: AtomicU32,
    started_ns: u64,
    /// Minutes since the start, as sysmon last saw them; see `minute_now`.
    minute: AtomicU32,
    /// Threads without a P of this runtime that wake a goroutine of it just now.
    pub(crate) outsiders: AtomicU32,
    /// Threads that do nothing any more but wait for the last goroutine.
    pub(crate) stayers: AtomicU32,
    /// Goroutines that were made to begin later and have not begun.
    pub(crate) unborn: AtomicU64,
    /// Goroutines of the idle class that run.
    pub(crate) idle_running: AtomicU32,
    /// How many goroutines wait for the memory of a stack.
    pub(crate) n_stackless: AtomicU32,
    pub(crate) n_held_back: AtomicU32,
    /// Until when there are more threads that run than CPUs; see `admission`.
    pub(crate) crowded_until_ns: AtomicU64,
    /// Whether the system refused the last thread that was asked for.
    pub(crate) threads_refused: AtomicU32,
    /// Whether all Ms execute full fences when they enter the runtime. Under the lock.
    full_fences: AtomicU32,
    /// Tells the thread that waits for the last goroutine.
    pub(crate) endings: Endings,
    this: Weak<Self>, // see `Sched::share`
    /// Goroutine ids handed out so far.
    ids: CachePadded<AtomicU64>,
    /// Counts what happens without a P.
    pub(crate) stats: CachePadded<Shard>,
    pub(crate) helper: helper::Mailbox,
    pub(crate) bell: bell::Bell,
    pub(crate) poll: CachePadded<poll::PollGate>,
}

// SAFETY: what is not Sync by itself is behind the lock or belongs to the holder of a P.
unsafe impl Sync for Sched {}
// SAFETY: as above.
unsafe impl Send for Sched {}

impl Sched {
    pub(crate) fn new(config: Config) -> std::io::Result<Self> {
        static N_RUNTIMES: AtomicU64 = AtomicU64::new(0);
        let procs = config.procs;
        let idle = IdleView::with_reserved(PROCS_MAX, config.latency_procs);
        // Before any of them rests: no more time at rest than there is.
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
        Ok(Self {
            number: N_RUNTIMES.fetch_add(1, Ordering::Relaxed),
            poll: CachePadded::new(poll::PollGate::new()?),
            table,
            all_ms: AllMs::new(),
            stop: CachePadded::new(StopCount::new()),
            pauses: stop::Pauses::default(),
            reins: Lock::new(Rank::World, stop::Reins::new(config.procs_choice)),
            lock: CachePadded::new(Lock::with_beside(
                Rank::Sched,
                Locked {
                    global: GlobalQueue::new(),
                    idle_ps,
                    idle_ms: IdleMs::new(),
                    gone_ms: DoubleList::new(),
                    free_guests: DoubleList::new(),
                    orphans: helper::Orphans::new(PROCS_MAX),
                    idle_work: List::new(),
                    stackless: List::new(),
                    held_back: List::new(),
                    n_ms: 0,
                    n_starting: 0,
                    proc_time,
                },
                GlobalLen::new(),
            )),
            idle: CachePadded::new(idle),
            spinning: Spinning::new(),
            linger: linger::Linger::new(),
            watch: Watch::new(),
            block_predictor: BlockPredictor::new(),
            stack_needs: StackNeeds::new(),
            steal_order: UnsafeCell::new(StealOrder::new(procs)),
            unborn: AtomicU64::new(0),
            idle_running: AtomicU32::new(0),
            n_stackless: AtomicU32::new(0),
            n_held_back: AtomicU32::new(0),
            crowded_until_ns: AtomicU64::new(0),
            threads_refused: AtomicU32::new(0),
            full_fences: AtomicU32::new((!membarrier::is_asymmetric()).into()),
            endings: Endings::new(),
            this: Weak::new(),
            phase: AtomicU32::new(Phase::Running as u32),
            started_ns: clock::now_ns(),
            minute: AtomicU32::new(0),
            outsiders: AtomicU32::new(0),
            stayers: AtomicU32::new(0),
            ids: CachePadded::new(AtomicU64::new(0)),
            stats: CachePadded::new(Shard::default()),
            helper: helper::Mailbox::new(),
            bell: bell::Bell::new(),
            config,
        })
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
        self.table.n_live()
    }

    /// A P by number.
    #[inline]
    pub(crate) fn p(&self, id: u32) -> &P {
        self.table.get(id)
    }

    /// The Ps that run goroutines.
    #[inline]
    pub(crate) fn all_ps(&self) -> impl Iterator<Item = &P> {
        self.table.live()
    }

    /// The walks over the other Ps.
    ///
    /// # Safety
    /// The caller holds a P, and uses the answer no longer than that.
    #[inline]
    pub(crate) unsafe fn steal_order(&self) -> &StealOrder {
        // SAFETY: it changes only while the world is stopped, and then nobody holds a P.
        unsafe { &*self.steal_order.get() }
    }

    /// Replaces the walks.
    ///
    /// # Safety
    /// The caller has stopped the world.
    pub(crate) unsafe fn swap_steal_order(&self, order: &mut StealOrder) {
        // SAFETY: by the caller's promise nobody reads it.
        std::mem::swap(unsafe { &mut *self.steal_order.get() }, order);
    }

    /// Minutes since the start, to mark the beginning of a wait with: a load, not a clock.
    #[inline]
    pub(crate) fn minute(&self) -> u32 {
        self.minute.load(Ordering::Relaxed)
    }

    /// Minutes since the start, by the clock.
    pub(crate) fn minute_now(&self) -> u32 {
        ((clock::now_ns() - self.started_ns) / 60_000_000_000) as u32
    }

    /// How old the runtime is at this moment.
    pub(crate) fn age_ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.started_ns)
    }

    /// Lets `minute` follow the clock.
    pub(crate) fn advance_minute(&self) {
        let now = self.minute_now();
        if now != self.minute() {
            self.minute.store(now, Ordering::Relaxed);
        }
    }

    /// Reserves `n` goroutine ids and returns the first. Ids start at 1.
    pub(crate) fn reserve_ids(&self, n: u64) -> u64 {
        self.ids.fetch_add(n, Ordering::Relaxed) + 1
    }

    /// The stack class of a goroutine.
    pub(crate) fn stack_class(&self, gp: &G) -> Class {
        // SAFETY: extras live as long as the goroutine, which the caller holds.
        let extras = unsafe { gp.extras.get().as_ref() };
        match extras.and_then(|extras| extras.stack) {
            Some(chosen) => chosen,
            None => self.config.stack.larger(self.stack_needs.steps(gp.kind())),
        }
    }

    /// How far the runtime is.
    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        // ORDERING: SeqCst pairs with `set_phase`: a spawner that published its goroutine and then
        // reads Running is seen by the closer's walk over all goroutines.
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Running,
            1 => Phase::Closing,
            _ => Phase::Stopped,
        }
    }

    pub(crate) fn set_phase(&self, phase: Phase) {
        // ORDERING: see `phase`.
        self.phase.store(phase as u32, Ordering::SeqCst);
    }

    /// Whether a record is a live goroutine of this runtime.
    pub(crate) fn is_mine(&self, gp: &G) -> bool {
        gp.status.get() != Status::Dead && std::ptr::eq(gp.sched.get(), self)
    }

    /// Adds all counters up.
    pub(crate) fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        // What ends a goroutine is counted after what makes it, so reading the ends first never
        // shows more ends than beginnings; the reader's order over shards keeps that only roughly,
        // so differences saturate.
        for pp in self.table.made() {
            totals.add(&pp.stats);
        }
        totals.add(&self.stats);
        totals
    }

    /// Goroutines that were spawned and have not ended.
    pub(crate) fn n_live(&self) -> u64 {
        let finished = |shard: &Shard| shard.finished.get();
        let created = |shard: &Shard| shard.created.get();
        let ended: u64 =
            self.table.made().map(|pp| finished(&pp.stats)).sum::<u64>() + finished(&self.stats);
        // ORDERING: the ends are read before the beginnings, so an end is never counted without
        // its beginning.
        heist_core::sync::fence(Ordering::SeqCst);
        let begun: u64 =
            self.table.made().map(|pp| created(&pp.stats)).sum::<u64>() + created(&self.stats);
        begun.saturating_sub(ended)
    }

    /// The fence of who takes the P of another M, with the scheduler lock held. If the kernel refuses
    /// `membarrier` now, the Ms are told to fence themselves, and have passed a fence when this returns.
    pub(crate) fn heavy_fence(&self) {
        membarrier::heavy_fence();
        if !membarrier::is_asymmetric() && self.full_fences.load(Ordering::Relaxed) == 0 {
            self.full_fences.store(1, Ordering::Relaxed);
            // ORDERING: pairs with the fence of `AllMs::add`.
            heist_core::sync::fence(Ordering::SeqCst);
            for m in self.all_ms.iter() {
                m.word.use_full_fences();
            }
            membarrier::settle();
        }
    }

    /// Puts a runnable goroutine at the end of the global queue.
    ///
    /// # Safety
    /// `gp` is runnable, in no queue, and the caller's to move.
    pub(crate) unsafe fn push_global(&self, gp: NonNull<G>) {
        // SAFETY: valid, by the caller's promise.
        if unsafe { gp.as_ref() }.is_classed() {
            // SAFETY: passed on.
            return unsafe { self.push_by_class(gp) };
        }
        let mut locked = self.lock.lock();
        // SAFETY: passed on.
        unsafe { locked.global.push_back(self.global_len(), gp) };
    }

    /// Writes the state of Ps and queues to standard error, without a lock.
    pub(crate) fn report_state(&self) {
        stderr::report(format_args!(
            "\tprocs={} idle={} spinning={} need_spinning={} global={}\n",
            self.procs(),
            self.idle.count(),
            self.spinning.n(),
            self.spinning.requested(),
            self.global_len().get(),
        ));
        for pp in self.all_ps() {
            stderr::report(format_args!(
                "\tP{}: queued={} yielded={} tick={} held={} idle={}\n",
                pp.id,
                pp.queue.len(),
                pp.yielded.len(),
                pp.tick(),
                pp.has_m(),
                self.idle.idle.contains(pp.id),
            ));
        }
    }
}
