//! The comparison: rows of one run, or of one per allocator, summarised by workload and peer.

pub mod html;
pub mod plot;
pub mod scaling;
pub mod table;

use std::collections::BTreeSet;

use crate::catalog::{self, Better, RowSpec};
use crate::quiet::{self, Verdict};
use crate::row::{Machine, Row, RunFile};
use crate::stats::Summary;

/// The name of heist among the peers: it is compared with the others.
const OURS: &str = "heist";
const GO: &str = "go";
const MIMALLOC: &str = "mimalloc";
/// Explains the mark at a ratio to a best figure that has a note.
const NOTED_BEST: &str = "the best of figures with a note: no peer has one without";

#[derive(Debug)]
pub struct Comparison {
    pub machine: Machine,
    pub verdict: Verdict,
    pub skipped: Vec<String>,
    pub blocks: Vec<Block>,
}

/// One row name with the figures of all peers, best first, then those without a figure.
#[derive(Debug)]
pub struct Block {
    pub spec: &'static RowSpec,
    pub entries: Vec<Entry>,
    /// No peer has a figure without a note, so the best is one with a note.
    pub best_is_noted: bool,
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
    /// The figure was measured under a special condition.
    pub is_noted: bool,
    pub remark: Option<String>,
}

impl Entry {
    pub fn has_figure(&self) -> bool {
        self.summary.is_some() || self.on_mimalloc.is_some()
    }
}

impl Comparison {
    /// Compares; a single build with mimalloc is reported in the main column.
    ///
    /// # Errors
    /// Figures would stand side by side that are not to be compared.
    pub fn of(files: &[RunFile]) -> Result<Self, String> {
        check_machines(files)?;
        let columns = Columns::of(files)?;
        let specs = catalog::WORKLOADS.iter().flat_map(|w| w.rows);
        let blocks = specs.filter_map(|spec| block(spec, &columns)).collect();
        let mut skipped: Vec<String> = files.iter().flat_map(|f| f.skipped.clone()).collect();
        skipped.sort_unstable();
        skipped.dedup();
        let shown = columns.main.or(files.first());
        Ok(Self {
            machine: shown.map(|f| f.machine.clone()).unwrap_or_default(),
            // Rows of `scale` count too: a load that disturbed those was there.
            verdict: quiet::verdict(files.iter().flat_map(|f| &f.rows)),
            skipped,
            blocks,
        })
    }
}

fn check_machines(files: &[RunFile]) -> Result<(), String> {
    for (index, a) in files.iter().enumerate() {
        for b in &files[index + 1..] {
            if let Some(difference) = a.machine.difference(&b.machine) {
                return Err(format!("{} and {} cannot be compared: {difference}", a.name, b.name));
            }
        }
    }
    Ok(())
}

/// Says that two files would be mixed.
fn two_runs(a: &RunFile, b: &RunFile, of_what: &str) -> String {
    let (a, b) = (&a.name, &b.name);
    format!("{a} and {b} are two runs {of_what}; their figures are not to be mixed")
}

/// The run of each column. A column is a whole run and not an allocator's rows, because Go's
/// rows name neither allocator.
struct Columns<'a> {
    main: Option<&'a RunFile>,
    on_mimalloc: Option<&'a RunFile>,
}

impl<'a> Columns<'a> {
    fn of(files: &'a [RunFile]) -> Result<Self, String> {
        let is_run = |f: &&RunFile| f.rows.iter().any(is_figure_of_run);
        let (second, first): (Vec<&RunFile>, Vec<&RunFile>) = files
            .iter()
            .filter(is_run)
            .partition(|f| f.rows.iter().any(|r| r.allocator == MIMALLOC));
        match (&first[..], &second[..]) {
            ([a, b, ..], _) => Err(two_runs(a, b, "on the system's allocator")),
            (_, [a, b, ..]) => Err(two_runs(a, b, "on mimalloc")),
            ([], [only]) => Ok(Self { main: Some(only), on_mimalloc: None }),
            (main, second) => {
                Ok(Self { main: main.first().copied(), on_mimalloc: second.first().copied() })
            }
        }
    }
}

/// A point of `scale` is not a figure of the run: it has other sizes.
fn is_figure_of_run(row: &Row) -> bool {
    row.point.is_none()
}

/// The rows of a column that have this name.
fn rows_of<'a>(column: Option<&'a RunFile>, spec: &RowSpec) -> Vec<&'a Row> {
    let rows = column.into_iter().flat_map(|file| &file.rows);
    rows.filter(|r| is_figure_of_run(r) && r.workload == spec.name).collect()
}

fn block(spec: &'static RowSpec, columns: &Columns<'_>) -> Option<Block> {
    let (main, second) = (rows_of(columns.main, spec), rows_of(columns.on_mimalloc, spec));
    let peers: BTreeSet<&str> = main.iter().chain(&second).map(|r| r.peer.as_str()).collect();
    let mut entries: Vec<Entry> =
        peers.into_iter().map(|peer| entry(peer, &main, &second)).collect();
    let median = |e: &Entry| e.summary.map(|s| s.median);
    let best_of = |is_noted: bool| {
        let others = entries.iter().filter(|e| e.peer != OURS && e.is_noted == is_noted);
        others.filter_map(median).reduce(|a, b| if is_better(spec, b, a) { b } else { a })
    };
    let (plain, noted) = (best_of(false), best_of(true));
    let best_is_noted = plain.is_none() && noted.is_some();
    let go = entries.iter().find(|e| e.peer == GO).and_then(median);
    for entry in &mut entries {
        let own = median(entry);
        entry.to_best = ratio(spec, own, plain.or(noted));
        entry.to_go = ratio(spec, own, go);
    }
    entries.sort_by(|a, b| match (median(a), median(b)) {
        (Some(x), Some(y)) if spec.better == Better::Higher => y.total_cmp(&x),
        (Some(x), Some(y)) => x.total_cmp(&y),
        (x, y) => y.is_some().cmp(&x.is_some()),
    });
    (!entries.is_empty()).then_some(Block { spec, entries, best_is_noted })
}

fn entry(peer: &str, main: &[&Row], second: &[&Row]) -> Entry {
    let summary = |rows: &[&Row]| {
        let own = rows.iter().filter(|r| r.peer == peer);
        Summary::of(&own.filter_map(|r| r.value).collect::<Vec<_>>())
    };
    let rows = || main.iter().chain(second).filter(|r| r.peer == peer);
    let n_failed = rows().filter(|r| r.error.is_some()).count();
    let failure = rows().find_map(|r| r.error.as_deref());
    let remark = match (failure, rows().find_map(|r| r.note.as_deref())) {
        (Some(why), _) => Some(format!("failed {n_failed} of {}: {why}", rows().count())),
        (None, note) => note.map(str::to_owned),
    };
    Entry {
        peer: peer.to_owned(),
        summary: summary(main),
        on_mimalloc: summary(second),
        to_best: None,
        to_go: None,
        is_noted: rows().any(|r| r.value.is_some() && r.note.is_some()),
        remark,
    }
}

fn is_better(spec: &RowSpec, a: f64, b: f64) -> bool {
    match spec.better {
        Better::Lower => a < b,
        Better::Higher => a > b,
    }
}

/// How many times worse `own` is than `other`, for either direction.
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
        let comparison = Comparison::of(&[file(rows)]).unwrap();
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
        let comparison = Comparison::of(&[file(rows)]).unwrap();
        let block = &comparison.blocks[0];
        assert_eq!(block.entries[0].peer, "tokio");
        assert_eq!(find(block, "go").to_best, Some(110_000.0 / 90_000.0));
    }

    fn on_mimalloc(mut row: Row) -> Row {
        row.allocator = MIMALLOC.to_owned();
        row
    }

    fn of_go(value: f64) -> Row {
        Row { allocator: "go".to_owned(), ..sample("yield", "go", 0, value) }
    }

    #[test]
    fn a_second_run_is_a_column_of_its_own_for_go_too() {
        let first = file(vec![sample("yield", "tokio", 0, 80.0), of_go(100.0)]);
        let second = file(vec![on_mimalloc(sample("yield", "tokio", 0, 60.0)), of_go(50.0)]);
        let second_first = Comparison::of(&[second.clone(), first.clone()]).unwrap();
        for both in [Comparison::of(&[first, second.clone()]).unwrap(), second_first] {
            let medians = |peer: &str| {
                let entry = find(&both.blocks[0], peer);
                (entry.summary.unwrap().median, entry.on_mimalloc.unwrap().median)
            };
            assert_eq!(medians("tokio"), (80.0, 60.0));
            assert_eq!(medians("go"), (100.0, 50.0));
        }
        let alone = Comparison::of(&[second]).unwrap();
        assert_eq!(find(&alone.blocks[0], "tokio").summary.unwrap().median, 60.0);
    }

    #[test]
    fn two_runs_on_one_allocator_are_refused() {
        let run = |name: &str, row| RunFile { name: name.to_owned(), ..file(vec![row]) };
        let row = sample("yield", "tokio", 0, 80.0);
        let message =
            Comparison::of(&[run("a.json", row.clone()), run("b.json", row.clone())]).unwrap_err();
        assert!(message.contains("a.json and b.json"), "{message}");
        let row = on_mimalloc(row);
        assert!(Comparison::of(&[run("a.json", row.clone()), run("b.json", row)]).is_err());
    }

    #[test]
    fn another_machine_is_refused() {
        let first = file(vec![sample("yield", "tokio", 0, 80.0)]);
        let mut second = file(vec![on_mimalloc(sample("yield", "tokio", 0, 60.0))]);
        second.machine.procs = 4;
        let message = Comparison::of(&[first, second]).unwrap_err();
        assert!(message.contains("another number of procs"), "{message}");
    }

    #[test]
    fn a_disturbed_file_of_scale_spoils_the_verdict() {
        let mut rows = scaling::sample("go", "yield", crate::row::Axis::Procs, &[(1, 10.0)]);
        rows[0].other_cpu_s = 1.0;
        let quiet = file(vec![sample("yield", "go", 0, 1.0)]);
        let comparison = Comparison::of(&[quiet, file(rows)]).unwrap();
        assert!(matches!(comparison.verdict, Verdict::Disturbed { n_rows: 2, .. }));
        assert_eq!(Comparison::of(&[file(vec![])]).unwrap().verdict, Verdict::Unmeasured);
    }

    #[test]
    fn a_noted_figure_is_the_best_only_among_its_like() {
        let mut noted = sample("yield", "rayon", 0, 5.0);
        noted.note = Some("differs".to_owned());
        let ours = sample("yield", "heist", 0, 50.0);
        let rows = vec![ours.clone(), noted.clone(), sample("yield", "go", 0, 100.0)];
        let block = &Comparison::of(&[file(rows)]).unwrap().blocks[0];
        assert_eq!((find(block, "heist").to_best, block.best_is_noted), (Some(0.5), false));
        let block = &Comparison::of(&[file(vec![ours, noted])]).unwrap().blocks[0];
        assert_eq!((find(block, "heist").to_best, block.best_is_noted), (Some(10.0), true));
    }

    #[test]
    fn failures_and_notes_become_remarks() {
        let mut failed = sample("yield", "may", 0, 1.0);
        (failed.value, failed.error) = (None, Some("killed".to_owned()));
        let mut noted = sample("yield", "rayon", 0, 2.0);
        noted.note = Some("differs".to_owned());
        let comparison = Comparison::of(&[file(vec![failed, noted])]).unwrap();
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
