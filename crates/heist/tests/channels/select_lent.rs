//! `send_from`: a select that gives an unsent message back.

use crate::matrix;

use heist::chan::{self, SendError};
use heist::{go, select, select_biased};
use std::sync::Arc;
use std::time::Duration;

/// A message that is not sent stays with its owner, on the fast and the slow path, with and without
/// a default; one that is sent is gone.
#[test]
fn an_unsent_message_is_given_back() {
    matrix::run(|| {
        let (full, _kept) = chan::bounded::<String>(0);
        let (tx, rx) = chan::bounded::<u8>(1);
        let mut message = Some(String::from("kept"));
        tx.send(1).unwrap();
        select! {
            recv(rx) -> got => assert_eq!(got, Ok(1)),
            send_from(full, &mut message) -> _ => panic!("nobody receives"),
        }
        assert_eq!(message.as_deref(), Some("kept"));
        select! {
            send_from(full, &mut message) -> _ => panic!("nobody receives"),
            default => (),
        }
        assert_eq!(message.as_deref(), Some("kept"));
        select! {
            send_from(full, &mut message) -> _ => panic!("nobody receives"),
            default(Duration::from_millis(1)) => assert_eq!(message.as_deref(), Some("kept")),
        }
        let later = go(move || tx.send(2));
        select! {
            send_from(full, &mut message) -> _ => panic!("nobody receives"),
            recv(rx) -> got => assert_eq!(got, Ok(2)),
        }
        later.join().unwrap().unwrap();
        assert_eq!(message.as_deref(), Some("kept"));

        let (out, sent) = chan::bounded(1);
        select_biased! {
            send_from(out, &mut message) -> result => assert_eq!(result, Ok(())),
            recv(chan::never::<u8>()) -> _ => unreachable!(),
        }
        assert_eq!((message, sent.recv().unwrap()), (None, String::from("kept")));
    });
}

/// Without a message the case is never chosen, even if the channel is closed; with one, a closed
/// channel returns it in the result.
#[test]
fn without_a_message_nothing_is_sent() {
    matrix::run(|| {
        let (closed, rx) = chan::bounded::<u8>(1);
        drop(rx);
        let mut message = None;
        select! {
            send_from(closed, &mut message) -> _ => panic!("there is no message"),
            default(Duration::from_millis(1)) => (),
        }
        message = Some(5);
        select! {
            send_from(closed, &mut message) -> result => assert_eq!(result, Err(SendError(5))),
        }
        assert_eq!(message, None);
    });
}

/// A receiver that comes while the select waits gets the message.
#[test]
fn a_waiting_message_is_taken() {
    matrix::run(|| {
        let (tx, rx) = chan::bounded::<Vec<u8>>(0);
        let sends = go(move || {
            let mut message = Some(vec![1, 2, 3]);
            select! {
                send_from(tx, &mut message) -> result => (result, message),
                recv(chan::never::<u8>()) -> _ => unreachable!(),
            }
        });
        matrix::until_parked(1, "select");
        assert_eq!(rx.recv(), Ok(vec![1, 2, 3]));
        assert_eq!(sends.join().unwrap(), (Ok(()), None));
    });
}

/// A goroutine that is cancelled while it waits gives the message back before its owner is dropped.
#[test]
fn a_cancelled_select_gives_the_message_back() {
    matrix::run(|| {
        struct Owner(Option<Arc<()>>);
        impl Drop for Owner {
            fn drop(&mut self) {
                assert!(self.0.is_some(), "the message is gone");
            }
        }
        let (tx, rx) = chan::bounded::<Arc<()>>(0);
        let token = Arc::new(());
        let owned = Arc::clone(&token);
        let waits = go(move || {
            let mut owner = Owner(Some(owned));
            select! {
                send_from(tx, &mut owner.0) -> _ => panic!("nobody receives"),
            }
        });
        matrix::until_parked(1, "select");
        waits.cancel();
        assert!(waits.join().unwrap_err().is_cancelled());
        assert_eq!(Arc::strong_count(&token), 1);
        drop(rx);
    });
}
