//! The verdict whether a run was quiet enough to be quoted.

use crate::row::Row;

/// Others may use this share of one CPU before a measurement counts as disturbed; the
/// kernel's own housekeeping is below it.
const TOLERATED_SHARE: f64 = 0.03;
/// Ticks of 10 ms on either side of a short measurement are noise, not a neighbour.
const TOLERATED_S: f64 = 0.03;

/// Whether others used the CPU during this row's measurement.
pub fn is_disturbed(row: &Row) -> bool {
    row.other_cpu_s > TOLERATED_S + TOLERATED_SHARE * row.wall_s
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// There is no figure that could be quoted.
    Unmeasured,
    Quiet,
    Disturbed {
        n_disturbed: usize,
        n_rows: usize,
        worst_share: f64,
    },
}

/// Judges a run; a single disturbed measurement is enough, since it is not known which row it
/// affected.
pub fn verdict<'a>(rows: impl IntoIterator<Item = &'a Row>) -> Verdict {
    let rows: Vec<&Row> = rows.into_iter().collect();
    if rows.iter().all(|r| r.value.is_none()) {
        return Verdict::Unmeasured;
    }
    let share = |r: &Row| r.other_cpu_s / r.wall_s.max(f64::EPSILON);
    let disturbed: Vec<f64> = rows.iter().filter(|r| is_disturbed(r)).map(|r| share(r)).collect();
    if disturbed.is_empty() {
        return Verdict::Quiet;
    }
    let worst_share = disturbed.iter().copied().fold(0.0, f64::max);
    Verdict::Disturbed { n_disturbed: disturbed.len(), n_rows: rows.len(), worst_share }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unmeasured => write!(f, "nothing measured: there is no figure here"),
            Self::Quiet => write!(f, "quiet: nobody else used the CPU"),
            Self::Disturbed { n_disturbed, n_rows, worst_share } => write!(
                f,
                "NOT QUIET: others used the CPU in {n_disturbed} of {n_rows} rows (at worst \
                 {:.0} % of a CPU); do not quote these figures",
                worst_share * 100.0
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::sample;

    #[test]
    fn a_tick_of_noise_is_quiet() {
        let mut row = sample("yield", "go", 0, 1.0);
        row.other_cpu_s = 0.02;
        assert_eq!(verdict(&[row]), Verdict::Quiet);
    }

    #[test]
    fn without_a_figure_nothing_is_quiet() {
        assert_eq!(verdict(&[]), Verdict::Unmeasured);
        let mut failed = sample("yield", "go", 0, 1.0);
        (failed.value, failed.error) = (None, Some("killed".to_owned()));
        assert_eq!(verdict(&[failed]), Verdict::Unmeasured);
    }

    #[test]
    fn one_disturbed_row_spoils_the_run() {
        let mut rows = vec![sample("yield", "go", 0, 1.0); 3];
        rows[1].other_cpu_s = 0.5;
        let verdict = verdict(&rows);
        assert_eq!(verdict, Verdict::Disturbed { n_disturbed: 1, n_rows: 3, worst_share: 0.5 });
        assert!(verdict.to_string().contains("NOT QUIET"));
    }
}
