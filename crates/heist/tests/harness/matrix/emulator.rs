//! Tests of another processor's program, run by an emulator such as qemu-user (`ci/aarch64`).
//!
//! `HEIST_TEST_EMULATOR` is its command line. The kernel does not start such a program by itself,
//! so a test that starts itself again names the emulator. Behaviour that an emulator cannot show is
//! skipped, with a message.

use std::io::Write;
use std::process::Command;

fn emulator() -> Option<String> {
    std::env::var("HEIST_TEST_EMULATOR").ok().filter(|words| !words.is_empty())
}

/// How many times longer an operation takes.
pub fn slowness() -> u32 {
    if emulator().is_some() { 10 } else { 1 }
}

/// Starts this test program once more.
pub fn own_program() -> Command {
    let program = std::env::current_exe().expect("a test knows its own program");
    let words = emulator().unwrap_or_default();
    let mut words = words.split_whitespace();
    let Some(first) = words.next() else {
        return Command::new(program);
    };
    let mut command = Command::new(first);
    command.args(words).arg(program);
    command
}

/// Whether the rest of a test is to be skipped, because an emulator cannot show it for the `reason`
/// given.
#[track_caller]
pub fn cannot_show(reason: &str) -> bool {
    let skipped = emulator().is_some();
    if skipped {
        let place = std::panic::Location::caller();
        // Past the capture of the test harness, so that it is seen.
        let _ = writeln!(std::io::stderr(), "SKIPPED under the emulator: {place}: {reason}");
    }
    skipped
}
