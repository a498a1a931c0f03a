//! Keeps docs/GO_PARITY.md true: rows name tests that exist, tests that carry an id are named.
//!
//! With `HEIST_PARITY=overwrite` the tests of each row are written from the doc comments instead.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

const PAGE: &str = "docs/GO_PARITY.md";

/// `RQ-01`
type Id = String;

struct Row {
    line: usize,
    id: Id,
    status: String,
    /// `path/to/file.rs::test_name`
    tests: Vec<String>,
    note: String,
}

impl Row {
    fn is_shown_by_tests(&self) -> bool {
        matches!(self.status.as_str(), "covered" | "partly")
    }
}

struct Page {
    /// Ids of the `Ids:` lines, in order.
    ids: Vec<Id>,
    rows: Vec<Row>,
}

/// A test function, with the ids in the lines directly above it.
#[derive(Debug, PartialEq)]
struct Test {
    line: usize,
    name: String,
    /// Ids in its `///` lines.
    documented: Vec<Id>,
    /// Ids in any comment above it.
    mentioned: Vec<Id>,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root exists")
}

fn page() -> Page {
    parse_page(&fs::read_to_string(root().join(PAGE)).expect("the page exists"))
}

fn parse_page(text: &str) -> Page {
    let mut page = Page { ids: Vec::new(), rows: Vec::new() };
    for (line, content) in (1..).zip(text.lines()) {
        if let Some(list) = content.strip_prefix("Ids:") {
            page.ids.extend(ids_in(list));
        } else if content.starts_with("| ") {
            let cells: Vec<_> = content.trim_matches('|').split('|').map(str::trim).collect();
            let [id, status, tests, note] = cells[..] else {
                continue;
            };
            if parse_id(id).is_none_or(|(_, rest)| !rest.is_empty()) {
                continue;
            }
            let tests = tests.split("<br>").map(|test| test.trim().trim_matches('`').to_owned());
            page.rows.push(Row {
                line,
                id: id.to_owned(),
                status: status.to_owned(),
                tests: tests.filter(|test| !test.is_empty()).collect(),
                note: note.to_owned(),
            });
        }
    }
    page
}

/// The id that `text` starts with, as area and number, and what follows it.
fn parse_id(text: &str) -> Option<((&str, u32), &str)> {
    let (area, rest) = text.split_at_checked(2)?;
    let digits = rest.strip_prefix('-')?;
    let (number, rest) = digits.split_at_checked(2)?;
    let well_formed = area.bytes().all(|b| b.is_ascii_uppercase())
        && number.bytes().all(|b| b.is_ascii_digit())
        && !rest.starts_with(|c: char| c.is_alphanumeric());
    well_formed.then(|| ((area, number.parse().expect("two digits")), rest))
}

/// All ids in a text; `IN-01..IN-09` stands for both ends and everything between them.
fn ids_in(text: &str) -> Vec<Id> {
    let mut ids = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        let inside_word = text[..at].ends_with(|c: char| c.is_alphanumeric() || c == '-');
        let found = if inside_word { None } else { parse_id(rest) };
        let Some(((area, first), mut after)) = found else {
            at += rest.chars().next().map_or(1, char::len_utf8);
            continue;
        };
        let mut last = first;
        if let Some(end) = after.strip_prefix("..").map(|end| end.trim_start_matches('='))
            && let Some(((end_area, number), rest)) = parse_id(end)
            && end_area == area
        {
            (last, after) = (number, rest);
        }
        ids.extend((first..=last).map(|number| format!("{area}-{number:02}")));
        at = text.len() - after.len();
    }
    ids
}

fn tests_in(text: &str) -> Vec<Test> {
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let mut tests = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some(name) = function_name(line) else {
            continue;
        };
        let above = &lines[lines_above(&lines, number)..number];
        if !above.iter().any(|line| is_test_attribute(line)) {
            continue;
        }
        let ids = |wanted: fn(&str) -> bool| {
            above.iter().filter(|line| wanted(line)).flat_map(|line| ids_in(line)).collect()
        };
        tests.push(Test {
            line: number + 1,
            name: name.to_owned(),
            documented: ids(|line| line.starts_with("///")),
            mentioned: ids(|line| line.starts_with("//")),
        });
    }
    tests
}

/// The first line of the comments and attributes that belong to the item on line `number`.
fn lines_above(lines: &[&str], number: usize) -> usize {
    let mut first = number;
    while first > 0 {
        let line = lines[first - 1];
        if line.starts_with("//") || line.starts_with("#[") {
            first -= 1;
        } else if line.ends_with(")]") {
            // The end of an attribute over several lines.
            let Some(start) = lines[..first].iter().rposition(|l| l.starts_with("#[")) else {
                break;
            };
            first = start;
        } else {
            break;
        }
    }
    first
}

fn function_name(line: &str) -> Option<&str> {
    let rest = line.trim_start_matches("pub ").strip_prefix("fn ")?;
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_')?;
    Some(&rest[..end])
}

/// `#[test]`, `#[heist::test(unsafe, procs = 2)]` and the like.
fn is_test_attribute(line: &str) -> bool {
    let Some(attribute) = line.strip_prefix("#[") else {
        return false;
    };
    let end = attribute.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
    let path = &attribute[..end.unwrap_or(attribute.len())];
    path.rsplit("::").next() == Some("test")
}

/// All tests of the workspace's crates, by file.
fn tests_of_the_crates() -> BTreeMap<String, Vec<Test>> {
    let root = root();
    let mut files = Vec::new();
    for krate in fs::read_dir(root.join("crates")).expect("there are crates") {
        let krate = krate.expect("a readable entry").path();
        collect(&krate.join("src"), &mut files);
        collect(&krate.join("tests"), &mut files);
    }
    let mut tests = BTreeMap::new();
    for path in files {
        let name = path.strip_prefix(&root).expect("found below the root").to_str();
        // A file can vanish while another build writes to the folder; then it has no tests.
        if let (Some(name), Ok(text)) = (name, fs::read_to_string(&path)) {
            tests.insert(name.to_owned(), tests_in(&text));
        }
    }
    tests
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

fn refuse(problems: &[String]) {
    assert!(problems.is_empty(), "\n{}\n{} problems", problems.join("\n"), problems.len());
}

fn row_problems(page: &Page) -> Vec<String> {
    let mut problems = Vec::new();
    let known: BTreeSet<_> = page.ids.iter().collect();
    if known.len() != page.ids.len() {
        problems.push(format!("{PAGE}: the `Ids:` lines name an id twice"));
    }
    let mut seen = BTreeSet::new();
    for row in &page.rows {
        let Row { line, id, status, .. } = row;
        if !known.contains(id) {
            problems.push(format!("{PAGE}:{line}: {id} is in no `Ids:` line"));
        }
        if !seen.insert(id) {
            problems.push(format!("{PAGE}:{line}: {id} has a second row"));
        }
        match status.as_str() {
            "covered" => {}
            "partly" | "not yet" | "n.a." if row.note.is_empty() => {
                problems.push(format!("{PAGE}:{line}: {id} is `{status}` and does not say why"));
            }
            "partly" | "not yet" | "n.a." => {}
            _ => problems.push(format!(
                "{PAGE}:{line}: {id} has the status `{status}`; there are `covered`, `partly`, \
                 `not yet` and `n.a.`"
            )),
        }
        if row.is_shown_by_tests() == row.tests.is_empty() {
            problems.push(format!(
                "{PAGE}:{line}: {id} is `{status}` and names {} tests",
                row.tests.len()
            ));
        }
    }
    for id in known.iter().filter(|id| !seen.contains(**id)) {
        problems.push(format!("{PAGE}: {id} has no row"));
    }
    problems
}

fn page_problems(page: &Page, tests: &BTreeMap<String, Vec<Test>>) -> Vec<String> {
    let mut problems = Vec::new();
    for row in page.rows.iter().filter(|row| row.is_shown_by_tests()) {
        let Row { line, id, .. } = row;
        for named in &row.tests {
            let (file, name) = split_test(named);
            let mut found = tests.get(file).into_iter().flatten().filter(|t| t.name == name);
            let Some(first) = found.next() else {
                problems.push(format!("{PAGE}:{line}: {id} names `{named}`, which is no test"));
                continue;
            };
            if !std::iter::once(first).chain(found).any(|test| test.mentioned.contains(id)) {
                problems.push(format!(
                    "{file}:{}: `{name}` covers {id} on the page; write the id in its doc comment",
                    first.line
                ));
            }
        }
    }
    problems
}

fn test_problems(page: &Page, tests: &BTreeMap<String, Vec<Test>>) -> Vec<String> {
    let rows: BTreeMap<_, _> = page.rows.iter().map(|row| (&row.id, row)).collect();
    let areas: BTreeSet<_> = page.ids.iter().map(|id| &id[..2]).collect();
    let mut problems = Vec::new();
    for (file, test) in tests.iter().flat_map(|(file, tests)| tests.iter().map(move |t| (file, t)))
    {
        for id in test.documented.iter().filter(|id| areas.contains(&id[..2])) {
            let place = format!("{file}:{}: `{}` carries {id}", test.line, test.name);
            let named = |row: &Row| row.tests.iter().any(|t| split_test(t) == (file, &test.name));
            match rows.get(id) {
                None => problems.push(format!("{place}, which {PAGE} does not know")),
                Some(row) if row.is_shown_by_tests() && named(row) => {}
                Some(row) => problems.push(format!(
                    "{place}; name `{file}::{}` in its row, {PAGE}:{}",
                    test.name, row.line
                )),
            }
        }
    }
    problems
}

/// The page with the tests of each row as the doc comments have them.
fn overwritten(text: &str, page: &Page, tests: &BTreeMap<String, Vec<Test>>) -> String {
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    for row in &page.rows {
        let carriers: Vec<_> = tests
            .iter()
            .flat_map(|(file, tests)| tests.iter().map(move |test| (file, test)))
            .filter(|(_, test)| test.documented.contains(&row.id))
            .map(|(file, test)| format!("`{file}::{}`", test.name))
            .collect();
        let status = match (carriers.is_empty(), row.status.as_str()) {
            (true, "covered" | "partly") => "not yet",
            (false, "not yet" | "n.a.") => "partly",
            (_, status) => status,
        };
        let cells = [&row.id, status, &carriers.join("<br>"), &row.note];
        let cells = cells.iter().map(|cell| match *cell {
            "" => " |".to_owned(),
            cell => format!(" {cell} |"),
        });
        lines[row.line - 1] = format!("|{}", cells.collect::<String>());
    }
    lines.join("\n") + "\n"
}

/// File and function of `path/to/file.rs::test_name`; modules between them do not matter.
fn split_test(named: &str) -> (&str, &str) {
    let (file, _) = named.split_once("::").unwrap_or((named, ""));
    (file, named.rsplit("::").next().unwrap_or_default())
}

#[test]
fn every_id_has_one_row_that_makes_sense() {
    let page = page();
    assert!(page.ids.len() > 300, "the page lists only {} ids", page.ids.len());
    refuse(&row_problems(&page));
}

#[test]
fn named_tests_exist_and_carry_the_id() {
    refuse(&page_problems(&page(), &tests_of_the_crates()));
}

#[test]
fn tests_that_carry_an_id_are_on_the_page() {
    let tests = tests_of_the_crates();
    if std::env::var("HEIST_PARITY").is_ok_and(|mode| mode == "overwrite") {
        let path = root().join(PAGE);
        let text = fs::read_to_string(&path).expect("the page exists");
        fs::write(&path, overwritten(&text, &page(), &tests)).expect("the page can be written");
    }
    refuse(&test_problems(&page(), &tests));
}

#[test]
fn ids_and_ranges_are_read() {
    assert_eq!(
        ids_in("RQ-01, IN-08..IN-11 and (SP-31)."),
        ["RQ-01", "IN-08", "IN-09", "IN-10", "IN-11", "SP-31"]
    );
    assert_eq!(ids_in("CVE-2024-01, XRQ-01, RQ-001, rq-01, utf-16, é RQ-02"), ["RQ-02"]);
}

#[test]
fn tests_and_their_comments_are_read() {
    let text = "/// Far away: RQ-09.\n\n/// Golden order (RQ-01).\n// see also RQ-02\n#[heist::test(\n    unsafe,\n    procs = 1\n)]\n#[should_panic]\nfn a() {}\n\n/// RQ-03\nfn plain() {}\n    #[test]\n    /// RQ-04..RQ-06\n    fn b() {}\n";
    let found: Vec<_> =
        tests_in(text).into_iter().map(|t| (t.name, t.documented, t.mentioned)).collect();
    let ids = |list: &[&str]| list.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        found,
        [
            ("a".to_owned(), ids(&["RQ-01"]), ids(&["RQ-01", "RQ-02"])),
            ("b".to_owned(), ids(&["RQ-04", "RQ-05", "RQ-06"]), ids(&["RQ-04", "RQ-05", "RQ-06"])),
        ]
    );
}

#[test]
fn wrong_rows_are_found() {
    let page = parse_page(
        "Ids: RQ-01..RQ-06.\n| RQ-01 | covered | | |\n| RQ-02 | not yet | | |\n| RQ-02 | n.a. | | why |\n| RQ-03 | maybe | | x |\n| RQ-04 | not yet | `a.rs::b` | x |\n| RQ-09 | not yet | | x |\n| RQ-06 | covered | `a.rs::b`<br>`a.rs::c` | |\n",
    );
    let problems = row_problems(&page);
    let expected = [
        "docs/GO_PARITY.md:2: RQ-01 is `covered` and names 0 tests",
        "docs/GO_PARITY.md:3: RQ-02 is `not yet` and does not say why",
        "docs/GO_PARITY.md:4: RQ-02 has a second row",
        "docs/GO_PARITY.md:5: RQ-03 has the status `maybe`; there are `covered`, `partly`, `not yet` and `n.a.`",
        "docs/GO_PARITY.md:6: RQ-04 is `not yet` and names 1 tests",
        "docs/GO_PARITY.md:7: RQ-09 is in no `Ids:` line",
        "docs/GO_PARITY.md: RQ-05 has no row",
    ];
    assert_eq!(problems, expected);
    assert_eq!(page.rows.last().unwrap().tests, ["a.rs::b", "a.rs::c"]);
}

#[test]
fn page_and_tests_are_compared_both_ways() {
    let page = parse_page(
        "Ids: RQ-01..RQ-04.\n| RQ-01 | covered | `a.rs::good` | |\n| RQ-02 | partly | `a.rs::gone` | x |\n| RQ-03 | covered | `a.rs::mute` | |\n| RQ-04 | not yet | | x |\n",
    );
    let text = "/// RQ-01\n#[test]\nfn good() {}\n#[test]\nfn mute() {}\n/// RQ-04, RQ-07, ZZ-01\n#[test]\nfn eager() {}\n";
    let tests = BTreeMap::from([("a.rs".to_owned(), tests_in(text))]);
    let wrong_rows = page_problems(&page, &tests);
    assert_eq!(
        wrong_rows,
        [
            "docs/GO_PARITY.md:3: RQ-02 names `a.rs::gone`, which is no test",
            "a.rs:5: `mute` covers RQ-03 on the page; write the id in its doc comment",
        ]
    );
    let wrong_tests = test_problems(&page, &tests);
    assert_eq!(
        wrong_tests,
        [
            "a.rs:8: `eager` carries RQ-04; name `a.rs::eager` in its row, docs/GO_PARITY.md:5",
            "a.rs:8: `eager` carries RQ-07, which docs/GO_PARITY.md does not know",
        ]
    );
}

#[test]
fn overwriting_makes_the_page_true() {
    let text = "Ids: RQ-01..RQ-04.\n| RQ-01 | covered | `a.rs::old` | one |\n| RQ-02 | partly | `a.rs::gone` | two |\n| RQ-03 | not yet | | three |\n| RQ-04 | covered | `a.rs::y` | |\n";
    let code = "/// RQ-01, RQ-03\n#[test]\nfn x() {}\n/// RQ-03, RQ-04\n#[test]\nfn y() {}\n";
    let tests = BTreeMap::from([("a.rs".to_owned(), tests_in(code))]);
    let new = overwritten(text, &parse_page(text), &tests);
    let expected = "Ids: RQ-01..RQ-04.\n| RQ-01 | covered | `a.rs::x` | one |\n| RQ-02 | not yet | | two |\n| RQ-03 | partly | `a.rs::x`<br>`a.rs::y` | three |\n| RQ-04 | covered | `a.rs::y` | |\n";
    assert_eq!(new, expected);
    let page = parse_page(&new);
    assert_eq!(page_problems(&page, &tests), [""; 0]);
    assert_eq!(test_problems(&page, &tests), [""; 0]);
}
