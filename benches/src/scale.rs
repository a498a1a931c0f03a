//! The measurements of `scale`: cost per operation by the number of procs, and by the number of
//! tasks.

use crate::catalog;
use crate::row::{Axis, Point};
use crate::run::Measurement;

/// One line of the plot for each peer.
#[derive(Clone, Copy, Debug)]
pub struct Series {
    /// The workload, and the row of it that is plotted.
    pub workload: &'static str,
    pub row: &'static str,
    pub axis: Axis,
    pub title: &'static str,
}

const fn series(
    workload: &'static str,
    row: &'static str,
    axis: Axis,
    title: &'static str,
) -> Series {
    Series { workload, row, axis, title }
}

/// In the order of the plot.
pub static SERIES: &[Series] = &[
    series("spawn_join", "spawn_join", Axis::Procs, "spawn, run, finish"),
    series("yield", "yield", Axis::Procs, "yield"),
    series("ping_pong", "ping_pong", Axis::Procs, "round trip of two"),
    series("steal_hot", "steal_hot_p50", Axis::Procs, "until stolen (p50)"),
    series("scale_spawn", "scale_spawn", Axis::Tasks, "spawn, run, finish"),
    series("scale_wake", "scale_wake", Axis::Tasks, "wake"),
    series("scale_timer", "scale_timer", Axis::Tasks, "sleep once (CPU time)"),
];

const PROCS: &[usize] = &[1, 2, 4, 8, 16];
const TASKS: &[usize] = &[10, 100, 1_000, 10_000, 100_000, 1_000_000];

/// Every point of every series; the number of tasks is varied on `procs` procs.
pub fn measurements(procs: usize) -> Vec<Measurement> {
    let all = |series: &'static Series| {
        let workload = catalog::workload(series.workload).expect("the series name workloads");
        let places = if series.axis == Axis::Procs { PROCS } else { TASKS };
        places.iter().map(move |&at| Measurement {
            workload,
            procs: if series.axis == Axis::Procs { at } else { procs },
            size: if series.axis == Axis::Tasks { at } else { 1 },
            point: Some(Point { axis: series.axis, at }),
        })
    };
    SERIES.iter().flat_map(all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_series_names_a_row_of_its_workload() {
        for series in SERIES {
            let workload = catalog::workload(series.workload).unwrap();
            assert!(workload.rows.iter().any(|row| row.name == series.row), "{series:?}");
        }
        assert_eq!(measurements(2).len(), 4 * PROCS.len() + 3 * TASKS.len());
    }
}
