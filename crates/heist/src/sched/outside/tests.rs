//! The poller's gate, and where what it finds is queued, seen from inside.

use super::timers;
use crate::current;
use crate::gmp::G;
use crate::gmp::g::WaitReason;
use crate::gmp::m::Seal;
use crate::sched::Sched;
use crate::sched::life::park::park;
use crate::sched::outside::poll::PollGate;
use crate::sched::run;
use crate::sys::clock;
use crate::{Builder, JoinHandle, Runtime};
use heist_core::list::List;
use heist_core::timer_heap::NEVER;
use std::io::{Read, Write};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn start(builder: Builder) -> Runtime {
    // SAFETY: these goroutines keep nothing across a park that is bound to a thread.
    unsafe { builder.quantum(Duration::from_secs(3600)).build() }.expect("the runtime starts")
}

#[track_caller]
fn eventually(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < until, "never happened: {what}");
        std::thread::yield_now();
    }
}

/// Goroutines that are parked and say so.
struct Parked {
    slots: Vec<AtomicPtr<G>>,
    /// The numbers of those that went on, in order.
    order: Mutex<Vec<usize>>,
    /// How many may end.
    n_running: AtomicU32,
}

unsafe fn say_so(gp: std::ptr::NonNull<G>, slot: *mut ()) -> bool {
    // SAFETY: the slots outlive the runtime.
    unsafe { &*slot.cast::<AtomicPtr<G>>() }.store(gp.as_ptr(), Ordering::Release);
    true
}

impl Parked {
    fn spawn(rt: &Runtime, n: usize) -> (Arc<Self>, Vec<JoinHandle<()>>) {
        let slots = (0..n).map(|_| AtomicPtr::new(null_mut())).collect();
        let order = Mutex::new(Vec::with_capacity(n));
        let parked = Arc::new(Self { slots, order, n_running: AtomicU32::new(0) });
        let handles = (0..n)
            .map(|i| {
                let parked = Arc::clone(&parked);
                rt.handle().spawn(move || {
                    let arg = (&raw const parked.slots[i]).cast_mut().cast();
                    let rt = current::enter().expect("a goroutine");
                    // SAFETY: the slot lives as long as `parked`.
                    drop(unsafe { park(rt, WaitReason::Sleep, Seal::Open, say_so, arg) });
                    parked.order.lock().expect("no holder panics").push(i);
                    parked.n_running.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        for slot in &parked.slots {
            eventually("all wait", || {
                // SAFETY: records are never unmapped.
                let gp = unsafe { slot.load(Ordering::Acquire).as_ref() };
                gp.is_some_and(|gp| gp.status.waiting().is_some())
            });
        }
        (parked, handles)
    }

    /// Claims all of them, as a waker does.
    fn claim(&self) -> List<G> {
        let mut list = List::new();
        for slot in &self.slots {
            // SAFETY: records are never unmapped.
            let gp = unsafe { &*slot.load(Ordering::Acquire) };
            let ticket = gp.status.waiting().expect("it waits");
            assert!(gp.status.claim(ticket));
            // SAFETY: just claimed.
            unsafe { list.push_back(gp.into()) };
        }
        list
    }

    fn order(&self) -> Vec<usize> {
        self.order.lock().expect("no holder panics").clone()
    }
}

/// What an injection did.
#[derive(Debug)]
struct Injected {
    n_idle: u32,
    global: u64,
    started: u64,
    /// In the own ring, if nobody was there to rob it.
    local: u32,
    in_global: u32,
}

/// Whether all processors but so many are idle, and their threads asleep. A thread that has given its
/// processor back looks at all queues once more, and may take a processor again by itself.
fn others_sleep(sched: &Sched, n_busy: u32) -> bool {
    // A goroutine takes locks of the runtime inside the runtime only.
    let rt = current::enter();
    let locked = sched.lock.lock();
    let asleep = sched.rest.idle().count() + n_busy == sched.procs()
        && locked.idle_ms.len() + n_busy == locked.roster.n_ms()
        && sched.rest.n_spinning() == 0;
    drop(locked);
    drop(rt);
    asleep
}

/// Injects from a goroutine, when all other processors rest.
fn inject_with_p(rt: &Runtime, n: usize) -> (Injected, Vec<usize>) {
    let (parked, handles) = Parked::spawn(rt, n);
    let here = Arc::clone(&parked);
    let injected = rt.run(move || {
        let sched = {
            let rt = current::enter().expect("a goroutine");
            std::ptr::from_ref(rt.sched())
        };
        // SAFETY: the runtime outlives its goroutines.
        let sched: &Sched = unsafe { &*sched };
        eventually("all others rest", || others_sleep(sched, 1));
        let rt = current::enter().expect("a goroutine");
        let woken = here.claim();
        let pp = rt.m().p();
        let n_idle = sched.rest.idle().count();
        let (global, started) = (pp.stats.global_put.get(), sched.stats.wake_ups.get());
        run::inject(sched, rt.holder(), woken);
        Injected {
            n_idle,
            global: pp.stats.global_put.get() - global,
            started: sched.stats.wake_ups.get() - started,
            local: pp.queue.len(),
            in_global: sched.global_len().get(),
        }
    });
    for handle in handles {
        handle.join().expect("ends well");
    }
    (injected, parked.order())
}

/// IN-24: with a P, one for each P at rest goes to the global queue, with as many Ms; the others stay
/// here.
#[test]
fn ready_lists_are_spread_over_the_ps_at_rest() {
    let rt = start(Runtime::builder().procs(4));
    for n in [1, 2, 3, 8, 100] {
        let (injected, mut order) = inject_with_p(&rt, n);
        let spread = n.min(3) as u64;
        assert_eq!(injected.n_idle, 3);
        assert_eq!(injected.global, spread, "{n}: {injected:?}");
        // The fence at the end wakes one more, if there is a P for it.
        assert!(injected.started >= spread, "{n}: {injected:?}");
        assert!(injected.local as usize <= n - spread as usize, "{n}: {injected:?}");
        order.sort_unstable();
        assert_eq!(order, (0..n).collect::<Vec<_>>());
    }
}

/// IN-24: what the ring does not hold goes to the global queue; nothing is lost, and with one P all
/// run in the order of the list.
#[test]
fn ready_lists_overflow_into_the_global_queue() {
    let rt = start(Runtime::builder().procs(1));
    let (injected, order) = inject_with_p(&rt, 50);
    assert_eq!((injected.global, injected.local, injected.started), (0, 50, 0), "{injected:?}");
    assert_eq!(order, (0..50).collect::<Vec<_>>());
    let (injected, mut order) = inject_with_p(&rt, 300);
    assert_eq!((injected.global, injected.local), (44, 256), "{injected:?}");
    assert_eq!(injected.in_global, 44);
    order.sort_unstable();
    assert_eq!(order, (0..300).collect::<Vec<_>>());
}

/// IN-24: without a P all go to the global queue, and an M is started for each, as far as there are
/// Ps at rest.
#[test]
fn ready_lists_without_a_p_start_as_many() {
    let rt = start(Runtime::builder().procs(4));
    let sched = rt.sched();
    for n in [1u32, 2, 4, 9] {
        let (parked, handles) = Parked::spawn(&rt, n as usize);
        eventually("all rest", || others_sleep(sched, 0));
        let (global, started) = (sched.stats.global_put.get(), sched.stats.wake_ups.get());
        let woken = parked.claim();
        run::inject_without_p(sched, woken);
        let started = sched.stats.wake_ups.get() - started;
        assert_eq!(sched.stats.global_put.get() - global, n.into());
        assert!(started >= n.min(4).into(), "{started} started for {n}");
        for handle in handles {
            handle.join().expect("ends well");
        }
        assert_eq!(parked.n_running.load(Ordering::Relaxed), n);
    }
}

/// IN-21: somebody waits in the poller only if there is something to wait for, says until when before
/// that, and when it was over after that.
#[test]
fn one_waits_in_the_poller_and_says_until_when() {
    let rt = start(Runtime::builder().procs(2));
    let (sched, gate) = (rt.sched(), &rt.sched().outside.gate);
    rt.handle().spawn(|| {}).join().expect("ends well");
    eventually("all rest", || sched.rest.idle().count() == 2);
    eventually("nobody waits for nothing", || gate.last_ns().is_some());
    assert_eq!(gate.until_ns(), 0);

    let (mut near, far) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let reader = rt.handle().spawn(move || {
        let mut far = crate::net::UnixStream::from_std(far).expect("ours");
        far.read_exact(&mut [0]).expect("reads");
    });
    // Without a timer it waits for ever.
    eventually("one waits", || gate.last_ns().is_none() && gate.until_ns() == NEVER);

    let sleeper = rt.handle().spawn(|| crate::time::sleep(Duration::from_secs(3600)));
    eventually("it waits for the timer", || {
        let until = gate.until_ns();
        until != 0 && until != NEVER && until == timers::earliest_timer_hint(sched)
    });
    sleeper.cancel();
    sleeper.join().expect_err("cancelled");

    let before = clock::now_ns();
    near.write_all(b"x").expect("writes");
    reader.join().expect("ends well");
    eventually("nobody waits any more", || gate.last_ns().is_some_and(|last| last >= before));
    assert_eq!(gate.until_ns(), 0);
}

/// IN-21: who looks without waiting is alone.
#[test]
fn one_looks_into_the_poller_at_a_time() {
    let gate = PollGate::new().expect("a poller");
    assert!(gate.enter());
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(!gate.enter(), "two are inside"));
    });
    gate.leave();
    assert!(gate.enter());
    gate.leave();
}

/// IN-21: whoever looks while another claims the wait leaves the claim alone.
#[test]
fn a_look_does_not_end_a_claim() {
    let gate = PollGate::new().expect("a poller");
    let last = gate.last_ns().expect("nobody waits");
    assert!(gate.enter());
    assert!(gate.claim());
    gate.looked(last);
    gate.leave();
    assert_eq!(gate.last_ns(), None, "the claim is gone");
    assert!(!gate.claim(), "a second one was made");
}

/// Who wants to wait while somebody looks sleeps until that one has left, whoever is faster.
#[test]
fn one_who_wants_to_wait_is_let_in() {
    let gate = PollGate::new().expect("a poller");
    let n_inside = AtomicU32::new(0);
    let inside = || {
        assert_eq!(n_inside.fetch_add(1, Ordering::Relaxed), 0, "two are inside");
        std::thread::yield_now();
        n_inside.fetch_sub(1, Ordering::Relaxed);
        gate.leave();
    };
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    if gate.enter() {
                        inside();
                    }
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..2_000 {
                gate.enter_to_wait();
                inside();
            }
        });
    });
    assert!(gate.enter(), "somebody is left inside");
}
