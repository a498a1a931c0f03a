//! The time of the eleven basic operations of a work-stealing scheduler.
//!
//! The first seven are those of `heist_core`, alone on one thread, as the runtime calls them. The
//! others need a second thread: an M that sleeps on its note, and a spawn that wakes it.

use std::hint::black_box;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use heist_core::global_queue::{GlobalLen, GlobalQueue, Lane};
use heist_core::list::{Link, Linked};
use heist_core::note::{Futex, Note};
use heist_core::policy::Share;
use heist_core::run_queue::{RunNext, RunQueue, Slot, Stolen};
use heist_core::spinning::Spinning;

/// Goroutines that are pushed and popped in a row: fewer than fit into the ring.
const ROW: usize = 200;
/// Rounds of a measurement that has its own clock readings.
const ROUNDS: usize = 20_000;
/// Wake-ups of a sleeping thread.
const WAKE_UPS: usize = 400;
/// After this long without work the other M sleeps.
const LONG_IDLE: Duration = Duration::from_millis(2);

/// Stands in for a goroutine.
#[derive(Default)]
struct Node(Link<Self>);

// SAFETY: always the same field, which no other code uses; the nodes are leaked, so they stay
// valid.
unsafe impl Linked for Node {
    fn link(&self) -> &Link<Self> {
        &self.0
    }
}

/// Takes all figures and prints them.
pub fn measure() -> Result<(), String> {
    println!("{:52} {:>9} {:>9}", "operation, ns", "heist", "Go (1)");
    let nodes: Vec<_> = (0..2 * ROW).map(|_| NonNull::from(Box::leak(Box::default()))).collect();
    let (pop, push) = local(&nodes);
    show("pop from the local queue", pop, "5");
    show("push to the local queue", push, "5");
    show("push that overflows: 129 to the global queue", overflow(&nodes), "200");
    show("pop from the global queue, with its lock", global_pop(&nodes), "40");
    show("steal of 4", steal(&nodes, 4), "25");
    show("steal of 16", steal(&nodes, 16), "50");
    show("steal that finds an empty queue", failed_steal(), "3");
    let (waking, plain) = spawns()?;
    show("wake-up by a spawn, nobody searches", waking - plain, "100");
    show("wake-up by a spawn, an M searches already", not_needed(), "5");
    let sleeps = sleeps();
    show("an M goes to sleep and comes back: its CPU time", sleeps.cpu, "1000");
    show("an M is woken: time of the waker", sleeps.waker, "800");
    show("an M is woken: until it runs", sleeps.until_it_runs, "");
    println!("(1) as the literature states it, for Go 1.22 on another machine with 8 Ps");
    Ok(())
}

fn show(what: &str, ns: f64, go: &str) {
    println!("{what:52} {ns:>9.1} {go:>9}");
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The time between two readings of the clock, which every timed operation contains.
fn clock_ns() -> f64 {
    let one = |_| {
        let from = Instant::now();
        from.elapsed().as_nanos() as f64
    };
    median((0..ROUNDS).map(one).collect())
}

/// The time of one call of `timed`, which `prepare` precedes.
fn each<T>(mut prepare: impl FnMut() -> T, mut timed: impl FnMut(T)) -> f64 {
    let clock = clock_ns();
    let mut one = || {
        let prepared = prepare();
        let from = Instant::now();
        timed(prepared);
        from.elapsed().as_nanos() as f64
    };
    for _ in 0..ROUNDS / 10 {
        one();
    }
    median((0..ROUNDS).map(|_| one()).collect()) - clock
}

fn no_overflow(_: &mut [NonNull<Node>]) {
    panic!("the ring overflowed");
}

/// One pop and one push, out of rows of both.
fn local(nodes: &[NonNull<Node>]) -> (f64, f64) {
    let queue = RunQueue::<Node>::new();
    // SAFETY: no other thread uses this queue.
    let owner = unsafe { queue.owner() };
    let (mut pops, mut pushes) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS / 10 {
        let from = Instant::now();
        for &gp in &nodes[..ROW] {
            owner.push(black_box(gp), Slot::Tail, no_overflow);
        }
        let between = Instant::now();
        for _ in 0..ROW {
            black_box(owner.pop().expect("it was pushed"));
        }
        let until = Instant::now();
        pushes.push((between - from).as_nanos() as f64 / ROW as f64);
        pops.push((until - between).as_nanos() as f64 / ROW as f64);
    }
    (median(pops), median(pushes))
}

/// The push that finds the ring full, with the batch put into the global queue under its lock.
fn overflow(nodes: &[NonNull<Node>]) -> f64 {
    let queue = RunQueue::<Node>::new();
    let (global, len) = (Mutex::new(GlobalQueue::<Node>::new()), GlobalLen::new());
    // SAFETY: no other thread uses this queue.
    let owner = unsafe { queue.owner() };
    let mut fresh = nodes.iter().copied().cycle();
    each(
        || {
            while owner.pop().is_some() {}
            let mut locked = global.lock().expect("nobody panics");
            while locked.pop(&len).is_some() {}
            for gp in fresh.by_ref().take(256) {
                owner.push(gp, Slot::Tail, no_overflow);
            }
            fresh.next().expect("it never ends")
        },
        |gp| {
            owner.push(gp, Slot::Tail, |batch| {
                let mut locked = global.lock().expect("nobody panics");
                for &mut gp in batch {
                    // SAFETY: it has just left the ring and is in no queue.
                    unsafe { locked.push(&len, Lane::Normal, gp) };
                }
            });
        },
    )
}

fn global_pop(nodes: &[NonNull<Node>]) -> f64 {
    let (global, len) = (Mutex::new(GlobalQueue::<Node>::new()), GlobalLen::new());
    let mut pops = Vec::new();
    for _ in 0..ROUNDS / 10 {
        for &gp in &nodes[..ROW] {
            // SAFETY: the queue was emptied, and it is in no other.
            unsafe { global.lock().expect("nobody panics").push(&len, Lane::Normal, gp) };
        }
        let from = Instant::now();
        for _ in 0..ROW {
            black_box(global.lock().expect("nobody panics").pop(&len).expect("it was pushed"));
        }
        pops.push(from.elapsed().as_nanos() as f64 / ROW as f64);
    }
    median(pops)
}

/// A thief takes `n`, half of what the victim has.
fn steal(nodes: &[NonNull<Node>], n: usize) -> f64 {
    let (victim, thief) = (RunQueue::<Node>::new(), RunQueue::<Node>::new());
    // SAFETY: no other thread uses these queues.
    let (owner, taker) = unsafe { (victim.owner(), thief.owner()) };
    each(
        || {
            while owner.pop().is_some() {}
            while taker.pop().is_some() {}
            for &gp in &nodes[..2 * n] {
                owner.push(gp, Slot::Tail, no_overflow);
            }
        },
        |()| {
            let stolen =
                victim.thief().steal_into(&taker, Share::CeilHalf, RunNext::Leave, || true);
            assert!(matches!(black_box(stolen), Stolen::Batch { .. }));
        },
    )
}

fn failed_steal() -> f64 {
    let (victim, thief) = (RunQueue::<Node>::new(), RunQueue::<Node>::new());
    // SAFETY: no other thread uses this queue.
    let taker = unsafe { thief.owner() };
    in_a_row(|| {
        let stolen =
            black_box(&victim).thief().steal_into(&taker, Share::CeilHalf, RunNext::Leave, || true);
        assert!(!matches!(stolen, Stolen::Batch { .. }));
    })
}

/// A submitter that sees a spinner does nothing else.
fn not_needed() -> f64 {
    let spinning = Spinning::new();
    spinning.start();
    in_a_row(|| {
        black_box(black_box(&spinning).n() != 0);
    })
}

/// The time of one of many calls.
fn in_a_row(mut one: impl FnMut()) -> f64 {
    let row = |_| {
        let from = Instant::now();
        (0..1000).for_each(|_| one());
        from.elapsed().as_nanos() as f64 / 1000.0
    };
    median((0..ROUNDS / 10).map(row).collect())
}

/// The time of a spawn that wakes an M, and of one that has no M to wake.
fn spawns() -> Result<(f64, f64), String> {
    let timed = |procs| {
        // SAFETY: the goroutines keep nothing that is bound to a thread.
        let rt = unsafe { heist::Runtime::builder().procs(procs).build() }
            .map_err(|error| error.to_string())?;
        Ok::<_, String>(rt.run(|| {
            let clock = clock_ns();
            let one = |_| {
                let idle_since = Instant::now();
                while idle_since.elapsed() < LONG_IDLE {
                    std::hint::spin_loop();
                }
                let from = Instant::now();
                let spawned = heist::go(|| ());
                let took = from.elapsed().as_nanos() as f64 - clock;
                spawned.join().expect("it ends");
                took
            };
            median((0..WAKE_UPS).map(one).collect())
        }))
    };
    Ok((timed(2)?, timed(1)?))
}

/// The kernel's futex, as the runtime uses it.
struct Kernel;

impl Futex for Kernel {
    fn wait(&self, word: &AtomicU32, expected: u32, _: Option<Duration>) {
        let wait = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word outlives the call, and there is no timeout.
        unsafe { libc::syscall(libc::SYS_futex, word, wait, expected, 0) };
    }

    fn wake(&self, word: &AtomicU32) {
        let wake = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word outlives the call.
        unsafe { libc::syscall(libc::SYS_futex, word, wake, 1) };
    }
}

fn thread_cpu_ns() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut now) };
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// A thread that sleeps and is woken, as an M.
struct Sleeps {
    cpu: f64,
    waker: f64,
    until_it_runs: f64,
}

fn sleeps() -> Sleeps {
    struct Shared {
        note: Note,
        ready: AtomicBool,
        ran_at_ns: AtomicU64,
    }
    let start = Instant::now();
    let now_ns = move || start.elapsed().as_nanos() as u64;
    let shared = Arc::new(Shared {
        note: Note::new(),
        ready: AtomicBool::new(false),
        ran_at_ns: AtomicU64::new(0),
    });
    let of_sleeper = Arc::clone(&shared);
    let sleeper = std::thread::spawn(move || {
        let before = thread_cpu_ns();
        for _ in 0..WAKE_UPS {
            of_sleeper.note.clear();
            of_sleeper.ready.store(true, Ordering::Release);
            of_sleeper.note.sleep(&Kernel);
            of_sleeper.ran_at_ns.store(now_ns(), Ordering::Release);
        }
        (thread_cpu_ns() - before) / WAKE_UPS as f64
    });
    let (mut waker, mut until_it_runs) = (Vec::new(), Vec::new());
    for _ in 0..WAKE_UPS {
        while !shared.ready.swap(false, Ordering::Acquire) {
            std::hint::spin_loop();
        }
        let idle_since = Instant::now();
        while idle_since.elapsed() < LONG_IDLE {
            std::hint::spin_loop();
        }
        shared.ran_at_ns.store(0, Ordering::Relaxed);
        let from_ns = now_ns();
        shared.note.wake(&Kernel);
        waker.push((now_ns() - from_ns) as f64);
        let mut ran_at_ns = 0;
        while ran_at_ns == 0 {
            ran_at_ns = shared.ran_at_ns.load(Ordering::Acquire);
            std::hint::spin_loop();
        }
        until_it_runs.push(ran_at_ns.saturating_sub(from_ns) as f64);
    }
    let cpu = sleeper.join().expect("it ends");
    Sleeps { cpu, waker: median(waker), until_it_runs: median(until_it_runs) }
}
