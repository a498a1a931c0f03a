//! Tests of the poller alone, with goroutines that are only records.

use super::desc::{Desc, Token};
use super::poller::{Poller, Wait};
use crate::gmp::G;
use crate::sys::clock::now_ns;
use crate::sys::thread;
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

/// NP-30, IN-23: an event returns the goroutine that waits, once, and the count is updated.
#[test]
fn an_event_returns_its_waiter_once() {
    let poller = Poller::new().expect("a poller");
    let (near, mut far) = pair();
    let desc = Desc::take().expect("a record");
    poller.shared().register(near.as_raw_fd(), desc).expect("registers");
    // The registration itself reports that the socket is writable.
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

/// NP-30: readiness from before the goroutine parks is not lost.
#[test]
fn readiness_before_parking_is_not_lost() {
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

/// A peer that hung up makes the direction eager: its end of file causes no second event.
#[test]
fn a_hang_up_makes_the_direction_eager() {
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

/// NP-31: an event that the kernel still holds when its record is used for another descriptor is
/// not delivered to that one.
#[test]
fn stale_events_do_not_reach_the_next_use() {
    let poller = Poller::new().expect("a poller");
    let (near, mut far) = pair();
    let first = Desc::take().expect("a record");
    poller.shared().register(near.as_raw_fd(), first).expect("registers");
    let _ = poll(&poller, Wait::Forever);
    far.write_all(b"x").expect("writes");
    // Returned without being deregistered: as if the event had been taken before the close.
    first.give();
    let mut others = Vec::new();
    let second = loop {
        // Other tests use the same pool.
        let desc = Desc::take().expect("a record");
        if std::ptr::eq(desc, first) {
            break desc;
        }
        others.push(desc);
    };
    let gp = running();
    assert!(park_on_read(&poller, second, gp));
    assert_eq!(poll(&poller, Wait::Forever), (vec![], 0), "a stale event was delivered");
    assert!(gp.status.waiting().is_some());
    second.read.withdraw();
    poller.waiters_gone(1);
    poller.shared().deregister(near.as_raw_fd());
    second.give();
    others.into_iter().for_each(Desc::give);
}

/// The same holds if the use ends after the event was matched to it and before it is delivered. The
/// waiter of the next use may be a goroutine of another runtime.
#[test]
fn a_late_event_wakes_no_goroutine() {
    let poller = Poller::new().expect("a poller");
    let desc = Desc::take().expect("a record");
    let token = Token::of(desc);
    let found = token.desc().expect("it is of this use");
    // As `give` and `take` do. Calling those would let another test take the record in between.
    assert!(desc.read.close().is_none());
    desc.read.open(token.tag() + 1);
    let gp = running();
    assert!(park_on_read(&poller, desc, gp));
    assert!(found.read.event_of(token.tag(), Edge::Eager).is_none());
    assert!(gp.status.waiting().is_some() && !desc.read.look().is_eager());
    let (waiter, _) = desc.read.event_of(token.tag() + 1, Edge::Plain).expect("it waits");
    assert_eq!(waiter, NonNull::from(gp));
    poller.waiters_gone(1);
    desc.give();
}

/// NP-31: an edge is reported once, however long the data stays unread, and again when more data
/// comes.
#[test]
fn events_are_edge_triggered() {
    let poller = Poller::new().expect("a poller");
    let (near, mut far) = pair();
    let desc = Desc::take().expect("a record");
    poller.shared().register(near.as_raw_fd(), desc).expect("registers");
    let _ = poll(&poller, Wait::Forever);
    for _ in 0..3 {
        let gp = running();
        assert!(park_on_read(&poller, desc, gp));
        assert_eq!(poll(&poller, Wait::No), (vec![], 0), "data was reported twice");
        // The data is not read.
        far.write_all(b"x").expect("writes");
        assert_eq!(poll(&poller, Wait::Forever), (vec![std::ptr::from_ref(gp)], 1));
    }
    poller.shared().deregister(near.as_raw_fd());
    desc.give();
}

/// NP-31: a call takes 128 events at most; the others come with the next.
#[test]
fn one_poll_takes_at_most_128_events() {
    let poller = Poller::new().expect("a poller");
    let wires: Vec<_> = (0..200)
        .map(|_| {
            let (near, far) = pair();
            let desc = Desc::take().expect("a record");
            poller.shared().register(near.as_raw_fd(), desc).expect("registers");
            (near, far, desc)
        })
        .collect();
    // The registrations cause events as well.
    for _ in 0..wires.len().div_ceil(128) {
        assert_eq!(poll(&poller, Wait::No), (vec![], 0));
    }
    let waiting: Vec<_> = wires
        .iter()
        .map(|(_, _, desc)| {
            let gp = running();
            assert!(park_on_read(&poller, desc, gp));
            std::ptr::from_ref(gp)
        })
        .collect();
    for (_, far, _) in &wires {
        (&*far).write_all(b"x").expect("writes");
    }
    let (mut found, n) = poll(&poller, Wait::Forever);
    assert_eq!((found.len(), n), (128, 128));
    assert_eq!(poller.waiters(), 72);
    let (rest, n) = poll(&poller, Wait::Forever);
    assert_eq!((rest.len(), n), (72, 72));
    found.extend(rest);
    assert_eq!(found, waiting);
    for (near, _, desc) in &wires {
        poller.shared().deregister(near.as_raw_fd());
        desc.give();
    }
}

/// NP-31: a signal ends a wait early, with nothing found.
#[test]
fn a_signal_ends_a_wait_early() {
    // The runtime installs the handler: without one the kernel drops the signal.
    // SAFETY: no goroutine is started.
    let rt = unsafe { crate::Runtime::builder().procs(1).build() }.expect("the runtime starts");
    let poller = Poller::new().expect("a poller");
    let (tell_tid, tid) = std::sync::mpsc::channel();
    let ended = AtomicBool::new(false);
    let began = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            tell_tid.send(thread::id()).expect("the test receives");
            assert_eq!(poll(&poller, Wait::UntilNs(now_ns() + 3600 * 1_000_000_000)), (vec![], 0));
            ended.store(true, Ordering::Relaxed);
        });
        let tid = tid.recv().expect("the thread starts");
        while !ended.load(Ordering::Relaxed) {
            assert!(began.elapsed() < Duration::from_secs(60), "the poll does not wake up");
            thread::interrupt(tid);
            std::thread::sleep(Duration::from_micros(100));
        }
    });
    drop(rt);
}

/// NP-31: the longest wait does not overflow and end at once.
#[test]
fn the_longest_wait_does_not_overflow() {
    let poller = Poller::new().expect("a poller");
    for until in [u64::MAX - 1, i64::MAX as u64, 1 << 62] {
        let woken = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _ = poll(&poller, Wait::UntilNs(until));
                assert!(woken.load(Ordering::Relaxed), "the wait until {until} ended by itself");
            });
            std::thread::sleep(Duration::from_millis(20));
            woken.store(true, Ordering::Relaxed);
            poller.wake();
        });
    }
}

/// NP-24, NP-25: a blocked poll returns when many threads wake it at once.
#[test]
fn a_blocked_poll_returns_when_woken() {
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
    // At most one wake-up is left over.
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
    // A moment in the past ends the wait at once, also when the same one is used twice.
    let past = now_ns() - 1;
    for _ in 0..3 {
        let _ = poll(&poller, Wait::UntilNs(past));
    }
}

/// A waker whose claim fails leaves the goroutine alone; it only marks the direction as ready.
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

/// A heavy fence: in these tests both sides of the pair are full fences.
fn full_fence() {
    heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
}
