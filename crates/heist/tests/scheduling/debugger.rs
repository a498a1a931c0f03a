//! gdb shows goroutines, of a process and of its core file, with the script in `gdb`.

use crate::matrix::emulator::cannot_show;
use heist::{chan, goroutine};
use std::hint::black_box;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set in the program that gdb starts.
const ROLE: &str = "HEIST_TEST_UNDER_GDB";
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/gdb/heist.py");

/// gdb stops the program here.
#[inline(never)]
#[unsafe(no_mangle)]
extern "C" fn heist_test_stops_here() {
    black_box(());
}

#[inline(never)]
fn waits_for_a_message(rx: &chan::Receiver<u64>, depth: u32) -> u64 {
    if depth == 0 {
        return rx.recv().unwrap_or(0);
    }
    black_box(waits_for_a_message(rx, depth - 1)) + 1
}

/// The program: goroutine 1 stops while others wait, one of them with a name.
fn program() {
    // SAFETY: the goroutines keep nothing across a park that is bound to a thread.
    let rt = unsafe { heist::Runtime::builder().procs(2).build() }.expect("it starts");
    rt.run(|| {
        let (tx, rx) = chan::bounded::<u64>(0);
        let named = goroutine::Builder::new().name("the one with a name");
        let named = {
            let rx = rx.clone();
            named.spawn(move || waits_for_a_message(&rx, 3)).expect("it is spawned")
        };
        let others: Vec<_> = (0..3)
            .map(|_| {
                let rx = rx.clone();
                heist::go(move || waits_for_a_message(&rx, 0))
            })
            .collect();
        let n_waiting = || {
            let waiting = goroutine::census().into_iter().filter(|g| g.state == "chan receive");
            waiting.map(|group| group.count).sum::<usize>()
        };
        while n_waiting() < 4 {
            heist::yield_now();
        }
        heist_test_stops_here();
        drop(tx);
        assert_eq!(named.join().ok(), Some(3));
        others.into_iter().for_each(|other| assert_eq!(other.join().ok(), Some(0)));
    });
}

/// What gdb says when it runs these commands.
fn gdb(commands: &[String], arguments: &[&Path]) -> String {
    let mut command = Command::new("gdb");
    command.args(["-nx", "-batch"]).env_remove("DEBUGINFOD_URLS").env(ROLE, "1");
    for setting in ["confirm off", "startup-with-shell off", "style enabled off"] {
        command.args(["-ex", &format!("set {setting}")]);
    }
    command.args(["-ex", &format!("source {SCRIPT}")]);
    command.args(commands.iter().flat_map(|one| ["-ex", one]));
    let output = command.args(arguments).output().expect("gdb starts");
    let (out, err) = (&output.stdout, &output.stderr);
    format!("{}\n{}", String::from_utf8_lossy(out), String::from_utf8_lossy(err))
}

fn skipped(reason: &str) {
    // Past the capture of the test harness, so that it is seen.
    let _ = writeln!(std::io::stderr(), "SKIPPED: gdb does not show goroutines: {reason}");
}

/// Whether there is a gdb with Python.
fn has_gdb() -> bool {
    let mut command = Command::new("gdb");
    let output = command.args(["-nx", "-batch", "-ex", "python print(6 * 7)"]).output();
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains("42"))
}

/// A folder that is removed at the end of the test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

const LIST: &str = "heist goroutines";
const SELECT: &str = "heist goroutine 'the one with a name'";
const STACK: &str = "heist goroutine 'the one with a name' bt";

fn check_list(list: &str) {
    let is_waiting = |line: &&str| line.contains("[chan receive]");
    assert_eq!(list.lines().filter(is_waiting).count(), 4, "{list}");
    assert!(list.lines().any(|line| line.contains("[running")), "{list}");
    let named = list.lines().find(|line| line.contains("\"the one with a name\"")).expect(list);
    assert!(named.contains("spawned at "), "{list}");
    assert!(named.contains("scheduling/debugger.rs:"), "{list}");
    assert!(named.contains("by goroutine 1 "), "{list}");
}

fn check_stack(shown: &str) {
    let frames = shown.lines().filter(|line| line.contains("waits_for_a_message"));
    assert_eq!(frames.count(), 4, "{shown}");
    assert!(shown.contains("scheduling/debugger.rs:"), "{shown}");
    let resumed = shown.contains("heist::coro::switch::Coro::resume");
    assert!(!resumed, "the stack goes on with that of a thread:\n{shown}");
}

/// gdb lists all goroutines and shows the stack of a parked one, in a process and in a core file,
/// and the process continues unharmed.
#[test]
fn gdb_shows_the_goroutines_of_a_process_and_of_its_core() {
    if std::env::var_os(ROLE).is_some() {
        return program();
    }
    if cannot_show("gdb does not debug a program in an emulator") {
        return;
    }
    if !has_gdb() {
        return skipped("there is no gdb with Python");
    }
    let folder = std::env::temp_dir().join(format!("heist-gdb-{}", std::process::id()));
    let folder = Folder(folder);
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let core = folder.0.join("core");
    let own = std::env::current_exe().expect("a test knows its own program");
    let run = format!("run --exact {} --test-threads=1", crate::child::own_name());
    let words = |commands: &[&str]| commands.iter().map(ToString::to_string).collect::<Vec<_>>();
    let mut commands = words(&["break heist_test_stops_here"]);
    commands.push(run);
    let more = [LIST, "echo the stack\\n", STACK, "heist goroutine 1 bt"];
    commands.extend(words(&more));
    commands.push(format!("heist core {}", core.display()));
    commands.extend(words(&["continue"]));
    let said = gdb(&commands, &[&own]);
    if ["ptrace", "Could not trace"].iter().any(|refusal| said.contains(refusal)) {
        return skipped("the system refuses ptrace");
    }
    eprintln!("{said}");
    let (list, rest) = said.split_once("the stack\n").expect("the list and the stacks");
    check_list(list);
    let (parked, running) = rest.split_once("goroutine 1 [running").expect("two stacks");
    check_stack(parked);
    assert!(running.contains("heist_test_stops_here"), "it has its thread:\n{running}");
    assert!(running.contains("exited normally"), "{running}");

    let commands = [LIST, "echo the stack\\n", SELECT, "up", "info frame", STACK];
    let said = gdb(&words(&commands), &[&own, &core]);
    eprintln!("{said}");
    let (list, rest) = said.split_once("the stack\n").expect("the list and the stack");
    check_list(list);
    check_stack(rest.split_once("[chan receive]:").expect("a stack").1);
}
