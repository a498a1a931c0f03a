//! heist-bench: every workload for heist and for its peers, measured in one run.
//!
//! README.md explains the method.

#![cfg_attr(
    not(feature = "peers"),
    allow(dead_code, unused_imports, reason = "with fewer peers there are workloads nobody runs")
)]

mod catalog;
mod child;
mod cli;
mod contract;
mod go_twin;
mod hello;
#[allow(dead_code, reason = "a hello server needs a part of it")]
#[path = "../../crates/heist/examples/http_server/http1.rs"]
mod http1;
mod job;
mod load;
mod one;
mod peers;
mod quiet;
mod reading;
mod report;
mod rotation;
mod row;
mod run;
mod scale;
mod settings;
mod stats;
mod sys;
mod workloads;
mod wrk;

use std::process::ExitCode;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The allocator of every Rust peer in this build, as rows name it.
const ALLOCATOR_NAME: &str = if cfg!(feature = "mimalloc") { "mimalloc" } else { "system" };

fn main() -> ExitCode {
    match cli::dispatch() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("heist-bench: {message}");
            ExitCode::FAILURE
        }
    }
}
