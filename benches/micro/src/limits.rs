//! The file of limits: the count of each path when its limit was set, and its limit.

use std::fmt::Write;
use std::path::{Path as FilePath, PathBuf};
use std::process::Command;

use crate::count::Count;

/// How much a path may exceed its count: room for another compiler, not for another loop.
const SLACK: f64 = 1.15;
/// And on top of that: how often the monitor thread looks during a walk is not the same each time,
/// which can make up an instruction an operation.
const NOISE: f64 = 2.0;
/// A path whose count falls below this share of the old one needs a new limit.
const FELL: f64 = 0.85;

/// Paths whose count may be this many times that of another path.
///
/// `select!` over two channels may take twice what a plain receive takes. A send is half of either
/// path and takes no more than a receive, so that the whole may take one and a half times as much.
const RELATIONS: &[(&str, f64, &str)] = &[("select_ready", 1.5, "chan_two")];

pub const WAY_OUT: &str = "\
To see where the instructions are:
    valgrind --tool=callgrind --callgrind-out-file=counts target/release/heist-micro walk
    callgrind_annotate counts
If they are worth it, set new limits and say why in the commit:
    cargo run --release -p heist-micro -- check --update";

const HEADER: &str = "\
# Instructions that one operation of each path takes on x86-64 in a release build, and the limit.
# `cargo run --release -p heist-micro -- check` refuses a path that takes more than its limit;
# with `--update` it writes this file. A limit is what was counted, 15 % and 2.";

/// A line of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    pub path: String,
    pub counted: f64,
    pub limit: f64,
}

/// The result of comparing the counts with the limits.
pub struct Verdict {
    pub table: String,
    pub failures: Vec<String>,
}

fn file() -> PathBuf {
    FilePath::new(env!("CARGO_MANIFEST_DIR")).join("instructions.txt")
}

pub fn read() -> Result<Vec<Limit>, String> {
    let text = std::fs::read_to_string(file())
        .map_err(|e| format!("cannot read {}: {e}", file().display()))?;
    parse(&text)
}

fn parse(text: &str) -> Result<Vec<Limit>, String> {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        let limit = Limit {
            path: words.next()?.to_owned(),
            counted: words.next()?.parse().ok()?,
            limit: words.next()?.parse().ok()?,
        };
        words.next().is_none().then_some(limit)
    };
    text.lines()
        .filter(|text| !text.starts_with('#') && !text.trim().is_empty())
        .map(|text| line(text).ok_or_else(|| format!("not a path with two numbers: {text}")))
        .collect()
}

pub fn write(counts: &[Count]) -> Result<(), String> {
    std::fs::write(file(), render(counts, &compiler()))
        .map_err(|e| format!("cannot write {}: {e}", file().display()))?;
    println!("{} has new limits", file().display());
    Ok(())
}

fn compiler() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc).arg("--version").output();
    output.map_or_else(
        |_| "an unknown rustc".to_owned(),
        |output| String::from_utf8_lossy(&output.stdout).trim().to_owned(),
    )
}

fn render(counts: &[Count], compiler: &str) -> String {
    let mut text = format!("{HEADER}\n# Counted with {compiler}.\n");
    // Writing to a String cannot fail; the results are dropped for that reason.
    let _ = writeln!(text, "# {:18} {:>8} {:>8}", "path", "counted", "limit");
    for count in counts {
        let limit = (count.instructions * SLACK + NOISE).ceil();
        let name = count.path.name;
        let _ = writeln!(text, "{name:20} {:8.1} {limit:8}", count.instructions);
    }
    text
}

/// Holds the counts against the limits.
pub fn judge(counts: &[Count], limits: &[Limit]) -> Verdict {
    let mut table =
        format!("{:20} {:>8} {:>8} {:>8}\n", "instructions of", "counted", "was", "limit");
    let mut failures = Vec::new();
    for &Count { path, instructions } in counts {
        let name = path.name;
        let Some(limit) = limits.iter().find(|limit| limit.path == name) else {
            failures.push(format!("{name} takes {instructions:.1} and has no limit yet"));
            continue;
        };
        let grown = instructions / limit.counted - 1.0;
        let remark = if instructions > limit.limit {
            failures.push(format!(
                "{name} takes {instructions:.1} instructions: {:+.1} or {:+.0} %, and its limit is {} \
                 ({})",
                instructions - limit.counted,
                grown * 100.0,
                limit.limit,
                path.about
            ));
            "  OVER ITS LIMIT"
        } else if instructions < limit.counted * FELL - NOISE {
            "  fell; --update keeps it there"
        } else {
            ""
        };
        let _ = writeln!(
            table,
            "{name:20} {instructions:8.1} {:8.1} {:8}{remark}",
            limit.counted, limit.limit
        );
    }
    for limit in limits {
        if !counts.iter().any(|count| count.path.name == limit.path) {
            failures.push(format!("{} has a limit and is no path any more", limit.path));
        }
    }
    for &(name, times, other) in RELATIONS {
        let find = |name| counts.iter().find(|count| count.path.name == name);
        let (Some(this), Some(that)) = (find(name), find(other)) else { continue };
        if this.instructions > that.instructions * times {
            failures.push(format!(
                "{name} takes {:.1} instructions, more than {times} times the {:.1} of {other}",
                this.instructions, that.instructions
            ));
        }
    }
    Verdict { table, failures }
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_micro::PATHS;

    fn counted(instructions: &[f64]) -> Vec<Count> {
        let count = |(path, &instructions)| Count { path, instructions };
        PATHS.iter().zip(instructions).map(count).collect()
    }

    #[test]
    fn what_was_just_written_passes() {
        let counts = counted(&[35.0, 21.4, 700.0]);
        let verdict = judge(&counts, &parse(&render(&counts, "rustc")).unwrap());
        assert_eq!(verdict.failures, [""; 0]);
    }

    #[test]
    fn growth_beyond_the_slack_is_named_with_its_size() {
        let limits = parse(&render(&counted(&[100.0, 100.0]), "rustc")).unwrap();
        let failures = judge(&counted(&[114.0, 121.0]), &limits).failures;
        assert_eq!(failures.len(), 1, "{failures:?}");
        for part in [PATHS[1].name, "121.0", "+21.0", "+21 %", "117"] {
            assert!(failures[0].contains(part), "{part} is missing in: {}", failures[0]);
        }
    }

    #[test]
    fn a_path_without_a_limit_and_a_limit_without_a_path_fail() {
        let limits = parse("gone 10 12\n").unwrap();
        let failures = judge(&counted(&[5.0]), &limits).failures;
        assert!(failures[0].contains("no limit yet") && failures[1].contains("no path any more"));
    }

    #[test]
    fn a_path_that_became_much_cheaper_is_pointed_out() {
        let limits = parse(&render(&counted(&[100.0]), "rustc")).unwrap();
        let verdict = judge(&counted(&[50.0]), &limits);
        assert!(verdict.failures.is_empty() && verdict.table.contains("fell"));
    }

    #[test]
    fn a_path_may_take_so_many_times_another() {
        let judged = |select| {
            let count =
                |name, instructions| Count { path: heist_micro::find(name).unwrap(), instructions };
            let counts = [count("chan_two", 400.0), count("select_ready", select)];
            judge(&counts, &parse(&render(&counts, "rustc")).unwrap()).failures
        };
        assert_eq!(judged(600.0), [""; 0]);
        assert!(judged(601.0)[0].contains("1.5 times the 400.0 of chan_two"));
    }

    #[test]
    fn a_broken_line_is_refused() {
        assert!(parse("# fine\n\nqueue_tail 35\n").unwrap_err().contains("queue_tail"));
    }

    /// A missing limit of a new path is found here, even without valgrind.
    #[test]
    fn every_path_has_a_limit() {
        let names: Vec<_> = read().unwrap().into_iter().map(|limit| limit.path).collect();
        let paths: Vec<_> = PATHS.iter().map(|path| path.name).collect();
        assert_eq!(names, paths);
    }
}
