//! The walks of docs/walks.md name functions that exist, and other files add no methods to `Sched`.

use crate::report::Violation;
use crate::source::Source;

const PAGE: &str = "docs/walks.md";
const ROOT: &str = "crates/heist/src/";
/// The only files with methods of `Sched`: its composition, and a reader above it.
const MAY_EXTEND: &[&str] = &["sched/mod.rs", "snapshot.rs"];
/// The maximum number of methods of the composition.
const METHODS_MAX: usize = 40;

/// Takes files of every kind.
pub fn check(sources: &[Source]) -> Vec<Violation> {
    let page = sources.iter().filter(|source| source.path == PAGE);
    page.flat_map(|page| check_page(page, sources)).collect()
}

fn check_page(page: &Source, sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (at, line) in page.text.lines().enumerate() {
        for (file, function) in names(line) {
            let path = format!("{ROOT}{file}");
            let found = sources.iter().find(|source| source.path == path);
            let defines = |text: &str| {
                [format!("fn {function}("), format!("fn {function}<")]
                    .iter()
                    .any(|f| text.contains(f))
            };
            if !found.is_some_and(|source| defines(&source.text)) {
                let problem = format!("`{file}::{function}` does not exist");
                violations.push(Violation::new(
                    page,
                    at + 1,
                    problem,
                    "name the function that does it",
                ));
            }
        }
    }
    violations
}

/// The `file.rs::function` in backquotes of a line.
fn names(line: &str) -> impl Iterator<Item = (&str, &str)> {
    line.split('`').skip(1).step_by(2).filter_map(|name| {
        let (file, function) = name.split_once(".rs::")?;
        Some((&name[..file.len() + 3], function))
    })
}

/// A file that opens `impl Sched` is a hole in the walls between the rooms.
pub fn check_rooms(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for source in sources {
        let Some(path) = source.path.strip_prefix(ROOT) else { continue };
        for (at, line) in source.text.lines().enumerate() {
            if line.starts_with("impl Sched") && !MAY_EXTEND.contains(&path) {
                let fix = "write a function of the room that takes `&Sched`";
                violations.push(Violation::new(source, at + 1, "methods of `Sched`", fix));
            }
        }
        let n_methods = source.text.matches("    pub(crate) fn ").count();
        if path == "sched/mod.rs" && n_methods > METHODS_MAX {
            let problem = format!("`Sched` has {n_methods} methods");
            violations.push(Violation::new(source, 1, problem, "move them to a room"));
        }
    }
    violations
}

#[test]
fn a_function_that_does_not_exist_is_found() {
    let page = Source::new(PAGE, "1. `a/b.rs::known` calls `a/b.rs::gone`.\n2. `plain` words\n");
    let code = Source::new("crates/heist/src/a/b.rs", "pub fn known() {}\n");
    assert_eq!(check(&[page, code]).len(), 1);
}

#[test]
fn methods_of_the_scheduler_are_found_in_other_files() {
    let file = |path: &str| Source::new(path, "impl Sched {\n    fn f() {}\n}\n");
    assert_eq!(check_rooms(&[file("crates/heist/src/sched/rest/wake.rs")]).len(), 1);
    assert_eq!(check_rooms(&[file("crates/heist/src/sched/mod.rs")]).len(), 0);
}
