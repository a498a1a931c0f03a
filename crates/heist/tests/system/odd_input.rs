//! Random environment variables and control group files: a runtime starts as they say, or says why
//! not.
//!
//! The environment belongs to the process, so all of it is one test, in a process of its own.

use crate::child;
use heist::{BuildError, Runtime};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

const VARIABLES: [&str; 5] =
    ["HEIST_PROCS", "HEIST_STACK_SIZE", "HEIST_MAX_THREADS", "HEIST_STEAL_POLICY", "HEIST_DEBUG"];

/// Starts and ends a runtime on a machine of 4 CPUs. How many processors it had.
fn start(root: &Path) -> Result<usize, BuildError> {
    // SAFETY: nothing runs on it.
    let rt = unsafe { Runtime::builder().machine(root, Some(4)).build() }?;
    Ok(rt.procs())
}

/// Runs a body with an environment variable.
fn with<T>(variable: &str, value: OsString, body: impl FnOnce() -> T) -> T {
    // SAFETY: no other thread reads the environment: this is the only test of its process, and no
    // runtime lives.
    unsafe { std::env::set_var(variable, value) };
    let result = body();
    // SAFETY: as above.
    unsafe { std::env::remove_var(variable) };
    result
}

/// Pieces of valid input, in any order, and bytes that are not text. No zero byte, which an
/// environment cannot have.
fn odd_value() -> impl Strategy<Value = OsString> {
    let piece = prop_oneof![
        Just(b"chaos=7".to_vec()),
        Just(b"quantum=10ms".to_vec()),
        Just(b"quantum=18446744073709551615s".to_vec()),
        Just(b"schedtrace=1000000".to_vec()),
        Just(b"schedtrace=18446744073709551615".to_vec()),
        Just(b"shortturns=1".to_vec()),
        Just(b"containermaxprocs=0".to_vec()),
        Just(b"18446744073709551616".to_vec()),
        Just("\u{b5}s".as_bytes().to_vec()),
        "[0-9]{1,3}".prop_map(String::into_bytes),
        "[,=km -]".prop_map(String::into_bytes),
        "[a-z]{1,4}".prop_map(String::into_bytes),
        proptest::collection::vec(1..=255u8, 0..4),
    ];
    proptest::collection::vec(piece, 0..4).prop_map(|pieces| OsString::from_vec(pieces.concat()))
}

/// Files of control groups with numbers, words and nonsense in all places.
fn odd_group() -> impl Strategy<Value = [Vec<u8>; 4]> {
    let number = || prop_oneof!["-?[0-9]{1,21}", Just("max".to_owned()), "\\PC{0,6}"];
    let name = || prop_oneof![Just(String::new()), "/[a-z.]{0,3}(/[a-z.]{1,2}){0,2}", "\\PC{0,5}"];
    let membership = ("[0-2]", prop_oneof!["", "cpu,cpuacct", "\\PC{0,4}"], name())
        .prop_map(|(id, controllers, path)| format!("{id}:{controllers}:{path}\n"));
    let mounts =
        (name(), prop_oneof!["cgroup", "cgroup2", "\\PC{0,4}"], prop_oneof!["rw,cpu", "rw"])
            .prop_map(|(root, kind, options)| {
                format!("1 2 0:3 {root} /sys/fs/cgroup rw - {kind} source {options}\n\\04 - \\0\n")
            });
    let quota = (number(), "[ \n]?", number());
    let bytes = |text: String| text.into_bytes();
    (membership, mounts, quota, number(), any::<bool>()).prop_map(
        move |(group, mounts, quota, period, cut)| {
            let (most, blank, rest) = quota;
            let mut group = bytes(group);
            if cut {
                group.extend([0xff, b':', b'\n', b'0']);
            }
            [group, bytes(mounts), bytes(format!("{most}{blank}{rest}")), bytes(period)]
        },
    )
}

fn write(root: &Path, group: &[Vec<u8>; 4]) {
    let [membership, mounts, quota, period] = group;
    let (of_process, of_groups) = (root.join("proc/self"), root.join("sys/fs/cgroup"));
    fs::create_dir_all(&of_process).expect("a folder");
    fs::create_dir_all(&of_groups).expect("a folder");
    fs::write(of_process.join("cgroup"), membership).expect("a file");
    fs::write(of_process.join("mountinfo"), mounts).expect("a file");
    for name in ["cpu.max", "cpu.cfs_quota_us"] {
        fs::write(of_groups.join(name), quota).expect("a file");
    }
    fs::write(of_groups.join("cpu.cfs_period_us"), period).expect("a file");
}

#[test]
fn a_runtime_starts_or_gives_a_reason() {
    child::run(start_with_odd_input).succeeded();
}

fn start_with_odd_input() {
    let nowhere = Path::new("/nowhere");
    let runner = || {
        TestRunner::new(ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(150)
        })
    };

    let odd = (proptest::sample::select(&VARIABLES[..]), odd_value());
    let outcome = runner().run(&odd, |(variable, value)| {
        match with(variable, value.clone(), || start(nowhere)) {
            Ok(procs) => prop_assert!(procs >= 1),
            Err(BuildError::Environment { variable: named, .. }) => {
                prop_assert_eq!(named, variable)
            }
            Err(BuildError::Option { problem, .. }) => prop_assert!(!problem.is_empty()),
            // More stacks or threads than there is room for.
            Err(_) => {}
        }
        Ok(())
    });
    outcome.expect("no odd variable");

    let outcome = runner().run(&(1..=64usize, "[ \t]?"), |(n, blank)| {
        let procs = with("HEIST_PROCS", format!("{blank}{n}{blank}").into(), || start(nowhere));
        prop_assert_eq!(procs.ok(), Some(n));
        Ok(())
    });
    outcome.expect("a number of processors is understood");

    let root = std::env::temp_dir().join(format!("heist-odd-input-{}", std::process::id()));
    let outcome = runner().run(&odd_group(), |group| {
        write(&root, &group);
        let procs = start(&root).expect("no file keeps a runtime from starting");
        prop_assert!((1..=4).contains(&procs), "{} processors of 4", procs);
        Ok(())
    });
    let _ = fs::remove_dir_all(&root);
    outcome.expect("no odd file");
}
