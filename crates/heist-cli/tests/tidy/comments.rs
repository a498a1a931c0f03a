//! Rules for comments: a reason at every `unsafe`, a partner at every atomic ordering, a maximum
//! width.

use crate::report::Violation;
use crate::source::{Source, find_word, has_word};

const SAFETY_ABOVE: usize = 6;
const ORDERING_ABOVE: usize = 8;

const ORDERINGS: &[&str] = &["Acquire", "Release", "AcqRel", "SeqCst"];

const ORDERING_SCOPE: &[&str] = &["crates/heist-core/src/", "crates/heist/src/"];

/// The maximum width of a line with a comment, in characters. rustfmt does not wrap comments.
const WIDTH_MAX: usize = 100;

pub fn check_safety(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in sources {
        for (number, line) in source.numbered() {
            let claims = find_word(&line.code, "unsafe").into_iter().any(|at| {
                let rest = line.code[at + "unsafe".len()..].trim_start();
                rest.starts_with('{') || rest.starts_with("impl")
            });
            if claims && !source.comment_near(number, SAFETY_ABOVE, "SAFETY:") {
                let fix = "write `// SAFETY:` above it, with the reason why it holds here";
                violations.push(Violation::new(source, number, "`unsafe` without a reason", fix));
            }
        }
    }
    violations
}

pub fn check_ordering(sources: &[Source]) -> Vec<Violation> {
    let in_scope = |s: &&Source| ORDERING_SCOPE.iter().any(|scope| s.path.starts_with(scope));
    let mut violations = Vec::new();
    for source in sources.iter().filter(in_scope) {
        let has_section = source.lines.iter().any(|l| l.comment.starts_with("//! # Ordering"));
        if has_section {
            continue;
        }
        let mut in_use = false;
        for (number, line) in source.shipped() {
            let code = line.code.trim();
            in_use |= code.starts_with("use ") || code.starts_with("pub use ");
            if !in_use
                && let Some(word) = ORDERINGS.iter().find(|word| is_argument(code, word))
                && !source.comment_near(number, ORDERING_ABOVE, "ORDERING:")
            {
                violations.push(Violation::new(
                    source,
                    number,
                    format!("`{word}` without its partner"),
                    "write `// ORDERING:` above it and name the access it pairs with, or \
                     describe all of them in a `# Ordering` section of the file's header",
                ));
            }
            in_use &= !code.contains(';');
        }
    }
    violations
}

pub fn check_width(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in sources {
        for ((number, line), text) in source.numbered().zip(source.text.lines()) {
            let width = text.chars().count();
            if !line.comment.is_empty() && width > WIDTH_MAX {
                let problem = format!("a comment in a line of {width} columns");
                let fix = format!("wrap it at {WIDTH_MAX} columns");
                violations.push(Violation::new(source, number, problem, fix));
            }
        }
    }
    violations
}

/// Whether `word` is passed to a call: `Ordering::Acquire`, or bare between brackets and commas.
fn is_argument(code: &str, word: &str) -> bool {
    if has_word(code, &format!("Ordering::{word}")) {
        return true;
    }
    find_word(code, word).into_iter().any(|at| {
        let before = code[..at].trim_end();
        let after = code[at + word.len()..].trim_start();
        (before.is_empty() || before.ends_with(['(', ',']))
            && (after.is_empty() || after.starts_with([')', ',']))
    })
}

#[test]
fn an_unsafe_needs_its_reason() {
    let text = "unsafe { a() }\nunsafe impl Send for A {}\nunsafe fn b() {}\n// SAFETY: c holds\n\
                let x =\n    unsafe { c() };\n// \"unsafe {\"\n\n\n\n\n\nlet y = unsafe { d() };\n";
    let found = check_safety(&[Source::new("benches/src/a.rs", text)]);
    assert_eq!(found.iter().map(|v| v.line).collect::<Vec<_>>(), [1, 2, 13]);
}

fn ordering_lines(text: &str) -> Vec<usize> {
    let source = Source::new("crates/heist/src/sched/wake.rs", text);
    check_ordering(&[source]).iter().map(|v| v.line).collect()
}

#[test]
fn an_ordering_needs_its_partner() {
    let text = "use std::sync::atomic::Ordering::{AcqRel, Acquire, Release};\na.load(Acquire);\n\
                b.store(1, Ordering::Release);\nc.load(Ordering::Relaxed);\nenum A { Release, Acquire }\n\
                d.compare_exchange(\n    0,\n    1,\n    AcqRel,\n    Relaxed,\n);\n";
    assert_eq!(ordering_lines(text), [2, 3, 9]);
}

#[test]
fn an_ordering_comment_or_section_is_enough() {
    assert_eq!(ordering_lines("// ORDERING: pairs with stop_m\na.load(Acquire);\n"), []);
    assert_eq!(ordering_lines("a.load(Acquire); // ORDERING: pairs with b\n"), []);
    assert_eq!(
        ordering_lines("//! A.\n//!\n//! # Ordering\n//! All of it.\na.load(Acquire);\n"),
        []
    );
}

#[test]
fn wide_comments_are_found() {
    let fits = format!("/// {}", "a".repeat(WIDTH_MAX - 4));
    let wide = format!("{fits}a");
    let behind = format!("let b = \"{}\"; // c", "a".repeat(WIDTH_MAX));
    let text = format!("{fits}\n{wide}\nlet a = \"{wide}\";\n{behind}\n/* {wide} */\n");
    let found = check_width(&[Source::new("benches/src/a.rs", &text)]);
    assert_eq!(found.iter().map(|v| v.line).collect::<Vec<_>>(), [2, 4, 5]);
}
