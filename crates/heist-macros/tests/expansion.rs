//! The expansion of the macros, run against a stand-in for the runtime.
//!
//! The expansion names `::heist`; here that is this file, so the tests see every call.

extern crate self as heist;

use std::cell::RefCell;
use std::error::Error;
use std::process::{Command, ExitCode, Termination};

use heist_macros as macros;

thread_local! {
    /// The options of each runtime started by the test of this thread.
    static STARTED: RefCell<Vec<Builder>> = const { RefCell::new(Vec::new()) };
}

fn started() -> Vec<Builder> {
    STARTED.with_borrow(Vec::clone)
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Builder {
    procs: Option<usize>,
    stack_size: Option<usize>,
    name: Option<String>,
    chaos: Option<u64>,
    deadlock_detection: Option<bool>,
}

impl Builder {
    pub fn chaos(mut self, seed: u64) -> Self {
        self.chaos = Some(seed);
        self
    }

    pub fn deadlock_detection(mut self, on: bool) -> Self {
        self.deadlock_detection = Some(on);
        self
    }

    pub fn procs(mut self, procs: usize) -> Self {
        self.procs = Some(procs);
        self
    }

    pub fn stack_size(mut self, stack_size: usize) -> Self {
        self.stack_size = Some(stack_size);
        self
    }

    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// # Safety
    /// As the real one.
    pub unsafe fn build(self) -> Result<Runtime, String> {
        if std::env::var_os("HEIST_MACROS_REFUSE").is_some() {
            return Err("no processors".to_owned());
        }
        STARTED.with_borrow_mut(|started| started.push(self));
        Ok(Runtime)
    }
}

pub struct Runtime;

impl Runtime {
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// With the bounds of the real one.
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        f()
    }

    pub fn run_main<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        self.run(f)
    }
}

const SMALL_STACK: usize = 32 * 1024;

#[macros::test(unsafe)]
fn without_options_the_builder_decides() {
    assert_eq!(started(), [Builder::default()]);
}

#[macros::test(unsafe, procs = 2, stack_size = SMALL_STACK * 2, name = "api",)]
fn options_reach_the_builder() {
    let expected = Builder {
        procs: Some(2),
        stack_size: Some(64 * 1024),
        name: Some("api".to_owned()),
        ..Builder::default()
    };
    assert_eq!(started(), [expected]);
}

/// The same crate under another path.
mod renamed {
    pub use crate::*;
}

#[macros::test(unsafe, deadlock_detection = false, chaos = 7, crate = crate::renamed)]
fn every_option_of_the_builder_is_one_here() {
    let expected =
        Builder { chaos: Some(7), deadlock_detection: Some(false), ..Builder::default() };
    assert_eq!(started(), [expected]);
}

#[macros::test(unsafe, crate = "renamed", procs = [1, 2])]
fn the_path_may_be_a_text() {
    assert!(!started().is_empty());
}

#[macros::main(unsafe, procs = 3)]
/// A function with a name of its own, an attribute and a code.
#[must_use]
pub(crate) fn entry() -> impl Termination {
    ExitCode::from(started()[0].procs.unwrap() as u8)
}

#[test]
fn main_keeps_attributes_visibility_and_exit_code() {
    assert_eq!(entry(), ExitCode::from(3));
}

/// A value that is not `Send`, as `Box<dyn Error>` is not.
#[macros::main(unsafe)]
fn fallible() -> Result<(), Box<dyn Error>> {
    Err("0x".parse::<u32>().unwrap_err())?
}

#[test]
fn an_error_of_main_becomes_the_exit_code() {
    assert_eq!(fallible(), ExitCode::FAILURE);
}

#[macros::main(unsafe)]
fn endless() -> ! {
    panic!("the only way out");
}

#[test]
#[should_panic(expected = "the only way out")]
fn main_may_never_return() {
    let _: ExitCode = endless();
}

#[macros::test(unsafe)]
fn a_result_need_not_be_send() -> Result<(), Box<dyn Error>> {
    assert_eq!("1".parse::<u32>()?, 1);
    Ok(())
}

#[macros::test(unsafe, procs = [1, 2])]
fn a_list_takes_results_that_are_not_send() -> Result<(), Box<dyn Error>> {
    assert_eq!("1".parse::<u32>()?, 1);
    Ok(())
}

#[macros::test(unsafe)]
#[should_panic(expected = "the unit was written out")]
#[allow(clippy::unused_unit, reason = "it is what is tested")]
fn a_written_unit_is_no_result() -> () {
    panic!("the unit was written out");
}

/// The names the expansion itself uses must not meet the user's.
#[macros::test(unsafe, procs = [1, 2])]
fn runtime() {
    assert!(!started().is_empty());
}

#[macros::test(unsafe, procs = 1)]
fn a_result_is_handed_to_the_harness() -> Result<(), String> {
    Ok(())
}

#[macros::test(unsafe)]
#[should_panic(expected = "the body's own panic")]
fn should_panic_sees_the_panic_of_the_body() {
    panic!("the body's own panic");
}

#[macros::test(unsafe, procs = [1, 2, 4])]
fn a_list_runs_the_body_once_for_each_value() {
    let runs = started();
    assert_eq!(runs.last().unwrap().procs, Some([1, 2, 4][runs.len() - 1]));
}

#[macros::test(unsafe, procs = [1, 2])]
fn a_list_keeps_results() -> Result<(), String> {
    Ok(())
}

#[macros::test(unsafe, procs = [1, 2])]
#[should_panic(expected = "after 2 runs")]
fn with_a_list_every_run_has_to_panic() {
    panic!("after {} runs", started().len());
}

/// Bodies for the child processes below; each fails at the second value.
mod child {
    use super::*;

    fn in_child() -> bool {
        std::env::var_os("HEIST_MACROS_CHILD").is_some()
    }

    #[macros::test(unsafe, procs = [1, 16, 2])]
    fn panics() {
        assert!(!in_child() || started().len() != 2, "the second run fails");
    }

    #[macros::test(unsafe, procs = [1, 16, 2])]
    fn returns_an_error() -> Result<(), String> {
        if in_child() && started().len() == 2 { Err("the second run".to_owned()) } else { Ok(()) }
    }

    #[macros::test(unsafe, procs = [1, 16, 2])]
    #[should_panic]
    fn survives() {
        assert!(in_child() && started().len() == 2, "panics as it should");
    }
}

fn run_child(test: &str, variable: &str) -> (ExitCode, String) {
    let output = Command::new(std::env::current_exe().unwrap())
        .args([test, "--exact", "--nocapture", "--test-threads=1"])
        .env(variable, "1")
        .output()
        .unwrap();
    let code = u8::try_from(output.status.code().unwrap()).unwrap();
    (ExitCode::from(code), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn a_failure_in_a_list_names_the_value() {
    for (test, line) in [
        ("child::panics", "heist::test: `panics` failed with procs = 16"),
        ("child::returns_an_error", "heist::test: `returns_an_error` failed with procs = 16"),
        ("child::survives", "heist::test: `survives` did not panic with procs = 16"),
    ] {
        let (code, stderr) = run_child(test, "HEIST_MACROS_CHILD");
        assert_ne!(code, ExitCode::SUCCESS, "{test} must fail:\n{stderr}");
        assert!(stderr.lines().any(|l| l == line), "{test} must print {line:?}:\n{stderr}");
    }
}

#[test]
fn a_runtime_that_cannot_start_ends_the_process_with_code_2() {
    let (code, stderr) = run_child("a_result_is_handed_to_the_harness", "HEIST_MACROS_REFUSE");
    assert_eq!(code, ExitCode::from(2));
    assert!(stderr.lines().any(|l| l == "heist: no processors"), "{stderr}");
}
