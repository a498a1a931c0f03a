//! From a run to a picture: the commands of the guide, one after the other.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn heist() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_heist"));
    command.env_remove("HEIST_PROCS").env_remove("HEIST_DEBUG").env_remove("HEIST_TRACE");
    command
}

fn output(command: &mut Command) -> Output {
    command.output().expect("the program starts")
}

#[track_caller]
fn succeeds(command: &mut Command) -> String {
    let output = output(command);
    let (stdout, stderr) = (
        String::from_utf8_lossy(&output.stdout).into_owned(),
        String::from_utf8_lossy(&output.stderr).into_owned(),
    );
    assert!(output.status.success(), "{command:?}\n{stdout}\n{stderr}");
    stdout
}

/// A folder of this test, which ends with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("heist-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("the folder can be made");
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The Go tool that GO or PATH names, if there is one.
fn go_tool() -> Option<OsString> {
    let tool = std::env::var_os("GO").unwrap_or_else(|| "go".into());
    let mut command = Command::new(&tool);
    command.args(["tool", "-n", "trace"]).env("GOTOOLCHAIN", "local");
    let found = command.output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("SKIPPED: go tool trace, there is no Go tool in GO or on PATH");
    }
    found.then_some(tool)
}

fn has_extension(path: &Path, wanted: &str) -> bool {
    path.extension() == Some(OsStr::new(wanted))
}

/// The machine may be busy with other tests, so threads may wake up late.
const CHECK: [&str; 4] = ["trace", "check", "--wait-ms", "10000"];

/// All traces are checked, but a build without optimisation converts only small ones; `.ci/run`
/// converts them all.
const SMALL: u64 = 300 << 10;

fn check_one(folder: &Path, trace: &Path, go: Option<&OsStr>) {
    let checked = succeeds(heist().args(CHECK).arg(trace));
    assert!(checked.contains(" 0 findings"), "{checked}");
    if trace.metadata().is_ok_and(|data| data.len() > SMALL) {
        return;
    }
    let converted = folder.join("t.gotrace");
    succeeds(heist().args(["trace", "convert", "--to", "go"]).args([trace, &converted]));
    if let Some(go) = go {
        for what in ["-d=parsed", "-d=wire", "-pprof=sync", "-pprof=net", "-pprof=sched"] {
            let mut command = Command::new(go);
            command.args(["tool", "trace", what]).arg(&converted).env("GOTOOLCHAIN", "local");
            succeeds(&mut command);
        }
    }
    let picture = folder.join("t.pftrace");
    succeeds(heist().args(["trace", "convert", "--to", "perfetto"]).args([trace, &picture]));
    assert!(picture.metadata().is_ok_and(|data| data.len() > 0));
    let summary = succeeds(heist().args(["trace", "summary"]).arg(trace));
    assert!(summary.contains("What limits this program"), "{summary}");
    assert!(summary.lines().all(|line| line.chars().count() <= 80), "{summary}");
}

/// MT-18
#[test]
fn the_demo_is_recorded_checked_and_converted() {
    let folder = Folder::new("chain");
    let trace = folder.0.join("t.htrace");
    let mut demo = heist();
    succeeds(demo.args(["demo", "--quick"]).env("HEIST_TRACE", &trace));
    let go = go_tool();
    let mut n_traces = 0;
    let files = std::fs::read_dir(&folder.0).expect("the folder is there");
    let mut files: Vec<_> = files.filter_map(|file| Some(file.ok()?.path())).collect();
    files.sort();
    for file in files.iter().filter(|file| !has_extension(file, "gotrace")) {
        check_one(&folder.0, file, go.as_deref());
        n_traces += 1;
    }
    assert!(n_traces > 0, "each runtime of the demo writes a trace");
}

#[test]
fn a_program_is_recorded_by_name() {
    let folder = Folder::new("record");
    let trace = folder.0.join("r.htrace");
    let mut record = heist();
    record.args(["trace", "record", "--output"]).arg(&trace).arg("--");
    record.arg(env!("CARGO_BIN_EXE_heist")).args(["demo", "--quick", "--steps", "ring"]);
    succeeds(&mut record);
    succeeds(heist().args(CHECK).arg(&trace));
}

#[track_caller]
fn refused(args: &[&OsStr], words: &str) {
    let output = output(heist().arg("trace").args(args));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains(words), "{text}");
}

#[test]
fn bad_input_is_refused_with_a_reason() {
    let folder = Folder::new("bad");
    let missing = folder.0.join("missing");
    refused(&["check".as_ref(), missing.as_os_str()], "No such file");
    let other = folder.0.join("other");
    std::fs::write(&other, "a text").expect("the file can be written");
    refused(&["check".as_ref(), other.as_os_str()], "byte 0: this is not a trace of heist");
    refused(&["summary".as_ref(), other.as_os_str()], "byte 0: this is not a trace of heist");
    refused(&["record".as_ref(), "--".as_ref(), missing.as_os_str()], "No such file");
}
