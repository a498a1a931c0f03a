//! The command line.

use crate::demo::steps;
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};

/// Go's GMP work-stealing scheduler for Rust
#[derive(Parser)]
#[command(name = "heist", version, arg_required_else_help = true)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Subcommand)]
pub enum Command {
    /// Show what the runtime does, and check that it did it right
    ///
    /// Each step verifies its own result. The exit code is 0 if all are right, 1 if one is wrong or
    /// stuck, 2 if the command line or the environment is invalid.
    Demo(DemoOptions),

    /// Show what this system offers to a runtime, and what is degraded
    ///
    /// The kernel, the limits of the process and of its control group, and whether a runtime
    /// starts. The exit code is 0 if one starts, degraded or not, and 1 if it is refused.
    Doctor,
}

#[derive(Args)]
pub struct DemoOptions {
    /// Smaller numbers: a few seconds in all
    #[arg(long)]
    pub quick: bool,

    /// Goroutines that run at the same time [default: the number of CPUs]
    #[arg(long, value_name = "N")]
    pub procs: Option<usize>,

    /// Only these steps, in the order of the demo
    #[arg(
        long,
        value_name = "A,B",
        value_delimiter = ',',
        value_parser = PossibleValuesParser::new(steps::names())
    )]
    pub steps: Vec<String>,

    /// No colours (as with the variable NO_COLOR)
    #[arg(long)]
    pub no_color: bool,
}

#[test]
fn the_command_line_is_consistent() {
    use clap::CommandFactory;
    Cli::command().debug_assert();
}

#[test]
fn steps_are_separated_by_commas() {
    let line = ["heist", "demo", "--steps", "ring,spawn", "--quick"];
    let Command::Demo(options) = Cli::parse_from(line).command else {
        panic!("it is another command");
    };
    assert_eq!(options.steps, ["ring", "spawn"]);
    assert!(options.quick);
}
