//! Commands that people copy: each starts an example that exists, from the root of the repository.

use crate::report::Violation;
use crate::source::Source;
use std::collections::BTreeSet;

const FOLDER: &str = "crates/heist/examples/";

/// The manifest of the other workspace, by whose name its crates are found from the root.
const ECOSYSTEM: &str = "ecosystem/Cargo.toml";

/// Takes files of every kind, not only Rust.
pub fn check(sources: &[Source]) -> Vec<Violation> {
    let examples = examples(sources);
    let mut violations = Vec::new();
    for source in sources {
        let lines: Vec<_> = source.text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let next = lines.get(at + 1).copied().unwrap_or_default();
            for start in ["cargo run ", "cargo test "].iter().filter_map(|word| line.find(word)) {
                let command = command(line, start, next);
                if command.contains(&ECOSYSTEM) {
                    if let Some(problem) = problem_of_ecosystem(&command, sources) {
                        let fix = "write `-p CRATE` and one of ecosystem/CRATE/examples";
                        violations.push(Violation::new(source, at + 1, problem, fix));
                    }
                    continue;
                }
                if let Some((problem, fix)) = problem(&command, &examples) {
                    violations.push(Violation::new(source, at + 1, problem, fix));
                }
            }
        }
    }
    violations
}

/// Names of the examples: a file each, or a folder with a `main.rs`.
fn examples(sources: &[Source]) -> BTreeSet<&str> {
    let inside = sources.iter().filter_map(|source| source.path.strip_prefix(FOLDER));
    inside
        .filter_map(|path| match path.strip_suffix(".rs")?.split_once('/') {
            None => path.strip_suffix(".rs"),
            Some((name, "main")) => Some(name),
            Some(_) => None,
        })
        .collect()
}

/// The words of the command at `start`. In backquotes it may continue in the next line; elsewhere a
/// backslash continues it.
fn command<'a>(line: &'a str, start: usize, next: &'a str) -> Vec<&'a str> {
    let next = next.trim_start().trim_start_matches('/').trim_start_matches('!');
    let quoted = line[..start].matches('`').count() % 2 == 1;
    let (line, next) = match line[start..].split_once('`') {
        Some((command, _)) if quoted => (command, ""),
        None if quoted => (&line[start..], next.split('`').next().unwrap_or_default()),
        _ if line.ends_with('\\') => (&line[start..], next),
        _ => (&line[start..], ""),
    };
    let words = line.split_whitespace().chain(next.split_whitespace());
    // Behind these there are the example's own arguments, or a remark.
    words.take_while(|word| !["--", "#"].contains(word)).collect()
}

fn problem_of_ecosystem(command: &[&str], sources: &[Source]) -> Option<String> {
    let behind = |option| {
        let at = command.iter().position(|&word| word == option)?;
        command.get(at + 1).copied()
    };
    let name = behind("--example")?;
    let path = format!("ecosystem/{}/examples/{name}.rs", behind("-p").unwrap_or_default());
    let is_there = sources.iter().any(|source| source.path == path);
    (!is_there).then(|| format!("there is no example `{path}`"))
}

fn problem(command: &[&str], examples: &BTreeSet<&str>) -> Option<(String, &'static str)> {
    let named = command.iter().position(|&word| word == "--example")?;
    let Some(name) = command.get(named + 1) else {
        return Some(("`--example` without a name".into(), "name an example"));
    };
    if !examples.contains(name) {
        let problem = format!("there is no example `{name}`");
        return Some((problem, "name one of crates/heist/examples"));
    }
    let of_heist = command.windows(2).any(|pair| pair == ["-p", "heist"]);
    (!of_heist).then(|| {
        let problem = format!("`{name}` is not found from the root of the repository");
        (problem, "write `-p heist`: the root's own package is heist-cli")
    })
}

#[test]
fn commands_that_fail_are_found() {
    let example = Source::new("crates/heist/examples/chat.rs", "");
    let folder = Source::new("crates/heist/examples/http/main.rs", "");
    let part = Source::new("crates/heist/examples/http/head.rs", "");
    let text = "`cargo run --example chat`\n\
                cargo run -p heist --example chat # says hello\n\
                `cargo run -p heist --example talk`\n\
                cargo test -p heist --example head\n\
                //! see `cargo run --release\n//! -p heist --example http -- a`, and\n\
                //! `cargo run --release --example http --\n//! 1`\n\
                cargo run -p heist-cli --example chat\n\
                cargo run --release -- demo --example\n\
                cargo run -p heist \\\n    --example http\n\
                cargo run --manifest-path ecosystem/Cargo.toml -p shop --example sale\n\
                cargo run --manifest-path ecosystem/Cargo.toml -p heist --example chat\n";
    let page = Source::new("README.md", text);
    let sale = Source::new("ecosystem/shop/examples/sale.rs", "");
    let found = check(&[example, folder, part, sale, page]);
    assert_eq!(found.iter().map(|v| v.line).collect::<Vec<_>>(), [1, 3, 4, 7, 9, 14]);
}
