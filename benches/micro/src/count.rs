//! Counting instructions: callgrind looks on while this program walks its paths.
//!
//! One process walks all paths, each `N` times and then `2 N` times, with a call of [`mark`] around
//! each. Callgrind counts the instructions between two marks. The difference of the two walks is
//! the cost of `N` operations, without the cost of the beginning and the end.
//!
//! Callgrind runs one thread at a time and slowly, but it counts the same in every run, whatever
//! else the machine does. It follows goroutines from stack to stack by the stack pointer; its call
//! graph is wrong around a switch, the count is not. All threads of the process count, so the
//! result includes the work of the monitor thread, at most about one instruction per operation.

use std::hint::black_box;
use std::path::PathBuf;
use std::process::Command;

use heist_micro::{PATHS, Path};

/// Operations of the shorter walk. The cost of a batch divides by it evenly enough.
const N: usize = 10_000;

/// A boundary that callgrind sees.
#[inline(never)]
fn mark() {
    black_box(());
}

/// Walks every path; each is warmed up first, so that records, stacks and rings are there.
pub fn walk() {
    for path in PATHS {
        let mut repeat = (path.prepare)();
        repeat(N / 2);
        mark();
        repeat(N);
        mark();
        repeat(2 * N);
        mark();
    }
}

/// Instructions that one operation of a path takes.
#[derive(Clone, Copy, Debug)]
pub struct Count {
    pub path: &'static Path,
    pub instructions: f64,
}

/// Takes the smaller count of each path.
pub fn keep_least(counts: &mut [Count], others: &[Count]) {
    for (count, other) in counts.iter_mut().zip(others) {
        count.instructions = count.instructions.min(other.instructions);
    }
}

/// A valgrind that can be started.
pub struct Counter {
    version: String,
}

impl Counter {
    pub fn find() -> Option<Self> {
        let output = Command::new("valgrind").arg("--version").output().ok()?;
        let version = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        output.status.success().then_some(Self { version })
    }

    /// Lets callgrind watch this program walk.
    pub fn count(&self) -> Result<Vec<Count>, String> {
        let program = std::env::current_exe()
            .map_err(|e| format!("the path of this program is not known: {e}"))?;
        let notes = Notes::new();
        let mut command = Command::new("valgrind");
        command
            .args([
                "--tool=callgrind",
                "--combine-dumps=yes",
                "--dump-before=heist_micro::count::mark*",
            ])
            .arg(format!("--callgrind-out-file={}", notes.0.display()))
            .arg(program)
            .arg("walk");
        // An operator's settings would change the counts.
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("HEIST_") {
                command.env_remove(name);
            }
        }
        let output = command.output().map_err(|e| format!("cannot start valgrind: {e}"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!("{} failed, {}:\n{said}", self.version, output.status));
        }
        let text = std::fs::read_to_string(&notes.0)
            .map_err(|e| format!("{} left no counts: {e}", self.version))?;
        counts(&text)
    }
}

/// Callgrind's file, removed in the end.
struct Notes(PathBuf);

impl Notes {
    fn new() -> Self {
        Self(std::env::temp_dir().join(format!("heist-micro-{}.callgrind", std::process::id())))
    }
}

impl Drop for Notes {
    fn drop(&mut self) {
        // It may never have been written.
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Reads the parts between the marks: for each path the way to its first mark, the short walk and
/// the long one; then the rest.
fn counts(text: &str) -> Result<Vec<Count>, String> {
    let parts: Vec<u64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("summary: ")?.split_whitespace().next()?.parse().ok())
        .collect();
    let expected = 3 * PATHS.len();
    if parts.len() < expected {
        let n = parts.len();
        return Err(format!("callgrind saw {n} of {expected} marks; was `mark` inlined?"));
    }
    let count = |(path, part): (&'static Path, &[u64])| Count {
        path,
        instructions: part[2].saturating_sub(part[1]) as f64 / N as f64,
    };
    Ok(PATHS.iter().zip(parts.chunks_exact(3)).map(count).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_walks_are_told_apart() {
        let parts = PATHS.iter().enumerate().map(|(i, _)| {
            let each = (i as u64 + 1) * N as u64;
            format!("part: 1\nsummary: 777\nsummary: {}\nsummary: {}\n", 50 + each, 50 + 2 * each)
        });
        let text: String = parts.collect();
        let counts = counts(&format!("{text}summary: 1\ntotals: 5\n")).unwrap();
        for (i, count) in counts.iter().enumerate() {
            assert_eq!(count.instructions, i as f64 + 1.0, "{}", count.path);
        }
    }

    #[test]
    fn missing_marks_are_an_error() {
        assert!(counts("summary: 5\n").unwrap_err().contains("1 of"));
    }
}
