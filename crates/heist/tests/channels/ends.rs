//! The methods that the two ends of a channel do not have. The documentation of both shows that a
//! call is a compile error. Here an inherent method would take precedence over that of the trait,
//! and this would not compile.

use heist::chan::{self, Receiver, Sender};

trait NoReceiving {
    fn recv(&self) -> &'static str {
        "a sender does not receive"
    }
    fn try_recv(&self) -> &'static str {
        self.recv()
    }
    fn iter(&self) -> &'static str {
        self.recv()
    }
}

trait NoSending {
    fn send(&self, _: u8) -> &'static str {
        "a receiver does not send"
    }
    fn try_send(&self, message: u8) -> &'static str {
        self.send(message)
    }
}

impl NoReceiving for Sender<u8> {}
impl NoSending for Receiver<u8> {}

/// CH-15: the sending end cannot receive, the receiving end cannot send.
#[test]
fn ends_do_not_have_the_other_direction() {
    let (tx, rx) = chan::bounded::<u8>(1);
    let answers: [&str; 5] = [tx.recv(), tx.try_recv(), tx.iter(), rx.send(1), rx.try_send(1)];
    assert!(answers.iter().all(|answer| answer.contains("does not")));
}
