//! Bodies on tasks that are futures.

use crate::contract::futures::{Announce, Channels, Locks, Net, SharedReceiver, Tasks, Timers};
use crate::job::Job;
use crate::reading::Outcome;
use crate::workloads::servers::{self, Service};
use crate::workloads::steal::{self, Behind, Thief};
use crate::workloads::{
    async_channels, fork_join, idle_cpu, locks as lock, parked, scale, spawn_join, spawn_latency,
    stalls, timers as timer, uneven_tree, yielding,
};

pub fn tasks<R: Tasks>(job: Job<'_>) -> Option<Outcome> {
    let procs = job.procs;
    Some(match job.workload {
        "spawn_join" => spawn_join::futures::<R>(procs),
        "skynet" => fork_join::skynet_futures::<R>(procs),
        "fib_join" => fork_join::fib_futures::<R>(procs),
        "yield" => yielding::futures::<R>(procs),
        "parked_100k" => parked::futures::<R>(procs, 100_000),
        "parked_1m" => parked::futures::<R>(procs, 1_000_000),
        "steal_hot" => steal::futures::<R>(procs, Thief::Hot, Behind::Another),
        "steal_idle" => steal::futures::<R>(procs, Thief::Idle, Behind::Another),
        "steal_hot_single" => steal::futures::<R>(procs, Thief::Hot, Behind::Nothing),
        "steal_idle_single" => steal::futures::<R>(procs, Thief::Idle, Behind::Nothing),
        "spawn_latency" => spawn_latency::futures::<R>(procs),
        "uneven_tree" => uneven_tree::futures::<R>(procs),
        "scale_spawn" => scale::spawn_futures::<R>(procs, job.size),
        "scale_wake" => scale::wake_futures::<R>(procs, job.size),
        "idle_cpu" => idle_cpu::futures::<R>(procs),
        _ => return only_tasks::<R>(job),
    })
}

/// The rows that compare futures with futures, heist's tasks included.
pub fn only_tasks<R: Tasks>(job: Job<'_>) -> Option<Outcome> {
    let procs = job.procs;
    Some(match job.workload {
        "task_spawn_join" => spawn_join::futures::<R>(procs),
        "task_yield" => yielding::futures::<R>(procs),
        "task_parked_1m" => parked::memory_of_futures::<R>(procs, 1_000_000),
        _ => return None,
    })
}

pub fn only_channels<R: Tasks, C: Channels>(job: Job<'_>) -> Option<Outcome> {
    (job.workload == "task_ping_pong").then(|| async_channels::ping_pong::<R, C>(job.procs))
}

pub fn only_timers<R: Timers>(job: Job<'_>) -> Option<Outcome> {
    (job.workload == "task_timers").then(|| timer::futures::<R>(job.procs))
}

/// Without workloads that need a receiver that can be shared.
pub fn channels<R: Tasks, C: Channels>(job: Job<'_>) -> Option<Outcome> {
    let procs = job.procs;
    Some(match job.workload {
        "ping_pong" => async_channels::ping_pong::<R, C>(procs),
        "chan_mpsc" => async_channels::to_one::<R, C>(procs, 4),
        "chan_spsc" => async_channels::to_one::<R, C>(procs, 1),
        "select" => async_channels::select::<R, C>(procs),
        "ring" => async_channels::ring::<R, C>(procs),
        _ => return only_channels::<R, C>(job),
    })
}

pub fn shared_receivers<R: Tasks, C: SharedReceiver>(job: Job<'_>) -> Option<Outcome> {
    (job.workload == "chan_mpmc").then(|| async_channels::mpmc::<R, C>(job.procs))
}

pub fn locks<R: Tasks, L: Locks>(job: Job<'_>) -> Option<Outcome> {
    Some(match job.workload {
        "mutex" => lock::mutex_futures::<R, L>(job.procs),
        "rwlock" => lock::rwlock_futures::<R, L>(job.procs),
        _ => return None,
    })
}

pub fn timers<R: Timers>(job: Job<'_>) -> Option<Outcome> {
    Some(match job.workload {
        "timers" => timer::futures::<R>(job.procs),
        "scale_timer" => scale::timer_futures::<R>(job.procs, job.size),
        "hogs" => stalls::hogs_futures::<R>(job.procs),
        "unannounced" => stalls::unannounced_futures::<R>(job.procs),
        _ => return only_timers::<R>(job),
    })
}

pub fn announced<R: Timers + Announce>(job: Job<'_>) -> Option<Outcome> {
    (job.workload == "blocking").then(|| stalls::blocking_futures::<R>(job.procs))
}

pub fn servers<R: Net>(job: Job<'_>) -> Option<Outcome> {
    let service = Service::of(job.workload)
        .filter(|service| !matches!(service, Service::HttpLibrary | Service::HttpHyper))?;
    Some(servers::futures::<R>(job.procs, service))
}
