//! `heist demo`: the steps one after the other, then the table.

pub mod figures;
mod lanes;
mod memory;
mod report;
mod screen;
mod stage;
pub mod steps;
mod table;

use crate::cli::DemoOptions;
use console::Term;
use memory::Part;
use report::{Report, Verdict};
use screen::Screen;
use stage::{Scale, Stage};
use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;
use steps::Step;

const EXIT_WRONG: u8 = 1;
const EXIT_USAGE: u8 = 2;
/// For a file or a pipe, which has no width.
const DEFAULT_WIDTH: usize = 80;

/// Runs the chosen steps and prints the results.
pub fn run(options: &DemoOptions) -> ExitCode {
    if options.no_color {
        console::set_colors_enabled(false);
        console::set_colors_enabled_stderr(false);
    }
    match perform(options) {
        Ok(results) if results.iter().all(|(_, r)| r.verdict() == Verdict::Ok) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(EXIT_WRONG),
        Err(error) => {
            eprintln!("heist: {error}");
            ExitCode::from(EXIT_USAGE)
        }
    }
}

fn perform(options: &DemoOptions) -> Result<Vec<(&'static Step, Report)>, heist::BuildError> {
    let started = Instant::now();
    steps::isolation::shorten_its_report();
    let resident_at_start = memory::of_process(Part::Resident);
    let screen = Screen::new();
    let scale = if options.quick { Scale::Quick } else { Scale::Full };
    let mut results = Vec::new();
    for (at, step) in steps::chosen(&options.steps).enumerate() {
        let rt = start_runtime(options)?;
        if at == 0 {
            screen.say(&greeting(rt.procs(), scale));
        }
        let scene = screen.scene(step);
        let stage = Stage { rt: &rt, scale, resident_at_start, scene: &scene };
        let report = play(step, &stage);
        drop(rt);
        scene.finish(&report);
        results.push((step, report));
    }
    let stdout = Term::stdout();
    let width = stdout.size_checked().map_or(DEFAULT_WIDTH, |(_, columns)| columns.into());
    let mut text = format!("\n{}", table::draw(&results, width));
    text += &table::summary(&results, started.elapsed());
    // A reader that closed the pipe does not want more; the exit code still reports the result.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(results)
}

fn start_runtime(options: &DemoOptions) -> Result<heist::Runtime, heist::BuildError> {
    let mut builder =
        heist::Runtime::builder().name("demo").overflow_policy(heist::OverflowPolicy::Abandon);
    if let Some(procs) = options.procs {
        builder = builder.procs(procs);
    }
    // SAFETY: the steps keep nothing that is bound to a thread across a call into heist; what
    // draws the bars runs on plain threads.
    unsafe { builder.build() }
}

fn greeting(procs: usize, scale: Scale) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let size = match scale {
        Scale::Quick => ", quick",
        Scale::Full => "",
    };
    let plural = if procs == 1 { "" } else { "s" };
    let slow = if cfg!(debug_assertions) {
        "; built without optimisation, so the times mean nothing"
    } else {
        ""
    };
    format!("heist {version} demo on {procs} P{plural}{size}{slow}")
}

/// Runs one step. A step that panics is wrong, and the next one runs nevertheless.
fn play(step: &Step, stage: &Stage<'_>) -> Report {
    memory::forget_peak();
    let before = memory::of_process(Part::Resident);
    let outcome = catch_unwind(AssertUnwindSafe(|| (step.run)(stage)));
    let mut report = outcome.unwrap_or_else(|panic| Report::failed(message(&*panic)));
    if report.memory.is_empty() {
        let growth = memory::of_process(Part::Peak).saturating_sub(before);
        report.memory = format!("+{}", figures::bytes(growth));
    }
    report
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("panicked: {}", text.unwrap_or("with a value that is no text"))
}

#[test]
fn the_greeting_counts() {
    assert!(greeting(1, Scale::Full).contains("demo on 1 P"));
    assert!(greeting(2, Scale::Quick).contains("demo on 2 Ps, quick"));
}

#[test]
fn a_panic_is_reported() {
    assert_eq!(message(&"short"), "panicked: short");
    assert_eq!(message(&String::from("long")), "panicked: long");
    assert_eq!(message(&1), "panicked: with a value that is no text");
}
