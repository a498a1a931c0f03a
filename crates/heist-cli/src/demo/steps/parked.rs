//! A million goroutines parked at once, each on a guarded stack of its own.

use super::Step;
use crate::demo::figures;
use crate::demo::memory::{self, Part};
use crate::demo::report::Report;
use crate::demo::stage::Stage;
use heist::goroutine::SpawnError;
use heist::sync::WaitGroup;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub const STEP: Step =
    Step { name: "parked", title: "goroutines parked at once on guarded stacks", run };

const LOOK_EVERY: Duration = Duration::from_millis(1);
/// The maximum memory of one of them, with its share of the kernel's page tables.
const BYTES_EACH: u64 = 5600;
/// A page of stack, the record, and the tables for both, where pages have 4 KiB and the compiler
/// optimises.
const RESIDENT_MAX: Option<u64> =
    if cfg!(target_arch = "x86_64") && !cfg!(debug_assertions) { Some(4800) } else { None };

/// Where they wait.
struct Gate {
    closed: WaitGroup,
    through: WaitGroup,
    n_arrived: AtomicU64,
    sum: AtomicU64,
}

fn run(stage: &Stage<'_>) -> Report {
    let wanted: u64 = stage.pick(100_000, 1_000_000);
    let available = memory::available();
    let n = affordable(wanted, available);
    let gate = Arc::new(Gate {
        closed: WaitGroup::new(),
        through: WaitGroup::new(),
        n_arrived: AtomicU64::new(0),
        sum: AtomicU64::new(0),
    });
    gate.closed.add(1);
    gate.through.add(n as usize);

    let start = Instant::now();
    let arrived = || gate.n_arrived.load(Ordering::Relaxed);
    let spawned = stage.follow("parking on guarded stacks", n, arrived, || {
        let spawned = stage.rt.run(|| spawn_all(&gate, n));
        if spawned.is_ok() {
            wait_until_parked(stage, &gate, n);
        }
        spawned
    });
    let parked_after = start.elapsed();
    if let Err((n_spawned, error)) = spawned {
        gate.closed.done();
        return Report::failed(format!("goroutine {n_spawned} of {n} was refused: {error}"));
    }
    let resident = memory::of_process(Part::Resident);
    let page_tables = memory::of_process(Part::PageTables) / n;
    let each = resident.saturating_sub(stage.resident_at_start) / n;

    let through = || stage.n_finished();
    let wake = Instant::now();
    stage.follow("waking all of them", n, through, || {
        gate.closed.done();
        gate.through.wait();
    });
    let woken_after = wake.elapsed();

    let mut done = format!("{} goroutines parked, then woken", figures::count(n));
    if n < wanted {
        let left = figures::bytes(available.unwrap_or(0));
        done += &format!(" (not {}: {left} of memory left)", figures::count(wanted));
    }
    let mut report = Report::new(done, parked_after + woken_after, n, "park");
    report.memory = format!("{} B each", figures::count(each));
    report.note(format!(
        "parked in {}, woken and ended in {}; {} resident, beside which the kernel keeps {page_tables} B \
         of page tables for each",
        figures::time(parked_after),
        figures::time(woken_after),
        figures::bytes(resident),
    ));
    let sum = gate.sum.load(Ordering::Relaxed);
    report.expect("the sum of all they brought", sum, n * (n - 1) / 2);
    if let Some(most) = RESIDENT_MAX {
        let problem = format!("{each} resident bytes each, at most {most} were promised");
        report.require(each <= most, problem);
    }
    report
}

/// As many as fit into memory, with a quarter of it left to others.
fn affordable(wanted: u64, available: Option<u64>) -> u64 {
    let fit = available.map_or(wanted, |bytes| bytes / 4 * 3 / BYTES_EACH);
    fit.clamp(1, wanted)
}

/// Spawns all of them, or returns how many there were before the system refused.
fn spawn_all(gate: &Arc<Gate>, n: u64) -> Result<(), (u64, SpawnError)> {
    for i in 0..n {
        let gate = Arc::clone(gate);
        let spawned = heist::try_go(move || {
            gate.n_arrived.fetch_add(1, Ordering::Relaxed);
            gate.closed.wait();
            gate.sum.fetch_add(i, Ordering::Relaxed);
            gate.through.done();
        });
        drop(spawned.map_err(|error| (i, error))?);
    }
    Ok(())
}

/// Called on the main thread, which has no other way to see that goroutines wait.
fn wait_until_parked(stage: &Stage<'_>, gate: &Gate, n: u64) {
    let arrived = || gate.n_arrived.load(Ordering::Relaxed);
    while arrived() < n || stage.metric("/sched/goroutines/waiting:goroutines") < n {
        std::thread::sleep(LOOK_EVERY);
    }
}

#[test]
fn short_memory_makes_fewer() {
    assert_eq!(affordable(1000, None), 1000);
    assert_eq!(affordable(1000, Some(1 << 40)), 1000);
    assert_eq!(affordable(1000, Some(BYTES_EACH * 400)), 300);
    assert_eq!(affordable(1000, Some(0)), 1);
}
