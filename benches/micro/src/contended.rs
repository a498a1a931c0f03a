//! A ticker beside goroutines that contend for a lock that heist does not know: how late the ticks
//! are, and how much work is done, compared with the same on threads and without the lock.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use heist::Runtime;

/// The number of goroutines that contend.
const N: usize = 200;
const PERIOD: Duration = Duration::from_millis(1);

/// The work of the goroutines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Load {
    /// Compute, for 20 us a round.
    Free,
    /// The same under one `std::sync::Mutex`.
    Mutex,
    /// The same, half of it under the lock.
    Half,
    /// Make a tree of strings and vectors, and drop it.
    Tree,
    /// The same with one arena of the C library's allocator for all: its lock.
    Arena,
}

/// Measures each load, or those that are named, on goroutines and on threads.
pub fn measure(secs: u64, only: &[Load]) -> Result<(), String> {
    println!("a ticker of 1 ms beside {N}   late: p50      p99      max    rounds a second");
    for &load in Load::value_variants() {
        if !only.is_empty() && !only.contains(&load) {
            continue;
        }
        if load == Load::Arena {
            one_arena();
        }
        let length = Duration::from_secs(secs);
        on_goroutines(load, length)?.print(load, "goroutines");
        on_threads(load, length).print(load, "threads");
    }
    Ok(())
}

/// From now on every thread allocates from the same arena.
fn one_arena() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: it sets a limit, and no other thread is there.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}

struct Outcome {
    late: Vec<Duration>,
    rounds_a_sec: f64,
    events: String,
}

impl Outcome {
    fn print(mut self, load: Load, what: &str) {
        self.late.sort();
        let at =
            |q: f64| self.late[((self.late.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e3;
        println!(
            "  {:6} {what:12} {:12.3} {:8.3} {:8.3} ms {:12.0}{}",
            format!("{load:?}").to_lowercase(),
            at(0.5),
            at(0.99),
            at(1.0),
            self.rounds_a_sec,
            self.events
        );
    }
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    rounds: AtomicU64,
    lock: Mutex<u64>,
}

impl Shared {
    fn work(&self, load: Load) {
        let mut rounds = 0;
        while !self.stop.load(Ordering::Relaxed) {
            match load {
                Load::Free => compute(20),
                Load::Mutex => {
                    let mut held = self.lock.lock().expect("nobody panics");
                    compute(20);
                    *held += 1;
                }
                Load::Half => {
                    let mut held = self.lock.lock().expect("nobody panics");
                    compute(10);
                    *held += 1;
                    drop(held);
                    compute(10);
                }
                Load::Tree | Load::Arena => drop(black_box(tree(4))),
            }
            rounds += 1;
        }
        self.rounds.fetch_add(rounds, Ordering::Relaxed);
    }
}

/// Computes for about this many microseconds, without reading the clock.
fn compute(us: u64) {
    let mut n = black_box(1_u64);
    for i in 0..us * 700 {
        n = black_box(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(i));
    }
}

/// As a parser of JSON would leave it.
struct Node {
    _name: String,
    _below: Vec<Node>,
}

fn tree(depth: usize) -> Node {
    let below = if depth == 0 { Vec::new() } else { (0..3).map(|_| tree(depth - 1)).collect() };
    Node { _name: "name".repeat(depth + 1), _below: below }
}

fn ticks(length: Duration, sleep_until: impl Fn(Instant)) -> Vec<Duration> {
    let from = Instant::now();
    let tick = |i| {
        let due = from + i * PERIOD;
        sleep_until(due);
        due.elapsed()
    };
    (1..=(length.as_nanos() / PERIOD.as_nanos()) as u32).map(tick).collect()
}

fn on_goroutines(load: Load, length: Duration) -> Result<Outcome, String> {
    // SAFETY: the goroutines keep nothing across a park that is bound to a thread.
    let rt = unsafe { Runtime::builder().build() }.map_err(|error| error.to_string())?;
    let shared = Arc::new(Shared::default());
    let outcome = rt.run(|| {
        let from = Instant::now();
        let workers: Vec<_> = (0..N)
            .map(|_| {
                let shared = Arc::clone(&shared);
                heist::go(move || shared.work(load))
            })
            .collect();
        let late = heist::go(move || ticks(length, heist::time::sleep_until)).join();
        shared.stop.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().expect("it ends"));
        let secs = from.elapsed().as_secs_f64();
        (late.expect("it ends"), shared.rounds.load(Ordering::Relaxed) as f64 / secs)
    });
    Ok(Outcome { late: outcome.0, rounds_a_sec: outcome.1, events: numbers(&rt) })
}

/// The reaction of the scheduler, from its metrics.
fn numbers(rt: &Runtime) -> String {
    let metrics = rt.metrics();
    let get = |name| metrics.get(name).unwrap_or(0);
    format!(
        "  ({} found asleep, {} foreseen; {} signals, {} stopped)",
        get("/heist/blocking/unannounced:events"),
        get("/heist/blocking/foreseen:events"),
        get("/heist/preempt/signals:events"),
        get("/heist/preempt/forced:events")
    )
}

fn on_threads(load: Load, length: Duration) -> Outcome {
    let shared = Arc::new(Shared::default());
    let from = Instant::now();
    let workers: Vec<_> = (0..N)
        .map(|_| {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || shared.work(load))
        })
        .collect();
    let sleep = |due: Instant| std::thread::sleep(due.saturating_duration_since(Instant::now()));
    let late = std::thread::spawn(move || ticks(length, sleep)).join().expect("it ends");
    shared.stop.store(true, Ordering::Relaxed);
    workers.into_iter().for_each(|worker| worker.join().expect("it ends"));
    let secs = from.elapsed().as_secs_f64();
    let rounds_a_sec = shared.rounds.load(Ordering::Relaxed) as f64 / secs;
    Outcome { late, rounds_a_sec, events: String::new() }
}
