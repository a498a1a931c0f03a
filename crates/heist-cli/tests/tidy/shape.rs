//! The shape of files: their length, their names, leftovers, and forbidden paths and hosts.

use crate::report::Violation;
use crate::source::{Source, find_word, has_word};

const MAX_LINES: usize = 600;
const MAX_TEST_LINES: usize = 1000;

const VAGUE_NAMES: &[&str] = &["util", "utils", "helpers", "common", "misc", "manager", "managers"];

/// Folders that exist on one machine only. In two pieces, because this file is scanned as well.
const MACHINE_PATHS: &[&str] =
    &[concat!("/wo", "rk/"), concat!("/fa", "rm/"), concat!("/t", "mp/")];

const HOSTS: &[&str] = &[concat!("crates", ".io"), concat!("py", "pi")];

pub fn check_length(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in sources {
        let is_test = source.path.split('/').any(|part| part == "tests");
        let limit = if is_test { MAX_TEST_LINES } else { MAX_LINES };
        let n_lines = source.text.lines().count();
        if n_lines > limit {
            let problem = format!("{n_lines} lines, the limit is {limit}");
            violations.push(Violation::new(
                source,
                limit,
                problem,
                "one concept, one file: split it",
            ));
        }
    }
    violations
}

pub fn check_leftovers(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in sources {
        for (number, line) in source.numbered() {
            for word in ["todo!(", "unimplemented!(", "#[ignore"] {
                if has_word(&line.code, word) {
                    let fix = "finish it or take it out; a test that cannot run is no test";
                    violations.push(Violation::new(source, number, format!("`{word}`"), fix));
                }
            }
            if ["TODO", "FIXME", "XXX"].iter().any(|word| is_ownerless(&line.comment, word)) {
                let fix = "do it, or name the owner: `TODO(name): ...`";
                violations.push(Violation::new(source, number, "a TODO without an owner", fix));
            }
        }
    }
    violations
}

fn is_ownerless(comment: &str, word: &str) -> bool {
    find_word(comment, word).into_iter().any(|at| {
        let owner = comment[at + word.len()..].strip_prefix('(');
        !owner.is_some_and(|rest| rest.starts_with(|c: char| c.is_alphabetic()))
    })
}

pub fn check_names(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let fix = "name it after the one concept it holds";
    for source in sources {
        let path = source.path.trim_end_matches(".rs");
        if let Some(name) = path.split('/').find(|part| VAGUE_NAMES.contains(part)) {
            let problem = format!("`{name}` says nothing");
            violations.push(Violation::new(source, 1, problem, fix));
        }
        for (number, line) in source.numbered() {
            let vague = |name: &&&str| has_word(&line.code, &format!("mod {name}"));
            if let Some(name) = VAGUE_NAMES.iter().find(vague) {
                let problem = format!("`mod {name}` says nothing");
                violations.push(Violation::new(source, number, problem, fix));
            }
        }
    }
    violations
}

/// Takes files of every kind, not only Rust.
pub fn check_paths(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in sources {
        for (number, text) in (1..).zip(source.text.lines()) {
            if let Some(path) = MACHINE_PATHS.iter().find(|path| is_absolute(text, path)) {
                let problem = format!("the path `{path}` exists on one machine only");
                let fix = "use a path inside the repository, or the system's temporary folder";
                violations.push(Violation::new(source, number, problem, fix));
            }
            if let Some(host) = HOSTS.iter().find(|host| text.contains(*host)) {
                let problem = format!("names the registry `{host}`");
                let fix = "which registry is used is the reader's choice: leave the host out";
                violations.push(Violation::new(source, number, problem, fix));
            }
        }
    }
    violations
}

/// Whether `path` starts an absolute path, and is not the middle of a longer one or of a link.
fn is_absolute(text: &str, path: &str) -> bool {
    text.match_indices(path).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '.' | '_' | '-' | '}' | '*'))
    })
}

#[test]
fn long_files_are_found() {
    let long = "\n".repeat(MAX_LINES + 1);
    assert_eq!(check_length(&[Source::new("crates/a/src/b.rs", &long)]).len(), 1);
    assert_eq!(check_length(&[Source::new("crates/a/tests/b.rs", &long)]).len(), 0);
}

#[test]
fn leftovers_are_found() {
    let text = "fn f() { todo!() }\nfn g() { unimplemented!() }\n#[ignore = \"slow\"]\n\
                // TODO: later\n// TODO(ada): measure\n// FIXME\nlet s = \"todo!()\";\n";
    let found = check_leftovers(&[Source::new("a.rs", text)]);
    assert_eq!(found.iter().map(|v| v.line).collect::<Vec<_>>(), [1, 2, 3, 4, 6]);
}

#[test]
fn vague_names_are_found() {
    assert_eq!(check_names(&[Source::new("crates/a/src/util/b.rs", "")]).len(), 1);
    assert_eq!(check_names(&[Source::new("crates/a/src/helpers.rs", "")]).len(), 1);
    assert_eq!(check_names(&[Source::new("a.rs", "mod common;\nmod commons;\n")]).len(), 1);
}

#[test]
fn foreign_paths_and_hosts_are_found() {
    let text = format!(
        "see {0}x\nhttps://a.b{0}x\n`{1}y`\n{2}\n[a](../docs/A.md)\n",
        MACHINE_PATHS[0], MACHINE_PATHS[2], HOSTS[0]
    );
    let found = check_paths(&[Source::new("README.md", &text)]);
    assert_eq!(found.iter().map(|v| v.line).collect::<Vec<_>>(), [1, 3, 4]);
}
