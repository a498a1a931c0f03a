//! Programs and signals as futures.

use crate::matrix;

use heist::process::Command;
use heist::{signal, spawn, task};
use std::future::{Future, poll_fn};
use std::os::unix::process::ExitStatusExt;
use std::pin::pin;
use std::process::Stdio;
use std::task::Poll;

fn sh(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]);
    command
}

/// More than the pipes hold, in both of them.
#[test]
fn output_is_collected_by_a_task() {
    matrix::each_of(&matrix::cases_with(&[1, 4]), |_, rt| {
        rt.block_on(async {
            let script = "head -c 200000 /dev/zero; head -c 200000 /dev/zero >&2; exit 3";
            let output = sh(script).output_async().await.expect("starts");
            assert_eq!(output.status.code(), Some(3));
            assert_eq!((output.stdout.len(), output.stderr.len()), (200_000, 200_000));
            assert_eq!(sh("exit 4").status_async().await.expect("starts").code(), Some(4));
            assert!(Command::new("/no/such/program").output_async().await.is_err());
        });
    });
}

#[test]
fn a_task_talks_to_a_program_through_its_pipes() {
    matrix::each_of(&matrix::cases_with(&[1, 2]), |_, rt| {
        rt.block_on(async {
            let mut cat = Command::new("cat");
            let mut child =
                cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("starts");
            let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
            let writes = spawn(async move {
                for word in ["a ", "b ", "c"] {
                    stdin.write_all_async(word.as_bytes()).await.expect("writes");
                    task::yield_now().await;
                }
            });
            let mut text = Vec::new();
            let mut buf = [0; 16];
            loop {
                match stdout.read_async(&mut buf).await.expect("reads") {
                    0 => break,
                    n => text.extend_from_slice(&buf[..n]),
                }
            }
            assert_eq!(text, b"a b c");
            writes.await.expect("ends well");
            assert!(child.wait_async().await.expect("waits").success());
            assert!(child.try_wait().expect("remembers").is_some());
        });
    });
}

/// A wait that is dropped leaves the program alone, and another wait finds it.
#[test]
fn a_dropped_wait_leaves_the_program_running() {
    let rt = matrix::plain(2);
    rt.block_on(async {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("starts");
        {
            let mut waits = pin!(child.wait_async());
            poll_fn(|cx| {
                assert!(waits.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
        }
        assert!(child.try_wait().expect("asks").is_none());
        child.kill().expect("kills");
        assert_eq!(child.wait_async().await.expect("waits").signal(), Some(9));
    });
}

/// A program whose output is not awaited to its end is reaped by the runtime.
#[test]
fn the_program_of_a_dropped_output_is_reaped() {
    let rt = matrix::plain(2);
    let started = std::env::temp_dir().join(format!("heist-output-{}", std::process::id()));
    let task = {
        let script = format!("echo $$ >'{0}.new'; mv '{0}.new' '{0}'; exec cat", started.display());
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let task = rt.spawn_async(async move {
            let mut command = sh(&script);
            command.stdin(reader);
            command.output_async().await.map(drop)
        });
        (task, writer)
    };
    let (task, writer) = task;
    let id = loop {
        match std::fs::read_to_string(&started) {
            Ok(id) => break id.trim().to_owned(),
            Err(_) => std::thread::yield_now(),
        }
    };
    let _ = std::fs::remove_file(&started);
    task.abort();
    assert!(task.join().expect_err("aborted").is_cancelled());
    // The program ends at the end of its input.
    drop(writer);
    while std::path::Path::new(&format!("/proc/{id}")).exists() {
        std::thread::yield_now();
    }
}

#[test]
fn a_task_receives_signals() {
    let rt = matrix::plain(2);
    rt.block_on(async {
        let signals = signal::notify(&[signal::USER2]).expect("caught");
        let own = std::process::id().to_string();
        let sent = Command::new("kill").args(["-USR2", &own]).status_async().await;
        assert!(sent.expect("kill runs").success());
        assert_eq!(signals.recv_async().await, Ok(signal::USER2));

        let mut pressed = pin!(signal::ctrl_c_async());
        poll_fn(|cx| {
            assert!(pressed.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        let sent = Command::new("kill").args(["-INT", &own]).status_async().await;
        assert!(sent.expect("kill runs").success());
        pressed.await.expect("waits");
    });
}
