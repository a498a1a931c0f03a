//! The program `heist`: shows the runtime at work, reads its traces, and watches running programs.

mod attach;
mod bound;
mod cli;
mod demo;
mod doctor;
mod sim;
mod top;
mod trace;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::Cli::parse().command {
        cli::Command::Demo(options) => demo::run(&options),
        cli::Command::Doctor => doctor::run(),
        cli::Command::Trace(command) => trace::run(&command),
        cli::Command::Top(options) => top::run(&options),
        cli::Command::Dump(options) => attach::dump(&options),
        cli::Command::Metrics(options) => attach::metrics(&options),
        cli::Command::Record(options) => {
            attach::save(&options, "/debug/trace?format=heist", "heist.htrace")
        }
        cli::Command::Profile(options) => {
            attach::save(&options, "/debug/pprof/profile", "heist.pprof")
        }
        cli::Command::Bound(options) => bound::run(&options),
        cli::Command::Sim(options) => sim::run(&options),
    }
}
