//! The public face of a published package: no type of heist-core without a reason, no link that
//! leads outside.

use std::path::Path;

use crate::report::Violation;
use crate::source::{Source, has_word};

/// Types of heist-core that heist hands out, and why. heist-core changes with any version of heist,
/// so a change of one of these breaks users of heist.
const RE_EXPORTS: &[(&str, &str)] = &[
    (
        "StealPolicy",
        "a plain record that the algorithms read; a copy in heist would have to be translated",
    ),
    ("ParsePolicyError", "the error of the texts of these types"),
    ("Order", "a field of StealPolicy"),
    ("RunNextTheft", "a field of StealPolicy"),
    ("Share", "a field of StealPolicy"),
    ("FractionalQuota", "an option that the policy of the number of processors reads"),
];

/// Checks that heist re-exports only the listed types of heist-core.
pub fn check_re_exports(sources: &[Source]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let shipped = sources.iter().filter(|source| source.path.starts_with("crates/heist/src/"));
    for source in shipped {
        for (number, line) in source.shipped() {
            let exports = line.code.contains("pub use heist_core");
            if exports && !names(&line.code).all(is_listed) {
                let problem = "heist hands out something of heist-core that is not in the list";
                let fix = "define the type in heist, or add it to RE_EXPORTS in \
                           crates/heist-cli/tests/tidy/package.rs with a reason";
                violations.push(Violation::new(source, number, problem, fix));
            }
        }
    }
    violations
}

/// The names that a `use` imports: everything that is not part of a path.
fn names(code: &str) -> impl Iterator<Item = &str> {
    let last = code.rsplit("::").next().unwrap_or_default();
    last.split(['{', '}', ',', ';', ' ']).filter(|name| !name.is_empty())
}

fn is_listed(name: &str) -> bool {
    RE_EXPORTS.iter().any(|(listed, _)| *listed == name)
}

/// Whether the links of a package's README lead to files of that package.
pub fn check_links(readme: &Source, folder: &Path) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (number, line) in (1..).zip(readme.text.lines()) {
        let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !has_word(target, "https://")) {
            if target.starts_with("..") || !folder.join(target).exists() {
                let problem = format!("`{target}` is no file of this package");
                let fix =
                    "link to a file below the folder of the crate (it may be a symbolic link)";
                violations.push(Violation::new(readme, number, problem, fix));
            }
        }
    }
    violations
}

#[test]
fn re_exports_that_are_not_listed_are_found() {
    let text = "pub use heist_core::policy::{Order, Share};\npub use heist_core::policy::Stray;\n\
                use heist_core::policy::Stray;\npub use heist_core::run_queue;\n";
    let found = check_re_exports(&[Source::new("crates/heist/src/lib.rs", text)]);
    assert_eq!(found.iter().map(|v| v.line).collect::<Vec<_>>(), [2, 4]);
}

#[test]
fn links_out_of_the_package_are_found() {
    let text =
        "[a](Cargo.toml), [b](../heist/README.md)\n[c](none.md)\n[d](https://example.org/)\n";
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let found = check_links(&Source::new("crates/heist-cli/README.md", text), folder);
    assert_eq!(found.iter().map(|v| v.line).collect::<Vec<_>>(), [1, 2]);
}
