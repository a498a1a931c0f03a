//! The command line.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Parser, Subcommand};

use crate::job::Job;
use crate::row::RunFile;
use crate::{ALLOCATOR_NAME, catalog, load, one, peers, report, run, scale};

/// The options of a heist runtime.
const PROCS: std::ops::RangeInclusive<i64> = 1..=4096;

/// Measures heist against its peers: one run, one machine, the same work for everyone.
#[derive(Parser)]
#[command(name = "heist-bench", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measure, show a table, and write the rows to a file.
    Run {
        /// Rows, workloads or groups (the start of a name up to an underscore), separated by
        /// commas; a whole name goes before a group; everything if left out.
        #[arg(long, value_delimiter = ',')]
        workloads: Vec<String>,
        /// Peers, separated by commas; all if left out.
        #[arg(long, value_delimiter = ',')]
        peers: Vec<String>,
        /// Repetitions of everything.
        #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u16).range(1..))]
        reps: u16,
        /// Workers (GOMAXPROCS) of every runtime.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(PROCS))]
        procs: u16,
        /// Where to write the rows.
        #[arg(long)]
        json: Option<PathBuf>,
        /// Seconds after which one measurement is given up.
        #[arg(long, default_value_t = 60.0, value_parser = seconds)]
        timeout: f64,
    },
    /// Measure the cost per operation from 1 to 16 procs and from 10 to 1,000,000 tasks.
    Scale {
        /// Peers, separated by commas.
        #[arg(long, value_delimiter = ',', default_value = "heist,go,tokio")]
        peers: Vec<String>,
        /// Repetitions of everything.
        #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..))]
        reps: u16,
        /// Workers (GOMAXPROCS) where the number of tasks is varied.
        #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(PROCS))]
        procs: u16,
        /// Where to write the rows.
        #[arg(long)]
        json: Option<PathBuf>,
        /// Where to draw the plot.
        #[arg(long)]
        svg: Option<PathBuf>,
        /// Seconds after which one measurement is given up.
        #[arg(long, default_value_t = 120.0, value_parser = seconds)]
        timeout: f64,
    },
    /// Show the table of one run, or of several (say, one per allocator) side by side.
    Report {
        #[arg(required = true)]
        files: Vec<PathBuf>,
        /// Also write a page with a bar per peer and workload.
        #[arg(long)]
        html: Option<PathBuf>,
        /// Also draw the plot of a file of `scale`.
        #[arg(long)]
        svg: Option<PathBuf>,
    },
    /// List workloads, their rows, and peers.
    List,
    /// One measurement in this process, readings on stdout.
    #[command(hide = true)]
    One {
        #[arg(long)]
        peer: String,
        #[arg(long)]
        workload: String,
        #[arg(long)]
        procs: usize,
        /// Tasks at once, for the workloads of `scale`.
        #[arg(long, default_value_t = 1)]
        size: usize,
    },
    /// The load generator of tcp_echo_*.
    #[command(hide = true)]
    Load { address: SocketAddr, n_connections: usize },
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if s > 0.0 && s.is_finite() => Ok(s),
        _ => Err("seconds must be a number above zero".to_owned()),
    }
}

/// Executes the command line.
///
/// # Errors
/// The error, as text for the user.
pub fn dispatch() -> Result<(), String> {
    match Cli::parse().command {
        Command::Run { workloads, peers, reps, procs, json, timeout } => {
            let measurement = |workload: &&'static catalog::Workload| run::Measurement {
                workload,
                procs: procs.into(),
                size: 1,
                point: None,
            };
            let plan = run::Plan {
                measurements: catalog::select(&workloads)?.iter().map(measurement).collect(),
                peers: peers::select(&peers)?,
                reps: reps.into(),
                procs: procs.into(),
                deadline: Duration::from_secs_f64(timeout),
                json,
            };
            let ended = run::run(&plan)?;
            let comparison = report::Comparison::of(std::slice::from_ref(&ended.file))?;
            print!("{}", report::table::render(&comparison));
            ended.check()
        }
        Command::Scale { peers, reps, procs, json, svg, timeout } => {
            let plan = run::Plan {
                measurements: scale::measurements(procs.into()),
                peers: peers::select(&peers)?,
                reps: reps.into(),
                procs: procs.into(),
                deadline: Duration::from_secs_f64(timeout),
                json,
            };
            let ended = run::run(&plan)?;
            let shown = show_scaling(std::slice::from_ref(&ended.file), svg.as_deref());
            // Why there is nothing to draw says more than that there is not.
            ended.check().and(shown)
        }
        Command::Report { files, html, svg } => {
            let files =
                files.iter().map(|path| RunFile::read(path)).collect::<Result<Vec<_>, _>>()?;
            let comparison = report::Comparison::of(&files)?;
            print!("{}", report::table::render(&comparison));
            if let Some(path) = html {
                write(&path, &report::html::render(&comparison))?;
            }
            show_scaling(&files, svg.as_deref())
        }
        Command::List => {
            print!("{}", list());
            Ok(())
        }
        Command::One { peer, workload, procs, size } => {
            one::one(&peer, Job { workload: &workload, procs, size })
        }
        Command::Load { address, n_connections } => {
            let result = load::generate(address, n_connections).map_err(|e| e.to_string())?;
            println!("{}", serde_json::to_string(&result).map_err(|e| e.to_string())?);
            Ok(())
        }
    }
}

/// Shows how costs grow, if anything of that kind was measured.
fn show_scaling(files: &[RunFile], svg: Option<&Path>) -> Result<(), String> {
    let scaling = report::scaling::Scaling::of(files)?;
    print!("{}", scaling.table());
    match svg {
        Some(path) => write(path, &report::plot::render(&scaling)?),
        None => Ok(()),
    }
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    std::fs::write(path, text).map_err(|e| format!("cannot write {}: {e}", path.display()))
}

/// Workloads and peers, the names in one column.
fn list() -> String {
    let workloads = catalog::WORKLOADS.iter().chain(catalog::SIZED).map(|w| w.name);
    let names = workloads.chain(peers::PEERS.iter().map(|p| p.name));
    let width = names.map(str::len).max().unwrap_or(0);
    let mut lines = vec!["workloads (rows in brackets):".to_owned()];
    lines.extend(catalog::WORKLOADS.iter().flat_map(|w| entry(w, width)));
    lines.push("\nworkloads of `scale`:".to_owned());
    lines.extend(catalog::SIZED.iter().flat_map(|w| entry(w, width)));
    lines.push(format!("\npeers (allocator {ALLOCATOR_NAME}):"));
    for peer in peers::PEERS {
        let state = match peer.kind {
            peers::Kind::Built(_) => "built in".to_owned(),
            peers::Kind::LeftOut { feature } => format!("needs --features {feature}"),
            peers::Kind::Go => "needs the Go tool on PATH or in GO".to_owned(),
        };
        lines.push(format!("  {:width$} {state}", peer.name));
    }
    lines.join("\n") + "\n"
}

fn entry(workload: &catalog::Workload, width: usize) -> [String; 2] {
    let rows: Vec<_> = workload.rows.iter().map(|r| format!("{} {}", r.name, r.unit)).collect();
    [
        format!("  {:width$} {}", workload.name, workload.about),
        format!("  {:width$} [{}]", "", rows.join(", ")),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_aligned_and_complete() {
        let text = list();
        let column = |start: &str, what: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(start)).unwrap();
            line.find(what).unwrap_or_else(|| panic!("{what} is missing in: {line}"))
        };
        let width = column("steal_idle_single", "the same as");
        assert_eq!(column("yield", "2 tasks"), width);
        assert_eq!(column("[steal_idle_single_p50", "["), width);
        assert_eq!(column("scale_wake", "so many"), width);
        assert_eq!(column("heist", "built in"), width);
    }

    fn procs(n: &str) -> bool {
        Cli::try_parse_from(["heist-bench", "run", "--procs", n]).is_ok()
    }

    #[test]
    fn procs_are_as_many_as_a_runtime_can_have() {
        assert!(procs("1") && procs("4096"));
        assert!(!procs("0") && !procs("4097"));
    }
}
