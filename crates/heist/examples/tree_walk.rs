//! Walks a directory tree with a goroutine per directory and prints the totals.
//!
//! It is not known in advance which directory is large; idle processors steal from those that found
//! one. Symbolic links are counted as links and not followed.
//!
//! ```console
//! cargo run --release -p heist --example tree_walk -- [DIRECTORY]
//! ```

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

#[derive(Default)]
struct Totals {
    n_files: u64,
    n_directories: u64,
    n_bytes: u64,
    n_unreadable: u64,
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        self.n_files += other.n_files;
        self.n_directories += other.n_directories;
        self.n_bytes += other.n_bytes;
        self.n_unreadable += other.n_unreadable;
    }
}

fn walk(directory: &Path) -> Totals {
    let mut totals = Totals { n_directories: 1, ..Totals::default() };
    let mut below = Vec::new();
    match fs::read_dir(directory) {
        Ok(entries) => {
            for entry in entries {
                let found = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)));
                match found {
                    Ok((path, metadata)) if metadata.is_dir() => {
                        below.push(heist::go(move || walk(&path)));
                    }
                    Ok((_, metadata)) => {
                        totals.n_files += 1;
                        totals.n_bytes += metadata.len();
                    }
                    Err(_) => totals.n_unreadable += 1,
                }
            }
        }
        Err(_) => totals.n_unreadable += 1,
    }
    for directory in below {
        totals.add(&directory.join().expect("walking does not panic"));
    }
    totals
}

#[heist::main(unsafe)]
fn main() -> Result<(), Box<dyn Error>> {
    let root = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("."), PathBuf::from);
    let metadata = fs::metadata(&root).map_err(|error| format!("{}: {error}", root.display()))?;
    if !metadata.is_dir() {
        return Err(format!("{} is not a directory", root.display()).into());
    }

    let start = Instant::now();
    let totals = walk(&root);
    println!("{:>12} directories", totals.n_directories);
    println!("{:>12} files", totals.n_files);
    println!("{:>12} bytes", totals.n_bytes);
    if totals.n_unreadable > 0 {
        println!("{:>12} could not be read", totals.n_unreadable);
    }
    println!("in {:?}", start.elapsed());
    Ok(())
}
