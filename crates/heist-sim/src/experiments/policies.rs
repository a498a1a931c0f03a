//! Policies against each other: gentle, other constants, blocks, sharing.

use super::{Answer, Lab};
use crate::stats::Report;
use crate::svg::{Axis, Chart, Series};
use crate::table::{Table, number, percent, time};
use crate::tuning::{Shape, SpinCap, Take, Tuning};
use crate::workloads::{Arrivals, OpenLoop, Tree};
use heist_core::policy::StealPolicy;

/// Requests that arrive in bursts, and start children: queues fill and empty all the time.
fn bursts(n: u64, procs: u32, load: f64) -> OpenLoop {
    let (service_ns, children) = (20_000.0, 3);
    let mean_ns = service_ns * f64::from(1 + children) / (load * f64::from(procs));
    let (on_ns, off_ns) = (500_000.0, 500_000.0);
    // While it is on, requests arrive at twice the rate.
    let arrivals = Arrivals::Bursts { mean_ns: mean_ns / 2.0, on_ns, off_ns };
    OpenLoop::new(n, arrivals, service_ns).with_children(children)
}

fn steady(n: u64, procs: u32, load: f64) -> OpenLoop {
    let (service_ns, children) = (20_000.0, 3);
    let mean_ns = service_ns * f64::from(1 + children) / (load * f64::from(procs));
    OpenLoop::poisson(n, mean_ns, service_ns).with_children(children)
}

fn p99(report: &Report) -> f64 {
    report.requests.quantile_ns(0.99) as f64
}

/// The gentle policy against Go's.
pub(super) fn gentle(lab: &mut Lab<'_>) -> Answer {
    const PROCS: u32 = 32;
    let loads: &[f64] = if lab.setup.quick { &[0.3, 0.8] } else { &[0.1, 0.3, 0.5, 0.7, 0.9] };
    let mut table = Table::new(&[
        "load",
        "policy",
        "stolen/goroutine",
        "attempts/goroutine",
        "overhead/goroutine",
        "p50",
        "p99",
    ]);
    let mut lines = [Series::default(), Series::default()];
    let mut worst = (0.0, 0.0);
    let mut saved = (0.0, 0.0);
    for &load in loads {
        let mut go_p99 = 0.0;
        let mut go_moves = 0.0;
        for (at, (name, tuning)) in
            [("Go", Tuning::heist()), ("gentle", Tuning::gentle())].into_iter().enumerate()
        {
            let requests = bursts(lab.n(40_000), PROCS, load);
            let config = lab.config(PROCS, tuning);
            let report = lab.run(&format!("{name}, load {load}"), config, requests);
            let moves = report.per_goroutine(report.counts.stolen);
            table.row(vec![
                percent(load),
                name.into(),
                number(moves),
                number(report.per_goroutine(report.counts.steal_attempts)),
                time(report.overhead_per_goroutine()),
                time(report.requests.quantile_ns(0.5) as f64),
                time(p99(&report)),
            ]);
            lines[at].name = name.into();
            lines[at].points.push((100.0 * load, p99(&report) / 1e3));
            if at == 0 {
                (go_p99, go_moves) = (p99(&report), moves);
            } else {
                let ratio = p99(&report) / go_p99.max(1.0);
                if ratio > worst.0 {
                    worst = (ratio, load);
                }
                let fewer = 1.0 - moves / go_moves.max(1e-9);
                if fewer > saved.0 {
                    saved = (fewer, load);
                }
            }
        }
    }
    let chart = Chart {
        title: "Bursts of requests on 32 Ps".into(),
        x: Axis::linear("load, %"),
        y: Axis::log("p99 of a request, us"),
        series: lines.into(),
    };
    Answer {
        tables: vec![("Bursts of requests of four goroutines of 20 us, 32 Ps".into(), table)],
        charts: vec![("gentle".into(), chart)],
        conclusion: format!(
            "The gentle policy has a p99 up to {} times as long (load {}), and up to {} fewer \
             stolen goroutines (load {}).",
            number(worst.0),
            percent(worst.1),
            percent(saved.0),
            percent(saved.1)
        ),
    }
}

fn variants() -> Vec<(&'static str, Tuning)> {
    let heist = Tuning::heist();
    let tries = |n| Tuning { steal: StealPolicy::go().with_tries(n), ..heist };
    vec![
        ("the runtime", heist),
        ("global first: 1 in 13", Tuning { global_check_ticks: 13, ..heist }),
        ("global first: 1 in 251", Tuning { global_check_ticks: 251, ..heist }),
        ("ring: 32", Tuning { ring: 32, ..heist }),
        ("ring: 128", Tuning { ring: 128, ..heist }),
        ("take: one", Tuning { take: Take::One, ..heist }),
        ("take: a quarter", Tuning { take: Take::Quarter, ..heist }),
        ("take: all", Tuning { take: Take::All, ..heist }),
        ("tries: 1", tries(1)),
        ("tries: 2", tries(2)),
        ("tries: 8", tries(8)),
        ("spinners: an eighth of the busy", Tuning { spin_cap: SpinCap::OfBusy(1, 8), ..heist }),
        ("spinners: all", Tuning { spin_cap: SpinCap::OfBusy(4, 1), ..heist }),
    ]
}

/// One constant at a time.
pub(super) fn sensitivity(lab: &mut Lab<'_>) -> Answer {
    const PROCS: u32 = 32;
    let mut table = Table::new(&[
        "variant",
        "requests p99",
        "change",
        "requests overhead",
        "tree",
        "change",
        "tree attempts/goroutine",
    ]);
    let mut lines = ["requests, p99", "tree, time"]
        .map(|name| Series { name: name.into(), points: Vec::new() });
    let mut base = None;
    let mut largest = ("", 0.0f64);
    for (at, (name, tuning)) in variants().into_iter().enumerate() {
        let config = lab.config(PROCS, tuning);
        let requests = bursts(lab.n(40_000), PROCS, 0.7);
        let served = lab.run(&format!("{name}, requests"), config, requests);
        let config = lab.config(PROCS, tuning);
        let depth = if lab.setup.quick { 12 } else { 16 };
        let tree = lab.run(&format!("{name}, tree"), config, Tree::new(depth, 2, 2_000));
        let now = (p99(&served), tree.mean_elapsed_ns());
        let base = *base.get_or_insert(now);
        let changes = [now.0 / base.0 - 1.0, now.1 / base.1 - 1.0];
        table.row(vec![
            name.into(),
            time(now.0),
            percent(changes[0]),
            time(served.overhead_per_goroutine()),
            time(now.1),
            percent(changes[1]),
            number(tree.per_goroutine(tree.counts.steal_attempts)),
        ]);
        for (line, change) in lines.iter_mut().zip(changes) {
            line.points.push((at as f64 + 1.0, 100.0 * change));
            if change.abs() > largest.1.abs() {
                largest = (name, change);
            }
        }
    }
    let chart = Chart {
        title: "One constant at a time".into(),
        x: Axis::linear("variant, by its row in the table"),
        y: Axis::linear("change, %"),
        series: lines.into(),
    };
    Answer {
        tables: vec![("32 Ps: bursts of requests at a load of 70 %, and a tree".into(), table)],
        charts: vec![("sensitivity".into(), chart)],
        conclusion: format!("The largest change has `{}`: {}.", largest.0, percent(largest.1)),
    }
}

/// Blocks against the ring.
pub(super) fn bwos(lab: &mut Lab<'_>) -> Answer {
    let sizes: &[u32] = if lab.setup.quick { &[4, 64] } else { &[4, 16, 64, 256] };
    let shapes = [
        ("ring", Shape::Ring),
        ("blocks of 4", Shape::Blocks(4)),
        ("blocks of 8", Shape::Blocks(8)),
        ("blocks of 32", Shape::Blocks(32)),
    ];
    let mut table =
        Table::new(&["procs", "queue", "tree", "change", "scheduling/goroutine", "requests p99"]);
    let mut lines = shapes.map(|(name, _)| Series { name: name.into(), points: Vec::new() });
    let mut words = Vec::new();
    for &procs in sizes {
        let mut base = 0.0;
        for (at, (name, shape)) in shapes.into_iter().enumerate() {
            let tuning = Tuning { shape, ..Tuning::heist() };
            let depth = if lab.setup.quick { 11 } else { 15 };
            let config = lab.config(procs, tuning);
            let tree =
                lab.run(&format!("{name}, {procs} Ps, tree"), config, Tree::new(depth, 2, 500));
            let requests = steady(lab.n(20_000), procs, 0.7);
            let config = lab.config(procs, tuning);
            let served = lab.run(&format!("{name}, {procs} Ps, requests"), config, requests);
            let elapsed = tree.mean_elapsed_ns();
            if at == 0 {
                base = elapsed;
            }
            table.row(vec![
                procs.to_string(),
                name.into(),
                time(elapsed),
                percent(elapsed / base - 1.0),
                time(tree.cpu_per_goroutine(crate::Spent::Schedule)),
                time(p99(&served)),
            ]);
            lines[at].points.push((procs.into(), p99(&served) / 1e3));
            if at == 2 {
                words.push(format!(
                    "with blocks of 8 at {procs} Ps a tree of short goroutines takes {} of the \
                     ring's time",
                    percent(elapsed / base)
                ));
            }
        }
    }
    let chart = Chart {
        title: "Requests at a load of 70 %".into(),
        x: Axis::log("procs"),
        y: Axis::log("p99 of a request, us"),
        series: lines.into(),
    };
    Answer {
        tables: vec![("A tree of goroutines of 500 ns; requests of 20 us".into(), table)],
        charts: vec![("bwos".into(), chart)],
        conclusion: format!(
            "By the model, {}. Goroutines in the block that the owner uses cannot be stolen, which \
             the p99 of the requests shows.",
            words.join("; ")
        ),
    }
}

/// Sharing against stealing, over the load.
pub(super) fn sharing(lab: &mut Lab<'_>) -> Answer {
    const PROCS: u32 = 16;
    let quick: &[f64] = &[0.1, 0.5, 1.0, 2.0];
    let all: &[f64] = &[0.1, 0.2, 0.4, 0.6, 0.8, 0.9, 1.0, 1.2, 1.5, 2.0];
    let loads = if lab.setup.quick { quick } else { all };
    let mut table = Table::new(&[
        "load",
        "policy",
        "moves/goroutine",
        "wake-ups/goroutine",
        "overhead/goroutine",
        "throughput of offered",
        "p50",
        "p99",
    ]);
    let mut moves = [Series::default(), Series::default()];
    let mut rates = moves.clone();
    let mut ratio = Vec::new();
    for &load in loads {
        let mut stolen = 0.0;
        for (at, (name, tuning)) in
            [("stealing", Tuning::heist()), ("sharing", Tuning::sharing())].into_iter().enumerate()
        {
            let n = lab.n(40_000);
            let config = lab.config(PROCS, tuning);
            let report = lab.run(&format!("{name}, load {load}"), config, steady(n, PROCS, load));
            let offered = load * f64::from(PROCS) * 1e9 / 20_000.0;
            let migrations = report.per_goroutine(report.counts.stolen + report.counts.shared);
            table.row(vec![
                percent(load),
                name.into(),
                number(migrations),
                number(report.per_goroutine(report.counts.wake_ups)),
                time(report.overhead_per_goroutine()),
                percent(report.throughput() / offered),
                time(report.requests.quantile_ns(0.5) as f64),
                time(p99(&report)),
            ]);
            moves[at].name = name.into();
            rates[at].name = name.into();
            moves[at].points.push((100.0 * load, migrations));
            rates[at].points.push((100.0 * load, report.throughput() / 1e3));
            if at == 0 {
                stolen = migrations;
            } else {
                ratio.push((load, migrations, stolen));
            }
        }
    }
    let say = |(load, shared, stolen): &(f64, f64, f64)| {
        format!("{}: {} against {}", percent(*load), number(*shared), number(*stolen))
    };
    let words: Vec<_> = ratio.iter().map(say).collect();
    Answer {
        tables: vec![("16 Ps, requests of four goroutines of 20 us".into(), table)],
        charts: vec![
            (
                "sharing-moves".into(),
                by_load("Goroutines that change P", "moves per goroutine", moves),
            ),
            ("sharing-rate".into(), by_load("Throughput", "goroutines per ms", rates)),
        ],
        conclusion: format!(
            "Goroutines that leave the P where they became runnable, by sharing against stealing, at \
             each load: {}.",
            words.join("; ")
        ),
    }
}

fn by_load(title: &str, label: &str, series: [Series; 2]) -> Chart {
    Chart {
        title: title.into(),
        x: Axis::linear("load, %"),
        y: Axis::linear(label),
        series: series.into(),
    }
}
