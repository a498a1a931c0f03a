//! Environment variables that would change a measurement, removed for every measurement.

use std::ffi::{OsStr, OsString};
use std::process::Command;

/// How the names begin by which runtimes and allocators take settings: those of heist, of Go and
/// go-lib, of the other peers, of the standard library (`RUST_MIN_STACK`), of mimalloc and of libc.
const PREFIXES: &[&str] = &[
    "HEIST_",
    "GO",
    "TOKIO_",
    "SMOL_",
    "BLOCKING_",
    "RAYON_",
    "RUST_",
    "MIMALLOC_",
    "MALLOC_",
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
];

/// Keeps the command from inheriting such a setting.
pub fn keep_from(command: &mut Command) {
    keep_these_from(command, std::env::vars_os().map(|(name, _)| name));
}

fn keep_these_from(command: &mut Command, names: impl Iterator<Item = OsString>) {
    for name in names.filter(|name| is_setting(name)) {
        command.env_remove(name);
    }
}

fn is_setting(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_stay_behind_and_the_rest_is_inherited() {
        let settings = ["GODEBUG", "GOMAXPROCS", "HEIST_PROCS", "TOKIO_WORKER_THREADS"];
        let others = ["PATH", "HOME", "CARGO", "MY_GOAL"];
        let mut command = Command::new("true");
        keep_these_from(&mut command, settings.iter().chain(&others).map(OsString::from));
        let changed: Vec<_> = command.get_envs().collect();
        assert_eq!(changed, settings.map(|name| (OsStr::new(name), None)));
    }

    #[test]
    fn what_is_set_afterwards_stays() {
        let mut command = Command::new("true");
        keep_these_from(&mut command, std::iter::once("GOMAXPROCS".into()));
        command.env("GOMAXPROCS", "3");
        let set: Vec<_> = command.get_envs().collect();
        assert_eq!(set, [(OsStr::new("GOMAXPROCS"), Some(OsStr::new("3")))]);
    }
}
