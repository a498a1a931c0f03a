//! Checks the house rules: each test reads the repository as text.
//!
//! A failure lists every place with a fix. The scanners have their own tests beside them, so that a
//! rule that no longer finds anything fails too.

mod commands;
mod comments;
mod layers;
mod package;
mod places;
mod report;
mod rooms;
mod shape;
mod source;
mod walks;

use std::fs;
use std::path::{Path, PathBuf};

use crate::report::refuse;
use crate::source::Source;

/// Kinds of files that are read by people.
const TEXT: &[&str] = &["md", "rs", "toml", "go", "sh", "yml", "yaml", "html"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root exists")
}

fn text_files() -> Vec<Source> {
    let root = root();
    let mut files = Vec::new();
    collect(&root, &mut files);
    files.sort();
    let read = |path: &PathBuf| {
        let name = path.strip_prefix(&root).expect("found below the root");
        // A file can vanish while another build writes to the folder; then there is nothing to
        // check.
        let text = fs::read_to_string(path).ok()?;
        Some(Source::new(name.to_str()?, &text))
    };
    files.iter().filter_map(read).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let extension = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
        if path.is_dir() {
            // Hidden folders belong to tools, except for that of the checks.
            if name != "target" && (!name.starts_with('.') || name == ".ci") {
                collect(&path, files);
            }
        } else if TEXT.contains(&extension) || is_script(&path) {
            files.push(path);
        }
    }
}

/// The checks' own scripts have no extension.
fn is_script(path: &Path) -> bool {
    let folder = path.parent().and_then(Path::file_name).and_then(|name| name.to_str());
    // The repository itself may be in a folder of that name.
    matches!(folder, Some("ci" | ".ci")) && path.parent() != Some(&root())
}

fn rust_files() -> Vec<Source> {
    let mut sources = text_files();
    sources.retain(|source| source.path.ends_with(".rs"));
    assert!(sources.len() > 10, "the walk found only {} Rust files", sources.len());
    sources
}

#[test]
fn layers_point_downwards() {
    refuse(&layers::check(&rust_files()));
}

#[test]
fn the_walks_name_what_exists() {
    refuse(&walks::check(&text_files()));
}

#[test]
fn the_scheduler_has_rooms() {
    refuse(&walks::check_rooms(&rust_files()));
}

#[test]
fn the_map_of_the_rooms_is_true() {
    let sources = text_files();
    if std::env::var_os("HEIST_TIDY_WRITE").is_some() {
        fs::write(root().join(rooms::PAGE), rooms::page(&sources)).expect("the page is written");
        return;
    }
    refuse(&rooms::check(&sources));
}

#[test]
fn dangerous_things_have_one_place() {
    refuse(&places::check(&rust_files()));
}

#[test]
fn the_core_depends_on_no_system() {
    let path = "crates/heist-core/Cargo.toml";
    let text = fs::read_to_string(root().join(path)).expect("heist-core has a manifest");
    refuse(&places::check_core_manifest(&Source::new(path, &text)));
}

#[test]
fn the_core_stays_behind_heist() {
    refuse(&package::check_re_exports(&rust_files()));
}

#[test]
fn readmes_of_packages_link_inside_them() {
    for name in ["heist", "heist-core", "heist-macros"] {
        let path = format!("crates/{name}/README.md");
        let text = fs::read_to_string(root().join(&path)).expect("each package has a README");
        let folder = root().join("crates").join(name);
        refuse(&package::check_links(&Source::new(&path, &text), &folder));
    }
}

#[test]
fn every_unsafe_has_its_reason() {
    refuse(&comments::check_safety(&rust_files()));
}

#[test]
fn every_ordering_names_its_partner() {
    refuse(&comments::check_ordering(&rust_files()));
}

#[test]
fn comments_are_wrapped() {
    refuse(&comments::check_width(&rust_files()));
}

#[test]
fn files_are_short() {
    refuse(&shape::check_length(&rust_files()));
}

#[test]
fn nothing_is_left_undone() {
    refuse(&shape::check_leftovers(&rust_files()));
}

#[test]
fn names_say_something() {
    refuse(&shape::check_names(&rust_files()));
}

#[test]
fn no_file_names_a_machine() {
    refuse(&shape::check_paths(&text_files()));
}

#[test]
fn commands_name_examples_that_exist() {
    let mut files = text_files();
    // The cases of the scanner's own test are wrong on purpose.
    files.retain(|file| !file.path.ends_with("tests/tidy/commands.rs"));
    refuse(&commands::check(&files));
}
