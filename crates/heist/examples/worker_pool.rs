//! A pool of workers that share one queue of jobs: the files of a folder, counted by lines.
//!
//! `cargo run --release -p heist --example worker_pool -- crates`

use heist::chan::{self, Sender};
use std::error::Error;
use std::path::{Path, PathBuf};

const WORKERS: usize = 8;
/// The walk waits when it is this far ahead of the workers.
const AHEAD: usize = 64;

/// Sends every file below `folder`.
fn walk(folder: &Path, jobs: &Sender<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            walk(&path, jobs);
        } else if jobs.send(path).is_err() {
            return;
        }
    }
}

/// Lines of a file; reading blocks the thread, which is announced, so other goroutines continue.
fn count_lines(path: &Path) -> usize {
    let bytes = heist::blocking(|| std::fs::read(path)).unwrap_or_default();
    bytes.iter().filter(|&&byte| byte == b'\n').count()
}

#[heist::main(unsafe)]
fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    // Below it, unreadable entries are left out; without it there is nothing to count.
    std::fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;

    let (jobs, queue) = chan::bounded::<PathBuf>(AHEAD);
    let (results, counted) = chan::unbounded();
    for _ in 0..WORKERS {
        let (queue, results) = (queue.clone(), results.clone());
        heist::go(move || {
            for path in queue {
                let n_lines = count_lines(&path);
                if results.send((path, n_lines)).is_err() {
                    return;
                }
            }
        });
    }
    // The channels close when their last senders are gone: first the walk's, then the workers'.
    drop((queue, results));
    heist::go(move || walk(&folder, &jobs));

    let mut files: Vec<_> = counted.into_iter().collect();
    files.sort_by_key(|(_, n_lines)| std::cmp::Reverse(*n_lines));
    for (path, n_lines) in files.iter().take(10) {
        println!("{n_lines:8} {}", path.display());
    }
    println!("{:8} in {} files", files.iter().map(|(_, n)| n).sum::<usize>(), files.len());
    Ok(())
}
