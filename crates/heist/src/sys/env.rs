//! Environment variables of the user who may give orders to this program.

use std::ffi::OsString;

/// A variable of the environment. None in a program that runs with more rights than its caller has
/// (set-user-ID, file capabilities): there the caller's environment must not choose which files are
/// written and which ports are opened. As `secure_getenv` of libc.
pub(crate) fn var(name: &str) -> Option<OsString> {
    if has_more_rights_than_caller() { None } else { std::env::var_os(name) }
}

fn has_more_rights_than_caller() -> bool {
    // SAFETY: the call has no preconditions. It answers zero for what the kernel did not pass on.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}
