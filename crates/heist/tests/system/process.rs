//! Other programs, started and waited for by goroutines and by plain threads.

use crate::matrix;

use heist::Runtime;
use heist::process::Command;
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// The output of a program to both pipes, more than they hold, and how it ended.
fn check_output() {
    let script = "head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2; exit 3";
    let output = sh(script).output().expect("starts");
    assert_eq!(output.status.code(), Some(3));
    assert_eq!((output.stdout.len(), output.stderr.len()), (200_000, 200_000));
}

#[test]
fn output_is_collected() {
    matrix::each_of(&matrix::cases_with(&[1, 4]), |_, rt| rt.run(check_output));
    check_output();
}

/// `output` has its own defaults, for that one call, and does not change streams that were set.
#[test]
fn output_keeps_what_was_set() {
    matrix::plain(2).run(|| {
        let mut cat = Command::new("cat");
        assert_eq!(cat.output().expect("starts").stdout, b"", "its input is empty");
        let mut echo = sh("echo out; echo err >&2");
        echo.stdout(Stdio::null());
        let output = echo.output().expect("starts");
        assert_eq!((&*output.stdout, &*output.stderr), (&b""[..], &b"err\n"[..]));
        let mut counts = Command::new("wc");
        let mut feeds = sh("printf abc").stdout(Stdio::piped()).spawn().expect("starts");
        counts.arg("-c").stdin(feeds.stdout.take().expect("a pipe").into_std().expect("std's"));
        let output = counts.output().expect("starts");
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "3");
        feeds.wait().expect("ends");
        // More than a pipe holds: if it were still a pipe, the write would block, because nothing
        // reads it.
        let mut writes = sh("head -c 200000 /dev/zero >&2; head -c 200000 /dev/zero");
        let devnull = || std::fs::File::options().write(true).open("/dev/null").expect("opens");
        assert_eq!(writes.output().expect("starts").stdout.len(), 200_000);
        let mut child = writes.stdout(devnull()).stderr(devnull()).spawn().expect("starts");
        assert!(child.stdout.is_none() && child.wait().expect("ends").success());
        let mut plain = sh("exit 3");
        plain.output().expect("starts");
        assert!(plain.spawn().expect("starts").stdout.is_none(), "it is the caller's again");
    });
}

/// A goroutine that is cancelled while it collects leaves no other behind.
#[test]
fn a_cancelled_output_leaves_no_goroutine() {
    matrix::plain(2).run(|| {
        let collects = heist::go(|| sh("exec sleep 1000").output().map(drop));
        while heist::num_goroutines() < 3 {
            heist::yield_now();
        }
        collects.cancel();
        assert!(collects.join().expect_err("cancelled").is_cancelled());
        while heist::num_goroutines() > 1 {
            heist::yield_now();
        }
    });
}

#[test]
fn pipes_can_be_waited_for() {
    matrix::each_of(&matrix::cases_with(&[1, 2]), |_, rt| {
        rt.run(|| {
            let mut cat = Command::new("cat");
            let mut child =
                cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
            let mut stdout = child.stdout.take().expect("a pipe");
            let reader = heist::go(move || {
                let mut text = String::new();
                stdout.read_to_string(&mut text).expect("reads");
                text
            });
            let mut stdin = child.stdin.take().expect("a pipe");
            for word in ["a ", "b ", "c"] {
                stdin.write_all(word.as_bytes()).expect("writes");
                heist::yield_now();
            }
            drop(stdin);
            assert_eq!(reader.join().expect("ends well"), "a b c");
            assert!(child.wait().expect("waits").success());
            assert!(child.try_wait().expect("remembers").is_some());
        });
    });
}

/// One processor: while one goroutine waits for a program, another runs, and may end it.
#[test]
fn waiting_does_not_hold_the_processor() {
    let rt = matrix::plain(1);
    rt.run(|| {
        let mut child = sh("read line; exit 7").stdin(Stdio::piped()).spawn().expect("starts");
        let mut stdin = child.stdin.take().expect("a pipe");
        let waiter = heist::go(move || child.wait().expect("waits").code());
        for _ in 0..3 {
            heist::yield_now();
        }
        stdin.write_all(b"go\n").expect("writes");
        assert_eq!(waiter.join().expect("ends well"), Some(7));

        let mut child = Command::new("sleep").arg("1000").spawn().expect("starts");
        child.kill().expect("kills");
        assert_eq!(child.wait().expect("waits").signal(), Some(9));
    });
}

/// Cancelling the wait leaves the program alone.
#[test]
fn a_wait_may_be_cancelled() {
    let rt = matrix::plain(2);
    rt.run(|| {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("starts");
        let id = child.id();
        let waiter = heist::go(move || child.wait().map(drop));
        heist::time::sleep(Duration::from_millis(5));
        waiter.cancel();
        assert!(waiter.join().expect_err("cancelled").is_cancelled());
        let alive = std::fs::read_to_string(format!("/proc/{id}/comm")).expect("it lives");
        assert_eq!(alive.trim(), "sleep");
        assert!(Command::new("kill").arg(id.to_string()).status().expect("kills").success());
    });
}

/// A program whose only waiter was cancelled leaves no zombie when it has ended.
#[test]
fn cancelled_waits_leave_no_zombies() {
    fn ended_children() -> usize {
        let ended = format!("(cat) Z {} ", std::process::id());
        let processes = std::fs::read_dir("/proc").expect("proc");
        processes
            .filter_map(|entry| std::fs::read_to_string(entry.ok()?.path().join("stat")).ok())
            .filter(|stat| stat.contains(&ended))
            .count()
    }
    matrix::each_of(&matrix::cases_with(&[2]), |_, rt| {
        rt.run(|| {
            let (mut reads, writes) = std::io::pipe().expect("a pipe");
            // They live until their input ends, as cat does.
            let waiters: Vec<_> = (0..20)
                .map(|i| {
                    let mut cat = Command::new("cat");
                    cat.stdin(reads.try_clone().expect("a copy"));
                    heist::go(move || match i % 2 {
                        0 => cat.output().map(drop),
                        _ => cat.status().map(drop),
                    })
                })
                .collect();
            heist::time::sleep(Duration::from_millis(20));
            waiters.iter().for_each(heist::JoinHandle::cancel);
            let n_cancelled =
                waiters.into_iter().map(|waiter| waiter.join().is_err()).filter(|&is| is).count();
            assert_eq!(n_cancelled, 20);
            drop(writes);
            let _ = reads.read(&mut [0]);
            // Another test may have one for a moment.
            let patience = Instant::now() + Duration::from_secs(20);
            while ended_children() > 0 {
                assert!(Instant::now() < patience, "{} are left", ended_children());
                heist::time::sleep(Duration::from_millis(5));
            }
        });
    });
}

#[test]
fn errors_have_their_kinds() {
    matrix::each_of(&matrix::cases_with(&[1]), |_, rt| {
        rt.run(|| {
            let spawned = Command::new("/no/such/program").spawn();
            if spawned.is_err() || !matrix::emulator::cannot_show("its vfork is a fork") {
                assert_eq!(spawned.expect_err("nothing there").kind(), ErrorKind::NotFound);
            }
            let mut child = sh("exec sleep 1000").stdout(Stdio::piped()).spawn().expect("starts");
            let stdout = child.stdout.as_mut().expect("a pipe");
            stdout.set_read_deadline(Some(Instant::now())).expect("a deadline");
            assert_eq!(stdout.read(&mut [0]).expect_err("late").kind(), ErrorKind::TimedOut);
            child.kill().expect("kills");
            child.wait().expect("waits");
        });
    });
}

/// A program that a latency goroutine starts has the turns of any other program, not the short ones
/// of that goroutine's thread. A kernel that does not know or report turns shows nothing.
#[test]
fn a_program_has_the_usual_turns() {
    let turns = || {
        let output = Command::new("grep").args(["slice", "/proc/self/sched"]).output();
        String::from_utf8(output.expect("grep runs").stdout).expect("a text")
    };
    let usual = turns();
    let rt = matrix::start(Runtime::builder().procs(2).latency_procs(1));
    rt.run(|| {
        for _ in 0..20 {
            let builder = heist::goroutine::Builder::new().class(heist::goroutine::Class::Latency);
            let starts = builder.spawn(turns).expect("there is memory");
            assert_eq!(starts.join().expect("ends well"), usual);
        }
    });
}

/// The extensions that std has for Unix: the name it is called by, its process group, its user.
#[heist::test(unsafe, procs = [1, 2, 4, 16])]
fn commands_have_the_extensions_of_unix() {
    let mut command = Command::new("sh");
    command.arg0("renamed").args(["-c", "echo $0; ps -o pgid= -p $$; echo $$; id -u"]);
    command.process_group(0).current_dir("/").env("A", "b");
    let output = command.output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    assert_eq!(lines[0], "renamed");
    // Without `ps` there is one line less.
    if lines.len() == 4 {
        assert_eq!(lines[1], lines[2], "it leads a group of its own");
    }
    assert_eq!((command.get_program(), command.get_args().count()), ("sh".as_ref(), 2));
    assert_eq!(command.get_current_dir(), Some("/".as_ref()));
    assert_eq!(command.get_envs().count(), 1);
    let me: u32 = lines[lines.len() - 1].parse().unwrap();
    let same = Command::new("id").arg("-u").uid(me).output().unwrap();
    assert_eq!(same.stdout, format!("{me}\n").into_bytes());
    let missing = Command::new("/does/not/exist").exec();
    assert_eq!(missing.kind(), std::io::ErrorKind::NotFound);
}
