//! `heist bound`: how near the scheduler comes to the bound `T_P = T1 / P + O(Tinf)`.
//!
//! Each computation runs some times with its strands measured, for its work and span, and some
//! times without, for its time. docs/design/theory.md says what the numbers mean.

mod computations;

pub use computations::Size;

use crate::cli::BoundOptions;
use crate::demo::figures;
use computations::{ALL, Computation};
use heist::Runtime;
use heist::par::{Measurement, measure};
use heist_sim::svg::{Axis, Chart, Series};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How often a computation runs, measured and not. The run with the least work counts, and the
/// fastest: other programs can only add to both.
const RUNS: usize = 3;

/// What was found about a computation.
pub struct Row {
    pub name: &'static str,
    pub measured: Measurement,
    /// The time of a run that was not measured.
    pub elapsed: Duration,
    /// Whether every run had the right result.
    pub right: bool,
}

impl Row {
    /// `c` of the run that was not measured.
    pub fn constant(&self) -> f64 {
        self.measured.constant_of(self.elapsed, self.measured.procs)
    }

    /// The time as a share of `T1 / P + Tinf`.
    fn share(&self) -> f64 {
        let bound = self.measured.work / self.measured.procs.max(1) + self.measured.span;
        self.elapsed.as_secs_f64() / bound.as_secs_f64().max(1e-9)
    }
}

/// Runs all computations.
pub fn run_all(rt: &Runtime, size: Size, mut tell: impl FnMut(usize)) -> Vec<Row> {
    let rows = ALL.iter().enumerate().map(|(at, computation)| {
        tell(at);
        run_one(rt, computation, size)
    });
    rows.collect()
}

/// How many computations there are.
pub const N_COMPUTATIONS: usize = ALL.len();

fn run_one(rt: &Runtime, computation: &Computation, size: Size) -> Row {
    let Computation { name, run, alone } = *computation;
    let expected = alone(size);
    let mut right = true;
    let measured = [(); RUNS].map(|()| {
        let (value, measured) = rt.run(move || measure(|| run(size)));
        right &= value == expected;
        measured
    });
    let times = [(); RUNS].map(|()| {
        let (value, time) = rt.run(move || {
            let began = Instant::now();
            (run(size), began.elapsed())
        });
        right &= value == expected;
        time
    });
    let [first, others @ ..] = measured;
    let least = others.into_iter().fold(first, |a, b| if b.work < a.work { b } else { a });
    let elapsed = times.into_iter().min().unwrap_or_default();
    Row { name, measured: least, elapsed, right }
}

/// The table, at most 80 columns wide.
pub fn table(rows: &[Row]) -> Vec<String> {
    let head = ["", "T1", "Tinf", "T1/Tinf", "T_P", "c", "forks", "taken", "P*chain"];
    let mut cells: Vec<_> = vec![head.map(str::to_owned)];
    cells.extend(rows.iter().map(|row| {
        let Measurement { work, span, forks, taken, .. } = row.measured;
        [
            row.name.to_owned(),
            figures::time(work),
            figures::time(span),
            format!("{:.1}", row.measured.parallelism()),
            figures::time(row.elapsed),
            format!("{:.2}", row.constant()),
            forks.to_string(),
            taken.to_string(),
            row.measured.theft_bound().to_string(),
        ]
    }));
    let width = |at: usize| cells.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let line = |row: &[String; 9]| {
        let pairs = row.iter().zip(&widths).enumerate();
        let cells = pairs.map(|(at, (cell, &width))| match at {
            0 => format!("{cell:<width$}"),
            _ => format!(" {cell:>width$}"),
        });
        cells.collect::<String>()
    };
    cells.iter().map(line).collect()
}

/// Runs the command.
pub fn run(options: &BoundOptions) -> ExitCode {
    match try_run(options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(problem) => {
            eprintln!("heist bound: {problem}");
            ExitCode::from(2)
        }
    }
}

fn try_run(options: &BoundOptions) -> Result<bool, String> {
    let size = if options.quick { Size::Quick } else { Size::Full };
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let most = options.procs.unwrap_or(cpus);
    let mut series = ALL.each_ref().map(|c| Series { name: c.name.into(), points: Vec::new() });
    let mut right = true;
    for procs in ladder(most) {
        // SAFETY: the computations keep nothing of a thread across a call into heist.
        let rt = unsafe { Runtime::builder().procs(procs).build() };
        let rt = rt.map_err(|error| error.to_string())?;
        let rows = run_all(&rt, size, |_| ());
        println!("P = {procs}, {cpus} CPUs");
        for line in table(&rows) {
            println!("{line}");
        }
        println!();
        for (row, line) in rows.iter().zip(&mut series) {
            right &= row.right;
            line.points.push((procs as f64, row.share()));
        }
    }
    if !right {
        eprintln!("heist bound: a computation had a wrong result");
    }
    if let Some(path) = &options.svg {
        let text = chart(series.into()).svg();
        std::fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))?;
    }
    Ok(right)
}

/// One, its doubles below `most`, and `most`.
fn ladder(most: usize) -> Vec<usize> {
    let mut rungs: Vec<_> =
        std::iter::successors(Some(1), |n| Some(n * 2)).take_while(|&n| n < most).collect();
    rungs.push(most);
    rungs
}

fn chart(series: Vec<Series>) -> Chart {
    Chart {
        title: "T_P as a share of T1 / P + Tinf".into(),
        x: Axis::log("processors P"),
        y: Axis::linear("T_P / (T1 / P + Tinf)"),
        series,
    }
}

#[test]
fn the_ladder_ends_at_the_number() {
    assert_eq!(ladder(1), [1]);
    assert_eq!(ladder(2), [1, 2]);
    assert_eq!(ladder(6), [1, 2, 4, 6]);
    assert_eq!(ladder(16), [1, 2, 4, 8, 16]);
}
