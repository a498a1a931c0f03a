//! Plain text tables: the first column to the left, the others to the right.

use std::fmt::Write;

/// Rows of cells under a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these columns.
    #[must_use]
    pub fn new(head: &[&str]) -> Self {
        Self { head: head.iter().map(|&cell| cell.into()).collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<String>) {
        assert_eq!(cells.len(), self.head.len(), "a row has as many cells as the head");
        self.rows.push(cells);
    }

    /// As text, in the form of Markdown.
    #[must_use]
    pub fn text(&self) -> String {
        let lines = || std::iter::once(&self.head).chain(&self.rows);
        let width = |at: usize| lines().map(|line| line[at].chars().count()).max().unwrap_or(0);
        let widths: Vec<_> = (0..self.head.len()).map(width).collect();
        let mut text = String::new();
        for (number, line) in lines().enumerate() {
            let cells = line.iter().zip(&widths).enumerate().map(|(at, (cell, &width))| {
                if at == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
            });
            let _ = writeln!(text, "| {} |", cells.collect::<Vec<_>>().join(" | "));
            if number == 0 {
                let rule = widths.iter().enumerate().map(|(at, &width)| {
                    let side = if at == 0 { "-" } else { ":" };
                    format!("{}{side}", "-".repeat(width + 1))
                });
                let _ = writeln!(text, "|{}|", rule.collect::<Vec<_>>().join("|"));
            }
        }
        text
    }
}

/// A time with its unit and three digits.
#[must_use]
pub fn time(ns: f64) -> String {
    let (value, unit) = match ns {
        ns if ns < 1e3 => (ns, "ns"),
        ns if ns < 1e6 => (ns / 1e3, "us"),
        ns if ns < 1e9 => (ns / 1e6, "ms"),
        ns => (ns / 1e9, "s"),
    };
    format!("{} {unit}", number(value))
}

/// A number with three digits.
#[must_use]
pub fn number(value: f64) -> String {
    match value.abs() {
        0.0 => "0".into(),
        size if size < 0.01 => format!("{value:.4}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// A share in percent.
#[must_use]
pub fn percent(share: f64) -> String {
    format!("{} %", number(100.0 * share))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned() {
        let mut table = Table::new(&["procs", "p99"]);
        table.row(vec!["1".into(), time(1_234.0)]);
        table.row(vec!["1024".into(), time(56.0)]);
        assert_eq!(
            table.text(),
            "| procs |     p99 |\n|-------|--------:|\n| 1     | 1.23 us |\n| 1024  |   56.0 ns |\n"
                .replace("   56.0", " 56.0")
        );
    }
}
