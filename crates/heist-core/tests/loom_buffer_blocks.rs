//! Every interleaving of senders and receivers at a chain of small blocks, with waiters:
//! `buffer/blocks.rs` under the protocol of `buffer/mod.rs`. A lost wake-up shows as a deadlock, a
//! message that is read before it is written as a race in loom's cell.
#![cfg(loom)]

mod mini_channel;

use heist_core::buffer::{Blocks, Buffer as _, Take};
use loom::thread;
use mini_channel::Channel;

fn blocks() -> loom::sync::Arc<Channel<Blocks<u32>>> {
    Channel::new(Blocks::new(thread::yield_now))
}

/// One sender and one receiver across the boundary of two blocks: all messages arrive, in order.
#[test]
fn messages_cross_a_block_boundary_in_order() {
    loom::model(|| {
        let channel = blocks();
        let sends = channel.clone();
        let sender = thread::spawn(move || (1..=3).all(|message| sends.send(message)));
        for message in 1..=3 {
            assert_eq!(channel.recv(), Some(message));
        }
        assert!(sender.join().unwrap());
        assert_eq!(channel.buffer.len(), 0);
    });
}

/// Two senders meet at the end of a block.
#[test]
fn two_senders_share_a_block() {
    loom::model(|| {
        let channel = blocks();
        assert!(channel.send(1));
        let sends = channel.clone();
        let sender = thread::spawn(move || sends.send(2));
        assert!(channel.send(4));
        let got: u32 = (0..3).map(|_| channel.recv().unwrap()).sum();
        assert_eq!(got, 7);
        assert!(sender.join().unwrap());
    });
}

/// Two receivers empty one block while there are no waiters: one of them frees it, after the other
/// is done.
#[test]
fn two_receivers_leave_a_block() {
    loom::model(|| {
        let channel = blocks();
        (1..=3).for_each(|message| assert!(channel.send(message)));
        let receives = channel.clone();
        let receiver = thread::spawn(move || receives.recv().unwrap());
        let got = channel.recv().unwrap();
        assert_eq!(got + receiver.join().unwrap(), 3);
        assert_eq!(channel.recv(), Some(3));
    });
}

/// A receiver that goes to sleep against the message that must wake it, and against the close.
#[test]
fn a_receiver_is_not_left_asleep() {
    loom::model(|| {
        let channel = blocks();
        let sends = channel.clone();
        let sender = thread::spawn(move || {
            let sent = sends.send(1);
            sends.close();
            sent
        });
        assert_eq!(channel.recv(), Some(1));
        assert_eq!(channel.recv(), None);
        assert!(sender.join().unwrap());
        assert_eq!(channel.try_recv(), Err(Take::Closed));
    });
}
