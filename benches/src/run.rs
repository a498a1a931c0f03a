//! The run: every measurement in its turn, each in a fresh process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::catalog::Workload;
use crate::child::{self, Finished};
use crate::go_twin::GoTwin;
use crate::peers::{Kind, Peer};
use crate::reading::{self, Cannot, Figures};
use crate::row::{Axis, Machine, Point, Row, RunFile};
use crate::{ALLOCATOR_NAME, hello, load, quiet, rotation, settings, wrk};

/// One workload with its sizes, to be measured for all peers.
#[derive(Clone, Copy, Debug)]
pub struct Measurement {
    pub workload: &'static Workload,
    pub procs: usize,
    pub size: usize,
    pub point: Option<Point>,
}

impl std::fmt::Display for Measurement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = self.workload.name;
        match self.point {
            None => write!(f, "{name}"),
            Some(Point { axis: Axis::Procs, at }) => write!(f, "{name} on {at} procs"),
            Some(Point { axis: Axis::Tasks, at }) => write!(f, "{name} of {at} tasks"),
        }
    }
}

/// The measurements to make.
#[derive(Debug)]
pub struct Plan {
    pub measurements: Vec<Measurement>,
    pub peers: Vec<&'static Peer>,
    pub reps: usize,
    pub procs: usize,
    pub deadline: Duration,
    pub json: Option<PathBuf>,
}

/// The peers that can be measured, what they need, and which are missing and why.
struct Field {
    peers: Vec<&'static Peer>,
    go: Option<GoTwin>,
    sizes: hello::Sizes,
    skipped: Vec<String>,
}

/// A run that went through: its rows, and which of its measurements failed.
#[derive(Debug)]
pub struct Ended {
    pub file: RunFile,
    failures: Vec<String>,
}

impl Ended {
    /// To be asked when the figures that there are have been shown.
    ///
    /// # Errors
    /// The failures, if there are any.
    pub fn check(&self) -> Result<(), String> {
        if self.failures.is_empty() {
            return Ok(());
        }
        let count = match self.failures.len() {
            1 => "1 measurement failed".to_owned(),
            n => format!("{n} measurements failed"),
        };
        Err(format!("{count}:\n  {}", self.failures.join("\n  ")))
    }
}

/// Carries out the plan.
///
/// # Errors
/// There is no peer to measure, or the file cannot be written.
pub fn run(plan: &Plan) -> Result<Ended, String> {
    let this_program =
        std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let mut field = muster(plan, &this_program);
    if cfg!(debug_assertions) {
        field.skipped.push("a release build: these are the figures of a debug build".to_owned());
    }
    for line in &field.skipped {
        eprintln!("skipped: {line}");
    }
    if field.peers.is_empty() {
        return Err("none of the chosen peers can be measured".to_owned());
    }
    let go_version = field.go.as_ref().map(|go| go.version.clone());
    let mut file = RunFile {
        name: "this run".to_owned(),
        machine: Machine::here(plan.procs, plan.reps, go_version),
        skipped: field.skipped.clone(),
        rows: Vec::new(),
    };
    // Said before the measurements too, so that an unwritable path does not cost a run.
    write(plan, &file)?;
    let mut failures = Vec::new();
    let progress = progress_bar(plan.reps * plan.measurements.len() * field.peers.len());
    for rep in 0..plan.reps {
        for (index, measurement) in plan.measurements.iter().enumerate() {
            for peer in rotation::order(&field.peers, rep, index) {
                progress.set_message(format!(
                    "rep {}/{} {measurement} {}",
                    rep + 1,
                    plan.reps,
                    peer.name
                ));
                let finished = measure(plan, &field, &this_program, measurement, peer);
                if let Err(why) = &finished.result {
                    let failure = format!("rep {} {measurement} {}: {why}", rep + 1, peer.name);
                    progress.suspend(|| eprintln!("{failure}"));
                    failures.push(failure);
                }
                file.rows.extend(rows(finished, measurement, peer, rep));
                progress.inc(1);
            }
        }
        write(plan, &file)?;
    }
    progress.finish_and_clear();
    eprintln!("{}", quiet::verdict(&file.rows));
    Ok(Ended { file, failures })
}

fn write(plan: &Plan, file: &RunFile) -> Result<(), String> {
    plan.json.as_deref().map_or(Ok(()), |path| file.write(path))
}

fn muster(plan: &Plan, this_program: &Path) -> Field {
    let out_dir = this_program.parent().unwrap_or(Path::new("."));
    let mut field =
        Field { peers: Vec::new(), go: None, sizes: hello::Sizes::new(), skipped: Vec::new() };
    for peer in &plan.peers {
        let missing = match peer.kind {
            Kind::Built(_) => None,
            Kind::LeftOut { feature } => Some(format!("left out, build with --features {feature}")),
            Kind::Go => match GoTwin::build(out_dir) {
                Ok(twin) => {
                    field.go = Some(twin);
                    None
                }
                Err(why) => Some(why),
            },
        };
        match missing {
            None => field.peers.push(peer),
            Some(why) => field.skipped.push(format!("{}: {why}", peer.name)),
        }
    }
    let wanted = |name: &str| plan.measurements.iter().any(|m| m.workload.name == name);
    if wanted("binary_size") {
        field.sizes = hello::sizes(&field.peers, field.go.as_ref(), out_dir);
    }
    if ["http", "http_raw", "http_hyper"].into_iter().any(wanted) && !wrk::is_on_path() {
        field.skipped.push(format!("http: {}", wrk::MISSING));
    }
    field
}

fn progress_bar(n_measurements: usize) -> ProgressBar {
    let template = "{bar:32} {pos}/{len} {msg} (eta {eta})";
    let style = ProgressStyle::with_template(template).expect("the template is constant");
    // No steady tick: the display must not use the CPU while something is measured.
    ProgressBar::new(n_measurements as u64).with_style(style)
}

fn measure(
    plan: &Plan,
    field: &Field,
    this_program: &Path,
    measurement: &Measurement,
    peer: &Peer,
) -> Finished {
    let Measurement { workload, procs, size, .. } = *measurement;
    if workload.name == "binary_size" {
        return weigh(workload, field.sizes.get(peer.name).cloned());
    }
    let twin = field.go.as_ref().filter(|_| matches!(peer.kind, Kind::Go));
    let mut command = Command::new(twin.map_or(this_program, |twin| &twin.program));
    settings::keep_from(&mut command);
    match twin {
        Some(_) => {
            command.env("GOMAXPROCS", procs.to_string()).env(load::PROGRAM_VARIABLE, this_program)
        }
        None => command.args(["one", "--peer", peer.name]),
    };
    command.args(["--workload", workload.name]);
    command.args(["--procs", &procs.to_string(), "--size", &size.to_string()]);
    child::measure(&mut command, plan.deadline)
}

/// The results of binary_size, which needs no process.
fn weigh(workload: &'static Workload, size: Option<Result<f64, String>>) -> Finished {
    let outcome = |size: Option<f64>| {
        size.map(Figures::one).ok_or_else(|| Cannot(hello::NO_PROGRAM.to_owned()))
    };
    let result = size.transpose().map(|size| reading::readings(workload, outcome(size)));
    Finished { result, own_cpu_s: 0.0, other_cpu_s: 0.0, wall_s: 0.0 }
}

fn rows(finished: Finished, measurement: &Measurement, peer: &Peer, rep: usize) -> Vec<Row> {
    // A failure still gives every row of the workload its place in the table.
    let (readings, error) = match finished.result {
        Ok(readings) => (readings, None),
        Err(why) => {
            (reading::readings(measurement.workload, Err(Cannot(String::new()))), Some(why))
        }
    };
    let allocator = if matches!(peer.kind, Kind::Go) { "go" } else { ALLOCATOR_NAME };
    let row = |reading: reading::Reading| Row {
        workload: reading.workload,
        peer: peer.name.to_owned(),
        allocator: allocator.to_owned(),
        value: reading.value,
        unit: reading.unit,
        rep,
        point: measurement.point,
        own_cpu_s: finished.own_cpu_s,
        other_cpu_s: finished.other_cpu_s,
        wall_s: finished.wall_s,
        note: reading.note.filter(|note| !note.is_empty()),
        error: error.clone(),
    };
    readings.into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_with_a_failure_has_failed() {
        let ended = |failures| Ended { file: RunFile::default(), failures };
        assert_eq!(ended(vec![]).check(), Ok(()));
        let message = ended(vec!["rep 1 yield go: killed".to_owned()]).check().unwrap_err();
        assert_eq!(message, "1 measurement failed:\n  rep 1 yield go: killed");
    }

    #[test]
    fn a_size_that_could_not_be_taken_is_a_failure() {
        let workload = crate::catalog::workload("binary_size").unwrap();
        assert_eq!(weigh(workload, Some(Ok(9.0))).result.unwrap()[0].value, Some(9.0));
        let absent = weigh(workload, None).result.unwrap();
        assert_eq!(absent[0].note.as_deref(), Some(hello::NO_PROGRAM));
        assert_eq!(weigh(workload, Some(Err("no strip".into()))).result.unwrap_err(), "no strip");
    }

    #[test]
    fn a_failure_keeps_every_row_of_its_workload() {
        let workload = crate::catalog::workload("timers").unwrap();
        let measurement = Measurement { workload, procs: 2, size: 1, point: None };
        let finished = Finished {
            result: Err("killed".to_owned()),
            own_cpu_s: 0.0,
            other_cpu_s: 0.0,
            wall_s: 1.0,
        };
        let rows = rows(finished, &measurement, crate::peers::peer("go").unwrap(), 0);
        assert_eq!(rows.len(), 2);
        assert!(rows.iter().all(|r| r.value.is_none() && r.error.as_deref() == Some("killed")));
        assert!(rows.iter().all(|r| r.note.is_none()));
    }
}
