//! Every constant of the scheduler and every decision that is a pure function.
//!
//! The values are Go's unless the comment says why not. Code elsewhere names them; no other file
//! repeats a number.
//!
//! GO: proc.go, runtime2.go.

pub mod balance;
pub mod blocks;
pub mod forks;
mod names;
pub mod sysmon;
pub mod timers;

pub use names::ParsePolicyError;

/// Slots in a P's ring, besides `run_next`. Loom explores four: the algorithm is the same and the
/// interleavings stay countable.
#[cfg(not(loom))]
pub const RING_CAPACITY: u32 = 256;
/// Slots in a P's ring under loom.
#[cfg(loom)]
pub const RING_CAPACITY: u32 = 4;

/// Slots in the deque of a goroutine that forks: so many forks can be nested before the oldest
/// becomes a goroutine. Four under loom.
#[cfg(not(loom))]
pub const FORKS_MAX: usize = 256;
/// Slots in the deque of a goroutine that forks under loom.
#[cfg(loom)]
pub const FORKS_MAX: usize = 4;

/// How many of the oldest goroutines an overflowing ring moves to the global queue, besides the
/// newcomer.
pub const OVERFLOW_BATCH: u32 = RING_CAPACITY / 2;

/// The maximum number of goroutines taken from the global queue at once.
pub const GLOBAL_BATCH_MAX: u32 = RING_CAPACITY / 2;

/// Once in this many ticks the global queue goes first, so that two goroutines that keep readying
/// each other cannot starve it. A prime, so that it does not resonate with a period of the program.
pub const GLOBAL_CHECK_TICKS: u32 = 61;

/// Passes over all Ps before a thief gives up.
pub const STEAL_TRIES: u32 = 4;

/// How long a thief waits before it takes a running P's `run_next`: the owner is most likely just
/// about to block and run it itself. The thief takes it only if the owner has run nothing
/// meanwhile, which Go does not check.
pub const RUN_NEXT_BACK_OFF_NS: u64 = 3_000;

/// How long a watcher sleeps between two checks. It is long compared with the microsecond for which
/// a check disturbs its victim, and short compared with the time that a goroutine may wait for its
/// turn anyway.
pub const WATCH_NS: u64 = 100_000;
/// A watch continues if at least this many goroutines became runnable meanwhile: if there are
/// fewer, waking an M for each of them costs less than watching.
pub const WATCH_MIN_READIED: u64 = 32;
/// An M that looked for work and found none watches nevertheless if at least this many goroutines
/// became runnable meanwhile.
pub const BUSY_MIN_READIED: u64 = 8;

/// The longest time for which a spinner lingers after its passes before it sleeps: about the cost
/// of waking it again.
pub const LINGER_MAX_NS: u64 = 50_000;
/// The shortest time for which a spinner lingers: a program whose pauses are long pays almost
/// nothing for it.
pub const LINGER_MIN_NS: u64 = 1_000;

/// How long to linger next time, given the last time and how long the M then slept: twice as long
/// if lingering for the cost of a wake-up would have avoided the sleep, otherwise half as long.
#[must_use]
pub const fn next_linger(linger_ns: u64, slept_ns: u64) -> u64 {
    let next = if slept_ns < 2 * LINGER_MAX_NS { 2 * linger_ns } else { linger_ns / 2 };
    if next < LINGER_MIN_NS {
        LINGER_MIN_NS
    } else if next > LINGER_MAX_NS {
        LINGER_MAX_NS
    } else {
        next
    }
}

/// Free goroutine records that a P keeps; at this many it returns half of them.
pub const FREE_G_MAX: u32 = 64;
/// The length to which the free list of a P is cut down or filled up.
pub const FREE_G_KEEP: u32 = 32;

/// Goroutine ids a P reserves at a time.
pub const ID_BLOCK: u64 = 16;

/// Once in this many times that a goroutine becomes runnable, its wait for a P is measured.
pub const LATENCY_SAMPLE: u32 = 8;

/// How long a goroutine may run while others wait.
pub const QUANTUM_NS: u64 = 10_000_000;
/// How long a timer or a network event may wait for a P while every P runs a goroutine that does
/// not yield.
pub const WAKE_UP_NS: u64 = 1_000_000;
/// A P whose slices are shorter than this on average makes progress: it checks the clock, the
/// urgent goroutines and, when its queue is empty, the network without being asked.
pub const PROGRESS_SLICE_NS: u64 = 100_000;
/// For how long a P that made progress is assumed to still do so: its thread may have to wait for a
/// CPU, and then sysmon cannot help. A turn of the kernel's scheduler is about as long.
pub const PROGRESS_VALID_NS: u64 = 3_000_000;
/// For how long after a P was taken from a blocking call no P is assumed to make progress: another
/// call may follow, and in a program that is left alone it would keep its P for two long naps.
pub const BLOCKED_LATELY_NS: u64 = 50_000_000;
/// How long the network may go unpolled while a P makes progress, as in Go.
pub const NETWORK_LATE_NS: u64 = 10_000_000;
/// Urgent goroutines a P runs in a row before it looks at the others again.
pub const URGENT_STREAK_MAX: u32 = 4;

/// How many urgent goroutines a P has run in a row.
#[derive(Clone, Copy, Debug, Default)]
pub struct UrgentStreak {
    n: u32,
    /// The P's tick when it took the last one.
    tick: u32,
}

impl UrgentStreak {
    /// Whether the P, which has this tick, takes an urgent one. Each goroutine that runs is one
    /// tick: if there were more since the last urgent one, others have had their turn.
    pub const fn continues(&mut self, tick: u32) -> bool {
        if tick.wrapping_sub(self.tick) > 1 {
            self.n = 0;
        }
        self.tick = tick;
        if self.n == URGENT_STREAK_MAX {
            self.n = 0;
            return false;
        }
        self.n += 1;
        true
    }
}

/// How many of `idle` stacks that were not needed for a second have their memory returned to the
/// system: an eighth of many, all of few. A program that needs them every few seconds keeps most of
/// them: returning a page and getting a fresh one costs more than everything else that a goroutine
/// does.
#[must_use]
pub const fn stacks_to_release(idle: u32) -> u32 {
    const FEW: u32 = 1024;
    let eighth = idle.div_ceil(8);
    let most = if eighth > FEW { eighth } else { FEW };
    if idle < most { idle } else { most }
}

/// One in this many goroutines is checked when it ends: whether it came near the end of its stack.
pub const STACK_LOOK_PERIOD: u64 = 32;
/// How many times the stack of a kind of goroutine doubles at most.
pub const STACK_STEPS_MAX: u32 = 4;

/// How many of the goroutines that were held back a P admits before it becomes idle.
pub const ADMITTED_MAX: u32 = 64;
/// For how long a crowd, a scarcity of threads, is assumed to exist after it was noticed.
pub const CROWD_NS: u64 = 10_000_000;
/// A P is lent again after this time at the latest.
pub const CROWD_KEEP_NS: u64 = 100_000_000;
/// A P is not lent in a crowd if its next timer is due within this time.
pub const CROWD_NEAR_NS: u64 = 1_000_000;
/// A nap of sysmon that ends this much too late has ended when a CPU became free.
pub const OVERSLEPT_NS: u64 = 1_000_000;
/// How often the signal is sent to a goroutine that does not stop.
pub const FORCE_PERIOD_NS: u64 = 1_000_000;

/// How many threads that were preempted by a signal may have a descriptor by which they are woken
/// on the right CPU.
pub const DOORBELLS_MAX: u32 = 64;

/// How long a stop of the world waits for goroutines to stop by themselves before it sends them a
/// signal.
pub const STOP_ASK_NS: u64 = 20_000;
/// How often a stop of the world repeats the signal for goroutines that have not stopped.
pub const STOP_FORCE_NS: u64 = 100_000;
/// After this time it takes the P of a thread that does not stop, which continues to run without
/// one. It is longer than a thread waits for a CPU on an overloaded machine.
pub const STOP_PATIENCE_NS: u64 = 1_000_000_000;

/// How many of `n` goroutines in the global queue go before the next of `n_stopped` that wait there
/// with their own threads: its share of them, and at least one, so that neither kind waits for all
/// of the other.
#[must_use]
pub const fn ahead_of_frozen(n: u32, n_stopped: u32) -> u32 {
    if n_stopped == 0 { 0 } else { n.div_ceil(n_stopped) }
}

/// How long sysmon naps while it has something to do: a blocking call may last one nap before its P
/// is taken.
pub const SYSMON_NAP_NS: u64 = 20_000;
/// Rounds with nothing to do before its naps grow.
pub const SYSMON_IDLE_ROUNDS: u32 = 50;
/// The longest nap while goroutines wait for a P: an unannounced blocking call is detected after
/// two.
pub const SYSMON_NAP_WANTED_NS: u64 = 1_000_000;
/// The longest nap while they wait, but some P makes progress.
pub const SYSMON_NAP_PROGRESS_NS: u64 = 4_000_000;
/// The longest nap.
pub const SYSMON_NAP_MAX_NS: u64 = 10_000_000;
/// How long all Ps must be idle before sysmon sleeps without a timeout.
pub const SYSMON_REST_NS: u64 = 50_000_000;
/// How long an announced blocking call keeps its P if no goroutine needs it.
pub const SYSCALL_MAX_NS: u64 = 10_000_000;

/// After this wait for a mutex newcomers may not overtake a goroutine any more.
pub const STARVATION_NS: u64 = 1_000_000;
/// How often a contender for a mutex tries again before it waits.
pub const LOCK_SPINS: u32 = 4;
/// How many pause instructions separate two of these tries.
pub const LOCK_SPIN_PAUSES: u32 = 30;

/// Whether a goroutine may spin for a mutex: another P is busy, so that the holder is likely to run
/// and to release it, and no goroutine waits for its own P.
#[must_use]
#[doc(alias = "runtime_canSpin")]
pub const fn may_spin_for_lock(
    spins: u32,
    procs: u32,
    n_idle: u32,
    n_spinning: u32,
    own_queue_is_empty: bool,
) -> bool {
    spins < LOCK_SPINS && procs > n_idle + n_spinning + 1 && own_queue_is_empty
}

/// The maximum number of Ps of a runtime. The tables indexed by P are reserved at this size so that
/// a resize never moves them under a reader.
pub const PROCS_MAX: u32 = 4096;

/// How often the default number of Ps is computed again.
pub const PROCS_CHECK_NS: u64 = 1_000_000_000;

/// The minimum number of Ps under a quota that is rounded up: with one, a goroutine that computes
/// would keep all others waiting for a slice each time.
pub const QUOTA_PROCS_MIN: u32 = 2;

/// CPU time that a group of processes may use in each period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    quota_us: u64,
    period_us: u64,
}

impl Quota {
    /// A quota, or None if this is not a meaningful limit.
    #[must_use]
    pub const fn new(quota_us: u64, period_us: u64) -> Option<Self> {
        if quota_us == 0 || period_us == 0 { None } else { Some(Self { quota_us, period_us }) }
    }

    /// The tighter of two, by CPUs, whatever the periods are.
    #[must_use]
    pub fn cmp_cpus(self, other: Self) -> std::cmp::Ordering {
        let crossed = |a: Self, b: Self| u128::from(a.quota_us) * u128::from(b.period_us);
        crossed(self, other).cmp(&crossed(other, self))
    }
}

/// How many processors a quota of a CPU and a half gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum FractionalQuota {
    /// Rounded up, as in Go, and at least two if there are that many CPUs. It uses the full quota;
    /// the kernel may throttle the process for a moment when it is used up.
    #[default]
    Up,
    /// Rounded down, at least one: the kernel does not have to throttle the process.
    Down,
    /// To the nearest, at least one.
    Nearest,
}

/// The default number of Ps: one for each CPU, unless the quota is tighter.
#[must_use]
#[doc(alias = "defaultGOMAXPROCS")]
pub fn default_procs(cpus: u32, quota: Option<Quota>, rounding: FractionalQuota) -> u32 {
    let most = cpus.clamp(1, PROCS_MAX);
    let Some(Quota { quota_us, period_us }) = quota else { return most };
    let (whole, rest) = (quota_us / period_us, quota_us % period_us);
    let (up, least) = match rounding {
        FractionalQuota::Up => (rest > 0, QUOTA_PROCS_MIN),
        FractionalQuota::Down => (false, 1),
        FractionalQuota::Nearest => (rest >= period_us.div_ceil(2), 1),
    };
    let wanted = whole.saturating_add(up.into()).min(u64::from(PROCS_MAX)) as u32;
    wanted.max(least).min(most)
}

/// How much CPU time a goroutine may use after its P was taken before its thread is stopped.
pub const WITHOUT_P_CPU_NS: u64 = 10_000_000;
/// How often threads without a P are checked.
pub const WITHOUT_P_PERIOD_NS: u64 = 10_000_000;
/// How many of them are checked each time.
pub const WITHOUT_P_LOOKS: u32 = 64;

/// How long an idle thread that is not needed waits for work before it ends.
pub const IDLE_M_NS: u64 = 5_000_000_000;

/// How many idle threads a runtime with `procs` Ps keeps: one for each P, one for a blocking call
/// and one for a preemption.
#[must_use]
pub const fn idle_ms_kept(procs: u32) -> u32 {
    procs + 2
}

/// The default maximum number of threads of a runtime.
pub const THREADS_MAX: u32 = 10_000;

/// Whether all `threads` threads of a process are the `ours` threads of a runtime. If the system
/// does not report their number, there may be others.
#[must_use]
pub const fn only_ours(threads: Option<u32>, ours: u32) -> bool {
    match threads {
        Some(threads) => threads <= ours,
        None => false,
    }
}

/// Whether a P with this tick takes from the global queue before the local one.
#[must_use]
pub const fn global_first(tick: u32) -> bool {
    tick.is_multiple_of(GLOBAL_CHECK_TICKS)
}

/// Whether latent halves of forks go first at this tick: as often as the global queue, and not at
/// the same ticks.
#[must_use]
pub const fn forks_first(tick: u32) -> bool {
    tick % GLOBAL_CHECK_TICKS == GLOBAL_CHECK_TICKS / 2
}

/// How many goroutines to take from a global queue of `size` with `procs` Ps: a fair share plus
/// one, at most half a ring.
#[must_use]
pub const fn global_batch(size: u32, procs: u32) -> u32 {
    let share = size / procs + 1;
    let share = if share < size { share } else { size };
    if share < GLOBAL_BATCH_MAX { share } else { GLOBAL_BATCH_MAX }
}

/// Whether one more M may start to spin: at most half of the busy Ps' Ms look for work, so that the
/// search does not use up the machine when there is little to find.
#[must_use]
pub const fn may_spin(n_spinning: u32, procs: u32, n_idle: u32) -> bool {
    2 * n_spinning < procs.saturating_sub(n_idle)
}

/// How much of a victim's ring a thief takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Share {
    /// Half, rounded up: a ring of one is emptied.
    CeilHalf,
    /// Half, rounded down: the victim always keeps work.
    FloorHalf,
}

impl Share {
    /// How many of `len` goroutines this share is.
    #[must_use]
    pub const fn of(self, len: u32) -> u32 {
        match self {
            Self::CeilHalf => len - len / 2,
            Self::FloorHalf => len / 2,
        }
    }
}

/// In which order a thief visits the other Ps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Order {
    /// From a random start with a random step coprime to the number of Ps.
    Coprime,
    /// From a random start once around the ring.
    Ring,
}

/// Whether a thief may take `run_next`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RunNextTheft {
    /// In the last pass, after a back-off.
    LastTry,
    /// Not at all: a fresh goroutine stays with the P that made it.
    Never,
}

/// How idle Ps steal from busy ones. It is data: the search loop is the same for every policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StealPolicy {
    /// Passes over all Ps. Each victim looked at costs one of a budget of `tries * procs`.
    pub tries: u32,
    /// How much is taken.
    pub share: Share,
    /// In which order victims are visited.
    pub order: Order,
    /// Whether `run_next` may be taken.
    pub run_next: RunNextTheft,
    /// Whether a thief visits the Ps of its own NUMA node before the others. It makes no difference
    /// on a machine with one node.
    pub near_first: bool,
}

impl StealPolicy {
    /// Go's policy: four tries along a coprime walk, the larger half, `run_next` as a last resort.
    #[must_use]
    pub const fn go() -> Self {
        Self {
            tries: STEAL_TRIES,
            share: Share::CeilHalf,
            order: Order::Coprime,
            run_next: RunNextTheft::LastTry,
            near_first: true,
        }
    }

    /// The gentle policy: a ring scan that never empties its victim and never takes `run_next`.
    ///
    /// A goroutine alone in a ring, or in `run_next`, waits for its own P: this trades throughput
    /// of bursts for locality.
    #[must_use]
    pub const fn gentle() -> Self {
        Self {
            tries: STEAL_TRIES,
            share: Share::FloorHalf,
            order: Order::Ring,
            run_next: RunNextTheft::Never,
            near_first: true,
        }
    }

    /// The same policy, which visits the Ps of the own NUMA node first, or regards all Ps alike.
    #[must_use]
    pub const fn with_near_first(mut self, near_first: bool) -> Self {
        self.near_first = near_first;
        self
    }

    /// The same policy with another number of passes.
    #[must_use]
    pub const fn with_tries(mut self, tries: u32) -> Self {
        self.tries = tries;
        self
    }
}

impl Default for StealPolicy {
    fn default() -> Self {
        Self::go()
    }
}
