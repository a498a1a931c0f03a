//! Runs a test a second time in its own process: for behaviour that ends a process, for environment
//! variables and limits, and for measurements that other tests would disturb.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

const ROLE: &str = "HEIST_TEST_CHILD";

/// How a child ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stderr: String,
}

impl Ended {
    #[track_caller]
    pub fn succeeded(&self) {
        assert!(self.status.success(), "{}\n{}", self.status, self.last_lines());
    }

    #[track_caller]
    pub fn exited(&self, code: i32) {
        assert_eq!(self.status.code(), Some(code), "{}\n{}", self.status, self.last_lines());
    }

    #[track_caller]
    pub fn was_killed_by(&self, signal: i32) {
        assert_eq!(self.status.signal(), Some(signal), "{}\n{}", self.status, self.last_lines());
    }

    #[track_caller]
    pub fn said(&self, text: &str) {
        assert!(self.stderr.contains(text), "{text:?} is not in:\n{}", self.last_lines());
    }

    /// The end of its output: a child may write a lot.
    fn last_lines(&self) -> String {
        let lines: Vec<_> = self.stderr.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }
}

/// The name of the calling test, as the harness spells it.
pub fn own_name() -> String {
    let name = std::thread::current().name().map(str::to_owned);
    // A child that is given another name finds no test, runs nothing and succeeds.
    let name = name.filter(|name| name.contains("::"));
    name.expect("the harness names the thread of a test `module::test`")
}

/// A child that runs the test of that name and nothing else.
fn program(test: &str) -> Command {
    let mut command = crate::matrix::emulator::own_program();
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]);
    command
}

/// Runs the calling test in a child, where `body` is run instead. In the child this does not
/// return. It is called on the thread of the test, which carries its name.
pub fn run(body: impl FnOnce()) -> Ended {
    run_with(|_| {}, body)
}

/// As [`run`]; `prepare` may change how the child is started.
pub fn run_with(prepare: impl FnOnce(&mut Command), body: impl FnOnce()) -> Ended {
    let test = own_name();
    if std::env::var_os(ROLE).is_some_and(|role| *role == *test) {
        let patience = crate::matrix::patience() + Duration::from_secs(180);
        let watchdog = crate::matrix::Watchdog::new(patience, String::new);
        body();
        drop(watchdog);
        std::process::exit(0);
    }
    let mut command = program(&test);
    command.env(ROLE, test);
    prepare(&mut command);
    let output = command.output().expect("the child starts");
    Ended { status: output.status, stderr: String::from_utf8_lossy(&output.stderr).into_owned() }
}

/// As [`run`], in a child that may have `n` descriptors.
pub fn run_with_descriptors(n: u32, body: impl FnOnce()) -> Ended {
    let limited = |command: &mut Command| {
        let limit = format!("ulimit -S -n {n} && exec \"$0\" \"$@\"");
        *command = by_shell(&limit, command);
        command.env(ROLE, own_name());
    };
    run_with(limited, body)
}

/// A script that gets the words of a command as its own.
fn by_shell(script: &str, command: &Command) -> Command {
    let mut shell = Command::new("bash");
    shell.args(["-c", script]).arg(command.get_program()).args(command.get_args());
    shell
}

/// A second process for the body of a test: the same test, which finds `value` in `variable`. It
/// may have as many descriptors as the system allows. Its standard input is a pipe from the caller.
pub fn partner(variable: &str, value: &str) -> std::process::Child {
    let script = "ulimit -S -n $(ulimit -H -n) && exec \"$0\" \"$@\"";
    let mut command = by_shell(script, &program(&own_name()));
    command.env_remove(ROLE).env(variable, value).stdin(Stdio::piped());
    command.spawn().expect("the partner starts")
}

/// A number of `/proc/self/status`, in KiB where it is a size.
pub fn own_status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))
        .unwrap_or_else(|| panic!("no {field} in the status"));
    let number = line.split_whitespace().next().expect("a value");
    number.parse().expect("a number")
}

/// Threads of this process.
pub fn own_threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("proc is mounted").count()
}

/// Descriptors this process may have.
pub fn descriptor_limit() -> u64 {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("proc is mounted");
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"));
    let soft = line.and_then(|line| line.split_whitespace().next()).expect("a limit");
    soft.parse().unwrap_or(u64::MAX)
}
