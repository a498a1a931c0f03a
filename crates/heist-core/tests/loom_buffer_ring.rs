//! Every interleaving of senders and receivers at a small ring, with waiters: `buffer/ring.rs`
//! under the protocol of `buffer/mod.rs`. A lost wake-up shows as a deadlock, a message that is
//! read before it is written, or overwritten before it is read, as a race in loom's cell.
//!
//! It found this bug: a close cleared the flag of the waiters before it set its own. A message was
//! sent, and the receiver was told that there is none.
#![cfg(loom)]

mod mini_channel;

use heist_core::buffer::{Buffer as _, Put, Ring, Take};
use loom::thread;
use mini_channel::Channel;

fn ring(capacity: usize) -> loom::sync::Arc<Channel<Ring<u32>>> {
    Channel::new(Ring::new(capacity, thread::yield_now).expect("a small ring"))
}

/// Two threads that wait for a third make long executions that only retry, so the bound is raised.
fn long_model(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// CH-27: one sender and one receiver, with more messages than fit: all arrive, in order.
#[test]
fn messages_cross_a_full_ring_in_order() {
    for capacity in [1, 2] {
        loom::model(move || {
            let channel = ring(capacity);
            let sends = channel.clone();
            let sender = thread::spawn(move || (1..=3).all(|message| sends.send(message)));
            for message in 1..=3 {
                assert_eq!(channel.recv(), Some(message));
            }
            assert!(sender.join().unwrap());
            assert_eq!(channel.buffer.len(), 0);
        });
    }
}

/// Two senders against one receiver at a ring of one: no thread sleeps while there is room or a
/// message for it.
#[test]
fn two_senders_share_one_slot() {
    long_model(|| {
        let channel = ring(1);
        let senders = [1, 2].map(|message| {
            let sends = channel.clone();
            thread::spawn(move || sends.send(message))
        });
        let got = [channel.recv().unwrap(), channel.recv().unwrap()];
        assert_eq!(got.iter().sum::<u32>(), 3);
        senders.into_iter().for_each(|sender| assert!(sender.join().unwrap()));
    });
}

/// Two receivers of two messages: each gets one.
#[test]
fn two_receivers_share_two_messages() {
    loom::model(|| {
        let channel = ring(2);
        assert!(channel.send(1) && channel.send(2));
        let receives = channel.clone();
        let receiver = thread::spawn(move || receives.recv().unwrap());
        assert_eq!(channel.recv().unwrap() + receiver.join().unwrap(), 3);
        assert_eq!(channel.try_recv(), Err(Take::Empty));
    });
}

/// A close against a send and a receive: a message that was sent is received, one that was not is
/// refused, and no thread is left asleep.
#[test]
fn close_wakes_every_waiter() {
    loom::model(|| {
        let channel = ring(1);
        assert!(channel.send(1));
        let sends = channel.clone();
        let sender = thread::spawn(move || sends.send(2));
        let closes = channel.clone();
        let closer = thread::spawn(move || closes.close());
        let mut got = 0;
        while channel.recv().is_some() {
            got += 1;
        }
        closer.join().unwrap();
        assert_eq!(got, 1 + u32::from(sender.join().unwrap()));
        assert_eq!(channel.try_recv(), Err(Take::Closed));
        // SAFETY: the message is on this stack.
        assert_eq!(unsafe { channel.buffer.put(&raw const got, &mut ()) }, Put::Closed);
    });
}
