//! How the cost of an operation grows with the number of procs and of tasks.

use std::fmt::Write;

use super::{OURS, figure};
use crate::catalog;
use crate::quiet::{self, Verdict};
use crate::row::{Axis, Machine, Row, RunFile};
use crate::scale::{SERIES, Series};
use crate::stats::Summary;

/// From here to the end of the axis a cost by tasks is meant to be flat.
const FLAT_FROM: usize = 1_000;
/// The largest ratio that is still called flat: the highest cost over the lowest.
pub const FLAT: f64 = 2.0;

/// Everything `scale` measured.
#[derive(Debug)]
pub struct Scaling {
    pub machine: Machine,
    pub verdict: Verdict,
    pub panels: Vec<Panel>,
}

/// One series with a line for each peer.
#[derive(Debug)]
pub struct Panel {
    pub series: &'static Series,
    pub unit: &'static str,
    pub lines: Vec<Line>,
}

/// The medians of one peer, by place.
#[derive(Debug)]
pub struct Line {
    pub peer: String,
    pub points: Vec<(usize, f64)>,
}

impl Line {
    /// The places where the cost is meant to be flat.
    pub fn flat_part(&self) -> impl Iterator<Item = (usize, f64)> + '_ {
        self.points.iter().copied().filter(|(at, _)| *at >= FLAT_FROM)
    }

    /// The dearest place over the cheapest, where it is meant to be flat.
    pub fn growth(&self) -> Option<f64> {
        let costs: Vec<f64> = self.flat_part().map(|(_, cost)| cost).collect();
        let summary = Summary::of(&costs)?;
        (summary.min > 0.0).then(|| summary.max / summary.min)
    }
}

impl Panel {
    pub fn ours(&self) -> Option<&Line> {
        self.lines.iter().find(|line| line.peer == OURS)
    }
}

impl Scaling {
    /// The report of the file of `scale` among these.
    ///
    /// # Errors
    /// There are two: figures of two runs are not to be mixed.
    pub fn of(files: &[RunFile]) -> Result<Self, String> {
        let is_point = |row: &&Row| row.point.is_some();
        let measured: Vec<&RunFile> =
            files.iter().filter(|f| f.rows.iter().any(|r| is_point(&r))).collect();
        if let [first, second, ..] = measured[..] {
            return Err(super::two_runs(first, second, "of `scale`"));
        }
        let file = measured.first();
        let rows: Vec<&Row> = file.iter().flat_map(|f| &f.rows).filter(is_point).collect();
        let panels = SERIES.iter().map(|series| panel(series, &rows));
        Ok(Self {
            machine: file.map(|f| f.machine.clone()).unwrap_or_default(),
            verdict: quiet::verdict(rows.iter().copied()),
            panels: panels.filter(|panel| !panel.lines.is_empty()).collect(),
        })
    }

    /// The figures as text, whether they may be quoted, and whether they grow.
    pub fn table(&self) -> String {
        let mut out = String::new();
        if !self.panels.is_empty() {
            // Writing to a String cannot fail; the results are dropped for that reason.
            let _ = writeln!(out, "\nscaling, {}", self.verdict);
        }
        for panel in &self.panels {
            let axis = axis_name(panel.series.axis);
            let _ = writeln!(out, "\n{} by {axis} ({})", panel.series.row, panel.unit);
            for line in &panel.lines {
                let points =
                    line.points.iter().map(|(at, cost)| format!("{at}: {}", figure(*cost)));
                let points: Vec<_> = points.collect();
                let _ = writeln!(
                    out,
                    "  {:<10} {}{}",
                    line.peer,
                    points.join("  "),
                    growth(panel, line)
                );
            }
        }
        out
    }
}

fn growth(panel: &Panel, line: &Line) -> String {
    match line.growth() {
        Some(growth) if panel.series.axis == Axis::Tasks => {
            let word = if growth <= FLAT { "flat" } else { "NOT FLAT" };
            format!("  (from {FLAT_FROM}: {growth:.2}x, {word})")
        }
        _ => String::new(),
    }
}

pub fn axis_name(axis: Axis) -> &'static str {
    match axis {
        Axis::Procs => "procs",
        Axis::Tasks => "tasks at once",
    }
}

fn panel(series: &'static Series, rows: &[&Row]) -> Panel {
    let of_series = |r: &&Row| {
        r.workload == series.row && r.point.is_some_and(|point| point.axis == series.axis)
    };
    let rows: Vec<&Row> = rows.iter().copied().filter(of_series).collect();
    let mut peers: Vec<&str> = Vec::new();
    for row in &rows {
        if !peers.contains(&row.peer.as_str()) {
            peers.push(&row.peer);
        }
    }
    // The run rotates its peers; here heist comes first and the others follow by name.
    peers.sort_by_key(|peer| (*peer != OURS, peer.to_owned()));
    let lines = peers.into_iter().map(|peer| line(peer, &rows));
    let spec = catalog::workload(series.workload)
        .and_then(|workload| workload.rows.iter().find(|row| row.name == series.row));
    Panel {
        series,
        unit: spec.map_or("", |row| row.unit),
        lines: lines.filter(|line| !line.points.is_empty()).collect(),
    }
}

fn line(peer: &str, rows: &[&Row]) -> Line {
    let mut places: Vec<usize> = rows.iter().filter_map(|r| r.point).map(|p| p.at).collect();
    places.sort_unstable();
    places.dedup();
    let median = |at: usize| {
        let here = rows.iter().filter(|r| r.peer == peer && r.point.is_some_and(|p| p.at == at));
        let values: Vec<f64> = here.filter_map(|r| r.value).collect();
        Summary::of(&values).map(|summary| (at, summary.median))
    };
    Line { peer: peer.to_owned(), points: places.into_iter().filter_map(median).collect() }
}

#[cfg(test)]
pub fn sample(peer: &str, row: &str, axis: Axis, points: &[(usize, f64)]) -> Vec<Row> {
    let point = |&(at, value): &(usize, f64)| {
        let mut sample = crate::row::sample(row, peer, 0, value);
        sample.point = Some(crate::row::Point { axis, at });
        sample
    };
    points.iter().map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scaling(rows: Vec<Row>) -> Scaling {
        Scaling::of(&[file(rows)]).unwrap()
    }

    fn file(rows: Vec<Row>) -> RunFile {
        RunFile { rows, ..RunFile::default() }
    }

    #[test]
    fn growth_is_judged_from_a_thousand_on() {
        let points = [(10, 900.0), (1_000, 100.0), (10_000, 150.0), (1_000_000, 190.0)];
        let flat = scaling(sample("heist", "scale_wake", Axis::Tasks, &points));
        assert_eq!(flat.panels[0].lines[0].growth(), Some(1.9));
        assert!(flat.table().contains("1.90x, flat"), "{}", flat.table());
        let points = [(1_000, 100.0), (1_000_000, 201.0)];
        let steep = scaling(sample("heist", "scale_wake", Axis::Tasks, &points));
        assert!(steep.table().contains("NOT FLAT"), "{}", steep.table());
    }

    #[test]
    fn repetitions_become_medians_and_places_are_in_order() {
        let mut rows = sample("go", "yield", Axis::Procs, &[(4, 30.0), (1, 10.0)]);
        rows.extend(sample("go", "yield", Axis::Procs, &[(4, 50.0), (4, 40.0)]));
        let scaling = scaling(rows);
        assert_eq!(scaling.panels[0].lines[0].points, [(1, 10.0), (4, 40.0)]);
    }

    #[test]
    fn a_disturbed_table_says_so() {
        let mut rows = sample("go", "yield", Axis::Procs, &[(1, 10.0)]);
        assert!(scaling(rows.clone()).table().contains("scaling, quiet"));
        rows[0].other_cpu_s = 1.0;
        assert!(scaling(rows).table().contains("scaling, NOT QUIET"));
    }

    #[test]
    fn two_files_of_scale_are_refused() {
        let rows = sample("go", "yield", Axis::Procs, &[(1, 10.0)]);
        let plain = file(vec![crate::row::sample("yield", "go", 0, 1.0)]);
        assert!(Scaling::of(&[plain, file(rows.clone())]).is_ok());
        assert!(Scaling::of(&[file(rows.clone()), file(rows)]).unwrap_err().contains("scale"));
    }

    #[test]
    fn a_plain_run_has_nothing_to_show() {
        let plain = scaling(vec![crate::row::sample("yield", "go", 0, 1.0)]);
        assert!(plain.panels.is_empty() && plain.table().is_empty());
    }
}
