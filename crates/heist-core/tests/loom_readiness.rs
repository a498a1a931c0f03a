//! Every interleaving of a goroutine that waits for a descriptor with events, pokes, the close and
//! a timer: `readiness.rs`.
//!
//! Mutations it catches, each tried on `readiness.rs` or on the steps below:
//! - `drained` that does not compare (an event between the look and the end of the data is lost),
//! - `publish` over any idle word (a poke or an event after the look is lost),
//! - a `poke` that leaves the number of an idle word (the new deadline is not seen),
//! - fields read after the word was taken (a waker claims with another wait's ticket),
//! - `publish` or `hand_out` with Relaxed (the waker misses that the goroutine waits).
#![cfg(loom)]

use heist_core::readiness::{Edge, Readiness};
use heist_core::status::{Status, StatusWord, Ticket};
use heist_core::sync::{AtomicU32, Ordering};
use loom::sync::Arc;
use loom::thread;
use std::ptr::NonNull;

struct World {
    status: StatusWord,
    half: Readiness<StatusWord>,
    /// The data that an operation finds: one if there is some.
    data: AtomicU32,
    /// The deadline of the wait.
    deadline: AtomicU32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Data,
    Deadline,
    Closed,
    /// It waits, and the remaining threads must wake it.
    Waits(Ticket),
}

impl World {
    fn new() -> Arc<Self> {
        let world = Self {
            status: StatusWord::new(),
            half: Readiness::new(),
            data: AtomicU32::new(0),
            deadline: AtomicU32::new(0),
        };
        world.half.open(0);
        world.status.transition(Status::Dead, Status::Runnable);
        world.status.transition(Status::Runnable, Status::Running);
        Arc::new(world)
    }

    /// A read: ends when it has data, or waits.
    fn read(&self) -> Ended {
        loop {
            let look = self.half.look();
            if look.is_closed() {
                return Ended::Closed;
            }
            if self.deadline.load(Ordering::Relaxed) != 0 {
                return Ended::Deadline;
            }
            if look.is_ready() {
                // The kernel orders this more strongly than Relaxed.
                if self.data.load(Ordering::Acquire) != 0 {
                    return Ended::Data;
                }
                self.half.drained(look);
                continue;
            }
            let ticket = self.status.begin_wait(full_fence);
            if self.half.publish(look, NonNull::from(&self.status), ticket) {
                return Ended::Waits(ticket);
            }
            assert!(self.status.claim(ticket), "no other thread has seen it");
            self.status.transition(Status::Runnable, Status::Running);
        }
    }

    fn wake(&self, waiter: Option<(NonNull<StatusWord>, Ticket)>) -> bool {
        let Some((gp, ticket)) = waiter else { return false };
        assert_eq!(gp.as_ptr().cast_const(), &raw const self.status);
        self.status.claim(ticket)
    }

    fn data_comes(&self) -> bool {
        self.data.store(1, Ordering::Release);
        self.wake(self.half.event(Edge::Plain))
    }

    fn deadline_is_set(&self) -> bool {
        self.deadline.store(1, Ordering::Relaxed);
        self.wake(self.half.poke())
    }
}

/// Runs the goroutine against `others`: in every order, it ends or is woken by one of them.
fn against(others: &'static [fn(&World) -> bool]) {
    let mut model = loom::model::Builder::new();
    if others.len() > 1 {
        // With three threads a third preemption takes minutes.
        model.preemption_bound = Some(2);
    }
    model.check(move || {
        let world = World::new();
        let threads: Vec<_> = others
            .iter()
            .map(|other| {
                let world = Arc::clone(&world);
                thread::spawn(move || other(&world))
            })
            .collect();
        let ended = world.read();
        let n_woken = threads.into_iter().map(|t| t.join().unwrap()).filter(|woken| *woken).count();
        match ended {
            Ended::Waits(_) => {
                assert_eq!(n_woken, 1, "woken {n_woken} times");
                world.status.transition(Status::Runnable, Status::Running);
                // It checks again and sees why it was woken.
                assert!(!matches!(world.read(), Ended::Waits(_)));
            }
            _ => assert_eq!(n_woken, 0),
        }
    });
}

/// NP-30: readiness that comes while the goroutine parks is not lost.
#[test]
fn event_versus_park() {
    against(&[World::data_comes]);
}

#[test]
fn poke_versus_park() {
    against(&[World::deadline_is_set]);
}

#[test]
fn close_versus_park() {
    against(&[|world| world.wake(world.half.close())]);
}

#[test]
fn event_and_poke_versus_park() {
    against(&[World::data_comes, World::deadline_is_set]);
}

#[test]
fn event_and_close_versus_park() {
    against(&[World::data_comes, |world| world.wake(world.half.close())]);
}

/// An event that changes nothing does not cause a later one to be lost.
#[test]
fn two_events_versus_park() {
    against(&[World::data_comes, |world| world.wake(world.half.event(Edge::Plain))]);
}

/// NP-30: a timer claims the goroutine while an event is being delivered; the goroutine withdraws
/// and waits again. A waker that took the first wait's word must not end the second wait, and the
/// event is not lost.
#[test]
fn timer_versus_event() {
    loom::model(|| {
        let world = World::new();
        let Ended::Waits(ticket) = world.read() else { panic!("there is no data") };
        let event = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.data_comes())
        };
        let timer = world.status.claim(ticket);
        let mut ended = None;
        if timer {
            world.half.withdraw();
            world.status.transition(Status::Runnable, Status::Running);
            ended = Some(world.read());
        }
        let woken = event.join().unwrap();
        match ended {
            None => assert!(woken, "neither timer nor event"),
            Some(Ended::Data) => assert!(!woken),
            Some(Ended::Waits(second)) => {
                assert!(woken, "the event is lost");
                assert!(!world.status.claim(second));
            }
            Some(other) => panic!("{other:?}"),
        }
    });
}

/// The same with two waiters one after the other: the fields belong to the word.
#[test]
fn a_late_waker_does_not_mix_up_waiters() {
    loom::model(|| {
        let world = World::new();
        let other = Arc::new(StatusWord::new());
        // The second goroutine has waited more often, so its tickets do not match those of the
        // first.
        other.transition(Status::Dead, Status::Waiting);
        other.transition(Status::Waiting, Status::Runnable);
        other.transition(Status::Runnable, Status::Running);
        let Ended::Waits(ticket) = world.read() else { panic!("there is no data") };
        let event = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                world.half.event(Edge::Plain).map(|(gp, ticket)| (gp.as_ptr().addr(), ticket))
            })
        };
        assert!(world.status.claim(ticket));
        world.half.withdraw();
        let mut look = world.half.look();
        if look.is_ready() {
            world.half.drained(look);
            look = world.half.look();
        }
        let second = other.begin_wait(full_fence);
        let published = world.half.publish(look, NonNull::from(&*other), second);
        match event.join().unwrap() {
            None => assert!(!published || !world.half.look().is_ready()),
            Some((gp, with)) if gp == (&raw const world.status).addr() => assert_eq!(with, ticket),
            Some((gp, with)) => {
                assert_eq!(gp, Arc::as_ptr(&other).addr());
                assert_eq!(with, second);
            }
        }
    });
}

/// A full fence, for both sides of the pair of fences.
fn full_fence() {
    heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
}
