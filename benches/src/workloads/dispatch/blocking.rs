//! Bodies on tasks that block.

use crate::contract::blocking::{
    Announce, Channels, Locks, Net, Select, SharedReceiver, Tasks, Timers,
};
use crate::job::Job;
use crate::reading::Outcome;
use crate::workloads::servers::{self, Service};
use crate::workloads::steal::{self, Behind, Thief};
use crate::workloads::{
    channels, fork_join, idle_cpu, locks as lock, parked, scale, spawn_join, spawn_latency, stalls,
    timers as timer, uneven_tree, yielding,
};

pub fn tasks<R: Tasks>(job: Job<'_>) -> Option<Outcome> {
    let procs = job.procs;
    Some(match job.workload {
        "spawn_join" => spawn_join::blocking::<R>(procs),
        "skynet" => fork_join::skynet_blocking::<R>(procs),
        "fib_join" => fork_join::fib_blocking::<R>(procs),
        "yield" => yielding::blocking::<R>(procs),
        "parked_100k" => parked::blocking::<R>(procs, 100_000),
        "parked_1m" => parked::blocking::<R>(procs, 1_000_000),
        "steal_hot" => steal::blocking::<R>(procs, Thief::Hot, Behind::Another),
        "steal_idle" => steal::blocking::<R>(procs, Thief::Idle, Behind::Another),
        "steal_hot_single" => steal::blocking::<R>(procs, Thief::Hot, Behind::Nothing),
        "steal_idle_single" => steal::blocking::<R>(procs, Thief::Idle, Behind::Nothing),
        "spawn_latency" => spawn_latency::blocking::<R>(procs),
        "uneven_tree" => uneven_tree::blocking::<R>(procs),
        "scale_spawn" => scale::spawn::<R>(procs, job.size),
        "scale_wake" => scale::wake::<R>(procs, job.size),
        "idle_cpu" => idle_cpu::blocking::<R>(procs),
        _ => return None,
    })
}

/// Without workloads that need a receiver that can be shared, or a select.
pub fn channels<R: Tasks, C: Channels>(job: Job<'_>) -> Option<Outcome> {
    let procs = job.procs;
    Some(match job.workload {
        "ping_pong" => channels::ping_pong::<R, C>(procs),
        "chan_mpsc" => channels::to_one::<R, C>(procs, 4),
        "chan_spsc" => channels::to_one::<R, C>(procs, 1),
        "ring" => channels::ring::<R, C>(procs),
        _ => return None,
    })
}

pub fn shared_receivers<R: Tasks, C: SharedReceiver>(job: Job<'_>) -> Option<Outcome> {
    (job.workload == "chan_mpmc").then(|| channels::mpmc::<R, C>(job.procs))
}

pub fn select<R: Tasks, C: Select>(job: Job<'_>) -> Option<Outcome> {
    (job.workload == "select").then(|| channels::select::<R, C>(job.procs))
}

pub fn locks<R: Tasks, L: Locks>(job: Job<'_>) -> Option<Outcome> {
    Some(match job.workload {
        "mutex" => lock::mutex::<R, L>(job.procs),
        "rwlock" => lock::rwlock::<R, L>(job.procs),
        _ => return None,
    })
}

pub fn timers<R: Timers>(job: Job<'_>) -> Option<Outcome> {
    Some(match job.workload {
        "timers" => timer::blocking::<R>(job.procs),
        "scale_timer" => scale::timer::<R>(job.procs, job.size),
        "hogs" => stalls::hogs::<R>(job.procs),
        "unannounced" => stalls::unannounced::<R>(job.procs),
        _ => return None,
    })
}

pub fn announced<R: Timers + Announce>(job: Job<'_>) -> Option<Outcome> {
    (job.workload == "blocking").then(|| stalls::blocking::<R>(job.procs))
}

pub fn servers<R: Net>(job: Job<'_>) -> Option<Outcome> {
    let service = Service::of(job.workload).filter(|service| *service != Service::HttpHyper)?;
    Some(servers::blocking::<R>(job.procs, service))
}
