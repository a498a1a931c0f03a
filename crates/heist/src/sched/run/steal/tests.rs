//! Tests of stealing from inside: goroutines that never yield occupy all processors, so that only
//! the test moves goroutines.

use super::super::queue::push_local;
use super::{steal_from_stalled, steal_work};
use crate::coro::stack::Class;
use crate::current::{self, InRuntime};
use crate::gmp::g::WaitReason;
use crate::gmp::m::Seal;
use crate::gmp::{G, P};
use crate::goroutine::{self, Class as Urgency};
use crate::sched::Sched;
use crate::sched::life::park::park;
use crate::sched::rest;
use crate::sched::run::find::{Found, Next, next_local};
use crate::sched::run::steal::is_running;
use crate::sys::clock;
use crate::{Runtime, go, testing};
use heist_core::policy::RUN_NEXT_BACK_OFF_NS;
use heist_core::run_queue::Slot;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const AN_HOUR: Duration = Duration::from_secs(3600);

/// The messages between the test and a goroutine that occupies a processor.
#[derive(Default)]
struct Hog {
    /// The number of its processor plus one; zero until it runs.
    at: AtomicU32,
    /// How many goroutines it has to spawn.
    wanted: AtomicU32,
    /// How many goroutines it has spawned.
    spawned: AtomicU32,
    /// Tells it to end.
    free: AtomicBool,
}

#[track_caller]
fn spin_until(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < until, "never happened: {what}");
        std::hint::spin_loop();
    }
}

impl Hog {
    /// Starts a goroutine that occupies a processor. It stays in user code, except while it spawns
    /// the goroutines that the test asks for.
    fn start() -> Arc<Self> {
        let hog = Arc::new(Self::default());
        let own = Arc::clone(&hog);
        go(move || {
            let (_, p) = testing::m_and_p().expect("a goroutine");
            own.at.store(p + 1, Ordering::Release);
            while !own.free.load(Ordering::Acquire) {
                if own.spawned.load(Ordering::Relaxed) < own.wanted.load(Ordering::Acquire) {
                    go(|| ());
                    own.spawned.fetch_add(1, Ordering::Release);
                }
                std::hint::spin_loop();
            }
        });
        spin_until("the hog runs", || hog.at.load(Ordering::Acquire) != 0);
        hog
    }

    fn p(&self) -> u32 {
        self.at.load(Ordering::Acquire) - 1
    }

    /// Makes it spawn `n` goroutines, which stay in its queue while every processor is occupied.
    fn spawn(&self, n: u32) {
        let wanted = self.wanted.fetch_add(n, Ordering::Release) + n;
        spin_until("the hog has spawned", || self.spawned.load(Ordering::Acquire) == wanted);
    }
}

/// Frees the processor of a hog when dropped, also if the test fails.
struct Occupied(Arc<Hog>);

impl Drop for Occupied {
    fn drop(&mut self) {
        self.0.free.store(true, Ordering::Release);
    }
}

/// Runs `body` in a goroutine of a runtime in which no goroutine is preempted.
fn with_procs(procs: usize, body: impl FnOnce(&Runtime) + Send) {
    let builder = Runtime::builder().procs(procs).exact_quantum(AN_HOUR).wake_up_bound(AN_HOUR);
    // SAFETY: these goroutines keep nothing across a park that is bound to a thread.
    let rt = unsafe { builder.build() }.expect("the runtime starts");
    rt.run(|| body(&rt));
}

fn occupy() -> Occupied {
    Occupied(Hog::start())
}

unsafe fn say_so(gp: NonNull<G>, slot: *mut ()) -> bool {
    // SAFETY: the slot outlives the wait.
    unsafe { &*slot.cast::<AtomicPtr<G>>() }.store(gp.as_ptr(), Ordering::Release);
    true
}

/// A new goroutine of that class, parked until a timer wakes it.
fn parked(class: Urgency) -> &'static G {
    let slot: &'static AtomicPtr<G> = Box::leak(Box::new(AtomicPtr::new(null_mut())));
    let waits = move || {
        let rt = current::enter().expect("a goroutine");
        let arg = std::ptr::from_ref(slot).cast_mut().cast();
        // SAFETY: the slot is never freed.
        let (rt, _) = unsafe { park(rt, WaitReason::Sleep, Seal::Open, say_so, arg) };
        drop(rt);
    };
    goroutine::Builder::new().class(class).spawn(waits).expect("there is memory");
    crate::yield_now();
    spin_until("the goroutine is parked", || !slot.load(Ordering::Acquire).is_null());
    // SAFETY: records are never unmapped.
    unsafe { &*slot.load(Ordering::Acquire) }
}

/// Gives the processor `p` a timer that is due now and wakes `gp`.
fn add_due_timer(sched: &Sched, p: u32, gp: &G) {
    assert!(gp.status.waiting().is_some(), "the goroutine waits");
    sched.rest.idle().timers.set(p);
    // It is due only now: sysmon would run a timer that has been due for long.
    let now_ns = clock::now_ns();
    gp.set_due(now_ns);
    assert!(sched.p(p).timers.add(now_ns, NonNull::from(gp), sched), "there is memory");
}

/// One search of the other Ps by the M of the calling goroutine, and the number of its visits.
fn steal(rt: &InRuntime) -> (Found, u64) {
    let (m, sched) = (rt.holder(), rt.sched());
    let attempts = || m.p().stats.steal_attempts.get();
    let before = attempts();
    let found = steal_work(sched, m);
    rest::end_spin(sched, &m);
    (found, attempts() - before)
}

/// Queues the goroutine that was found at the own processor.
#[track_caller]
fn keep(rt: &InRuntime, found: Found) -> NonNull<G> {
    let Found::Run(Next { gp, .. }) = found else { panic!("{found:?}") };
    // SAFETY: it was just found, so it is valid and in no queue.
    unsafe { push_local(rt.holder(), gp, Slot::Tail) };
    gp
}

/// IN-13: there are four passes, and none of them visits the own P.
#[test]
fn a_thief_leaves_its_own_processor_alone() {
    with_procs(2, |_| {
        let hog = occupy();
        (0..3).for_each(|_| drop(go(|| ())));
        let rt = current::enter().expect("a goroutine");
        let (found, visits) = steal(&rt);
        assert_eq!((rt.m().p().queue.len(), visits), (3, 4));
        assert!(matches!(found, Found::Nothing), "{found:?}");
        drop(rt);
        drop(hog);
    });
}

/// IN-13: a thief does not visit idle Ps for goroutines.
#[test]
fn a_thief_skips_idle_processors() {
    with_procs(4, |_| {
        let hog = occupy();
        let rt = current::enter().expect("a goroutine");
        let sched = rt.sched();
        spin_until("two Ps are idle", || {
            sched.rest.idle().count() == 2 && sched.rest.n_spinning() == 0
        });
        let (found, visits) = steal(&rt);
        drop(rt);
        assert!(matches!(found, Found::Nothing), "{found:?}");
        assert_eq!(visits, 4, "one busy P in each of four passes");
        drop(hog);
    });
}

/// IN-13, IN-07: a thief touches the timers and the `run_next` of other Ps in the fourth pass only,
/// so it takes goroutines in a ring first. A goroutine that a timer woke comes before `run_next`.
#[test]
fn timers_and_run_next_come_last() {
    with_procs(2, |_| {
        let sleeper = parked(Urgency::Normal);
        let hog = occupy();
        hog.0.spawn(2);
        let rt = current::enter().expect("a goroutine");
        let sched = rt.sched();
        let victim = sched.p(hog.0.p());
        add_due_timer(sched, victim.id, sleeper);

        let (found, visits) = steal(&rt);
        keep(&rt, found);
        let first = (visits, victim.queue.len(), victim.timers.len());

        let (found, visits) = steal(&rt);
        let woken = std::ptr::eq(keep(&rt, found).as_ptr(), sleeper);
        let second = (visits, victim.queue.len(), victim.timers.len());

        let taken = || rt.m().p().stats.stolen_run_next.get();
        let (before, began_ns) = (taken(), clock::now_ns());
        let (found, visits) = steal(&rt);
        let lasted_ns = clock::now_ns() - began_ns;
        keep(&rt, found);
        let third = (visits, victim.queue.len(), taken() - before);
        drop(rt);

        assert_eq!(first, (1, 1, 1), "from the ring, in the first pass");
        assert_eq!((second, woken), ((3, 1, 0), true), "by the timer, before the fourth visit");
        assert_eq!(third, (4, 0, 1), "from run_next, in the fourth pass");
        assert!(lasted_ns >= RUN_NEXT_BACK_OFF_NS, "it did not back off: {lasted_ns} ns");
        drop(hog);
    });
}

/// IN-13: a thief runs the timers of an idle P too.
#[test]
fn timers_of_idle_processors_are_run() {
    with_procs(3, |_| {
        let sleeper = parked(Urgency::Normal);
        let hog = occupy();
        let rt = current::enter().expect("a goroutine");
        let sched = rt.sched();
        spin_until("one P is idle", || {
            sched.rest.idle().count() == 1 && sched.rest.n_spinning() == 0
        });
        let idle = (0..3).find(|id| sched.rest.idle().idle.contains(*id)).expect("one P is idle");
        add_due_timer(sched, idle, sleeper);
        let (found, _) = steal(&rt);
        let woken = std::ptr::eq(keep(&rt, found).as_ptr(), sleeper);
        drop(rt);
        assert!(woken);
        drop(hog);
    });
}

/// IN-13: if a timer ran and the goroutine that it woke is not at this P, the search begins again.
#[test]
fn a_timer_that_ran_begins_the_search_again() {
    with_procs(2, |_| {
        let sleeper = parked(Urgency::Latency);
        let hog = occupy();
        let rt = current::enter().expect("a goroutine");
        let sched = rt.sched();
        add_due_timer(sched, hog.0.p(), sleeper);
        let (found, visits) = steal(&rt);
        let left = sched.p(hog.0.p()).timers.len();
        drop(rt);
        assert!(matches!(found, Found::Retry), "{found:?}");
        assert_eq!((visits, left), (4, 0));
        drop(hog);
    });
}

/// IN-13: a pending stop of the world ends the search, even if there are goroutines to steal.
#[test]
fn a_pending_stop_ends_the_search() {
    with_procs(2, |runtime| {
        let hog = occupy();
        hog.0.spawn(3);
        let handle = runtime.handle();
        let begin = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&begin);
        let stopper = std::thread::spawn(move || {
            spin_until("the thread is told to stop the world", || told.load(Ordering::Acquire));
            testing::stop_the_world(&handle, || ())
        });
        let rt = current::enter().expect("a goroutine");
        let sched = rt.sched();
        begin.store(true, Ordering::Release);
        spin_until("the world stops", || sched.world.is_stopping());
        let (found, visits) = steal(&rt);
        // The hog may lose its P meanwhile, as one that blocks: then others run what waits there.
        let stolen = rt.holder().p().queue.len();
        drop(rt);
        assert!(matches!(found, Found::Retry), "{found:?}");
        assert_eq!((visits, stolen), (0, 0));
        crate::blocking(|| stopper.join()).expect("the stopper does not panic");
        drop(hog);
    });
}

/// A thief takes what waits in the ring of a stalled P before it asks the network. It takes all of
/// it and keeps the order: the goroutine that has waited longest runs first, or two Ms that steal
/// from each other again and again would never come to it. The thief leaves `run_next` alone, and
/// takes nothing if no goroutine waits for the network.
#[test]
fn a_stalled_processor_is_stolen_from_before_the_network_is_polled() {
    with_procs(2, |_| {
        let hog = occupy();
        hog.0.spawn(8);
        let rt = current::enter().expect("a goroutine");
        let (m, sched) = (rt.holder(), rt.sched());
        let (own, victim) = (m.p(), sched.p(hog.0.p()));
        let waiters = sched.outside.poller().shared();

        let without = [steal_from_stalled(sched, m), steal_from_stalled(sched, m)];
        waiters.waiter_came();
        let first = steal_from_stalled(sched, m);
        let before = (own.queue.len(), victim.queue.len());
        let second = steal_from_stalled(sched, m);
        let after = (own.queue.len(), victim.queue.len());
        let third = [steal_from_stalled(sched, m), steal_from_stalled(sched, m)];
        waiters.waiters_gone(1);
        let id_of = |next: &Next| {
            // SAFETY: it was found, so it is valid and belongs to this M.
            unsafe { next.gp.as_ref() }.id.get()
        };
        let mut ids = [0; 7];
        ids[0] = second.as_ref().map_or(u64::MAX, id_of);
        for id in &mut ids[1..] {
            let next = next_local(m);
            *id = next.as_ref().map_or(0, id_of);
            keep(&rt, next.map_or(Found::Nothing, Found::Run));
        }
        keep(&rt, second.map_or(Found::Nothing, Found::Run));
        drop(rt);

        assert!(ids.is_sorted(), "not in the order of their ids: {ids:?}");
        assert!(without.iter().all(Option::is_none), "stole without network waiters: {without:?}");
        assert!(first.is_none(), "stole at the first look: {first:?}");
        assert_eq!(before, (0, 8));
        assert_eq!(after, (6, 1), "one to run, six here, and run_next where it was");
        assert!(third.iter().all(Option::is_none), "stole from an empty ring: {third:?}");
        drop(hog);
    });
}

/// A thief also finds the last P stalled if Ps are reserved for the latency class: those have the
/// lowest numbers.
#[test]
fn every_p_may_be_stalled_beside_reserved_ones() {
    let builder = Runtime::builder().procs(3).latency_procs(1);
    // SAFETY: these goroutines keep nothing across a park that is bound to a thread.
    let rt = unsafe { builder.exact_quantum(AN_HOUR).wake_up_bound(AN_HOUR).build() };
    let rt = rt.expect("the runtime starts");
    for _ in 0..10 {
        rt.run(|| {
            let hog = occupy();
            hog.0.spawn(8);
            let rt = current::enter().expect("a goroutine");
            let (m, sched) = (rt.holder(), rt.sched());
            let waiters = sched.outside.poller().shared();
            waiters.waiter_came();
            let found = (0..6).find_map(|_| steal_from_stalled(sched, m));
            waiters.waiters_gone(1);
            let is_found = found.is_some();
            keep(&rt, found.map_or(Found::Nothing, Found::Run));
            drop(rt);
            let stalled = hog.0.p();
            drop(hog);
            assert!(is_found, "P{stalled} is stalled");
        });
    }
}

/// IN-07: a thief backs off from `run_next` if the victim runs. It does not if no M holds the P, or
/// if the M that holds it is in a blocking call.
#[test]
fn only_a_running_victim_makes_a_thief_back_off() {
    with_procs(1, |_| {
        let pp = P::new(0, Class::for_bytes(32 << 10).expect("a size of stacks"), 1, None, false);
        assert!(!is_running(&pp), "no M holds it");
        let m = current::m();
        pp.set_m(m);
        assert!(is_running(&pp), "user code runs with it");
        let rt = current::enter();
        let in_runtime = is_running(&pp);
        drop(rt);
        assert!(in_runtime, "its goroutine is in the runtime");
        assert!(!crate::blocking(|| is_running(&pp)), "its goroutine is in a blocking call");
        pp.set_m(std::ptr::null());
    });
}
