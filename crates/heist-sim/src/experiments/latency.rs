//! How short requests get a P next to long ones.

use super::{Answer, Lab};
use crate::svg::{Axis, Chart, Series};
use crate::table::{Table, percent, time};
use crate::tuning::{Control, Tuning};
use crate::workloads::OpenLoop;

const PROCS: u32 = 16;
const BATCH_NS: f64 = 2_000_000.0;
const SHORT_NS: u64 = 10_000;
/// The load of the long requests and of the short ones.
const BATCH_LOAD: f64 = 0.85;
const SHORT_LOAD: f64 = 0.03;

/// Reserved Ps against the queueing delay as the signal (Caladan).
pub(super) fn latency(lab: &mut Lab<'_>) -> Answer {
    let delay = |bound_ns| Control::Delay { period_ns: 10_000, bound_ns };
    let ways = [
        ("no help", 0, Control::Off),
        ("1 reserved P", 1, Control::Off),
        ("2 reserved Ps", 2, Control::Off),
        ("4 reserved Ps", 4, Control::Off),
        ("delay over 10 us", 0, delay(10_000)),
        ("delay over 50 us", 0, delay(50_000)),
        ("1 reserved P, delay over 10 us", 1, delay(10_000)),
    ];
    let mut table = Table::new(&[
        "way",
        "short p50",
        "short p99",
        "short p99.9",
        "long mean",
        "preemptions/short",
        "CPU used",
    ]);
    let mut lines =
        ["p50", "p99", "p99.9"].map(|name| Series { name: name.into(), points: vec![] });
    let mut best: Option<(&str, f64)> = None;
    for (at, (name, reserved, control)) in ways.into_iter().enumerate() {
        let mut config = lab.config(PROCS, Tuning { control, ..Tuning::heist() });
        config.reserved = reserved;
        let rate = f64::from(PROCS) * (BATCH_LOAD / BATCH_NS + SHORT_LOAD / SHORT_NS as f64);
        let share = f64::from(PROCS) * SHORT_LOAD / SHORT_NS as f64 / rate;
        let requests =
            OpenLoop::poisson(lab.n(200_000), 1.0 / rate, BATCH_NS).with_latency(share, SHORT_NS);
        let report = lab.run(name, config, requests);
        let short = |q| report.latency_class.quantile_ns(q) as f64;
        let used: u64 = report.cpu_ns.iter().sum();
        table.row(vec![
            name.into(),
            time(short(0.5)),
            time(short(0.99)),
            time(short(0.999)),
            time(report.requests.mean_ns()),
            crate::table::number(
                report.counts.preemptions as f64 / report.latency_class.n().max(1) as f64,
            ),
            percent(used as f64 / (f64::from(PROCS) * report.elapsed_ns as f64)),
        ]);
        for (line, q) in lines.iter_mut().zip([0.5, 0.99, 0.999]) {
            line.points.push((at as f64 + 1.0, short(q) / 1e3));
        }
        if best.is_none_or(|(_, p99)| short(0.99) < p99) {
            best = Some((name, short(0.99)));
        }
    }
    let chart = Chart {
        title: "Requests of 10 us beside requests of 2 ms, 16 Ps".into(),
        x: Axis::linear("way, by its row in the table"),
        y: Axis::log("time of a short request, us"),
        series: lines.into(),
    };
    let (name, p99) = best.expect("there are ways");
    Answer {
        tables: vec![(
            "16 Ps; long requests of 2 ms at a load of 85 %, short ones of 10 us at 3 %".into(),
            table,
        )],
        charts: vec![("latency".into(), chart)],
        conclusion: format!("The shortest p99 of the short requests has `{name}`: {}.", time(p99)),
    }
}
