//! The model against the runtime: the same workloads on this machine and in the model.

use heist::Runtime;
use heist_sim::experiments::{Answer, Setup};
use heist_sim::svg::{Axis, Chart, Series};
use heist_sim::table::{Table, number, percent};
use heist_sim::topology::Topology;
use heist_sim::workloads::{PingPong, Tree};
use heist_sim::{Config, Report, Sim, Workload};
use std::time::{Duration, Instant};

/// A count: its name, that of its metric, and where the model has it.
type Counted = (&'static str, &'static str, fn(&Report) -> u64);

/// What is counted on both sides.
const COUNTED: [Counted; 5] = [
    ("goroutines run", "/heist/sched/executed:events", |r| r.counts.executed),
    ("thefts", "/heist/steal/successes:events", |r| r.counts.steals),
    ("visits of thieves", "/heist/steal/attempts:events", |r| r.counts.steal_attempts),
    ("wake-ups", "/heist/wake-ups:events", |r| r.counts.wake_ups),
    ("global queue, put", "/heist/queue/global-put:goroutines", |r| r.counts.global_put),
];

/// A workload on both sides.
#[derive(Clone, Copy)]
enum Load {
    /// A binary tree: its depth, and how long each goroutine computes.
    Tree(u32, u64),
    /// Two goroutines that pass a value: their rounds.
    PingPong(u32),
}

impl Load {
    fn name(self) -> String {
        match self {
            Self::Tree(depth, ns) => format!("tree of depth {depth}, {} us", ns / 1000),
            Self::PingPong(rounds) => format!("{rounds} round trips"),
        }
    }

    fn run_here(self) {
        match self {
            Self::Tree(depth, ns) => grow(depth, ns),
            Self::PingPong(rounds) => play(rounds),
        }
    }

    fn in_model(self) -> Box<dyn Workload> {
        match self {
            Self::Tree(depth, ns) => Box::new(Tree::new(depth, 2, ns)),
            Self::PingPong(rounds) => Box::new(PingPong::new(1, rounds, 0)),
        }
    }
}

/// Compares the two on 1, 2, 4 and 16 procs.
pub fn validate(setup: &Setup) -> Answer {
    let loads = if setup.quick {
        [Load::Tree(8, 20_000), Load::PingPong(2_000)]
    } else {
        [Load::Tree(12, 20_000), Load::PingPong(100_000)]
    };
    let mut table = Table::new(&["workload", "procs", "count", "runtime", "model", "error"]);
    let mut lines = loads.map(|load| Series { name: load.name(), points: Vec::new() });
    let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    let mut worst: (f64, String) = (0.0, String::new());
    for (load, line) in loads.into_iter().zip(&mut lines) {
        for procs in [1, 2, 4, 16] {
            let here = measure(load, procs);
            let mut config = Config::new(procs, setup.seed);
            config.costs = setup.costs.clone();
            config.topology = Topology::flat(cpus);
            let model = Sim::new(config, &mut *load.in_model()).run();
            let mut row = |name: &str, here: f64, model: f64| {
                let error = if here == model { 0.0 } else { model / here.max(1.0) - 1.0 };
                let text = if here < 10.0 && model < 10.0 { "few".into() } else { percent(error) };
                let cells = [load.name(), procs.to_string(), name.into(), number(here)];
                table.row(cells.into_iter().chain([number(model), text]).collect());
                error
            };
            for (at, (name, _, count)) in COUNTED.iter().enumerate() {
                row(name, here.counts[at] as f64, count(&model) as f64);
            }
            let us = |elapsed: Duration| elapsed.as_nanos() as f64 / 1e3;
            let error = row("time, us", us(here.elapsed), model.elapsed_ns as f64 / 1e3);
            line.points.push((procs.into(), 100.0 * error));
            if error.abs() > worst.0.abs() {
                worst = (error, format!("{} on {procs} procs", load.name()));
            }
        }
    }
    let chart = Chart {
        title: "Error of the model's time".into(),
        x: Axis::log("procs"),
        y: Axis::linear("error, %"),
        series: lines.into(),
    };
    Answer {
        tables: vec![(format!("This machine has {cpus} CPUs; the best of five runs"), table)],
        charts: vec![("validate".into(), chart)],
        conclusion: format!(
            "The largest error of a time is {} ({}). Figures of a noisy machine say little: run \
             this on a quiet one.",
            percent(worst.0),
            worst.1
        ),
    }
}

/// What the runtime counted.
struct Measured {
    counts: [u64; COUNTED.len()],
    elapsed: Duration,
}

/// The fastest of a few runs: other programs can only make it slower.
fn measure(load: Load, procs: u32) -> Measured {
    let runs = (0..5).map(|_| {
        // SAFETY: the goroutines of this file keep nothing of a thread across a switch.
        let started = unsafe { Runtime::builder().procs(procs as usize).build() };
        let rt = started.expect("a runtime starts");
        let began = Instant::now();
        rt.run(move || load.run_here());
        let elapsed = began.elapsed();
        let metrics = rt.metrics();
        let counts = COUNTED.map(|(_, metric, _)| metrics.get(metric).expect("it is a metric"));
        Measured { counts, elapsed }
    });
    runs.min_by_key(|measured| measured.elapsed).expect("there are runs")
}

fn grow(depth: u32, ns: u64) {
    spin(ns);
    if depth == 0 {
        return;
    }
    let children = [(); 2].map(|()| heist::go(move || grow(depth - 1, ns)));
    for child in children {
        child.join().expect("no goroutine panics");
    }
}

fn play(rounds: u32) {
    let (there, at_pong) = heist::chan::bounded(0);
    let (back, at_ping) = heist::chan::bounded(0);
    let pong = heist::go(move || {
        for _ in 0..rounds {
            let value: u32 = at_pong.recv().expect("the channel is open");
            back.send(value).expect("the channel is open");
        }
    });
    for round in 0..rounds {
        there.send(round).expect("the channel is open");
        at_ping.recv().expect("the channel is open");
    }
    pong.join().expect("no goroutine panics");
}

fn spin(ns: u64) {
    let until = Instant::now() + Duration::from_nanos(ns);
    while Instant::now() < until {
        std::hint::spin_loop();
    }
}
