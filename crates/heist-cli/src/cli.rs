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

    /// Ask a model of the scheduler about machines that are not here
    ///
    /// The model links the algorithms of the runtime; each of its steps costs simulated time. The
    /// exit code is 0 if the experiment ended, 2 if an option is invalid or a file is not usable.
    Sim(SimOptions),
}

#[derive(Args)]
pub struct SimOptions {
    /// What to ask; `validate` compares the model with the runtime, on this machine
    #[arg(
        long,
        value_name = "NAME",
        value_parser = PossibleValuesParser::new(crate::sim::names())
    )]
    pub experiment: Option<String>,

    /// Fewer requests and fewer points
    #[arg(long)]
    pub quick: bool,

    /// The seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// A folder for the tables (Markdown) and the pictures (SVG)
    #[arg(long, value_name = "DIR")]
    pub out: Option<std::path::PathBuf>,

    /// A file with costs of steps, one `name nanoseconds` a line
    #[arg(long, value_name = "FILE")]
    pub costs: Option<std::path::PathBuf>,

    /// Processors of the run without an experiment
    #[arg(long, value_name = "N", default_value_t = 64)]
    pub procs: u32,

    /// Its load: the share of the processors that its requests need
    #[arg(long, value_name = "SHARE", default_value_t = 0.5)]
    pub load: f64,

    /// Its requests, of a goroutine of 20 us each
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    pub requests: u64,

    /// The costs of the steps, and where each figure is from
    #[arg(long)]
    pub show_costs: bool,
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
