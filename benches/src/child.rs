//! One measurement in a fresh process, with a deadline.

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use crate::reading::{self, Reading};
use crate::sys::{self, Who};

const SILENT: &str = "it printed no readings";

/// The result of a finished or failed measurement.
#[derive(Debug)]
pub struct Finished {
    pub result: Result<Vec<Reading>, String>,
    pub own_cpu_s: f64,
    pub other_cpu_s: f64,
    pub wall_s: f64,
}

/// Runs the command in its own process group and collects its readings.
///
/// A process that outlives the deadline is killed with all it started: a hang in one
/// peer costs one row and not the run.
pub fn measure(command: &mut Command, deadline: Duration) -> Finished {
    let busy_before_s = sys::machine_busy_s();
    let ours_before = sys::cpu_time(Who::Children) + sys::cpu_time(Who::Myself);
    let children_before = sys::cpu_time(Who::Children);
    let start = Instant::now();

    let result = collect(command, deadline);

    let wall_s = start.elapsed().as_secs_f64();
    let own_cpu_s = (sys::cpu_time(Who::Children) - children_before).as_secs_f64();
    let ours = sys::cpu_time(Who::Children) + sys::cpu_time(Who::Myself) - ours_before;
    // The kernel counts the machine in ticks and processes exactly, so the difference can
    // come out a tick below zero.
    let other_cpu_s = (sys::machine_busy_s() - busy_before_s - ours.as_secs_f64()).max(0.0);
    Finished { result, own_cpu_s, other_cpu_s, wall_s }
}

fn collect(command: &mut Command, deadline: Duration) -> Result<Vec<Reading>, String> {
    let child = command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start {}: {e}", command.get_program().display()))?;
    let pid = child.id();
    let (done, outcome) = mpsc::channel();
    let waiter = thread::spawn(move || {
        // The receiver lives until this thread is joined.
        let _ = done.send(child.wait_with_output());
    });
    let received = outcome.recv_timeout(deadline);
    if received.is_err() {
        sys::kill_group(pid);
    }
    waiter.join().map_err(|_| "the waiting thread panicked".to_owned())?;
    match received {
        Ok(Ok(output)) => judge(&output),
        Ok(Err(e)) => Err(format!("cannot wait: {e}")),
        Err(_) => Err(format!("no result within {} s, killed", deadline.as_secs_f64())),
    }
}

fn judge(output: &Output) -> Result<Vec<Reading>, String> {
    if output.status.success() {
        let readings = reading::parse(&String::from_utf8_lossy(&output.stdout))?;
        return if readings.is_empty() { Err(SILENT.to_owned()) } else { Ok(readings) };
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let said: String = gist(&stderr).chars().take(160).collect();
    Err(format!("{}: {said}", output.status))
}

/// The line that says what happened: of a panic the message and not the place.
fn gist(stderr: &str) -> &str {
    let mut lines = stderr.lines().map(str::trim).filter(|line| !line.is_empty());
    match lines.next() {
        Some(place) if place.contains("panicked at") => lines.next().unwrap_or(place),
        Some(line) => line,
        None => "nothing on stderr",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.arg("-c").arg(script);
        command
    }

    #[test]
    fn readings_come_back() {
        let line = r#"{"workload":"yield","value":3.5,"unit":"ns/yield"}"#;
        let finished = measure(&mut shell(&format!("echo '{line}'")), Duration::from_secs(10));
        assert_eq!(finished.result.unwrap()[0].value, Some(3.5));
    }

    #[test]
    fn silence_is_a_failure() {
        let finished = measure(&mut shell("echo warming up"), Duration::from_secs(10));
        assert_eq!(finished.result.unwrap_err(), SILENT);
    }

    #[test]
    fn a_hang_is_killed_with_its_children() {
        let finished = measure(&mut shell("sleep 30 & wait"), Duration::from_millis(200));
        assert!(finished.result.unwrap_err().contains("no result within"));
        assert!(finished.wall_s < 10.0);
    }

    #[test]
    fn of_a_panic_the_message_is_kept() {
        let panic = "\nthread 'main' panicked at src/x.rs:3:1:\nno memory\nnote: x";
        assert_eq!(gist(panic), "no memory");
        assert_eq!(gist("killed by us\nmore"), "killed by us");
        assert_eq!(gist(""), "nothing on stderr");
    }

    #[test]
    fn a_failure_carries_what_was_said() {
        let finished = measure(&mut shell("echo broken >&2; exit 3"), Duration::from_secs(10));
        let message = finished.result.unwrap_err();
        assert!(message.contains('3') && message.contains("broken"), "{message}");
    }
}
