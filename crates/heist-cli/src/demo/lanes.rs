//! A bar per P: goroutines run, and how many of them it had to steal.

use super::figures;
use console::style;
use heist::metrics::ProcStats;

const WIDTH: usize = 32;
/// More Ps than this are summed up in one line.
const MAX_LANES: usize = 16;

/// The counters of one P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lane {
    pub id: u32,
    pub n_run: u64,
    pub n_stolen: u64,
}

impl From<ProcStats> for Lane {
    fn from(stats: ProcStats) -> Self {
        Self { id: stats.id, n_run: stats.executed, n_stolen: stats.stolen }
    }
}

/// One line per P. The longest bar is the busiest P's; the bright part of a bar was stolen.
pub fn draw(lanes: &[Lane]) -> Vec<String> {
    let most = lanes.iter().map(|lane| lane.n_run).max().unwrap_or(0);
    let mut lines: Vec<_> = lanes
        .iter()
        .take(MAX_LANES)
        .map(|lane| {
            let (stolen, own) = lengths(lane, most);
            format!(
                "{:>4} {}{}{} {:>11} run {:>10} stolen",
                format!("P{}", lane.id),
                style("█".repeat(stolen)).yellow(),
                style("▓".repeat(own)).cyan(),
                style("░".repeat(WIDTH - stolen - own)).dim(),
                figures::count(lane.n_run),
                figures::count(lane.n_stolen),
            )
        })
        .collect();
    if lanes.len() > MAX_LANES {
        let rest = &lanes[MAX_LANES..];
        let n_run: u64 = rest.iter().map(|lane| lane.n_run).sum();
        let n_stolen: u64 = rest.iter().map(|lane| lane.n_stolen).sum();
        lines.push(format!(
            "     and {} more: {} run, {} stolen",
            rest.len(),
            figures::count(n_run),
            figures::count(n_stolen)
        ));
    }
    lines
}

/// Cells of the stolen part and of the rest. A part that is not zero gets at least one cell.
fn lengths(lane: &Lane, most: u64) -> (usize, usize) {
    let cells = |n: u64| match n {
        0 => 0,
        n => ((n as f64 / most as f64 * WIDTH as f64).round() as usize).clamp(1, WIDTH),
    };
    let all = cells(lane.n_run);
    let stolen = cells(lane.n_stolen.min(lane.n_run)).min(all);
    (stolen, all - stolen)
}

#[cfg(test)]
fn lane(id: u32, n_run: u64, n_stolen: u64) -> Lane {
    Lane { id, n_run, n_stolen }
}

#[test]
fn the_busiest_has_the_longest_bar() {
    assert_eq!(lengths(&lane(0, 1000, 0), 1000), (0, WIDTH));
    assert_eq!(lengths(&lane(0, 500, 250), 1000), (WIDTH / 4, WIDTH / 4));
    assert_eq!(lengths(&lane(0, 1, 0), 1000), (0, 1));
    assert_eq!(lengths(&lane(0, 1000, 1), 1000), (1, WIDTH - 1));
    assert_eq!(lengths(&lane(0, 0, 0), 0), (0, 0));
    assert_eq!(lengths(&lane(0, 10, 11), 10), (WIDTH, 0));
}

#[test]
fn a_lane_tells_its_numbers() {
    let lines = draw(&[lane(0, 12_000, 0), lane(1, 6_000, 3_000)]);
    let plain = console::strip_ansi_codes(&lines[1]);
    assert!(plain.starts_with("  P1 ████████▓▓▓▓▓▓▓▓░░"), "{plain}");
    assert!(plain.ends_with(" 6,000 run      3,000 stolen"), "{plain}");
}

#[test]
fn many_lanes_are_summed_up() {
    let lanes: Vec<_> = (0..20).map(|id| lane(id, 10, 1)).collect();
    let lines = draw(&lanes);
    assert_eq!(lines.len(), MAX_LANES + 1);
    assert_eq!(lines[MAX_LANES].trim(), "and 4 more: 40 run, 4 stolen");
}
