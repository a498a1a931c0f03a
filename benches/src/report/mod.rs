//! The comparison: rows of one run or several, summarised by workload and peer.

pub mod html;
pub mod plot;
pub mod scaling;
pub mod table;

use std::collections::BTreeMap;

use crate::catalog::{self, Better, RowSpec};
use crate::quiet::{self, Verdict};
use crate::row::{Machine, Row, RunFile};
use crate::stats::Summary;

/// Our own name among the peers: the others are who we are compared with.
const OURS: &str = "heist";
const GO: &str = "go";
const MIMALLOC: &str = "mimalloc";

#[derive(Debug)]
pub struct Comparison {
    pub machine: Machine,
    pub verdict: Verdict,
    pub skipped: Vec<String>,
    pub blocks: Vec<Block>,
}

/// One row name with everybody's figures, best first, then those without a figure.
#[derive(Debug)]
pub struct Block {
    pub spec: &'static RowSpec,
    pub entries: Vec<Entry>,
}

#[derive(Debug)]
pub struct Entry {
    pub peer: String,
    pub summary: Option<Summary>,
    /// The same peer on mimalloc, where a second run brought it.
    pub on_mimalloc: Option<Summary>,
    /// How many times worse than the best of the peers (heist not among them); below one
    /// is better.
    pub to_best: Option<f64>,
    pub to_go: Option<f64>,
    pub remark: Option<String>,
}

impl Entry {
    pub fn has_figure(&self) -> bool {
        self.summary.is_some() || self.on_mimalloc.is_some()
    }
}

impl Comparison {
    /// Compares; a single build with mimalloc is reported in the main column.
    pub fn of(files: &[RunFile]) -> Self {
        // A point of `scale` is no figure of the run: its sizes are others.
        let rows: Vec<&Row> =
            files.iter().flat_map(|f| &f.rows).filter(|r| r.point.is_none()).collect();
        let owned: Vec<Row> = rows.iter().map(|r| (*r).clone()).collect();
        let two_allocators = rows.iter().any(|r| r.allocator == "system");
        let specs = catalog::WORKLOADS.iter().flat_map(|w| w.rows);
        let blocks = specs
            .filter(|spec| rows.iter().any(|r| r.workload == spec.name))
            .map(|spec| block(spec, &rows, two_allocators))
            .collect();
        let mut skipped: Vec<String> = files.iter().flat_map(|f| f.skipped.clone()).collect();
        skipped.sort_unstable();
        skipped.dedup();
        Self {
            machine: files.first().map(|f| f.machine.clone()).unwrap_or_default(),
            verdict: quiet::verdict(&owned),
            skipped,
            blocks,
        }
    }
}

fn block(spec: &'static RowSpec, rows: &[&Row], two_allocators: bool) -> Block {
    let mut by_peer: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|r| r.workload == spec.name) {
        by_peer.entry(&row.peer).or_default().push(row);
    }
    let mut entries: Vec<Entry> =
        by_peer.into_iter().map(|(peer, rows)| entry(peer, &rows, two_allocators)).collect();
    let median = |e: &Entry| e.summary.map(|s| s.median);
    let best = entries
        .iter()
        .filter(|e| e.peer != OURS)
        .filter_map(median)
        .reduce(|a, b| if is_better(spec, b, a) { b } else { a });
    let go = entries.iter().find(|e| e.peer == GO).and_then(median);
    for entry in &mut entries {
        let own = median(entry);
        entry.to_best = ratio(spec, own, best);
        entry.to_go = ratio(spec, own, go);
    }
    entries.sort_by(|a, b| match (median(a), median(b)) {
        (Some(x), Some(y)) if spec.better == Better::Higher => y.total_cmp(&x),
        (Some(x), Some(y)) => x.total_cmp(&y),
        (x, y) => y.is_some().cmp(&x.is_some()),
    });
    Block { spec, entries }
}

fn entry(peer: &str, rows: &[&Row], two_allocators: bool) -> Entry {
    let summary = |wanted: &dyn Fn(&Row) -> bool| {
        let values: Vec<f64> = rows.iter().filter(|r| wanted(r)).filter_map(|r| r.value).collect();
        Summary::of(&values)
    };
    let is_second = |r: &Row| two_allocators && r.allocator == MIMALLOC;
    let n_failed = rows.iter().filter(|r| r.error.is_some()).count();
    let failure = rows.iter().find_map(|r| r.error.as_deref());
    let remark = match (failure, rows.iter().find_map(|r| r.note.as_deref())) {
        (Some(why), _) => Some(format!("failed {n_failed} of {}: {why}", rows.len())),
        (None, note) => note.map(str::to_owned),
    };
    Entry {
        peer: peer.to_owned(),
        summary: summary(&|r| !is_second(r)),
        on_mimalloc: summary(&is_second),
        to_best: None,
        to_go: None,
        remark,
    }
}

fn is_better(spec: &RowSpec, a: f64, b: f64) -> bool {
    match spec.better {
        Better::Lower => a < b,
        Better::Higher => a > b,
    }
}

/// How many times worse `own` is than `other`, whichever direction is good.
fn ratio(spec: &RowSpec, own: Option<f64>, other: Option<f64>) -> Option<f64> {
    let (own, other) = (own?, other?);
    let (over, under) = match spec.better {
        Better::Lower => (own, other),
        Better::Higher => (other, own),
    };
    (under > 0.0).then(|| over / under)
}

/// A figure with three significant digits or all its whole ones.
pub fn figure(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 => thousands(value),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}

fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) && text != "-" {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::sample;

    fn file(rows: Vec<Row>) -> RunFile {
        RunFile { rows, ..RunFile::default() }
    }

    fn find<'a>(block: &'a Block, peer: &str) -> &'a Entry {
        block.entries.iter().find(|e| e.peer == peer).unwrap()
    }

    #[test]
    fn the_best_peer_is_never_heist_itself() {
        let rows = vec![
            sample("yield", "heist", 0, 50.0),
            sample("yield", "go", 0, 100.0),
            sample("yield", "tokio", 0, 80.0),
        ];
        let comparison = Comparison::of(&[file(rows)]);
        let block = &comparison.blocks[0];
        assert_eq!(find(block, "heist").to_best, Some(50.0 / 80.0));
        assert_eq!(find(block, "heist").to_go, Some(0.5));
        assert_eq!(find(block, "tokio").to_best, Some(1.0));
        assert_eq!(block.entries[0].peer, "heist");
    }

    #[test]
    fn where_more_is_better_ratios_turn_round() {
        let rows = vec![
            sample("tcp_echo_64", "go", 0, 90_000.0),
            sample("tcp_echo_64", "tokio", 0, 110_000.0),
        ];
        let comparison = Comparison::of(&[file(rows)]);
        let block = &comparison.blocks[0];
        assert_eq!(block.entries[0].peer, "tokio");
        assert_eq!(find(block, "go").to_best, Some(110_000.0 / 90_000.0));
    }

    #[test]
    fn mimalloc_is_a_second_column_and_the_only_one_when_alone() {
        let system = sample("yield", "tokio", 0, 80.0);
        let mut second = sample("yield", "tokio", 0, 60.0);
        second.allocator = MIMALLOC.to_owned();
        let both = Comparison::of(&[file(vec![system]), file(vec![second.clone()])]);
        let entry = find(&both.blocks[0], "tokio");
        assert_eq!(entry.summary.unwrap().median, 80.0);
        assert_eq!(entry.on_mimalloc.unwrap().median, 60.0);
        let alone = Comparison::of(&[file(vec![second])]);
        assert_eq!(find(&alone.blocks[0], "tokio").summary.unwrap().median, 60.0);
    }

    #[test]
    fn failures_and_notes_become_remarks() {
        let mut failed = sample("yield", "may", 0, 1.0);
        (failed.value, failed.error) = (None, Some("killed".to_owned()));
        let mut noted = sample("yield", "rayon", 0, 2.0);
        noted.note = Some("differs".to_owned());
        let comparison = Comparison::of(&[file(vec![failed, noted])]);
        let block = &comparison.blocks[0];
        assert_eq!(find(block, "may").remark.as_deref(), Some("failed 1 of 1: killed"));
        assert_eq!(find(block, "rayon").remark.as_deref(), Some("differs"));
        assert_eq!(block.entries[0].peer, "rayon", "those without a figure come last");
    }

    #[test]
    fn figures_are_short_and_grouped() {
        assert_eq!(figure(1_234_567.8), "1,234,568");
        assert_eq!(figure(-1234.0), "-1,234");
        assert_eq!(figure(123.4), "123");
        assert_eq!(figure(12.34), "12.3");
        assert_eq!(figure(0.0123), "0.012");
        assert_eq!(figure(0.0), "0");
    }
}
