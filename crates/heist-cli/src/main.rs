//! The program `heist`: shows the runtime at work.

mod cli;
mod demo;
mod doctor;
mod sim;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::Cli::parse().command {
        cli::Command::Demo(options) => demo::run(&options),
        cli::Command::Doctor => doctor::run(),
        cli::Command::Sim(options) => sim::run(&options),
    }
}
