//! A program that has more rights than its caller.

use crate::child;
use crate::matrix::emulator;
use heist::Runtime;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Any user but root.
const NOBODY: u32 = 65534;

/// A copy of this program, removed at the end.
struct Copy(PathBuf);

impl Copy {
    /// With the rights of another user. None if the caller may not make one.
    fn with_rights_of_another_user() -> Option<Self> {
        let path = std::env::temp_dir().join(format!("heist-privileges-{}", std::process::id()));
        let copy = Self(path);
        fs::copy(std::env::current_exe().ok()?, &copy.0).ok()?;
        chown(&copy.0, Some(NOBODY), None).ok()?;
        fs::set_permissions(&copy.0, Permissions::from_mode(0o4755)).ok()?;
        Some(copy)
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs `program` with `HEIST_PROCS=3` and the arguments and variables of `command`.
fn run_instead(command: &mut Command, program: Option<&Path>) {
    if let Some(program) = program {
        let mut other = Command::new(program);
        other.args(command.get_args());
        other.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        *command = other;
    }
    command.env("HEIST_PROCS", "3");
}

fn assert_procs(expected: usize) {
    // SAFETY: nothing runs on it.
    let rt = unsafe { Runtime::builder().procs(2).build() }.unwrap();
    assert_eq!(rt.procs(), expected);
}

#[test]
fn the_environment_gives_orders_to_a_plain_program() {
    child::run_with(|command| run_instead(command, None), || assert_procs(3)).succeeded();
}

#[test]
fn the_environment_gives_no_orders_to_a_set_user_id_program() {
    if emulator::cannot_show("the kernel does not start a program of another processor") {
        return;
    }
    let Some(copy) = Copy::with_rights_of_another_user() else {
        let _ = writeln!(std::io::stderr(), "SKIPPED: only root can make a set-user-ID program");
        return;
    };
    child::run_with(|command| run_instead(command, Some(&copy.0)), || assert_procs(2)).succeeded();
}
