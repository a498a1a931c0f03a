//! The result table.

use super::figures;
use super::lanes;
use super::report::{Report, Verdict};
use super::steps::Step;
use console::{Alignment, measure_text_width, pad_str, style};
use std::time::Duration;

const COLUMNS: usize = 5;
const HEAD: [&str; COLUMNS] = ["step", "what was done", "time", "per item", "memory"];
/// The column whose text is wrapped.
const WRAPPED: usize = 1;
/// Below this the wrapped column is not readable, and the table is wider than the terminal.
const WRAPPED_MIN: usize = 16;

/// The table, and below it the remarks of the steps, fitted to `width` columns.
pub fn draw(results: &[(&Step, Report)], width: usize) -> String {
    let rows: Vec<_> = results.iter().map(|(step, report)| row(step, report)).collect();
    let widths = fit(&rows, width);
    let mut text = rule(&widths, ['┌', '┬', '┐']);
    text += &line(&HEAD.map(|head| style(head).bold().to_string()), &widths);
    text += &rule(&widths, ['├', '┼', '┤']);
    for row in &rows {
        for line_of_row in wrap_row(row, widths[WRAPPED]) {
            text += &line(&line_of_row, &widths);
        }
    }
    text += &rule(&widths, ['└', '┴', '┘']);
    for (step, report) in results {
        text += &below(step, report, width);
    }
    text
}

/// The last line: how many were right, and how long it took.
pub fn summary(results: &[(&Step, Report)], time: Duration) -> String {
    let n_wrong = results.iter().filter(|(_, report)| report.verdict() == Verdict::Wrong).count();
    let n = results.len();
    let time = figures::time(time);
    if n_wrong == 0 {
        let all = format!("All {n} steps OK");
        format!("{} in {time}.\n", style(all).green().bold())
    } else {
        let some = format!("{n_wrong} of {n} steps WRONG");
        format!("{} in {time}.\n", style(some).red().bold())
    }
}

fn row(step: &Step, report: &Report) -> [String; COLUMNS] {
    let mark = match report.verdict() {
        Verdict::Ok => style("✓").green().bold(),
        Verdict::Wrong => style("✗").red().bold(),
    };
    [
        format!("{mark} {}", style(step.name).cyan()),
        report.done.clone(),
        figures::time(report.time),
        report.each.clone(),
        report.memory.clone(),
    ]
}

/// Notes, bars and problems of one step.
fn below(step: &Step, report: &Report, width: usize) -> String {
    let mut text = String::new();
    let is_plain = report.lanes.is_empty() && report.lines.is_empty();
    if report.notes.is_empty() && is_plain && report.wrong.is_empty() {
        return text;
    }
    text += &format!("{}\n", style(step.name).cyan());
    for line in lanes::draw(&report.lanes) {
        text += &format!("  {line}\n");
    }
    for line in &report.lines {
        text += &format!("  {line}\n");
    }
    for note in &report.notes {
        let fits = measure_text_width(note) + 2 <= width;
        let lines = if fits { vec![note.clone()] } else { wrap(note, width.saturating_sub(2)) };
        lines.iter().for_each(|line| text += &format!("  {line}\n"));
    }
    for problem in &report.wrong {
        text += &format!("  {} {problem}\n", style("WRONG").red().bold());
    }
    text
}

fn fit(rows: &[[String; COLUMNS]], width: usize) -> [usize; COLUMNS] {
    let mut widths = HEAD.map(measure_text_width);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = measure_text_width(cell).max(*width);
        }
    }
    // A bar before each cell and one at the end, a space on both sides.
    let others: usize = widths.iter().sum::<usize>() - widths[WRAPPED] + 3 * COLUMNS + 1;
    let left = width.saturating_sub(others).max(WRAPPED_MIN);
    widths[WRAPPED] = widths[WRAPPED].min(left);
    widths
}

fn wrap_row(row: &[String; COLUMNS], width: usize) -> Vec<[String; COLUMNS]> {
    let mut lines = Vec::new();
    for (at, part) in wrap(&row[WRAPPED], width).into_iter().enumerate() {
        let mut cells = if at == 0 { row.clone() } else { Default::default() };
        cells[WRAPPED] = part;
        lines.push(cells);
    }
    lines
}

/// Breaks between words; a word that is too long stands alone.
fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let last = lines.last_mut().expect("never empty");
        if last.is_empty() {
            last.push_str(word);
        } else if measure_text_width(last) + 1 + measure_text_width(word) <= width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn line(cells: &[String; COLUMNS], widths: &[usize; COLUMNS]) -> String {
    let bar = style("│").dim();
    let mut text = bar.to_string();
    for (at, (cell, width)) in cells.iter().zip(widths).enumerate() {
        let alignment = match at {
            2..=4 => Alignment::Right,
            _ => Alignment::Left,
        };
        text += &format!(" {} {bar}", pad_str(cell, *width, alignment, None));
    }
    text + "\n"
}

fn rule(widths: &[usize; COLUMNS], [left, middle, right]: [char; 3]) -> String {
    let parts = widths.map(|width| "─".repeat(width + 2));
    let rule = format!("{left}{}{right}", parts.join(&middle.to_string()));
    format!("{}\n", style(rule).dim())
}

#[cfg(test)]
fn results() -> Vec<(&'static Step, Report)> {
    let mut good = Report::new(
        "a thousand goroutines spawned and joined one after the other",
        Duration::from_millis(1),
        1000,
        "goroutine",
    );
    good.note("all of them on one P");
    let bad = Report::failed("it hangs");
    let steps = super::steps::STEPS;
    vec![(&steps[0], good), (&steps[1], bad)]
}

#[test]
fn every_line_of_the_table_has_the_same_width() {
    for width in [60, 80, 100, 200] {
        let text = draw(&results(), width);
        let framed = |line: &&str| line.starts_with(['┌', '│', '├', '└']);
        let text = console::strip_ansi_codes(&text).into_owned();
        let widths: Vec<_> = text.lines().filter(framed).map(measure_text_width).collect();
        assert!(widths.len() >= 6, "{text}");
        assert!(widths.iter().all(|w| *w == widths[0]), "{text}");
        assert!(width < 80 || widths[0] <= width, "{text}");
    }
}

#[test]
fn notes_and_problems_stand_below() {
    let text = draw(&results(), 100);
    let text = console::strip_ansi_codes(&text);
    assert!(text.contains("\n  all of them on one P\n"), "{text}");
    assert!(text.contains("\n  WRONG it hangs\n"), "{text}");
    let summary = summary(&results(), Duration::from_secs(2));
    let summary = console::strip_ansi_codes(&summary);
    assert_eq!(summary, "1 of 2 steps WRONG in 2.00 s.\n");
}

#[test]
fn words_are_not_broken() {
    assert_eq!(wrap("one two three", 7), ["one two", "three"]);
    assert_eq!(wrap("interminable word", 4), ["interminable", "word"]);
    assert_eq!(wrap("", 4), [""]);
}
