//! The peers that are measured, and the code of each.
//!
//! A peer's file implements the contract with the peer's own primitives and says, workload
//! by workload, what to run or why it cannot be run.

mod locks;
mod sockets;

#[cfg(feature = "peer-channels")]
pub mod channel_crates;
#[cfg(feature = "peer-chili")]
pub mod chili;
#[cfg(feature = "peer-go-lib")]
pub mod go_lib;
pub mod heist;
#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub mod heist_tasks;
#[cfg(feature = "peer-may")]
pub mod may;
#[cfg(feature = "peer-rayon")]
pub mod rayon;
#[cfg(feature = "peer-smol")]
pub mod smol;
pub mod threads;
#[cfg(feature = "peer-tokio")]
pub mod tokio;

use locks::std_like_locks;
use sockets::std_like_sockets;
#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
use sockets::tokio_like_sockets;

use crate::job::Job;
use crate::reading::{Cannot, Outcome, cannot};

/// Runs one workload.
pub type RunWorkload = fn(Job<'_>) -> Outcome;

/// How a peer comes to be measured.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// Compiled into this program.
    Built(RunWorkload),
    /// Left out of this build; the feature that brings it in.
    #[cfg_attr(feature = "peers", allow(dead_code, reason = "then nobody is left out"))]
    LeftOut { feature: &'static str },
    /// The Go twin, a program of its own.
    Go,
}

#[derive(Clone, Copy, Debug)]
pub struct Peer {
    pub name: &'static str,
    pub kind: Kind,
}

macro_rules! peer {
    ($name:literal, $run:path) => {
        Peer { name: $name, kind: Kind::Built($run) }
    };
    ($name:literal, $feature:literal, $run:path) => {{
        #[cfg(feature = $feature)]
        let kind = Kind::Built($run);
        #[cfg(not(feature = $feature))]
        let kind = Kind::LeftOut { feature: $feature };
        Peer { name: $name, kind }
    }};
}

pub static PEERS: &[Peer] = &[
    peer!("heist", heist::run),
    Peer { name: "go", kind: Kind::Go },
    peer!("tokio", "peer-tokio", tokio::run),
    peer!("smol", "peer-smol", smol::run),
    peer!("may", "peer-may", may::run),
    peer!("rayon", "peer-rayon", rayon::run),
    peer!("chili", "peer-chili", chili::run),
    peer!("go-lib", "peer-go-lib", go_lib::run),
    peer!("threads", threads::run),
    peer!("crossbeam", "peer-channels", channel_crates::run_crossbeam),
    peer!("kanal", "peer-channels", channel_crates::run_kanal),
    peer!("flume", "peer-channels", channel_crates::run_flume),
];

/// Why most peers have no rows `join_*`.
const NO_JOIN: &str = "it makes a task of every fork: see fib_join and uneven_tree";

/// Why most peers have no rows `task_*`.
const NO_TASKS: &str = "it has no futures, or this build has no other peer that does";

/// The last arm of every peer's list of workloads.
fn unknown(workload: &str) -> Outcome {
    if workload.starts_with("join_") {
        return cannot(NO_JOIN);
    }
    if workload.starts_with("task_") || workload == "http_hyper" {
        return cannot(NO_TASKS);
    }
    Err(Cannot(format!("does not know the workload {workload}")))
}

/// Finds a peer by name.
pub fn peer(name: &str) -> Option<&'static Peer> {
    PEERS.iter().find(|p| p.name == name)
}

/// Turns names into peers, in the order of the list, each once; no names mean all peers.
///
/// # Errors
/// Names the first unknown name and lists the known ones.
pub fn select(names: &[String]) -> Result<Vec<&'static Peer>, String> {
    if let Some(unknown) = names.iter().find(|n| peer(n).is_none()) {
        let known: Vec<_> = PEERS.iter().map(|p| p.name).collect();
        return Err(format!("unknown peer '{unknown}'; known: {}", known.join(", ")));
    }
    let wanted = |p: &&Peer| names.is_empty() || names.iter().any(|n| n == p.name);
    Ok(PEERS.iter().filter(wanted).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_select_in_list_order() {
        let names = ["threads".to_owned(), "go".to_owned(), "go".to_owned()];
        let selected: Vec<_> = select(&names).unwrap().iter().map(|p| p.name).collect();
        assert_eq!(selected, ["go", "threads"]);
        assert_eq!(select(&[]).unwrap().len(), PEERS.len());
    }

    #[test]
    fn an_unknown_peer_lists_the_known_ones() {
        let message = select(&["tokyo".to_owned()]).unwrap_err();
        assert!(message.contains("'tokyo'") && message.contains("tokio"), "{message}");
    }

    /// Every built peer must know every workload, if only to say that it cannot.
    #[test]
    fn an_unknown_workload_is_refused_by_every_peer() {
        for peer in PEERS {
            if let Kind::Built(run) = peer.kind {
                let job = Job { workload: "no_such_workload", procs: 2, size: 1 };
                let why = run(job).unwrap_err().0;
                assert!(why.contains("no_such_workload"), "{}: {why}", peer.name);
            }
        }
    }
}
