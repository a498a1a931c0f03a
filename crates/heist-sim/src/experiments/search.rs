//! What the search for work costs when there is little work on a large machine.

use super::{Answer, Lab};
use crate::stats::{Report, Spent};
use crate::svg::{Axis, Chart, Series};
use crate::table::{Table, number, percent, time};
use crate::tuning::{Chain, SpinCap, Tuning, Victims};
use crate::workloads::OpenLoop;
use heist_core::policy::StealPolicy;

/// Requests of 10 us that each start four goroutines of the same length.
const SERVICE_NS: f64 = 10_000.0;
const CHILDREN: u32 = 4;

/// For how long requests arrive. Ms wake each other one after the other, so that it takes 40 us for
/// each P that is needed until a large machine is in its usual state.
const SPAN_NS: f64 = 100_000_000.0;

/// Requests that keep this share of the processors busy.
fn requests(lab: &Lab<'_>, procs: u32, load: f64) -> OpenLoop {
    let work_ns = SERVICE_NS * f64::from(1 + CHILDREN);
    let mean_ns = work_ns / (load * f64::from(procs));
    let n = lab.n((SPAN_NS / mean_ns) as u64);
    OpenLoop::poisson(n, mean_ns, SERVICE_NS).with_children(CHILDREN)
}

fn search_share(report: &Report) -> f64 {
    let all: u64 = report.cpu_ns.iter().sum();
    report.cpu(Spent::Search) as f64 / all.max(1) as f64
}

fn futile_per_goroutine(report: &Report) -> f64 {
    report.per_goroutine(report.futile())
}

/// What stealing costs by the number of Ps.
pub(super) fn go28808(lab: &mut Lab<'_>) -> Answer {
    let sizes: &[u32] =
        if lab.setup.quick { &[56, 256, 1024] } else { &[4, 16, 56, 128, 256, 512, 1024] };
    let head = [
        "procs",
        "policy",
        "futile/goroutine",
        "wake-ups/goroutine",
        "search/goroutine",
        "search of CPU",
        "kernel/goroutine",
        "p50",
        "p99",
    ];
    let mut table = Table::new(&head);
    let mut futile = [Series::default(), Series::default()];
    let mut cost = futile.clone();
    let mut words = Vec::new();
    for (at, (name, tuning)) in
        [("Go", Tuning::go()), ("heist", Tuning::heist())].into_iter().enumerate()
    {
        futile[at].name = name.into();
        cost[at].name = name.into();
        for &procs in sizes {
            let config = lab.config(procs, tuning);
            let requests = requests(lab, procs, 0.05);
            let report = lab.run(&format!("{name}, {procs} Ps"), config, requests);
            table.row(vec![
                procs.to_string(),
                name.into(),
                number(futile_per_goroutine(&report)),
                number(report.per_goroutine(report.counts.wake_ups)),
                time(report.cpu_per_goroutine(Spent::Search)),
                percent(search_share(&report)),
                time(report.cpu_per_goroutine(Spent::Kernel)),
                time(report.requests.quantile_ns(0.5) as f64),
                time(report.requests.quantile_ns(0.99) as f64),
            ]);
            futile[at].points.push((procs.into(), futile_per_goroutine(&report)));
            cost[at].points.push((procs.into(), report.cpu_per_goroutine(Spent::Search)));
            if procs == 56 || procs == 1024 {
                words.push(format!(
                    "{name} at {procs} Ps: {} futile visits and {} of search for each goroutine, \
                     {} of all CPU time",
                    number(futile_per_goroutine(&report)),
                    time(report.cpu_per_goroutine(Spent::Search)),
                    percent(search_share(&report))
                ));
            }
        }
    }
    let x = || Axis::log("procs");
    let futile = Chart {
        title: "Futile visits of thieves, load 5 %".into(),
        x: x(),
        y: Axis::linear("futile visits per goroutine"),
        series: futile.into(),
    };
    let cost = Chart {
        title: "CPU time of the search, load 5 %".into(),
        x: x(),
        y: Axis::linear("search per goroutine of 10 us, ns"),
        series: cost.into(),
    };
    Answer {
        tables: vec![("Requests of five goroutines of 10 us, load 5 %".into(), table)],
        charts: vec![("go28808-futile".into(), futile), ("go28808-cpu".into(), cost)],
        conclusion: words.join(". ") + ".",
    }
}

fn candidates() -> Vec<(&'static str, Tuning)> {
    let heist = Tuning::heist();
    let mask = Tuning { victims: Victims::WorkMask, ..heist };
    vec![
        ("the runtime", heist),
        ("one pass", Tuning { steal: StealPolicy::go().with_tries(1), ..heist }),
        ("work mask", mask),
        ("two choices, 4 rounds", Tuning { victims: Victims::TwoChoices(4), ..heist }),
        ("one searcher", Tuning { spin_cap: SpinCap::AtMost(1), ..heist }),
        ("node first", Tuning { victims: Victims::NodeFirst, ..heist }),
        ("16 global queues", Tuning { global_shards: 16, ..heist }),
        ("chain only if more", Tuning { chain: Chain::IfMore, ..heist }),
        ("mask, chain only if more", Tuning { chain: Chain::IfMore, ..mask }),
        ("mask, linger 5 us", Tuning { linger_min_ns: 5_000, ..mask }),
        ("mask, linger 20 us", Tuning { linger_min_ns: 20_000, ..mask }),
        ("mask, linger 50 us", Tuning { linger_min_ns: 50_000, ..mask }),
    ]
}

/// With three seeds the p99 of the runtime at 256 Ps and a load of 5 % differs by 7 %.
const P99_TOLERANCE: f64 = 0.1;

/// Which candidates cut futile steals tenfold without losing the tail.
pub(super) fn futile(lab: &mut Lab<'_>) -> Answer {
    const PROCS: u32 = 256;
    let loads: &[f64] = if lab.setup.quick { &[0.05, 0.5] } else { &[0.02, 0.05, 0.2, 0.5] };
    let mut table = Table::new(&[
        "candidate",
        "load",
        "futile/goroutine",
        "times fewer",
        "overhead/goroutine",
        "p50",
        "p99",
        "p99 by seed",
        "p99 change",
    ]);
    let mut series: Vec<Series> = Vec::new();
    let mut good: Option<Vec<&str>> = None;
    let mut base: Vec<(f64, f64)> = Vec::new();
    for (name, tuning) in candidates() {
        let mut line = Series { name: name.into(), points: Vec::new() };
        let mut passes = true;
        for (at, &load) in loads.iter().enumerate() {
            let mut config = lab.config(PROCS, tuning);
            config.topology = crate::topology::Topology::numa(PROCS, 4);
            let requests = requests(lab, PROCS, load);
            let report = lab.run(&format!("{name}, load {load}"), config, requests);
            let (found, p99) = (futile_per_goroutine(&report), report.requests.quantile_ns(0.99));
            if base.len() == at {
                base.push((found, p99 as f64));
            }
            let (base_futile, base_p99) = base[at];
            let fewer = base_futile / found.max(1e-4);
            let change = p99 as f64 / base_p99 - 1.0;
            passes &= fewer >= 10.0 && change <= P99_TOLERANCE;
            table.row(vec![
                name.into(),
                percent(load),
                number(found),
                number(fewer),
                time(report.overhead_per_goroutine()),
                time(report.requests.quantile_ns(0.5) as f64),
                time(p99 as f64),
                seeds(&report),
                percent(change),
            ]);
            line.points.push((100.0 * load, found));
        }
        if passes {
            good.get_or_insert_default().push(name);
        }
        series.push(line);
    }
    let chart = Chart {
        title: "Futile visits at 256 Ps on four nodes".into(),
        x: Axis::log("load, %"),
        y: Axis::linear("futile visits per goroutine"),
        series,
    };
    Answer {
        tables: vec![("256 Ps on four nodes".into(), table)],
        charts: vec![("futile".into(), chart)],
        conclusion: judge(good),
    }
}

/// The lowest and the highest p99 among the seeds.
fn seeds(report: &Report) -> String {
    let (lowest, highest) = report.p99_range_ns();
    format!("{} to {}", time(lowest as f64), time(highest as f64))
}

/// The answer, with the names of the candidates that meet the goal.
fn judge(good: Option<Vec<&str>>) -> String {
    match good {
        Some(names) => format!(
            "At every load ten times fewer futile visits, and a p99 at most {} longer: {}.",
            percent(P99_TOLERANCE),
            names.join("; ")
        ),
        None => "No candidate has ten times fewer futile visits at every load without a longer \
                 p99."
            .into(),
    }
}
