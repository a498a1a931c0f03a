//! Every interleaving of a goroutine that parks with its wakers: `status.rs`.
//!
//! Mutations it catches, each tried on `status.rs` or on the steps below:
//! - `claim` with Relaxed (the claimer misses what the goroutine wrote before it parked),
//! - `claim` by load and store instead of a CAS (two winners),
//! - `enter_waiting` that keeps the old ticket (a late claimer hits the next wait),
//! - the lock released before `begin_wait` (the wake-up is lost, IN-36),
//! - `begin_wait` without its fence, or `waiting` without SeqCst (park and cancel miss each other),
//! - `claim_if` that claims the word it reads after `is_meant`, or loads the word with Relaxed; the
//!   due time written after `begin_wait` (the clock ends the wrong wait, or misses its own).
#![cfg(loom)]

mod race;

use heist_core::status::{Status, StatusWord, Ticket};
use heist_core::sync::{AtomicU32, AtomicU64, Ordering};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex};
use loom::thread;
use race::{check, race};

/// A running goroutine, and the queue in which it will wait.
struct World {
    status: StatusWord,
    /// Written by the goroutine before it parks, read by its claimer.
    parked_with: UnsafeCell<u32>,
    queue: Mutex<Option<Ticket>>,
    cancelled: AtomicU32,
}

impl World {
    fn new() -> Arc<Self> {
        let world = Self {
            status: StatusWord::new(),
            parked_with: UnsafeCell::new(0),
            queue: Mutex::new(None),
            cancelled: AtomicU32::new(0),
        };
        world.status.transition(Status::Dead, Status::Runnable);
        world.status.transition(Status::Runnable, Status::Running);
        Arc::new(world)
    }

    /// IN-36: in the queue, then waiting, then the lock is released.
    fn park(&self, with: u32) -> Ticket {
        // SAFETY: the goroutine runs on this thread; loom checks.
        self.parked_with.with_mut(|place| unsafe { *place = with });
        let mut queue = self.queue.lock().unwrap();
        let ticket = self.status.next_ticket();
        *queue = Some(ticket);
        assert_eq!(self.status.begin_wait(full_fence), ticket);
        ticket
    }

    fn claim(&self, ticket: Ticket) -> bool {
        let won = self.status.claim(ticket);
        if won {
            // SAFETY: the claimer owns the goroutine; loom checks. Only the claim itself may order
            // it, so this comes before any other read of the status.
            self.parked_with.with(|place| assert_ne!(unsafe { *place }, 0));
            assert_eq!(self.status.get(), Status::Runnable);
        }
        won
    }

    /// A waker that finds the goroutine in the queue claims it; None if it was not there yet.
    fn ready(&self) -> Option<bool> {
        let ticket = *self.queue.lock().unwrap();
        ticket.map(|ticket| self.claim(ticket))
    }
}

/// IN-35, IN-36: a waker that finds the goroutine in the queue finds it waiting, and one of two
/// wins.
#[test]
fn one_of_two_claimers_wins() {
    check(|starts| {
        let world = World::new();
        let [parks, first, second] = [world.clone(), world.clone(), world.clone()];
        let (_, found) = race(
            starts,
            move || parks.park(1),
            move || {
                let other = thread::spawn(move || first.ready());
                [second.ready(), other.join().unwrap()]
            },
        );
        let found: Vec<bool> = found.into_iter().flatten().collect();
        let n_won = found.iter().filter(|&&won| won).count();
        assert_eq!(n_won, usize::from(!found.is_empty()), "claims: {found:?}");
        let now = if found.is_empty() { Status::Waiting } else { Status::Runnable };
        assert_eq!(world.status.get(), now);
    });
}

/// The claim alone hands the goroutine over: the claimer sees what it wrote before it parked.
#[test]
fn claimer_sees_what_the_goroutine_wrote() {
    check(|starts| {
        let world = World::new();
        let ticket = world.status.next_ticket();
        let [parks, claims] = [world.clone(), world.clone()];
        let (parked, won) = race(starts, move || parks.park(1), move || claims.claim(ticket));
        assert_eq!(parked, ticket);
        let now = if won { Status::Runnable } else { Status::Waiting };
        assert_eq!(world.status.get(), now);
    });
}

/// A goroutine that waits, and a claimer that may come too late. `go_on` is what the goroutine does
/// after the first claim, up to its next wait.
fn late_claimer(go_on: impl Fn(&World) + Clone + Send + Sync + 'static) {
    check(move |starts| {
        let world = World::new();
        let ticket = world.park(1);
        let [first, late] = [world.clone(), world.clone()];
        let go_on = go_on.clone();
        let (won, late_won) = race(
            starts,
            move || {
                let won = first.claim(ticket);
                if won {
                    first.status.transition(Status::Runnable, Status::Running);
                    go_on(&first);
                }
                won
            },
            move || late.claim(ticket),
        );
        assert!(won != late_won, "one wait is claimed once");
        let now = if won { Status::Waiting } else { Status::Runnable };
        assert_eq!(world.status.get(), now, "the next wait was claimed with an old ticket");
    });
}

/// IN-35: a claimer that comes late does not end the next wait.
#[test]
fn stale_ticket_does_not_end_the_next_wait() {
    late_claimer(|world| {
        world.park(2);
    });
}

/// The goroutine ends and its record becomes that of an unborn goroutine that waits: a claimer of
/// the old one comes too late as well.
#[test]
fn stale_ticket_does_not_reach_the_next_life() {
    late_claimer(|world| {
        world.status.transition(Status::Running, Status::Dead);
        world.status.transition(Status::Dead, Status::Waiting);
    });
}

/// A timer of an earlier wait, against a goroutine that was woken and waits again: until another
/// time, so that the timer must leave it alone, or without a deadline (`due` is never).
fn stale_timer(due: u64) {
    check(move |starts| {
        let world = World::new();
        let until = Arc::new(AtomicU64::new(1));
        let first = world.park(1);
        let [goes_on, fires] = [world.clone(), world.clone()];
        let [sets, reads] = [until.clone(), until.clone()];
        let (won, fired) = race(
            starts,
            move || {
                let won = goes_on.claim(first);
                if won {
                    goes_on.status.transition(Status::Runnable, Status::Running);
                    sets.store(due, Ordering::Relaxed);
                    goes_on.park(2);
                }
                won
            },
            move || fires.status.claim_if(|| reads.load(Ordering::Relaxed) == 1),
        );
        assert!(won != fired, "one wait is claimed once, and the next one not at all");
        let now = if won { Status::Waiting } else { Status::Runnable };
        assert_eq!(world.status.get(), now);
        // The next wait is ended by its own timer.
        assert_eq!(world.status.claim_if(|| until.load(Ordering::Relaxed) == due), won);
    });
}

/// IN-35: a timer whose wait is over does not end the next one.
#[test]
fn stale_timer_does_not_end_the_next_wait() {
    stale_timer(2);
}

/// The same if the next wait has no timer.
#[test]
fn stale_timer_does_not_end_a_wait_without_one() {
    stale_timer(u64::MAX);
}

/// A timer that finds its goroutine waiting sees until when it waits.
#[test]
fn a_timer_ends_its_own_wait() {
    check(|starts| {
        let world = World::new();
        let until = Arc::new(AtomicU64::new(0));
        let [parks, fires] = [world.clone(), world.clone()];
        let [sets, reads] = [until.clone(), until];
        let (_, fired) = race(
            starts,
            move || {
                sets.store(7, Ordering::Relaxed);
                parks.park(1)
            },
            move || {
                // There is no lock between them: only the word orders them.
                let waits = fires.status.waiting().is_some();
                let fired = fires.status.claim_if(|| reads.load(Ordering::Relaxed) == 7);
                assert!(fired || !waits, "the timer took its own wait for another");
                fired
            },
        );
        let now = if fired { Status::Runnable } else { Status::Waiting };
        assert_eq!(world.status.get(), now);
    });
}

/// A goroutine that parks reads its cancel flag; a canceller sets the flag and checks whether it
/// waits. They never both read too early, and never both claim. `before` is what the goroutine does
/// first.
fn cancelled_while_it_parks(before: impl Fn(&World) + Clone + Send + Sync + 'static) {
    check(move |starts| {
        let world = World::new();
        let [parks, cancels] = [world.clone(), world.clone()];
        let before = before.clone();
        let (woke_itself, was_woken) = race(
            starts,
            move || {
                before(&parks);
                let ticket = parks.park(1);
                parks.cancelled.load(Ordering::SeqCst) != 0 && parks.claim(ticket)
            },
            move || {
                cancels.cancelled.store(1, Ordering::SeqCst);
                cancels.status.waiting().is_some_and(|ticket| cancels.claim(ticket))
            },
        );
        assert!(woke_itself || was_woken, "cancelled, and it sleeps");
        assert!(!(woke_itself && was_woken), "claimed twice");
        assert_eq!(world.status.get(), Status::Runnable);
    });
}

/// Park against cancel.
#[test]
fn cancellation_is_not_missed() {
    cancelled_while_it_parks(|_| ());
}

/// The same for a goroutine that has yielded before: the plain stores of other transitions must
/// not hide the canceller.
#[test]
fn cancellation_is_not_missed_after_a_yield() {
    cancelled_while_it_parks(|world| {
        world.status.transition(Status::Running, Status::Runnable);
        world.status.transition(Status::Runnable, Status::Running);
    });
}

/// A full fence, for both sides of the pair of fences.
fn full_fence() {
    heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
}
