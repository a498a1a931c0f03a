//! What the distance between nodes does to stealing.

use super::{Answer, Lab};
use crate::svg::{Axis, Chart, Series};
use crate::table::{Table, percent, time};
use crate::topology::Topology;
use crate::tuning::{Tuning, Victims};
use crate::workloads::Tree;

/// Node-biased stealing against random stealing.
pub(super) fn numa(lab: &mut Lab<'_>) -> Answer {
    let machines: &[(u32, u32)] = if lab.setup.quick {
        &[(64, 2), (128, 4)]
    } else {
        &[(32, 2), (64, 2), (128, 2), (128, 4), (256, 8)]
    };
    let depth = if lab.setup.quick { 12 } else { 16 };
    let mut table = Table::new(&[
        "procs x nodes",
        "victims",
        "remote steals",
        "away from data",
        "work inflation",
        "time",
        "change",
    ]);
    let mut lines = [Series::default(), Series::default()];
    let mut words = Vec::new();
    for (at, &(procs, nodes)) in machines.iter().enumerate() {
        let mut before = None;
        for (which, (name, victims)) in
            [("random", Victims::Walk), ("node first", Victims::NodeFirst)].into_iter().enumerate()
        {
            let mut config = lab.config(procs, Tuning { victims, ..Tuning::heist() });
            config.topology = Topology::numa(procs, nodes);
            let tree = Tree::new(depth, 2, 20_000);
            let report = lab.run(&format!("{procs} x {nodes}, {name}"), config, tree);
            let steals = report.counts.steals.max(1) as f64;
            let remote = report.counts.remote_steals as f64 / steals;
            let inflation =
                report.inflation_ns as f64 / (report.cpu_ns[0] - report.inflation_ns).max(1) as f64;
            let elapsed = report.mean_elapsed_ns();
            let change = before.map_or(0.0, |before: (f64, f64)| elapsed / before.0 - 1.0);
            table.row(vec![
                format!("{procs} x {nodes}"),
                name.into(),
                percent(remote),
                percent(report.counts.away as f64 / report.counts.executed.max(1) as f64),
                percent(inflation),
                time(elapsed),
                percent(change),
            ]);
            lines[which].name = name.into();
            lines[which].points.push((at as f64 + 1.0, 100.0 * remote));
            match before {
                None => before = Some((elapsed, remote)),
                Some((_, random)) => words.push(format!(
                    "{procs} Ps on {nodes} nodes: {} of the thefts cross nodes instead of {}, and \
                     the time of the tree changes by {}",
                    percent(remote),
                    percent(random),
                    percent(change)
                )),
            }
        }
    }
    let chart = Chart {
        title: "Thefts from another node".into(),
        x: Axis::linear("machine, by its row in the table"),
        y: Axis::linear("thefts that cross nodes, %"),
        series: lines.into(),
    };
    Answer {
        tables: vec![(format!("A binary tree of depth {depth}, 20 us a node"), table)],
        charts: vec![("numa".into(), chart)],
        conclusion: words.join(". ") + ".",
    }
}
