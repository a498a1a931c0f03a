//! Dangerous operations are allowed in one named place only, and some are allowed nowhere.

use crate::report::Violation;
use crate::source::{Source, has_word};

/// `words` may stand in shipped code below `scope` only in the files of `home`.
struct Place {
    words: &'static [&'static str],
    scope: &'static [&'static str],
    home: &'static [&'static str],
    fix: &'static str,
}

const SRC: &[&str] = &["crates/heist/src/", "crates/heist-core/src/", "crates/heist-cli/src/"];

const PLACES: &[Place] = &[
    Place {
        words: &["libc::", "rustix::", "use libc", "use rustix"],
        scope: SRC,
        home: &["crates/heist/src/sys/"],
        fix: "call the system through a function in crates/heist/src/sys/",
    },
    Place {
        words: &["thread_local!"],
        scope: SRC,
        home: &["crates/heist/src/current.rs", "crates/heist/src/sys/lock_rank.rs"],
        fix: "keep per-thread state in crates/heist/src/current.rs, behind its getters",
    },
    Place {
        words: &["corosensei"],
        scope: SRC,
        home: &["crates/heist/src/coro/"],
        fix: "switch stacks through crates/heist/src/coro/",
    },
    Place {
        words: &["loom::", "use loom", "sync::atomic"],
        scope: &["crates/heist-core/src/"],
        home: &["crates/heist-core/src/sync.rs"],
        fix: "import atomics from crate::sync, so that loom sees them",
    },
    Place {
        words: &["println!", "eprintln!", "print!", "eprint!", "dbg!"],
        scope: &[
            "crates/heist-core/src/",
            "crates/heist/src/sched/",
            "crates/heist/src/coro/",
            "crates/heist/src/preempt/",
            "crates/heist/src/gmp/",
            "crates/heist/src/sys/",
        ],
        home: &[],
        fix: "the scheduler never prints: std's stream locks may be held by a stopped goroutine; \
              write raw bytes through sys, or count it in metrics",
    },
];

const ALLOCATIONS: &[&str] =
    &["Box::new", "Vec::", "vec!", "String::", "format!", ".to_string(", ".to_owned("];

/// The crates that heist-core must not depend on: it has no operating system and no stacks.
const NOT_IN_CORE: &[&str] = &["libc", "rustix", "mio", "corosensei", "heist", "heist-macros"];

pub fn check(sources: &[Source]) -> Vec<Violation> {
    sources.iter().flat_map(|s| wrong_places(s).into_iter().chain(allocations(s))).collect()
}

fn wrong_places(source: &Source) -> Vec<Violation> {
    let starts = |paths: &[&str]| paths.iter().any(|path| source.path.starts_with(path));
    let mut violations = Vec::new();
    for place in PLACES.iter().filter(|place| starts(place.scope) && !starts(place.home)) {
        for (number, line) in source.shipped() {
            if let Some(word) = place.words.iter().find(|word| has_word(&line.code, word)) {
                let problem = format!("`{word}` outside its place");
                violations.push(Violation::new(source, number, problem, place.fix));
            }
        }
    }
    violations
}

fn allocations(source: &Source) -> Vec<Violation> {
    if !source.path.starts_with("crates/heist/src/sched/") {
        return Vec::new();
    }
    let mut violations = Vec::new();
    for (number, line) in source.shipped() {
        let Some(word) = ALLOCATIONS.iter().find(|word| has_word(&line.code, word)) else {
            continue;
        };
        if !source.comment_near(number, 1, "ALLOC:") {
            violations.push(Violation::new(
                source,
                number,
                format!("`{word}` allocates in the scheduler"),
                "a stopped goroutine may hold the allocator's lock: allocate before the scheduler \
                 is entered, or say why it is safe here with `// ALLOC: reason`",
            ));
        }
    }
    violations
}

/// heist-core stays free of everything that is not an algorithm.
pub fn check_core_manifest(manifest: &Source) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, line) in (1..).zip(manifest.text.lines()) {
        let key = line.split(['=', '.', ' ']).next().unwrap_or_default();
        if NOT_IN_CORE.contains(&key) {
            let fix = "move what needs it to crates/heist";
            let problem = format!("heist-core depends on `{key}`");
            violations.push(Violation::new(manifest, number, problem, fix));
        }
    }
    violations
}

fn lines(path: &str, text: &str) -> Vec<usize> {
    check(&[Source::new(path, text)]).iter().map(|v| v.line).collect()
}

#[test]
fn words_outside_their_place_are_found() {
    let text = "use libc::c_int;\nthread_local! { static A: u8 = 0; }\nuse corosensei::Coroutine;\n\
                // libc:: in a comment\nlet s = \"libc::\";\n";
    assert_eq!(lines("crates/heist/src/net/tcp.rs", text), [1, 2, 3]);
    assert_eq!(lines("crates/heist/src/sys/signal.rs", "use libc::c_int;\n"), []);
    assert_eq!(lines("crates/heist/src/current.rs", "thread_local! {}\n"), []);
    assert_eq!(lines("crates/heist/tests/fork.rs", text), []);
}

#[test]
fn atomics_of_the_core_come_from_one_file() {
    let text = "use std::{sync::atomic::AtomicU32};\nuse crate::sync::AtomicU64;\n";
    assert_eq!(lines("crates/heist-core/src/idle.rs", text), [1]);
    assert_eq!(lines("crates/heist-core/src/sync.rs", text), []);
}

#[test]
fn printing_in_the_scheduler_is_found() {
    let text = "fn f() {\n    eprintln!(\"x\");\n}\n#[cfg(test)]\nmod tests {\n    fn g() { println!() }\n}\n";
    assert_eq!(lines("crates/heist/src/gmp/m.rs", text), [2]);
    assert_eq!(lines("crates/heist/src/debug/page.rs", text), []);
}

#[test]
fn allocations_of_the_scheduler_need_a_reason() {
    let text = "let a = Box::new(1);\n// ALLOC: at start, before any goroutine runs\nlet b = vec![1];\n\
                let c = x.to_string(); // ALLOC: on the way to abort\nlet d: Vec<u8> = e;\n";
    assert_eq!(lines("crates/heist/src/sched/procs.rs", text), [1]);
    assert_eq!(lines("crates/heist/src/chan/state.rs", text), []);
}

#[test]
fn system_dependencies_of_the_core_are_found() {
    let manifest =
        Source::new("crates/heist-core/Cargo.toml", "loom = \"0.7\"\nlibc.workspace = true\n");
    assert_eq!(check_core_manifest(&manifest).len(), 1);
}
