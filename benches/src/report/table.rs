//! The report as text.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::{Block, Comparison, Entry, NOTED_BEST, figure};
use crate::catalog::Better;
use crate::stats::Summary;

/// Renders the comparison for a terminal.
pub fn render(comparison: &Comparison) -> String {
    let mut out = String::new();
    let machine = &comparison.machine;
    let go = machine.go_version.as_deref().unwrap_or("no Go");
    // Writing to a String cannot fail; the results are dropped for that reason.
    let _ = writeln!(
        out,
        "{} · {} CPUs · Linux {} · {go} · procs {} · {} repetitions",
        machine.cpu_model, machine.n_cpus, machine.kernel, machine.procs, machine.reps
    );
    let _ = writeln!(out, "{}", comparison.verdict);
    for line in &comparison.skipped {
        let _ = writeln!(out, "skipped: {line}");
    }
    let second = comparison.blocks.iter().flat_map(|b| &b.entries).any(|e| e.on_mimalloc.is_some());
    for block in &comparison.blocks {
        out.push('\n');
        render_block(&mut out, block, second);
    }
    out
}

fn render_block(out: &mut String, block: &Block, second: bool) {
    let direction = match block.spec.better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
    };
    let _ = writeln!(out, "{} ({}, {direction})", block.spec.name, block.spec.unit);
    let mimalloc = if second { format!(" {:>12}", "mimalloc") } else { String::new() };
    let best = if block.best_is_noted { "x best*" } else { "x best" };
    let _ = writeln!(
        out,
        "  {:<10} {:>12}{mimalloc} {:>24} {:>12} {best:>7} {:>7}",
        "peer", "median", "min..max", "95 %", "x go"
    );
    for entry in block.entries.iter().filter(|e| e.has_figure()) {
        let _ = writeln!(out, "  {}", line(entry, second));
    }
    for (reason, peers) in absent(block) {
        let _ = writeln!(out, "  no figure: {}: {reason}", peers.join(", "));
    }
    if block.best_is_noted {
        let _ = writeln!(out, "  * {NOTED_BEST}");
    }
}

/// The peers without a figure, by the reason they share.
fn absent(block: &Block) -> BTreeMap<&str, Vec<&str>> {
    let mut by_reason: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for entry in block.entries.iter().filter(|e| !e.has_figure()) {
        let reason = entry.remark.as_deref().unwrap_or("no reason given");
        by_reason.entry(reason).or_default().push(&entry.peer);
    }
    by_reason
}

fn line(entry: &Entry, second: bool) -> String {
    let median = |s: Option<Summary>| s.map_or_else(|| "-".to_owned(), |s| figure(s.median));
    let range =
        entry.summary.map_or_else(String::new, |s| format!("{}..{}", figure(s.min), figure(s.max)));
    let interval = entry
        .summary
        .and_then(|s| s.ci_half)
        .map_or_else(String::new, |half| format!("±{}", figure(half)));
    let times = |r: Option<f64>| r.map_or_else(String::new, |r| format!("{r:.2}"));
    let mimalloc =
        if second { format!(" {:>12}", median(entry.on_mimalloc)) } else { String::new() };
    let remark = entry.remark.as_deref().unwrap_or("");
    let text = format!(
        "{:<10} {:>12}{mimalloc} {range:>24} {interval:>12} {:>7} {:>7}  {remark}",
        entry.peer,
        median(entry.summary),
        times(entry.to_best),
        times(entry.to_go)
    );
    text.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use crate::report::Comparison;
    use crate::row::{Row, RunFile, sample};

    #[test]
    fn the_table_shows_median_range_interval_and_ratios() {
        let mut rows: Vec<_> =
            [9.0, 11.0, 10.0].iter().map(|&v| sample("yield", "heist", 0, v)).collect();
        rows.push(sample("yield", "go", 0, 20.0));
        let text =
            super::render(&Comparison::of(&[RunFile { rows, ..RunFile::default() }]).unwrap());
        let line = text.lines().find(|l| l.trim_start().starts_with("heist")).unwrap();
        for part in ["10.0", "9.00..11.0", "±2.48", "0.50"] {
            assert!(line.contains(part), "{part} is missing in: {line}");
        }
        assert!(text.contains("lower is better"));
        assert!(text.contains("quiet"));
    }

    #[test]
    fn peers_without_a_figure_share_a_line_by_reason() {
        let without = |peer, reason: &str| {
            let mut row = sample("yield", peer, 0, 1.0);
            (row.value, row.note) = (None, Some(reason.to_owned()));
            row
        };
        let rows = vec![without("kanal", "a channel"), without("flume", "a channel")];
        let text =
            super::render(&Comparison::of(&[RunFile { rows, ..RunFile::default() }]).unwrap());
        assert!(text.contains("no figure: flume, kanal: a channel\n"), "{text}");
    }

    #[test]
    fn a_best_with_a_note_is_marked() {
        let mut row = sample("http", "tokio", 0, 20.0);
        let table = |row: &Row| {
            let file = RunFile { rows: vec![row.clone()], ..RunFile::default() };
            super::render(&Comparison::of(&[file]).unwrap())
        };
        assert!(!table(&row).contains("x best*"));
        row.note = Some("hyper".to_owned());
        assert!(table(&row).contains("x best*") && table(&row).contains("\n  * "));
    }

    #[test]
    fn a_disturbed_run_says_so_on_top() {
        let mut row = sample("yield", "go", 0, 20.0);
        row.other_cpu_s = 1.0;
        let file = RunFile { rows: vec![row], ..RunFile::default() };
        let text = super::render(&Comparison::of(&[file]).unwrap());
        assert!(text.lines().nth(1).unwrap().starts_with("NOT QUIET"));
    }
}
