//! The steps of the demo, in their order.
//!
//! A new step is a file here with a `STEP`, and a line in [`STEPS`].

mod bound;
mod hogs;
pub mod isolation;
pub mod mixer;
mod parked;
mod procs;
mod ring;
mod sleeps;
mod spawn;
mod ticker;
mod tree;

use super::report::Report;
use super::stage::Stage;

/// One step of the demo.
pub struct Step {
    /// How `--steps` calls it.
    pub name: &'static str,
    /// A description, for the progress bar.
    pub title: &'static str,
    /// Runs the step on the main thread, which is not a goroutine, and checks the result.
    pub run: fn(&Stage<'_>) -> Report,
}

/// All of them.
pub const STEPS: &[Step] = &[
    spawn::STEP,
    parked::STEP,
    ring::STEP,
    tree::STEP,
    bound::STEP,
    isolation::STEP,
    hogs::STEP,
    sleeps::STEP,
    procs::STEP,
];

/// The names for `--steps`.
pub fn names() -> impl Iterator<Item = &'static str> {
    STEPS.iter().map(|step| step.name)
}

/// The named steps in their order, all if none is named.
pub fn chosen(names: &[String]) -> impl Iterator<Item = &'static Step> {
    STEPS.iter().filter(|step| names.is_empty() || names.iter().any(|name| name == step.name))
}

#[test]
fn names_are_short_and_different() {
    let names: Vec<_> = names().collect();
    for (at, name) in names.iter().enumerate() {
        assert!((1..=10).contains(&name.len()), "{name} breaks the bars");
        assert!(!names[at + 1..].contains(name), "{name} is there twice");
    }
}

#[test]
fn steps_are_chosen_in_the_order_of_the_demo() {
    assert_eq!(chosen(&[]).count(), STEPS.len());
    let some: Vec<_> = chosen(&["tree".into(), "spawn".into()]).map(|s| s.name).collect();
    assert_eq!(some, ["spawn", "tree"]);
}
