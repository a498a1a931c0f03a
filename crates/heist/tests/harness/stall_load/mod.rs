//! Everything that can stall a scheduler, all at once, under slices of half a millisecond and with
//! stray signals at every thread of the process.
//!
//! Two test programs share it: the same load on two allocators. A second each by default, longer
//! with `HEIST_STRESS_SECS`. The seed is printed; the interleaving of the threads is random
//! nevertheless.

mod talk;

use heist::goroutine::Builder;
use heist::{JoinHandle, Runtime, go, lock_os_thread, no_preempt, testing, yield_now};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{PipeReader, PipeWriter, Read, Write as _};
use std::net::SocketAddr;
use std::panic::{catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// If no goroutine ends for this long, something hangs.
const PATIENCE: Duration = Duration::from_secs(10);
/// Goroutines that are blocked in reads all the time, so that there are many threads.
const N_BLOCKED: usize = 20;
/// Goroutines that work at the same time.
const N_WORKERS: u64 = 40;
/// One goroutine in this many runs a program.
const PROGRAM_EVERY: u64 = 200;

/// The data that the goroutines share.
struct Shared {
    /// A std lock whose holder is preempted while it holds it.
    lock: Mutex<u64>,
    /// The pipe that they print to.
    sink: Mutex<PipeWriter>,
    printed: AtomicU64,
    /// Goroutines that have ended.
    ended: AtomicU64,
    stop: AtomicBool,
}

impl Shared {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Runs the load with `procs` processors.
pub fn run(procs: usize) {
    let secs = std::env::var("HEIST_STRESS_SECS").map_or(1, |secs| secs.parse().unwrap());
    let seed = std::time::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    eprintln!("procs={procs} seed={seed} for {secs} s");
    let builder = Runtime::builder().procs(procs).quantum(Duration::from_micros(500));
    // SAFETY: nothing bound to a thread is kept across a park, except while locked to it.
    let rt = Arc::new(unsafe { builder.seed(seed.into()).build() }.unwrap());
    let (reader, writer) = std::io::pipe().unwrap();
    let shared = Arc::new(Shared {
        lock: Mutex::new(0),
        sink: Mutex::new(writer),
        printed: AtomicU64::new(0),
        ended: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let drain = thread::spawn(move || drain(reader));
    let watchdog = {
        let (rt, shared) = (Arc::clone(&rt), Arc::clone(&shared));
        thread::spawn(move || watch(&rt, &shared))
    };
    let stray = {
        let shared = Arc::clone(&shared);
        thread::spawn(move || send_stray_signals(&shared, seed))
    };

    let until = Instant::now() + Duration::from_secs(secs);
    let spawned = rt.run(|| load(&shared, until, seed.into()));
    let most_threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    shared.stop.store(true, Ordering::Relaxed);
    watchdog.join().unwrap();
    stray.join().unwrap();
    assert_eq!(shared.ended.load(Ordering::SeqCst), spawned);
    assert!(most_threads > 20, "only {most_threads} threads");
    assert!(rt.metrics().get("/heist/preempt/forced:events").unwrap() > 0);
    let rt = Arc::into_inner(rt).expect("the watchdog has ended");
    drop(rt);
    let shared = Arc::into_inner(shared).expect("all goroutines have ended");
    let printed = shared.printed.into_inner();
    drop(shared.sink);
    assert_eq!(drain.join().unwrap(), printed);
}

/// The main goroutine: keeps `N_WORKERS` workers busy until the time is over. Returns how many
/// goroutines there were.
fn load(shared: &Arc<Shared>, until: Instant, seed: u64) -> u64 {
    let mut spawned = 0;
    let blocked: Vec<_> = (0..N_BLOCKED).map(|_| block_in_reads(shared)).collect();
    let (echo, server) = talk::start_echo();
    let mut workers: Vec<(u64, JoinHandle<u64>)> = Vec::new();
    let mut random = seed;
    for round in 0.. {
        let over = Instant::now() >= until;
        if workers.len() as u64 == N_WORKERS || over && !workers.is_empty() {
            for (expected, worker) in workers.drain(..) {
                assert_eq!(worker.join().expect("no worker fails"), expected);
            }
            assert_eq!(*shared.lock.lock().unwrap() % 2, 0, "two goroutines held the lock");
            let quiet = blocked.iter().all(|(_, handle)| !handle.is_finished());
            assert!(quiet, "a blocked goroutine ended by itself");
        }
        if over {
            break;
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(round);
        let (n, task) = (random >> 33, Arc::clone(shared));
        spawned += 1;
        workers.push((
            n,
            go(move || {
                work(&task, n, echo);
                task.ended.fetch_add(1, Ordering::SeqCst);
                n
            }),
        ));
    }
    server.cancel();
    assert!(server.join().unwrap_err().is_cancelled());
    for (writer, handle) in blocked {
        drop(writer);
        handle.join().expect("the pipe ends");
    }
    spawned
}

/// A goroutine that is blocked in reads, which return data from time to time.
fn block_in_reads(shared: &Arc<Shared>) -> (PipeWriter, JoinHandle<()>) {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&[1, 2, 3]).unwrap();
    let shared = Arc::clone(shared);
    let handle = go(move || {
        let mut byte = [0];
        while reader.read(&mut byte).unwrap() != 0 {
            assert!(!shared.is_over());
        }
    });
    (writer, handle)
}

/// The work of a goroutine: one of every kind.
fn work(shared: &Arc<Shared>, n: u64, echo: SocketAddr) {
    let short = Duration::from_micros(n % 1000);
    match n % 19 {
        0 => allocate(n),
        1 => {
            let mut held = shared.lock.lock().unwrap();
            *held += 1;
            compute(short);
            *held += 1;
        }
        2 => print(shared, n),
        3 => panic_and_catch(n),
        4 => use_thread_locals(n),
        5 => assert_eq!(thread::spawn(move || n).join().unwrap(), n),
        6 if n % PROGRAM_EVERY < 19 => assert!(Command::new("true").status().unwrap().success()),
        6 | 7 => thread::sleep(short),
        8 => heist::time::sleep(short),
        9 => talk_through_a_pipe(n as u8),
        10 => compute(Duration::from_micros(700)),
        11 => stay_on_the_thread(n),
        12 => heist::blocking(|| thread::sleep(short)),
        13 => talk::through_a_channel(n / 19),
        14 => talk::through_a_select(n / 19),
        15 => talk::with_timers(n / 19),
        16 => talk::over_a_socket(n / 19, echo),
        17 => talk::cancelled(n / 19),
        _ => {
            let _guard = no_preempt();
            compute(short);
        }
    }
}

/// Without a call into the runtime.
fn compute(time: Duration) {
    let from = Instant::now();
    while from.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Allocates and frees sizes for every path of an allocator.
fn allocate(n: u64) {
    let mut map = HashMap::new();
    for i in 0..200 {
        let size = (n.wrapping_mul(i) % 5000) as usize;
        map.insert(i, vec![i as u8; size]);
        if i % 3 == 0 {
            map.remove(&(i / 2));
        }
    }
    let large = vec![1_u8; 300_000];
    let total: usize = map.values().map(|bytes| bytes.iter().filter(|&&b| b > 0).count()).sum();
    assert!(total + large.len() >= 300_000);
}

/// Standard output has a lock of std; the pipe can be full.
fn print(shared: &Shared, n: u64) {
    std::io::stdout().lock().flush().unwrap();
    let text = format!("{n:>100}\n");
    shared.sink.lock().unwrap().write_all(text.as_bytes()).unwrap();
    shared.printed.fetch_add(text.len() as u64, Ordering::SeqCst);
}

fn panic_and_catch(n: u64) {
    struct Computes;
    impl Drop for Computes {
        fn drop(&mut self) {
            compute(Duration::from_micros(600));
            yield_now();
            assert!(thread::panicking(), "it moved to another thread");
        }
    }
    let caught = catch_unwind(|| {
        let _computes = Computes;
        resume_unwind(Box::new(n));
    });
    assert_eq!(*caught.unwrap_err().downcast::<u64>().unwrap(), n);
    let inner: JoinHandle<()> = go(move || resume_unwind(Box::new(n)));
    assert!(inner.join().unwrap_err().is_panic());
}

/// Borrowed for longer than a slice, but not across a park.
fn use_thread_locals(n: u64) {
    thread_local!(static OWN: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) });
    OWN.with_borrow_mut(|own| {
        own.push(n);
        compute(Duration::from_micros(700));
        assert_eq!(own.pop(), Some(n), "another goroutine used the thread-local");
    });
}

/// Both ends block in turn.
fn talk_through_a_pipe(n: u8) {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let listens = go(move || {
        let mut text = Vec::new();
        reader.read_to_end(&mut text).unwrap();
        text.into_iter().map(u64::from).sum::<u64>()
    });
    // More than fits into the pipe.
    writer.write_all(&[n; 100_000]).unwrap();
    drop(writer);
    assert_eq!(listens.join().unwrap(), u64::from(n) * 100_000);
}

fn stay_on_the_thread(n: u64) {
    thread_local!(static OWNER: RefCell<u64> = const { RefCell::new(0) });
    let stay = move || {
        OWNER.with_borrow_mut(|owner| {
            *owner = n;
            yield_now();
            compute(Duration::from_micros(600));
            heist::time::sleep(Duration::from_micros(50));
            assert_eq!(std::mem::take(owner), n, "another goroutine ran on the thread");
        });
    };
    if (n / 19).is_multiple_of(2) {
        Builder::new().os_thread().spawn(stay).unwrap().join().unwrap();
    } else {
        let _guard = lock_os_thread();
        stay();
    }
}

/// Empties the pipe to which goroutines print; returns the number of bytes.
fn drain(mut reader: PipeReader) -> u64 {
    let (mut total, mut buffer) = (0, [0; 4096]);
    loop {
        match reader.read(&mut buffer).unwrap() {
            0 => return total,
            n => total += n as u64,
        }
    }
}

/// Sends the preemption signal to any thread at any time.
fn send_stray_signals(shared: &Shared, seed: u32) {
    let mut random = u64::from(seed);
    while !shared.is_over() {
        for task in std::fs::read_dir("/proc/self/task").unwrap() {
            let tid: i32 = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            if random >> 62 == 0 {
                // SAFETY: the signal is ignored or handled by every thread; the thread may be gone.
                unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGURG) };
            }
        }
        thread::sleep(Duration::from_micros(random >> 54));
    }
}

/// Ends the process with everything that is known if no goroutine makes progress.
fn watch(rt: &Runtime, shared: &Shared) {
    let (mut seen, mut since) = (0, Instant::now());
    while !shared.is_over() {
        thread::sleep(Duration::from_millis(50));
        let ended = shared.ended.load(Ordering::SeqCst);
        if ended != seen {
            (seen, since) = (ended, Instant::now());
        } else if since.elapsed() > PATIENCE {
            // If it is the allocator that hangs, this does too.
            // SAFETY: ends the process later.
            unsafe { libc::alarm(30) };
            let mut text = format!("no progress: {seen} goroutines have ended\n");
            let _ = writeln!(text, "{:#?}\n{}", testing::sample(rt), testing::threads(rt));
            let _ = writeln!(text, "{}\n{}", tasks(), rt.dump_goroutines());
            let _ = writeln!(std::io::stderr(), "{text}");
            std::process::abort();
        }
    }
}

/// The kernel's view of every thread.
fn tasks() -> String {
    let mut text = String::new();
    for task in std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten() {
        let read = |file| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let (stat, wchan) = (read("stat"), read("wchan"));
        let stat: Vec<_> = stat.split_whitespace().take(15).collect();
        let _ = writeln!(text, "{} {wchan}", stat.join(" "));
    }
    text
}
