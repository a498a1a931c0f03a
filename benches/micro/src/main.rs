//! heist-micro: the paths, and how many instructions each may take.

mod contended;
mod count;
mod hand_over;
mod limits;
mod machine;
mod operations;
mod sleeps;
mod stalls;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use heist_micro::PATHS;

/// The cost of one operation of each path of heist. For the time: `cargo bench -p heist-micro`.
#[derive(Parser)]
#[command(name = "heist-micro", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the paths.
    List,
    /// Count the instructions of every path and fail if one exceeds its limit.
    Check {
        /// Set new limits instead, from the counts.
        #[arg(long)]
        update: bool,
    },
    /// Measure the cost of preventing stalls: entering the runtime, sysmon, preemption, pauses.
    Stalls {
        /// How long each of the measurements takes.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
        secs: u64,
        /// Take only these.
        #[arg(long)]
        only: Vec<stalls::Figure>,
    },
    /// Measure a ticker beside goroutines that contend for a lock that heist does not know.
    Locks {
        /// How long each of the measurements takes.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
        secs: u64,
        /// Take only these.
        #[arg(long)]
        only: Vec<contended::Load>,
    },
    /// Measure how exact short sleeps are, and the cost of many of them.
    Sleeps,
    /// Measure the basic steps of every path on this machine, without heist.
    Machine,
    /// Measure the basic operations of the scheduler: queues, steals, wake-ups.
    Operations,
    /// Walk all paths between marks, for the counter to see.
    #[command(hide = true)]
    Walk,
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::List => {
            PATHS.iter().for_each(|path| println!("{:18} {}", path.name, path.about));
            Ok(())
        }
        Command::Check { update } => check(update),
        Command::Stalls { secs, only } => {
            warn_of_debug_build();
            stalls::measure(secs, &only)
        }
        Command::Locks { secs, only } => {
            warn_of_debug_build();
            contended::measure(secs, &only)
        }
        Command::Sleeps => {
            warn_of_debug_build();
            sleeps::measure()
        }
        Command::Machine => {
            warn_of_debug_build();
            machine::measure()
        }
        Command::Operations => {
            warn_of_debug_build();
            operations::measure()
        }
        Command::Walk => {
            count::walk();
            Ok(())
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("heist-micro: {message}");
            ExitCode::FAILURE
        }
    }
}

/// So often paths are walked at the most before one of them is said to be over its limit.
const WALKS_MAX: usize = 5;

fn warn_of_debug_build() {
    if cfg!(debug_assertions) {
        eprintln!("heist-micro: this is a debug build, its figures mean nothing");
    }
}

fn check(update: bool) -> Result<(), String> {
    if cfg!(debug_assertions) {
        return Err("the limits are those of a release build: cargo run --release".to_owned());
    }
    if !cfg!(target_arch = "x86_64") {
        println!("SKIPPED: the limits are those of x86-64");
        return Ok(());
    }
    let Some(counter) = count::Counter::find() else {
        println!("SKIPPED: instructions are not counted, valgrind is not installed");
        return Ok(());
    };
    let mut counts = counter.count()?;
    if update {
        return limits::write(&counts);
    }
    let limits = limits::read()?;
    let mut verdict = limits::judge(&counts, &limits);
    // A count can only be too high: callgrind runs one thread at a time, and a walk that is
    // interrupted inside a call may find that the monitor has taken its processor. So the smallest
    // count is used.
    for _ in 1..WALKS_MAX {
        if verdict.failures.is_empty() {
            break;
        }
        println!("walked again, because:\n{}\n", verdict.failures.join("\n"));
        count::keep_least(&mut counts, &counter.count()?);
        verdict = limits::judge(&counts, &limits);
    }
    print!("{}", verdict.table);
    if verdict.failures.is_empty() {
        return Ok(());
    }
    Err(format!("{}\n{}", verdict.failures.join("\n"), limits::WAY_OUT))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ticker that never ticks has no latest tick.
    #[test]
    fn a_measurement_takes_at_least_a_second() {
        let stalls = |secs| Cli::try_parse_from(["heist-micro", "stalls", "--secs", secs]);
        assert!(stalls("1").is_ok());
        assert!(stalls("0").is_err());
    }
}
