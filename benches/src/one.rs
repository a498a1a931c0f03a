//! One measurement in this process, which `child` has started.

use std::env;
use std::io::Write;

use crate::catalog;
use crate::job::Job;
use crate::peers::{self, Kind};
use crate::{reading, sys};

/// Variables that set the number of workers of runtimes without a builder.
const PROCS_VARIABLES: [&str; 2] = ["SMOL_THREADS", "GOMAXPROCS"];

/// Runs one workload of one built-in peer and prints its readings.
///
/// # Errors
/// An unknown name, or a peer that is not part of this program.
pub fn one(peer: &str, job: Job<'_>) -> Result<(), String> {
    let (workload, procs) = (job.workload, job.procs);
    let workload = catalog::workload(workload)
        .ok_or_else(|| format!("unknown workload '{workload}'; see `heist-bench list`"))?;
    let peer = peers::peer(peer)
        .ok_or_else(|| format!("unknown peer '{peer}'; see `heist-bench list`"))?;
    let run = match peer.kind {
        Kind::Built(run) => run,
        Kind::LeftOut { feature } => {
            return Err(format!("{} needs --features {feature}", peer.name));
        }
        Kind::Go => return Err("the Go twin is a program of its own".to_owned()),
    };
    sys::raise_file_limit();
    for variable in PROCS_VARIABLES {
        // SAFETY: this is the only thread so far; no peer has been started.
        unsafe { env::set_var(variable, procs.to_string()) };
    }
    let mut lines = String::new();
    for reading in reading::readings(workload, run(job)) {
        lines += &serde_json::to_string(&reading).map_err(|e| e.to_string())?;
        lines.push('\n');
    }
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(lines.as_bytes()).and_then(|()| stdout.flush()).map_err(|e| e.to_string())?;
    // Servers and idle runtimes are still running on their threads; nothing waits for them.
    std::process::exit(0);
}
