//! The direction of use inside `crates/heist/src`: top may use bottom, never the other way.

use crate::report::Violation;
use crate::source::{Source, find_word};

/// Which layer a module belongs to: 0 is the top. The longest matching path decides, so a part of
/// a module can live lower than the rest of it. A new module needs a row here.
const LAYERS: &[(&str, u8)] = &[
    // 0: the modules that compose the runtime.
    ("lib", 0),
    ("builder", 0),
    ("runtime", 0),
    ("procs", 0),
    ("diagnosis", 0),
    ("debug", 0),
    ("watchdog", 0),
    ("testing", 0),
    ("docs", 0),
    // 1: the API that user code calls.
    ("chan", 1),
    ("sync", 1),
    ("time", 1),
    ("net", 1),
    ("process", 1),
    ("fs", 1),
    ("signal", 1),
    ("scope", 1),
    ("context", 1),
    ("goroutine", 1),
    ("hyper", 1),
    ("par", 1),
    ("profile", 1),
    // 2: readers, which read the scheduler and change nothing.
    ("schedtrace", 2),
    ("snapshot", 2),
    ("metrics", 2),
    ("trace", 2), // changes the generation of the recorder, with the world stopped
    ("traceback", 2),
    ("leaks", 2),
    // 3: waiting, for the API.
    ("wait", 3),
    // 4: the scheduler.
    ("sched", 4),
    ("panic_report", 4),
    ("tls_report", 4),
    // 5: the objects that the scheduler moves around; they return Gs and never schedule.
    ("gmp", 5),
    ("current", 5),
    ("coro", 5),
    ("sampler", 5), // the hooks of profiles
    ("netpoll", 5),
    ("time::timers", 5),
    ("metrics::latency", 5),
    ("metrics::shard", 5), // the counters themselves, written by their P
    ("trace::emit", 5),    // what the scheduler tells the trace
    ("trace::recorder", 5),
    ("trace::text", 5),
    ("throw", 5),
    // 6: the operating system.
    ("sys", 6),
];

/// Uses that point upwards on purpose: (from, to, why).
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    ("current", "sched::Sched", "names the type of the scheduler it hands out, calls nothing"),
    ("current", "sched::stall", "the long ways between user code and the runtime, which may wait"),
    (
        "throw",
        "sched::report",
        "a throw tells the state of the scheduler, and takes no lock for that",
    ),
    ("trace::recording", "runtime::Handle", "a trace is of the runtime of a handle"),
    ("trace::flight", "runtime::Handle", "a trace is of the runtime of a handle"),
    ("time::timers", "sched::Sched", "a timer names the runtime it is of, calls nothing"),
    ("gmp", "sched::Sched", "an M names the type of the scheduler it belongs to, calls nothing"),
    (
        "sys::lock",
        "current::held_locks",
        "the held ranks are per thread, and thread-locals live there",
    ),
];

/// Names that the API does not use, because `wait` does the waiting: goroutine records, seals and
/// commit functions. `goroutine` may: it makes the records, and a join handle owns one.
const HIDDEN_FROM_API: &str = "gmp";
const API: u8 = 1;
const MAKES_RECORDS: &str = "goroutine";

const ROOT: &str = "crates/heist/src/";

pub fn check(sources: &[Source]) -> Vec<Violation> {
    let sources = sources.iter().filter(|source| source.path.starts_with(ROOT));
    sources.flat_map(|source| check_file(source, LAYERS, EXCEPTIONS)).collect()
}

fn check_file(
    source: &Source,
    layers: &[(&str, u8)],
    exceptions: &[(&str, &str, &str)],
) -> Vec<Violation> {
    let module = module_of(&source.path);
    let Some(own) = layer(&module, layers) else {
        let fix = "add the new module to LAYERS in crates/heist-cli/tests/tidy/layers.rs";
        return vec![Violation::new(source, 1, format!("module `{module}` has no layer"), fix)];
    };
    let mut violations = Vec::new();
    for (number, path) in uses(source, &module) {
        let hidden = own == API && !is_inside(&module, MAKES_RECORDS);
        let (problem, fix) = match layer(&path, layers) {
            _ if hidden && is_inside(&path, HIDDEN_FROM_API) => (
                format!("`{module}` is of the API and uses `{path}`"),
                "use what `wait`, `current` and `goroutine` offer, or add a verb there",
            ),
            Some(target) if target >= own => continue,
            Some(_) if excepted(&module, &path, exceptions) => continue,
            Some(target) => (
                format!("`{module}` (layer {own}) uses `{path}` (layer {target}) above it"),
                "turn the use around: let the upper layer pass in what is needed",
            ),
            // At the root of the crate nothing is above.
            None if own == 0 => continue,
            None => (
                format!("`{module}` uses `crate::{path}`, which is no module of the layer table"),
                "name the module that defines it, or add that module to LAYERS",
            ),
        };
        violations.push(Violation::new(source, number, problem, fix));
    }
    violations
}

fn layer(path: &str, layers: &[(&str, u8)]) -> Option<u8> {
    let rows = layers.iter().filter(|(module, _)| is_inside(path, module));
    rows.max_by_key(|(module, _)| module.len()).map(|(_, layer)| *layer)
}

fn is_inside(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn excepted(from: &str, to: &str, exceptions: &[(&str, &str, &str)]) -> bool {
    exceptions.iter().any(|(f, t, _)| is_inside(from, f) && is_inside(to, t))
}

/// `crates/heist/src/time/timers.rs` is `time::timers`, `sched/mod.rs` is `sched`.
fn module_of(path: &str) -> String {
    let path = path.trim_start_matches(ROOT).trim_end_matches(".rs").trim_end_matches("/mod");
    path.replace('/', "::")
}

/// Every path into the crate, as written from the root, with its line.
fn uses(source: &Source, module: &str) -> Vec<(usize, String)> {
    let mut code = String::new();
    for line in &source.lines {
        if !line.in_test {
            code.push_str(&line.code);
        }
        code.push('\n');
    }
    let line_of = |at: usize| code[..at].matches('\n').count() + 1;
    let mut found = Vec::new();
    for at in find_word(&code, "crate::") {
        let trees = expand(&code[at + "crate::".len()..], String::new()).0;
        found.extend(trees.into_iter().map(|path| (line_of(at), path)));
    }
    for at in find_word(&code, "super::") {
        if code[..at].ends_with("super::") {
            continue;
        }
        let rest = code[at..].trim_start_matches("super::");
        let steps = (code.len() - at - rest.len()) / "super::".len();
        let Some(parent) = ancestor(module, steps) else {
            continue;
        };
        let trees = expand(rest, parent).0;
        found.extend(trees.into_iter().map(|path| (line_of(at), path)));
    }
    found.sort();
    found
}

fn ancestor(module: &str, steps: usize) -> Option<String> {
    let parts: Vec<_> = module.split("::").collect();
    // A module at the root has `lib` above it.
    let left = parts.len().checked_sub(steps)?;
    Some(parts[..left].join("::"))
}

/// Expands `a::{b, c::d}` after `prefix`; returns the paths and the text after them.
fn expand(text: &str, prefix: String) -> (Vec<String>, &str) {
    let text = text.trim_start();
    let join = |name: &str| match prefix.as_str() {
        "" => name.to_owned(),
        prefix => format!("{prefix}::{name}"),
    };
    if let Some(mut rest) = text.strip_prefix('{') {
        let mut paths = Vec::new();
        loop {
            let (found, after) = expand(rest, prefix.clone());
            paths.extend(found);
            // A path may be followed by `as name`, which is not a path.
            let stop = after.find([',', '}']).unwrap_or(after.len());
            match after[stop..].strip_prefix(',') {
                Some(next) if next.trim_start().starts_with('}') => rest = next.trim_start(),
                Some(next) => {
                    rest = next;
                    continue;
                }
                None => rest = &after[stop..],
            }
            return (paths, rest.strip_prefix('}').unwrap_or(rest));
        }
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    if name.is_empty() || name == "self" {
        return (vec![prefix], rest);
    }
    match rest.strip_prefix("::") {
        Some(deeper)
            if deeper
                .trim_start()
                .starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '{') =>
        {
            expand(deeper, join(name))
        }
        // A macro is exported at the root, independent of the module it is written in.
        _ if rest.starts_with('!') => (Vec::new(), rest),
        _ => (vec![join(name)], rest),
    }
}

fn problems(path: &str, text: &str) -> Vec<(usize, String)> {
    let source = Source::new(path, text);
    let found = check_file(&source, LAYERS, &[("sched", "metrics", "a reason")]);
    found.into_iter().map(|v| (v.line, v.problem)).collect()
}

#[test]
fn upward_uses_are_found() {
    let text = "use crate::{sched::park, chan::{self, state::Buf}};\nfn f() { crate::sys::g(); }\n";
    let found = problems("crates/heist/src/coro/switch.rs", text);
    assert_eq!(
        found,
        [
            (1, "`coro::switch` (layer 5) uses `chan` (layer 1) above it".to_owned()),
            (1, "`coro::switch` (layer 5) uses `chan::state::Buf` (layer 1) above it".to_owned()),
            (1, "`coro::switch` (layer 5) uses `sched::park` (layer 4) above it".to_owned()),
        ]
    );
}

#[test]
fn downward_uses_tests_macros_and_exceptions_pass() {
    let text = "use crate::{gmp::M, sys};\nuse crate::metrics::Shard;\nuse super::wake::wake_p;\n\
                fn f() { crate::throw!(\"x\") }\n#[cfg(test)]\nmod tests { use crate::chan::bounded; }\n";
    assert_eq!(problems("crates/heist/src/sched/steal.rs", text), []);
}

#[test]
fn records_are_hidden_from_the_api() {
    let text = "use crate::gmp::G;\n";
    let found = problems("crates/heist/src/chan/state.rs", text);
    assert_eq!(found, [(1, "`chan::state` is of the API and uses `gmp::G`".to_owned())]);
    for path in ["goroutine/join.rs", "wait/record.rs", "time/timers.rs"] {
        assert_eq!(problems(&format!("crates/heist/src/{path}"), text), [], "{path}");
    }
}

#[test]
fn super_is_resolved() {
    let found = problems("crates/heist/src/time/timers.rs", "use super::sleep::Sleep;\n");
    assert_eq!(
        found,
        [(1, "`time::timers` (layer 5) uses `time::sleep::Sleep` (layer 1) above it".to_owned())]
    );
    assert_eq!(problems("crates/heist/src/sched/a/b.rs", "use super::super::park;\n"), []);
}

#[test]
fn unknown_modules_and_root_items_are_found() {
    assert_eq!(problems("crates/heist/src/magic.rs", "").len(), 1);
    assert_eq!(problems("crates/heist/src/sched/mod.rs", "use crate::Runtime;\n").len(), 1);
    assert_eq!(problems("crates/heist/src/runtime.rs", "use crate::JoinHandle;\n"), []);
}
