//! Tests of the poller's gate, and of where the goroutines that the poller finds are queued, from
//! inside.

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

/// Goroutines that park and publish their records.
struct Parked {
    slots: Vec<AtomicPtr<G>>,
    /// The indices of the goroutines that were woken and ran, in order.
    order: Mutex<Vec<usize>>,
    /// How many goroutines were woken and ran.
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
            eventually("all goroutines wait", || {
                // SAFETY: records are never unmapped.
                let gp = unsafe { slot.load(Ordering::Acquire).as_ref() };
                gp.is_some_and(|gp| gp.status.waiting().is_some())
            });
        }
        (parked, handles)
    }

    /// Claims the waits of all goroutines, as a waker does.
    fn claim(&self) -> List<G> {
        let mut list = List::new();
        for slot in &self.slots {
            // SAFETY: records are never unmapped.
            let gp = unsafe { &*slot.load(Ordering::Acquire) };
            let ticket = gp.status.waiting().expect("the goroutine waits");
            assert!(gp.status.claim(ticket));
            // SAFETY: it was just claimed, so it is in no list.
            unsafe { list.push_back(gp.into()) };
        }
        list
    }

    fn order(&self) -> Vec<usize> {
        self.order.lock().expect("no holder panics").clone()
    }
}

/// The effects of an injection.
#[derive(Debug)]
struct Injected {
    /// How many Ps were idle before.
    n_idle: u32,
    /// How many goroutines were put into the global queue.
    global: u64,
    /// How many Ms were woken.
    started: u64,
    /// How many goroutines are in the own ring; exact only if no thief took any meanwhile.
    local: u32,
    /// The length of the global queue.
    in_global: u32,
}

/// Whether all processors but `n_busy` are idle and their threads sleep. Idle processors are not
/// enough: a thread that has given its processor back looks at all queues once more, and may take a
/// processor again by itself.
fn others_sleep(sched: &Sched, n_busy: u32) -> bool {
    // A goroutine may take locks of the runtime only inside the runtime.
    let rt = current::enter();
    let locked = sched.lock.lock();
    let asleep = sched.rest.idle().count() + n_busy == sched.procs()
        && locked.idle_ms.len() + n_busy == locked.roster.n_ms()
        && sched.rest.n_spinning() == 0;
    drop(locked);
    drop(rt);
    asleep
}

/// Injects `n` goroutines from another one, while all other processors are idle.
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
        eventually("all other Ps are idle", || others_sleep(sched, 1));
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

/// IN-24: with a P, one goroutine for each idle P goes to the global queue and as many Ms are
/// started; the other goroutines stay at this P.
#[test]
fn ready_lists_are_spread_over_the_idle_ps() {
    let rt = start(Runtime::builder().procs(4));
    for n in [1, 2, 3, 8, 100] {
        let (injected, mut order) = inject_with_p(&rt, n);
        let spread = n.min(3) as u64;
        assert_eq!(injected.n_idle, 3);
        assert_eq!(injected.global, spread, "{n}: {injected:?}");
        // `inject` announces work at its end, which wakes one more M if there is a P for it.
        assert!(injected.started >= spread, "{n}: {injected:?}");
        assert!(injected.local as usize <= n - spread as usize, "{n}: {injected:?}");
        order.sort_unstable();
        assert_eq!(order, (0..n).collect::<Vec<_>>());
    }
}

/// IN-24: goroutines that do not fit into the ring go to the global queue. None is lost, and with
/// one P all that fit run in the order of the list.
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

/// IN-24: without a P all goroutines go to the global queue, and an M is started for each as long
/// as there are idle Ps.
#[test]
fn ready_lists_without_a_p_start_as_many() {
    let rt = start(Runtime::builder().procs(4));
    let sched = rt.sched();
    for n in [1u32, 2, 4, 9] {
        let (parked, handles) = Parked::spawn(&rt, n as usize);
        eventually("all Ps are idle", || others_sleep(sched, 0));
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

/// IN-21: an M waits in the poller only if there is something to wait for. It publishes before the
/// wait until when it waits, and after the wait when that was over.
#[test]
fn one_waits_in_the_poller_and_says_until_when() {
    let rt = start(Runtime::builder().procs(2));
    let (sched, gate) = (rt.sched(), &rt.sched().outside.gate);
    rt.handle().spawn(|| {}).join().expect("ends well");
    eventually("all Ps are idle", || sched.rest.idle().count() == 2);
    eventually("no M waits without a reason", || gate.last_ns().is_some());
    assert_eq!(gate.until_ns(), 0);

    let (mut near, far) = std::os::unix::net::UnixStream::pair().expect("a pair");
    let reader = rt.handle().spawn(move || {
        let mut far = crate::net::UnixStream::from_std(far).expect("a stream of heist");
        far.read_exact(&mut [0]).expect("reads");
    });
    // Without a timer the wait has no end.
    eventually("an M waits", || gate.last_ns().is_none() && gate.until_ns() == NEVER);

    let sleeper = rt.handle().spawn(|| crate::time::sleep(Duration::from_secs(3600)));
    eventually("the M waits for the timer", || {
        let until = gate.until_ns();
        until != 0 && until != NEVER && until == timers::earliest_timer_hint(sched)
    });
    sleeper.cancel();
    sleeper.join().expect_err("cancelled");

    let before = clock::now_ns();
    near.write_all(b"x").expect("writes");
    reader.join().expect("ends well");
    eventually("no M waits any more", || gate.last_ns().is_some_and(|last| last >= before));
    assert_eq!(gate.until_ns(), 0);
}

/// IN-21: one thread at a time polls without waiting.
#[test]
fn one_looks_into_the_poller_at_a_time() {
    let gate = PollGate::new().expect("a poller");
    assert!(gate.enter());
    std::thread::scope(|scope| {
        scope.spawn(|| assert!(!gate.enter(), "two threads are inside"));
    });
    gate.leave();
    assert!(gate.enter());
    gate.leave();
}

/// IN-21: a thread that polls without waiting does not end a claim that another one makes
/// meanwhile.
#[test]
fn a_look_does_not_end_a_claim() {
    let gate = PollGate::new().expect("a poller");
    let last = gate.last_ns().expect("no M waits");
    assert!(gate.enter());
    assert!(gate.claim());
    gate.looked(last);
    gate.leave();
    assert_eq!(gate.last_ns(), None, "the claim is gone");
    assert!(!gate.claim(), "a second claim was made");
}

/// A thread that wants to wait while another one polls gets in after that one has left, however the
/// two race.
#[test]
fn a_thread_that_wants_to_wait_is_let_in() {
    let gate = PollGate::new().expect("a poller");
    let n_inside = AtomicU32::new(0);
    let inside = || {
        assert_eq!(n_inside.fetch_add(1, Ordering::Relaxed), 0, "two threads are inside");
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
    assert!(gate.enter(), "a thread is left inside");
}
