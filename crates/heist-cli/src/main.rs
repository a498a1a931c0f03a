//! The program `heist`: shows the runtime at work, and reads its traces.

mod cli;
mod demo;
mod doctor;
mod trace;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::Cli::parse().command {
        cli::Command::Demo(options) => demo::run(&options),
        cli::Command::Doctor => doctor::run(),
        cli::Command::Trace(command) => trace::run(&command),
    }
}
