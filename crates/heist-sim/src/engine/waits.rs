//! Channels and signals.

use super::{After, Sim};
use crate::machines::Todo;
use crate::stats::Spent;
use std::collections::VecDeque;

/// A channel: how many values it holds, and the goroutines that wait.
#[derive(Debug, Default)]
struct Channel {
    len: u32,
    senders: VecDeque<u32>,
    receivers: VecDeque<u32>,
}

/// A signal: how many came early, and the goroutines that wait.
#[derive(Debug, Default)]
struct Signal {
    pending: u32,
    waiters: VecDeque<u32>,
}

/// What goroutines wait for, by number.
#[derive(Debug, Default)]
pub(super) struct Waits {
    channels: Vec<Channel>,
    signals: Vec<Signal>,
}

impl Waits {
    fn channel(&mut self, number: u32) -> &mut Channel {
        at(&mut self.channels, number)
    }

    fn signal(&mut self, number: u32) -> &mut Signal {
        at(&mut self.signals, number)
    }
}

fn at<T: Default>(all: &mut Vec<T>, number: u32) -> &mut T {
    let number = number as usize;
    if number >= all.len() {
        all.resize_with(number + 1, T::default);
    }
    &mut all[number]
}

impl Sim<'_> {
    pub(super) fn send(&mut self, m: u32, number: u32) -> After {
        let g = self.ms[m as usize].g.expect("a goroutine sends");
        let capacity = self.workload.capacity(number);
        let channel = self.waits.channel(number);
        if let Some(receiver) = channel.receivers.pop_front() {
            return self.wake_one(m, receiver);
        }
        if channel.len < capacity {
            channel.len += 1;
            return self.pass(m);
        }
        channel.senders.push_back(g);
        self.leave(m)
    }

    pub(super) fn recv(&mut self, m: u32, number: u32) -> After {
        let g = self.ms[m as usize].g.expect("a goroutine receives");
        let channel = self.waits.channel(number);
        if let Some(sender) = channel.senders.pop_front() {
            // A value moves from the buffer to the receiver, and the sender's into the buffer; or
            // there is no buffer.
            return self.wake_one(m, sender);
        }
        if channel.len > 0 {
            channel.len -= 1;
            return self.pass(m);
        }
        channel.receivers.push_back(g);
        self.leave(m)
    }

    pub(super) fn park_for(&mut self, m: u32, number: u32) -> After {
        let g = self.ms[m as usize].g.expect("a goroutine parks");
        let signal = self.waits.signal(number);
        if signal.pending > 0 {
            signal.pending -= 1;
            return self.pass(m);
        }
        signal.waiters.push_back(g);
        self.leave(m)
    }

    pub(super) fn signal(&mut self, m: u32, number: u32) -> After {
        let signal = self.waits.signal(number);
        match signal.waiters.pop_front() {
            Some(waiter) => self.wake_one(m, waiter),
            None => {
                signal.pending += 1;
                self.pass(m)
            }
        }
    }

    /// An operation that wakes no goroutine and does not wait.
    fn pass(&mut self, m: u32) -> After {
        self.spend(Spent::Schedule, self.config.costs.find());
        self.then(m, Todo::Run)
    }

    fn wake_one(&mut self, m: u32, g: u32) -> After {
        self.spend(Spent::Schedule, self.config.costs.ready());
        self.ready(self.p_of(m), g);
        self.then(m, Todo::Run)
    }
}
