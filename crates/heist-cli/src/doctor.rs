//! `heist doctor`: reports what this system offers to a runtime.

use std::io::Write;
use std::process::ExitCode;

/// Prints the diagnosis, and whether a runtime starts and runs a goroutine.
pub fn run() -> ExitCode {
    // SAFETY: the goroutine keeps nothing across a park.
    let started = unsafe { heist::Runtime::builder().name("doctor").build() };
    let (runs, verdict) = match &started {
        Ok(rt) => (true, format!("ok        a runtime starts, with {} processors", rt.procs())),
        Err(error) => (false, format!("refused   {error}")),
    };
    if let Ok(rt) = &started {
        rt.run(heist::yield_now);
    }
    let diagnosis = heist::Diagnosis::new();
    // A reader that closed the pipe does not want more; the exit code still reports the result.
    let _ = writeln!(std::io::stdout(), "{diagnosis}{verdict}");
    if runs { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
