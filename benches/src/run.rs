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
use crate::{ALLOCATOR_NAME, hello, load, quiet, rotation, wrk};

/// One workload with its sizes, to be measured for everybody.
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

/// What to measure.
#[derive(Debug)]
pub struct Plan {
    pub measurements: Vec<Measurement>,
    pub peers: Vec<&'static Peer>,
    pub reps: usize,
    pub procs: usize,
    pub deadline: Duration,
    pub json: Option<PathBuf>,
}

/// The peers that can be measured, what they need, and who is missing and why.
struct Field {
    peers: Vec<&'static Peer>,
    go: Option<GoTwin>,
    sizes: hello::Sizes,
    skipped: Vec<String>,
}

/// Carries out the plan.
///
/// # Errors
/// Nobody to measure, or the file cannot be written.
pub fn run(plan: &Plan) -> Result<RunFile, String> {
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
        machine: Machine::here(plan.procs, plan.reps, go_version),
        skipped: field.skipped.clone(),
        rows: Vec::new(),
    };
    // Said before the measurements too, so that an unwritable path does not cost a run.
    write(plan, &file)?;
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
                file.rows.extend(rows(finished, measurement, peer, rep, &progress));
                progress.inc(1);
            }
        }
        write(plan, &file)?;
    }
    progress.finish_and_clear();
    eprintln!("{}", quiet::verdict(&file.rows));
    Ok(file)
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
    if (wanted("http") || wanted("http_raw")) && !wrk::is_on_path() {
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
        let size = field.sizes.get(peer.name).cloned().unwrap_or_else(|| Err("not built".into()));
        let outcome = size.map(Figures::one).map_err(Cannot);
        let readings = reading::readings(workload, outcome);
        return Finished { result: Ok(readings), own_cpu_s: 0.0, other_cpu_s: 0.0, wall_s: 0.0 };
    }
    let mut command = match (peer.kind, &field.go) {
        (Kind::Go, Some(twin)) => {
            let mut command = Command::new(&twin.program);
            command.env("GOMAXPROCS", procs.to_string());
            command.env(load::PROGRAM_VARIABLE, this_program);
            command
        }
        _ => {
            let mut command = Command::new(this_program);
            command.args(["one", "--peer", peer.name]);
            command
        }
    };
    command.args(["--workload", workload.name]);
    command.args(["--procs", &procs.to_string(), "--size", &size.to_string()]);
    child::measure(&mut command, plan.deadline)
}

fn rows(
    finished: Finished,
    measurement: &Measurement,
    peer: &Peer,
    rep: usize,
    progress: &ProgressBar,
) -> Vec<Row> {
    let (readings, error) = match finished.result {
        Ok(readings) if readings.is_empty() => (None, Some("it printed no readings".to_owned())),
        Ok(readings) => (Some(readings), None),
        Err(why) => (None, Some(why)),
    };
    if let Some(why) = &error {
        progress.suspend(|| eprintln!("{measurement} {}: {why}", peer.name));
    }
    // A failure still gives every row of the workload its place in the table.
    let readings = readings
        .unwrap_or_else(|| reading::readings(measurement.workload, Err(Cannot(String::new()))));
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
