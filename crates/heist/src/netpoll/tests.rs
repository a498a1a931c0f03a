//! The poller by itself, with goroutines that are only records.

use super::desc::{Desc, Token};
use super::poller::{Poller, Wait};
use crate::gmp::G;
use crate::sys::clock::now_ns;
use heist_core::list::List;
use heist_core::readiness::Edge;
use heist_core::status::Status;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A goroutine that runs.
fn running() -> &'static G {
    let gp = Box::leak(Box::new(G::new_dead()));
    gp.status.transition(Status::Dead, Status::Runnable);
    gp.status.transition(Status::Runnable, Status::Running);
    gp
}

/// Parks it on the read half, as the commit function does.
fn park_on_read(poller: &Poller, desc: &Desc, gp: &G) -> bool {
    let mut look = desc.read.look();
    if desc.read.drained(look) {
        look = desc.read.look();
    }
    let ticket = gp.status.begin_wait(full_fence);
    poller.shared().waiter_came();
    if desc.read.publish(look, NonNull::from(gp), ticket) {
        return true;
    }
    poller.waiters_gone(1);
    assert!(gp.status.claim(ticket));
    false
}

fn poll(poller: &Poller, wait: Wait) -> (Vec<*const G>, u32) {
    let mut ready = List::new();
    // SAFETY: these tests poll from one thread.
    let n = unsafe { poller.poll(wait, &mut ready) };
    let found = ready.iter().map(std::ptr::from_ref).collect();
    poller.waiters_gone(n);
    (found, n)
}

fn pair() -> (UnixStream, UnixStream) {
    let (near, far) = UnixStream::pair().expect("a pair of sockets");
    near.set_nonblocking(true).expect("non-blocking");
    (near, far)
}

/// NP-30, IN-23: an event hands back the goroutine that waits, once, and the count follows.
#[test]
fn an_event_hands_back_the_waiter() {
    let poller = Poller::new().expect("a poller");
    let (near, mut far) = pair();
    let desc = Desc::take().expect("a record");
    poller.shared().register(near.as_raw_fd(), desc).expect("registers");
    // The registration reports that it can be written.
    assert_eq!(poll(&poller, Wait::Forever), (vec![], 0));
    let gp = running();
    assert!(park_on_read(&poller, desc, gp));
    assert_eq!(poller.waiters(), 1);
    assert_eq!(poll(&poller, Wait::No), (vec![], 0));
    far.write_all(b"x").expect("writes");
    assert_eq!(poll(&poller, Wait::Forever), (vec![std::ptr::from_ref(gp)], 1));
    assert_eq!(poller.waiters(), 0);
    assert_eq!(gp.status.get(), Status::Runnable);
    assert!(desc.read.look().is_ready());
    assert_eq!(poll(&poller, Wait::No), (vec![], 0));
    poller.shared().deregister(near.as_raw_fd());
    desc.give();
}

/// NP-30: what became ready before the goroutine parks is not lost.
#[test]
fn ready_before_parking_is_consumed() {
    let poller = Poller::new().expect("a poller");
    let (mut near, mut far) = pair();
    let desc = Desc::take().expect("a record");
    poller.shared().register(near.as_raw_fd(), desc).expect("registers");
    let look = desc.read.look();
    assert!(near.read(&mut [0]).is_err());
    far.write_all(b"x").expect("writes");
    let _ = poll(&poller, Wait::Forever);
    assert!(!desc.read.drained(look), "the event came after the look");
    assert!(desc.read.look().is_ready());
    let gp = running();
    let ticket = gp.status.begin_wait(full_fence);
    assert!(!desc.read.publish(look, NonNull::from(gp), ticket));
    poller.shared().deregister(near.as_raw_fd());
    desc.give();
}

/// A peer that hung up leaves the direction eager: its end of file brings no second edge.
#[test]
fn hanging_up_makes_it_eager() {
    let poller = Poller::new().expect("a poller");
    let (near, mut far) = pair();
    let desc = Desc::take().expect("a record");
    poller.shared().register(near.as_raw_fd(), desc).expect("registers");
    far.write_all(b"x").expect("writes");
    let _ = poll(&poller, Wait::Forever);
    assert!(!desc.read.look().is_eager());
    drop(far);
    let _ = poll(&poller, Wait::Forever);
    assert!(desc.read.look().is_eager());
    assert!(desc.read.drained(desc.read.look()));
    assert!(desc.read.look().is_eager());
    poller.shared().deregister(near.as_raw_fd());
    desc.give();
}

/// NP-31: an event for an earlier use of the record is dropped.
#[test]
fn stale_events_are_dropped() {
    let desc = Desc::take().expect("a record");
    let token = Token::of(desc);
    assert!(token.desc().is_some());
    desc.give();
    assert!(token.desc().is_none());
    assert!(Token::TIMER.desc().is_none() && Token::WAKER.desc().is_none());
}

/// NP-24, NP-25: a poll that is blocked returns when broken, by many at once.
#[test]
fn a_blocked_poll_is_broken() {
    let poller = Poller::new().expect("a poller");
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    poller.wake();
                    std::thread::sleep(Duration::from_micros(100));
                }
            });
        }
        for _ in 0..100 {
            assert_eq!(poll(&poller, Wait::Forever), (vec![], 0));
        }
        done.store(true, Ordering::Relaxed);
    });
    // What is left of them is one wake-up at most.
    let _ = poll(&poller, Wait::No);
    let began = Instant::now();
    let _ = poll(&poller, Wait::UntilNs(now_ns() + 20_000_000));
    assert!(began.elapsed() >= Duration::from_millis(20), "a wake-up was left over");
}

/// NP-31: the end of a wait is exact to less than a millisecond, and never early.
#[test]
fn a_wait_ends_in_time() {
    let poller = Poller::new().expect("a poller");
    let best = (0..50)
        .map(|_| {
            let until = now_ns() + 300_000;
            let _ = poll(&poller, Wait::UntilNs(until));
            let now = now_ns();
            assert!(now >= until, "early by {} ns", until - now);
            now - until
        })
        .min();
    assert!(best < Some(500_000), "{best:?} ns late at best");
    // A moment that is over ends it at once, twice the same one as well.
    let past = now_ns() - 1;
    for _ in 0..3 {
        let _ = poll(&poller, Wait::UntilNs(past));
    }
}

/// A waker that lost against another leaves no trace but a try that is worth it.
#[test]
fn a_claimed_goroutine_is_left_alone() {
    let poller = Poller::new().expect("a poller");
    let (near, mut far) = pair();
    let desc = Desc::take().expect("a record");
    poller.shared().register(near.as_raw_fd(), desc).expect("registers");
    let _ = poll(&poller, Wait::Forever);
    let gp = running();
    assert!(park_on_read(&poller, desc, gp));
    let ticket = gp.status.waiting().expect("it waits");
    assert!(gp.status.claim(ticket));
    far.write_all(b"x").expect("writes");
    assert_eq!(poll(&poller, Wait::Forever), (vec![], 0));
    // The goroutine takes itself off the count.
    assert_eq!(poller.waiters(), 1);
    desc.read.withdraw();
    poller.waiters_gone(1);
    assert!(desc.read.look().is_ready());
    assert!(desc.read.event(Edge::Plain).is_none());
    poller.shared().deregister(near.as_raw_fd());
    desc.give();
}

/// Where both sides of the pair of fences are full ones.
fn full_fence() {
    heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
}
