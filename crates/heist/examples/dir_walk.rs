//! Walks a directory tree with a goroutine for each folder and adds up the sizes of the files.
//!
//! `cargo run --release -p heist --example dir_walk -- /usr`
//!
//! The calls block in the kernel, without being announced and without a thread pool: a goroutine
//! that blocks loses its processor to another. The semaphore bounds how many folders are open at
//! once.

use heist::sync::{Mutex, Semaphore};
use std::error::Error;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Debug, Default)]
struct Totals {
    folders: u64,
    files: u64,
    bytes: u64,
    errors: u64,
}

struct Walk {
    open: Semaphore,
    totals: Mutex<Totals>,
}

impl Walk {
    /// The files of one folder, and the folders below it.
    fn read(&self, folder: &Path) -> io::Result<(Totals, Vec<PathBuf>)> {
        let _open = self.open.acquire(1);
        let mut here = Totals { folders: 1, ..Totals::default() };
        let mut below = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // Does not follow links, so the walk ends.
            let kind = entry.file_type()?;
            if kind.is_dir() {
                below.push(entry.path());
            } else if kind.is_file() {
                here.files += 1;
                here.bytes += entry.metadata()?.len();
            }
        }
        Ok((here, below))
    }

    fn folder<'scope>(&'scope self, s: &'scope heist::Scope<'scope, '_>, folder: PathBuf) {
        let outcome = self.read(&folder);
        let mut totals = self.totals.lock();
        match outcome {
            Ok((here, below)) => {
                totals.folders += here.folders;
                totals.files += here.files;
                totals.bytes += here.bytes;
                drop(totals);
                for folder in below {
                    s.go(move || self.folder(s, folder));
                }
            }
            Err(_) => totals.errors += 1,
        }
    }
}

#[heist::main(unsafe)]
fn main() -> Result<(), Box<dyn Error>> {
    let root = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    // Below it, unreadable entries are counted; without it there is nothing to walk.
    fs::read_dir(&root).map_err(|error| format!("{}: {error}", root.display()))?;

    let walk = Walk { open: Semaphore::new(64), totals: Mutex::default() };
    let start = Instant::now();
    heist::scope(|s| walk.folder(s, root.clone()));
    let Totals { folders, files, bytes, errors } = walk.totals.into_inner();
    println!(
        "{}: {files} files in {folders} folders, {:.1} MB, {errors} errors, {:.0?}",
        root.display(),
        bytes as f64 / 1e6,
        start.elapsed(),
    );
    Ok(())
}
