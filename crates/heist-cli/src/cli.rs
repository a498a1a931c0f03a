//! The command line.

use crate::demo::steps;
use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

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

    /// Record, check, convert and summarise execution traces
    #[command(subcommand)]
    Trace(TraceCommand),

    /// Watch the scheduler of a running program
    ///
    /// Processors, queues, rates, latencies and goroutines, once a second. Keys: q quits, p pauses,
    /// s sorts.
    Top(TopOptions),

    /// Print every goroutine of a running program
    Dump(DumpOptions),

    /// Print the metrics of a running program, in the text format of Prometheus
    Metrics(AttachOptions),

    /// Save a CPU profile of a running program
    ///
    /// Of the next seconds, in the format of pprof: `go tool pprof FILE` opens it.
    Profile(SaveOptions),

    /// Save an execution trace of a running program
    ///
    /// Of the next seconds, for `heist trace`.
    Record(SaveOptions),

    /// Compare fork and join with the bound of work stealing
    ///
    /// Measures work and span of six computations, and their time on 1, 2, 4 ... processors. The
    /// exit code is 0 if their results are right, 1 if one is wrong, 2 if a file is not usable.
    Bound(BoundOptions),

    /// Ask a model of the scheduler about machines that are not here
    ///
    /// The model links the algorithms of the runtime; each of its steps costs simulated time. The
    /// exit code is 0 if the experiment ended, 2 if an option is invalid or a file is not usable.
    Sim(SimOptions),
}

#[derive(Args)]
pub struct AttachOptions {
    /// A process id (of a program with HEIST_DEBUG=socket), ADDRESS:PORT, :PORT, or the path of a
    /// socket [default: the only program with a socket]
    #[arg(value_name = "PID|ADDR")]
    pub target: Option<String>,
}

#[derive(Args)]
pub struct TopOptions {
    #[command(flatten)]
    pub attach: AttachOptions,

    /// Seconds between two looks
    #[arg(long, short, value_name = "SECONDS", default_value_t = 1.0)]
    pub interval: f64,

    /// Print one screen as text, and end
    #[arg(long)]
    pub once: bool,
}

#[derive(Args)]
pub struct DumpOptions {
    #[command(flatten)]
    pub attach: AttachOptions,

    /// One line for goroutines of the same spawn site and state
    #[arg(long, short)]
    pub grouped: bool,
}

#[derive(Args)]
pub struct SaveOptions {
    #[command(flatten)]
    pub attach: AttachOptions,

    /// For how long to collect
    #[arg(long, short, default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=300))]
    pub seconds: u64,

    /// The file to write [default: heist.pprof or heist.htrace]
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// The token of the server
    #[arg(long, env = "HEIST_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
}

#[derive(Subcommand)]
pub enum TraceCommand {
    /// Check a trace against the rules of the scheduler
    ///
    /// The exit code is 0 if no rule is broken, 1 if one is, 2 if the file cannot be read.
    Check(CheckOptions),

    /// Write a trace in the format of another tool
    Convert(ConvertOptions),

    /// Say where the time went
    Summary(SummaryOptions),

    /// Run a program that uses heist, and record it
    ///
    /// Sets HEIST_TRACE for the program. The exit code is that of the program.
    Record(RecordOptions),
}

#[derive(Args)]
pub struct CheckOptions {
    /// The trace
    pub file: PathBuf,

    /// For how long a goroutine may be runnable while a P is idle
    #[arg(long, value_name = "MS", default_value_t = 100)]
    pub wait_ms: u64,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Format {
    /// For `go tool trace` of Go 1.25 or later
    Go,
    /// For ui.perfetto.dev and trace_processor
    Perfetto,
}

#[derive(Args)]
pub struct ConvertOptions {
    /// The format to write
    #[arg(long, value_enum)]
    pub to: Format,

    /// The trace
    pub input: PathBuf,

    /// The file to write
    pub output: PathBuf,
}

#[derive(Args)]
pub struct SummaryOptions {
    /// The trace
    pub file: PathBuf,
}

#[derive(Args)]
pub struct RecordOptions {
    /// The file to write
    #[arg(long, short, value_name = "FILE", default_value = "heist.htrace")]
    pub output: PathBuf,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub command: Vec<OsString>,
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

    /// How many seeds in a row each run of an experiment is repeated with [default: 3, quick 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub seeds: Option<u32>,

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
pub struct BoundOptions {
    /// Smaller computations
    #[arg(long)]
    pub quick: bool,

    /// The greatest number of processors [default: the number of CPUs]
    #[arg(long, value_name = "N")]
    pub procs: Option<usize>,

    /// A file for the picture
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
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
