//! The map of the scheduler's rooms, docs/rooms.md: each door, and from where it is used.
//!
//! The doors are what the compiler lets others see of a room. The page is made from the source by
//! `HEIST_TIDY_WRITE=1 cargo test -p heist-cli --test tidy`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use crate::report::Violation;
use crate::source::{Source, find_word};

pub const PAGE: &str = "docs/rooms.md";
const ROOT: &str = "crates/heist/src/";
const ROOMS: &[&str] = &["life", "run", "rest", "threads", "stall", "world", "outside", "stacks"];

const HEAD: &str = "# The doors of the scheduler's rooms

Each folder of `crates/heist/src/sched` is a room (see [ARCHITECTURE.md](../ARCHITECTURE.md)). A door is
a name that other code can see of it, and uses: a function, a type, or a module of functions that belong
together. Code inside a room is free to call what it likes there.

This page is made from the source. A test compares the two;
`HEIST_TIDY_WRITE=1 cargo test -p heist-cli --test tidy` writes it anew.
";

/// Doors of each room, and the rooms and modules that use them.
type Doors<'a> = BTreeMap<&'a str, BTreeMap<String, BTreeSet<String>>>;

/// Takes files of every kind.
pub fn check(sources: &[Source]) -> Vec<Violation> {
    let made = page(sources);
    match sources.iter().find(|source| source.path == PAGE) {
        Some(page) if page.text == made => Vec::new(),
        Some(page) => {
            let same = page.text.lines().zip(made.lines()).take_while(|(a, b)| a == b).count();
            let fix = "make it anew: HEIST_TIDY_WRITE=1 cargo test -p heist-cli --test tidy";
            vec![Violation::new(page, same + 1, "the map differs from the source", fix)]
        }
        None => {
            let page = Source::new(PAGE, "");
            vec![Violation::new(&page, 1, "there is no map", "run with HEIST_TIDY_WRITE=1")]
        }
    }
}

/// The page that the source says.
pub fn page(sources: &[Source]) -> String {
    let mut doors = Doors::new();
    for source in sources {
        let Some(path) = source.path.strip_prefix(ROOT) else { continue };
        let own = place(path);
        let code: String =
            source.shipped().map(|(_, line)| line.code.as_str()).collect::<Vec<_>>().join("\n");
        for &room in ROOMS.iter().filter(|&&room| room != own) {
            for door in used(&code, room) {
                doors.entry(room).or_default().entry(door).or_default().insert(own.to_owned());
            }
        }
    }
    let mut text = HEAD.to_owned();
    for room in ROOMS {
        writeln!(text, "\n## {room}\n\n| door | used by |\n|---|---|").expect("a String grows");
        for (door, users) in doors.get(room).into_iter().flatten() {
            let users: Vec<_> = users.iter().map(String::as_str).collect();
            writeln!(text, "| `{door}` | {} |", users.join(", ")).expect("a String grows");
        }
    }
    text
}

/// The room of a file, or else the module.
fn place(path: &str) -> &str {
    let in_sched = path.strip_prefix("sched/").and_then(|path| path.split_once('/'));
    match in_sched {
        Some((room, _)) => room,
        None => path.split(['/', '.']).next().unwrap_or(path),
    }
}

/// The names behind `room::` in code that says `use crate::sched`.
fn used(code: &str, room: &str) -> BTreeSet<String> {
    let imports: String =
        code.split("use crate::sched").skip(1).filter_map(|rest| rest.split(';').next()).collect();
    let imported = !find_word(&imports, room).is_empty();
    let path = format!("{room}::");
    let mut names = BTreeSet::new();
    for at in find_word(code, &path) {
        let is_path = code[..at].ends_with("sched::");
        let is_alone = !code[..at].ends_with("::");
        if is_path || (imported && is_alone) {
            collect(&code[at + path.len()..], &mut names);
        }
    }
    names
}

/// The names at the beginning of what follows `room::`: one, or those between braces.
fn collect(rest: &str, names: &mut BTreeSet<String>) {
    let name = |text: &str| {
        let text = text.trim_start();
        let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
        text[..end].to_owned()
    };
    let Some(list) = rest.strip_prefix('{').and_then(|list| list.split('}').next()) else {
        names.insert(name(rest));
        return;
    };
    names.extend(list.split(',').map(name).filter(|name| !name.is_empty() && name != "self"));
}

#[test]
fn doors_are_found_by_path_and_by_name() {
    let code = |path: &str, text: &str| Source::new(&format!("{ROOT}{path}"), text);
    let sources = [
        code("sched/run/find.rs", "use crate::sched::{Sched, rest};\nfn f() { rest::sleep(s); }\n"),
        code("net/mod.rs", "use crate::sched::rest::{Start, wake_p};\n// rest::comment\n"),
        code("sched/rest/wake.rs", "use crate::sched::rest::own;\n"),
        code("fs.rs", "fn g(rest: &str) { rest::elsewhere(); }\n"),
    ];
    let page = page(&sources);
    assert!(page.contains("| `sleep` | run |"), "{page}");
    assert!(page.contains("| `Start` | net |\n| `sleep` | run |\n| `wake_p` | net |"), "{page}");
    assert!(!page.contains("own` |") && !page.contains("comment") && !page.contains("elsewhere"));
    assert_eq!(check(&sources).len(), 1);
}
