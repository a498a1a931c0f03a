//! A channel over any buffer, built as the runtime's: the fast path uses the buffer alone, and the
//! waiters are behind a lock. Waiting is a mutex with a condition, so a lost wake-up is a deadlock,
//! which loom reports.

use heist_core::buffer::{Buffer, Put, Take};
use loom::sync::{Arc, Condvar, Mutex};
use std::collections::VecDeque;
use std::mem::{ManuallyDrop, MaybeUninit};

/// A waiter, with the message that it sends or receives.
#[derive(Default)]
struct Waiter {
    /// The message, and whether the waiter was woken.
    message: Mutex<(Option<u32>, bool)>,
    woken: Condvar,
}

impl Waiter {
    fn with(message: Option<u32>) -> Arc<Self> {
        Arc::new(Self { message: Mutex::new((message, false)), woken: Condvar::new() })
    }

    fn wake(&self, message: Option<u32>) {
        let mut state = self.message.lock().unwrap();
        assert!(!state.1, "woken twice");
        *state = (message, true);
        self.woken.notify_one();
    }

    fn sleep(&self) -> Option<u32> {
        let mut state = self.message.lock().unwrap();
        while !state.1 {
            state = self.woken.wait(state).unwrap();
        }
        state.0
    }
}

#[derive(Default)]
struct Queues {
    receivers: VecDeque<Arc<Waiter>>,
    senders: VecDeque<Arc<Waiter>>,
}

pub struct Channel<B> {
    pub buffer: B,
    queues: Mutex<Queues>,
}

impl<B: Buffer<u32>> Channel<B> {
    pub fn new(buffer: B) -> Arc<Self> {
        Arc::new(Self { buffer, queues: Mutex::default() })
    }

    /// Whether the message was sent.
    pub fn send(&self, message: u32) -> bool {
        let message = ManuallyDrop::new(message);
        let mut spare = B::Spare::default();
        loop {
            // SAFETY: the message is on this stack.
            match unsafe { self.buffer.put(&raw const *message, &mut spare) } {
                Put::Done => return true,
                Put::Closed => return false,
                Put::Starved => B::provide(&mut spare),
                Put::Full | Put::Attend => {}
            }
            let mut queues = self.queues.lock().unwrap();
            if self.buffer.is_closed() {
                return false;
            }
            if let Some(receiver) = queues.receivers.pop_front() {
                if queues.receivers.is_empty() {
                    self.buffer.no_receivers();
                }
                drop(queues);
                receiver.wake(Some(*message));
                return true;
            }
            if !self.buffer.await_room() {
                drop(queues);
                loom::thread::yield_now();
                continue;
            }
            let waiter = Waiter::with(Some(*message));
            queues.senders.push_back(Arc::clone(&waiter));
            drop(queues);
            // If the message was taken, it was sent; if it is left, the channel is closed.
            return waiter.sleep().is_none();
        }
    }

    pub fn try_recv(&self) -> Result<u32, Take> {
        let mut place = MaybeUninit::uninit();
        let mut spent = B::Spare::default();
        loop {
            // SAFETY: there is room for a message.
            match unsafe { self.buffer.take(place.as_mut_ptr(), &mut spent) } {
                // SAFETY: a message was moved in.
                Take::Done => return Ok(unsafe { place.assume_init() }),
                Take::Attend => {
                    if let Some(message) = self.rotate(&mut self.queues.lock().unwrap()) {
                        return Ok(message);
                    }
                    loom::thread::yield_now();
                }
                refused => return Err(refused),
            }
        }
    }

    fn rotate(&self, queues: &mut Queues) -> Option<u32> {
        let sender = queues.senders.pop_front()?;
        let incoming = sender.message.lock().unwrap().0.expect("a sender has a message");
        let mut place = MaybeUninit::uninit();
        // SAFETY: it is a message of a waiting sender, and there is room for one.
        unsafe { self.buffer.rotate(&raw const incoming, place.as_mut_ptr()) };
        if queues.senders.is_empty() {
            self.buffer.no_senders();
        }
        sender.wake(None);
        // SAFETY: the oldest message was moved in.
        Some(unsafe { place.assume_init() })
    }

    /// None if the channel is closed and empty.
    pub fn recv(&self) -> Option<u32> {
        loop {
            match self.try_recv() {
                Ok(message) => return Some(message),
                Err(Take::Closed) => return None,
                Err(_) => {}
            }
            let mut queues = self.queues.lock().unwrap();
            if let Some(message) = self.rotate(&mut queues) {
                return Some(message);
            }
            if self.buffer.is_closed() || !self.buffer.await_message() {
                drop(queues);
                loom::thread::yield_now();
                continue;
            }
            let waiter = Waiter::with(None);
            queues.receivers.push_back(Arc::clone(&waiter));
            drop(queues);
            return waiter.sleep();
        }
    }

    pub fn close(&self) {
        let mut queues = self.queues.lock().unwrap();
        self.buffer.close();
        if !queues.receivers.is_empty() {
            self.buffer.no_receivers();
        }
        if !queues.senders.is_empty() {
            self.buffer.no_senders();
        }
        let receivers = std::mem::take(&mut queues.receivers);
        let senders = std::mem::take(&mut queues.senders);
        drop(queues);
        receivers.iter().for_each(|receiver| receiver.wake(None));
        // Any message means that the send failed.
        senders.iter().for_each(|sender| sender.wake(Some(0)));
    }
}
