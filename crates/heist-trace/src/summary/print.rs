//! The summary as text of at most 80 columns.

use super::verdict::percent;
use super::{SiteTimes, Summary};
use std::fmt::{self, Display, Formatter};

const COLUMNS: usize = 80;
/// Rows of a table before the rest is left out.
const ROWS: usize = 20;

/// A time with three digits or more.
pub(super) fn time(ns: u64) -> String {
    match ns {
        0..10_000 => format!("{ns} ns"),
        10_000..10_000_000 => format!("{} µs", ns / 1_000),
        10_000_000..10_000_000_000 => format!("{} ms", ns / 1_000_000),
        _ => format!("{} s", ns / 1_000_000_000),
    }
}

/// The end of a text, which says more about a place than its beginning.
fn tail(text: &str, columns: usize) -> String {
    let n_chars = text.chars().count();
    if n_chars <= columns {
        return text.to_owned();
    }
    let kept: String = text.chars().skip(n_chars - columns + 1).collect();
    format!("…{kept}")
}

/// Breaks a paragraph at spaces.
fn wrap(f: &mut Formatter<'_>, text: &str) -> fmt::Result {
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        if column > 0 && column + 1 + length > COLUMNS {
            writeln!(f)?;
            column = 0;
        } else if column > 0 {
            write!(f, " ")?;
            column += 1;
        }
        write!(f, "{word}")?;
        column += length;
    }
    writeln!(f)
}

impl Display for Summary {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let program = tail(&self.program, 40);
        writeln!(f, "{program}: {} events in {}", self.n_events, time(self.span_ns))?;
        if self.is_incomplete {
            writeln!(f, "Events are missing, so the sums are too small.")?;
        }
        self.print_procs(f)?;
        self.print_sites(f)?;
        self.print_waits(f)?;
        self.print_long_waits(f)?;
        self.print_steals(f)?;
        self.print_counts(f)?;
        let verdict = self.verdict();
        writeln!(f, "\nWhat limits this program")?;
        wrap(f, &verdict.words)?;
        wrap(f, &format!("(Rule: {}.)", verdict.rule))
    }
}

impl Summary {
    fn print_procs(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nPs        running  searching    between       idle")?;
        let all = self.all_procs();
        let rows = self.procs.iter().take(ROWS).map(|(p, times)| (format!("P {p}"), times));
        for (name, times) in rows.chain([("all".to_owned(), &all)]) {
            write!(f, "{name:<7}")?;
            for ns in [times.running, times.searching, times.between, times.idle] {
                write!(f, "  {:>7.1} %", percent(ns, times.total()))?;
            }
            writeln!(f)?;
        }
        left_out(f, self.procs.len(), "Ps")
    }

    fn print_sites(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nGoroutines by the place of their spawn")?;
        writeln!(f, "    number    running   runnable    in call    waiting  spawned at")?;
        let mut sites: Vec<_> = self.sites.iter().collect();
        sites.sort_by_key(|(_, times)| std::cmp::Reverse(times.running));
        for (name, times) in sites.iter().take(ROWS) {
            let SiteTimes { n_goroutines, running, runnable, in_call, waiting } = times;
            writeln!(
                f,
                "{n_goroutines:>10} {:>10} {:>10} {:>10} {:>10}  {}",
                time(*running),
                time(*runnable),
                time(*in_call),
                time(waiting.values().fold(0, |sum, &ns| sum.saturating_add(ns))),
                tail(name, 24)
            )?;
        }
        left_out(f, sites.len(), "places")
    }

    fn print_waits(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let waits = self.waits();
        if waits.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nWaits by reason, of all goroutines together")?;
        for (reason, ns) in waits.iter().take(ROWS) {
            writeln!(f, "{:>10}  {}", time(*ns), tail(reason, 66))?;
        }
        left_out(f, waits.len(), "reasons")
    }

    fn print_long_waits(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.long_waits.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nThe longest waits of runnable goroutines")?;
        writeln!(f, "    waited     until at  goroutine      P  behind goroutine, which ran")?;
        for wait in &self.long_waits {
            let p = wait.p.map_or("-".to_owned(), |p| p.to_string());
            write!(f, "{:>10} {:>12} ", time(wait.ns), time(wait.until))?;
            write!(f, "{:>10} {p:>6}  ", wait.goroutine)?;
            match wait.in_the_way {
                0 => writeln!(f, "-")?,
                g => writeln!(f, "{g} for {}", time(wait.in_the_way_ns))?,
            }
        }
        Ok(())
    }

    fn print_steals(&self, f: &mut Formatter<'_>) -> fmt::Result {
        if self.steals.is_empty() {
            return Ok(());
        }
        writeln!(f, "\nThefts")?;
        let mut steals: Vec<_> = self.steals.iter().collect();
        steals.sort_by_key(|(_, (n, _))| std::cmp::Reverse(*n));
        for ((thief, victim), (n, goroutines)) in steals.iter().take(ROWS) {
            writeln!(f, "{n:>10} by P {thief} from P {victim}: {goroutines} goroutines")?;
        }
        left_out(f, steals.len(), "pairs")
    }

    fn print_counts(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "\nCounts")?;
        let futile = percent(self.n_futile, self.n_wake_ups);
        writeln!(f, "{:>10} wake-ups of threads", self.n_wake_ups)?;
        writeln!(f, "{:>10} of them found nothing to run ({futile:.0} %)", self.n_futile)?;
        writeln!(f, "{:>10} goroutines preempted at a call", self.n_preempted)?;
        writeln!(f, "{:>10} goroutines preempted by a signal", self.n_forced)?;
        writeln!(f, "{:>10} goroutines that computed for too long (hogs)", self.n_hogs)?;
        writeln!(f, "{:>10} blocking calls that nobody announced", self.n_unannounced)?;
        let (n, ns, longest) = self.world_stops;
        write!(f, "{n:>10} world stops")?;
        if n > 0 {
            write!(f, ", {} in all, the longest {}", time(ns), time(longest))?;
        }
        writeln!(f)
    }
}

fn left_out(f: &mut Formatter<'_>, n: usize, what: &str) -> fmt::Result {
    if n > ROWS { writeln!(f, "    and {} more {what}", n - ROWS) } else { Ok(()) }
}
