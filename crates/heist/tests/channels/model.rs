//! Random operations on a channel against a plain queue.

use heist::chan::{self, Receiver, Sender, TryRecvError, TrySendError};
use proptest::prelude::*;
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
enum Op {
    Send(u32),
    Recv,
    CloneSender,
    DropSender,
    CloneReceiver,
    DropReceiver,
    Close,
    Len,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        12 => any::<u32>().prop_map(Op::Send),
        10 => Just(Op::Recv),
        1 => Just(Op::CloneSender),
        1 => Just(Op::DropSender),
        1 => Just(Op::CloneReceiver),
        1 => Just(Op::DropReceiver),
        1 => Just(Op::Close),
        4 => Just(Op::Len),
    ]
}

/// The specification of a channel, as simple code.
struct Model {
    queue: VecDeque<u32>,
    capacity: Option<usize>,
    closed: bool,
}

impl Model {
    fn send(&mut self, message: u32) -> Result<(), TrySendError<u32>> {
        if self.closed {
            return Err(TrySendError::Disconnected(message));
        }
        if self.capacity.is_some_and(|capacity| self.queue.len() >= capacity) {
            return Err(TrySendError::Full(message));
        }
        self.queue.push_back(message);
        Ok(())
    }

    fn recv(&mut self) -> Result<u32, TryRecvError> {
        let nothing = if self.closed { TryRecvError::Disconnected } else { TryRecvError::Empty };
        self.queue.pop_front().ok_or(nothing)
    }
}

fn run(capacity: Option<usize>, ops: Vec<Op>) -> Result<(), TestCaseError> {
    let (tx, rx): (Sender<Box<u32>>, Receiver<Box<u32>>) =
        capacity.map_or_else(chan::unbounded, chan::bounded);
    let (mut senders, mut receivers) = (vec![tx], vec![rx]);
    let mut model = Model { queue: VecDeque::new(), capacity, closed: false };
    for op in ops {
        match op {
            Op::Send(message) => {
                let Some(tx) = senders.last() else { continue };
                let sent = tx.try_send(Box::new(message)).map_err(|error| match error {
                    TrySendError::Full(message) => TrySendError::Full(*message),
                    TrySendError::Disconnected(message) => TrySendError::Disconnected(*message),
                });
                prop_assert_eq!(sent, model.send(message));
            }
            Op::Recv => {
                let Some(rx) = receivers.last() else { continue };
                prop_assert_eq!(rx.try_recv().map(|message| *message), model.recv());
            }
            Op::CloneSender => senders.extend(senders.last().cloned()),
            Op::CloneReceiver => receivers.extend(receivers.last().cloned()),
            Op::DropSender => {
                drop(senders.pop());
                model.closed |= senders.is_empty();
            }
            Op::DropReceiver => {
                drop(receivers.pop());
                if receivers.is_empty() {
                    model.closed = true;
                    model.queue.clear();
                }
            }
            Op::Close => {
                let closed = match (senders.last(), receivers.last()) {
                    (Some(tx), _) => tx.close(),
                    (None, Some(rx)) => rx.close(),
                    (None, None) => continue,
                };
                prop_assert_eq!(closed, !std::mem::replace(&mut model.closed, true));
            }
            Op::Len => {
                for (len, is_full, is_closed) in senders
                    .iter()
                    .map(|tx| (tx.len(), tx.is_full(), tx.is_closed()))
                    .chain(receivers.iter().map(|rx| (rx.len(), rx.is_full(), rx.is_closed())))
                {
                    let full = capacity.is_some_and(|capacity| model.queue.len() == capacity);
                    prop_assert_eq!((len, is_full), (model.queue.len(), full));
                    prop_assert_eq!(is_closed, model.closed);
                }
            }
        }
    }
    Ok(())
}

proptest! {
    /// CH-03, CH-06, CH-20: a bounded channel is a queue with a limit that can be closed.
    #[test]
    fn bounded_is_a_queue(capacity in 0usize..6, ops in prop::collection::vec(op(), 0..200)) {
        run(Some(capacity), ops)?;
    }

    /// An unbounded channel is a queue that can be closed.
    #[test]
    fn unbounded_is_a_queue(ops in prop::collection::vec(op(), 0..400)) {
        run(None, ops)?;
    }
}
