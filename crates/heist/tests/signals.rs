//! Signals as messages. Each test is a process of its own: signals are the process's.

mod child;
mod matrix;

use heist::signal::{self, Signal};
use std::io::ErrorKind;
use std::process::Command;

fn send(signal: &str) {
    let own = std::process::id().to_string();
    assert!(Command::new("kill").args([signal, &own]).status().expect("kill runs").success());
}

#[test]
fn signals_are_messages_to_all_who_asked() {
    let ended = child::run("signals_are_messages_to_all_who_asked", || {
        let both = signal::notify(&[signal::USER1, signal::USER2]).expect("asks");
        let rt = matrix::plain(2);
        rt.run(|| {
            let one = signal::notify(&[signal::USER1]).expect("asks");
            let waiting = heist::go(move || one.recv());
            send("-USR1");
            assert_eq!(waiting.join().expect("ends well"), Ok(signal::USER1));
            send("-USR2");
            assert_eq!(both.recv(), Ok(signal::USER1));
            assert_eq!(both.recv(), Ok(signal::USER2));
        });
    });
    ended.succeeded();
}

#[test]
fn ctrl_c_is_waited_for() {
    let ended = child::run("ctrl_c_is_waited_for", || {
        let rt = matrix::plain(1);
        rt.run(|| {
            // This one keeps the signal from ending the process before the other asks for it.
            let first = signal::notify(&[signal::INTERRUPT]).expect("asks");
            let waiting = heist::go(signal::ctrl_c);
            matrix::yield_until("it was seen", || {
                send("-INT");
                waiting.is_finished()
            });
            waiting.join().expect("ends well").expect("it came");
            assert_eq!(first.recv(), Ok(signal::INTERRUPT));
        });
    });
    ended.succeeded();
}

/// Who does not ask any more lets the signal do what it did before.
#[test]
fn dropping_restores_what_was() {
    let ended = child::run("dropping_restores_what_was", || {
        let signals = signal::notify(&[signal::TERMINATE]).expect("asks");
        send("-TERM");
        assert_eq!(signals.recv(), Ok(signal::TERMINATE));
        drop(signals);
        send("-TERM");
        loop {
            std::thread::park();
        }
    });
    ended.was_killed_by(signal::TERMINATE.as_raw());
}

#[test]
fn some_signals_cannot_be_asked_for() {
    for number in [9, 11, 19, 23, 0, -1, 65] {
        let error = signal::notify(&[Signal::from_raw(number)]).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{number}");
    }
}
