//! Asking the debug server of a running program.

mod client;
mod target;

pub use target::Target;

use crate::cli::{AttachOptions, DumpOptions, SaveOptions};
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

/// The program cannot be asked, or refuses.
const UNUSABLE: u8 = 2;

/// How long an answer may take that needs no time of its own.
const PATIENCE: Duration = Duration::from_secs(30);

/// Prints what went wrong, and returns the exit code for it.
pub fn report(message: &str) -> ExitCode {
    eprintln!("heist: {message}");
    ExitCode::from(UNUSABLE)
}

/// Asks for a path and prints the answer.
fn print(options: &AttachOptions, path: &str) -> ExitCode {
    let answer =
        Target::find(options.target.as_deref()).and_then(|target| target.get(path, PATIENCE));
    match answer {
        Ok(body) => {
            // A reader that closed the pipe does not want more.
            let _ = std::io::stdout().write_all(&body);
            ExitCode::SUCCESS
        }
        Err(message) => report(&message),
    }
}

/// `heist metrics`
pub fn metrics(options: &AttachOptions) -> ExitCode {
    print(options, "/metrics")
}

/// `heist dump`
pub fn dump(options: &DumpOptions) -> ExitCode {
    let level = if options.grouped { 1 } else { 2 };
    print(&options.attach, &format!("/debug/goroutines?debug={level}"))
}

/// Saves what the program collects in the next seconds, under `name` if no file was chosen.
pub fn save(options: &SaveOptions, path: &str, name: &str) -> ExitCode {
    let output = options.output.clone().unwrap_or_else(|| name.into());
    let seconds = options.seconds;
    let query = format!("{path}{}seconds={seconds}", if path.contains('?') { '&' } else { '?' });
    let patience = PATIENCE + Duration::from_secs(seconds);
    let saved = Target::find(options.attach.target.as_deref()).and_then(|target| {
        let target = target.with_token(options.token.clone());
        eprintln!("heist: collecting for {seconds} s from {target}");
        let body = target.get(&query, patience)?;
        let name = output.display();
        std::fs::write(&output, &body).map_err(|error| format!("{name}: {error}"))?;
        Ok(format!("{} bytes in {name}", body.len()))
    });
    match saved {
        Ok(done) => {
            eprintln!("heist: {done}");
            ExitCode::SUCCESS
        }
        Err(message) => report(&message),
    }
}
