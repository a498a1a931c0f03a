//! Channels: a message that finds its place at once, and one that has to meet its receiver.

use heist::chan::{self, Receiver, Sender};

use crate::Repeat;
use crate::goroutines::{alone, runtime};

/// One goroutine sends a message and receives it again.
fn through((tx, rx): (Sender<u64>, Receiver<u64>)) -> Repeat {
    alone(move || {
        tx.send(7).expect("the channel is open");
        assert_eq!(rx.recv(), Ok(7));
    })
}

pub fn buffered() -> Repeat {
    through(chan::bounded(128))
}

pub fn unbounded() -> Repeat {
    through(chan::unbounded())
}

/// A failed attempt, which must not cost a park.
pub fn try_recv_empty() -> Repeat {
    let (tx, rx) = chan::bounded::<u64>(1);
    alone(move || {
        assert!(rx.try_recv().is_err());
        assert!(!tx.is_closed());
    })
}

/// Receives from two channels in turn: the baseline for [`select_ready`].
pub fn two() -> Repeat {
    let (a, b) = (chan::bounded::<u64>(1), chan::bounded::<u64>(1));
    alone(move || {
        for (tx, rx) in [&a, &b] {
            tx.send(7).expect("the channel is open");
            assert_eq!(rx.recv(), Ok(7));
        }
    })
}

/// A select over two channels of which one has a message, each in turn.
pub fn select_ready() -> Repeat {
    let (a, b) = (chan::bounded::<u64>(1), chan::bounded::<u64>(1));
    alone(move || {
        for tx in [&a.0, &b.0] {
            tx.send(7).expect("the channel is open");
            let message = heist::select! {
                recv(a.1) -> message => message,
                recv(b.1) -> message => message,
            };
            assert_eq!(message, Ok(7));
        }
    })
}

/// Two goroutines, two channels without room: a token to and fro.
pub fn ping_pong() -> Repeat {
    let rt = runtime();
    Box::new(move |n| {
        rt.run(|| {
            let (there, ping) = chan::bounded::<u64>(0);
            let (pong, back) = chan::bounded::<u64>(0);
            let other = heist::go(move || {
                for token in ping {
                    pong.send(token + 1).expect("the channel is open");
                }
            });
            for token in 0..n as u64 {
                there.send(token).expect("the channel is open");
                assert_eq!(back.recv(), Ok(token + 1));
            }
            drop(there);
            other.join().expect("it does not panic");
        });
    })
}
