//! The program `heist` from outside: exit codes, messages, and a demo in which every step is OK.

use std::process::{Command, Output};

fn heist(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_heist"))
        .args(args)
        .env("RUST_BACKTRACE", "1")
        .env_remove("HEIST_PROCS")
        .env_remove("HEIST_DEBUG")
        .output()
        .expect("the program was built for this test")
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The steps there are, as the program lists them when it does not know one.
fn known_steps() -> Vec<String> {
    let text = stderr(&heist(&["demo", "--steps", "nonsense"]));
    let (_, list) = text.split_once("possible values: ").expect("it lists them");
    let (list, _) = list.split_once(']').expect("the list ends");
    list.split(", ").map(str::to_owned).collect()
}

/// Each step of the table, with the mark before its name.
fn verdicts(table: &str) -> Vec<(String, String)> {
    let rows = table.lines().filter(|line| line.starts_with('│')).skip(1);
    let cells = rows.map(|row| {
        let cells: Vec<_> = row.trim_matches('│').split('│').map(str::trim).collect();
        assert_eq!(cells.len(), 5, "{row}");
        cells[0].split_once(' ').map(|(mark, step)| (step.to_owned(), mark.to_owned()))
    });
    cells.flatten().collect()
}

#[test]
fn every_step_of_the_quick_demo_is_ok() {
    let output = heist(&["demo", "--quick"]);
    let table = stdout(&output);
    let expected: Vec<_> = known_steps().into_iter().map(|step| (step, "✓".to_owned())).collect();
    assert!(expected.len() >= 5);
    assert_eq!(verdicts(&table), expected, "{table}{}", stderr(&output));
    assert_eq!(output.status.code(), Some(0), "{table}");
    assert!(!table.contains('\u{1b}'), "colours in a pipe:\n{table}");
    let widest = table.lines().map(|line| line.chars().count()).max();
    assert!(widest.is_some_and(|widest| widest <= 80), "{widest:?} columns:\n{table}");
    assert!(!stderr(&output).contains("stack backtrace"), "{}", stderr(&output));
}

#[test]
fn chosen_steps_run_alone() {
    let output = heist(&["demo", "--quick", "--procs", "3", "--steps", "spawn,ring"]);
    let verdicts = verdicts(&stdout(&output));
    let steps: Vec<_> = verdicts.iter().map(|(step, _)| step.as_str()).collect();
    assert_eq!(steps, ["spawn", "ring"]);
    assert!(stderr(&output).contains("demo on 3 Ps, quick"));
}

#[test]
fn the_bound_is_a_table_and_a_picture() {
    let path = std::env::temp_dir().join(format!("heist-bound-{}.svg", std::process::id()));
    let file = path.to_str().expect("it is text");
    let output = heist(&["bound", "--quick", "--procs", "3", "--svg", file]);
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", stderr(&output));
    for name in ["fib", "nqueens", "matrix", "quicksort", "tree", "sleeps"] {
        let rows = text.lines().filter(|line| line.starts_with(name));
        assert_eq!(rows.count(), 3, "on 1, 2 and 3 processors:\n{text}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    let picture = std::fs::read_to_string(&path).expect("it was written");
    assert!(picture.starts_with("<svg") && picture.contains("quicksort"), "{picture}");
    std::fs::remove_file(&path).expect("it is there");
    let refused = heist(&["bound", "--quick", "--procs", "1", "--svg", "/nonexistent/a.svg"]);
    assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
}

#[test]
fn an_unknown_step_is_refused_with_the_known_ones() {
    let output = heist(&["demo", "--steps", "spawn,nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("'nonsense'"), "{text}");
    for step in ["spawn", "parked", "ring", "tree", "isolation"] {
        assert!(text.contains(step), "{text}");
    }
    assert_eq!(stdout(&output), "");
}

#[test]
fn nonsense_procs_are_refused() {
    let output = heist(&["demo", "--quick", "--procs", "0"]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.starts_with("heist: procs: "), "{text}");
}

#[test]
fn version_and_help_are_there() {
    let version = heist(&["--version"]);
    assert_eq!(version.status.code(), Some(0));
    let expected = format!("heist {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(stdout(&version), expected);
    let help = heist(&["help"]);
    assert_eq!(help.status.code(), Some(0));
    assert!(stdout(&help).contains("demo"));
}

/// Runs `heist doctor` under a limit of the shell.
fn doctor(limit: &str) -> Output {
    let doctor = "exec \"$0\" doctor";
    Command::new("bash")
        .args(["-c", &format!("{limit} && {doctor}"), env!("CARGO_BIN_EXE_heist")])
        .output()
        .expect("there is a shell")
}

#[test]
fn the_doctor_says_what_there_is() {
    let output = heist(&["doctor"]);
    let text = stdout(&output);
    assert!(output.status.success(), "{text}{}", stderr(&output));
    for topic in ["kernel", "descriptors", "threads", "address space", "fences", "thread states"] {
        assert!(text.lines().any(|line| line.contains(topic)), "{topic}: {text}");
    }
    assert!(text.contains("a runtime starts"), "{text}");
}

#[test]
fn the_doctor_says_what_is_degraded_and_what_is_refused() {
    let few = doctor("ulimit -n 30");
    let text = stdout(&few);
    assert!(few.status.success(), "{text}{}", stderr(&few));
    assert!(text.contains("degraded  descriptors    limit 30"), "{text}");
    let too_few = doctor("ulimit -n 5");
    let text = stdout(&too_few);
    assert_eq!(too_few.status.code(), Some(1), "{text}");
    assert!(text.contains("refused   the system refuses to start a runtime"), "{text}");
    assert!(text.contains("raise `ulimit -n` (now 5)"), "{text}");
}
