//! Every configuration a behaviour must hold in: 1, 2, 4 and 16 procs, both steal policies, with
//! and without chaos.
//!
//! A failure prints its configuration. Two chaos seeds are fixed, one is new in each run;
//! `HEIST_CHAOS_SEED` chooses it. `HEIST_STRESS_SECS` makes the stress tests run longer.

#![allow(dead_code, reason = "every test program uses its own part of this")]

pub mod emulator;
mod panics;

use heist::{Builder, Runtime, StealPolicy, testing};
use std::fmt;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Ends the test with the caller's name if the scheduler allocates. In every test program that uses
/// this module.
#[global_allocator]
static ALLOCATOR: testing::CheckedAllocator = testing::CheckedAllocator::new(std::alloc::System);

/// How long one configuration may take before it counts as hung. The slowest takes a second on an
/// idle machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// The same, with the time that stress tests are given. Less than a step of `.ci/run` has, also
/// under an emulator: a hang is reported by the test that hangs.
pub fn patience() -> Duration {
    PATIENCE * emulator::slowness().min(5) + stress_time().unwrap_or_default()
}

/// One configuration.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub procs: usize,
    pub policy: Policy,
    pub chaos: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Go,
    Gentle,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { procs, policy, chaos } = self;
        write!(f, "procs={procs} policy={policy:?} chaos={chaos:?}")
    }
}

impl Case {
    /// A builder with this configuration.
    pub fn builder(&self) -> Builder {
        let policy = match self.policy {
            Policy::Go => StealPolicy::go(),
            Policy::Gentle => StealPolicy::gentle(),
        };
        // The end of a slice would move a goroutine to the global queue in the middle of an order
        // that a test checks; the tests in tests/stalls are about that.
        let builder =
            Runtime::builder().procs(self.procs).steal_policy(policy).quantum(LONG_QUANTUM);
        match self.chaos {
            Some(seed) => builder.chaos(seed),
            None => builder,
        }
    }

    /// A runtime with this configuration.
    pub fn runtime(&self) -> Runtime {
        start(self.builder())
    }
}

/// No slice ends within a test, unless the environment sets shorter ones.
const LONG_QUANTUM: Duration = Duration::from_secs(3600);

/// Starts a runtime.
pub fn start(builder: Builder) -> Runtime {
    // SAFETY: the goroutines of these tests keep nothing across a park that is bound to a thread.
    let rt = unsafe { builder.build() }.expect("the runtime starts");
    panics::keep_back();
    rt
}

/// A runtime without chaos.
pub fn plain(procs: usize) -> Runtime {
    start(Runtime::builder().procs(procs).quantum(LONG_QUANTUM))
}

/// A runtime without chaos in which no slice ends, independent of the environment: for tests that
/// would notice it.
pub fn whole_slices(procs: usize) -> Runtime {
    start(Runtime::builder().procs(procs).exact_quantum(LONG_QUANTUM))
}

fn fresh_seed() -> u64 {
    static SEED: OnceLock<u64> = OnceLock::new();
    *SEED.get_or_init(|| match std::env::var("HEIST_CHAOS_SEED") {
        Ok(seed) => seed.parse().expect("HEIST_CHAOS_SEED is a number"),
        Err(_) => {
            let now = std::time::UNIX_EPOCH.elapsed().expect("it is after 1970");
            u64::from(now.subsec_nanos())
        }
    })
}

/// All configurations with these numbers of procs.
pub fn cases_with(procs: &[usize]) -> Vec<Case> {
    let mut cases = Vec::new();
    for &procs in procs {
        for policy in [Policy::Go, Policy::Gentle] {
            for chaos in [None, Some(1), Some(0xfeed), Some(fresh_seed())] {
                cases.push(Case { procs, policy, chaos });
            }
        }
    }
    cases
}

/// All configurations.
pub fn cases() -> Vec<Case> {
    cases_with(&[1, 2, 4, 16])
}

/// Runs `body` with a runtime of each configuration.
pub fn each(body: impl Fn(&Case, &Runtime)) {
    each_of(&cases(), body);
}

/// Runs `body` with a runtime of each given configuration.
pub fn each_of(cases: &[Case], body: impl Fn(&Case, &Runtime)) {
    each_built(cases, Case::builder, body);
}

/// The same with whole slices; see [`whole_slices`].
pub fn each_whole(cases: &[Case], body: impl Fn(&Case, &Runtime)) {
    each_built(cases, |case| case.builder().exact_quantum(LONG_QUANTUM), body);
}

fn each_built(cases: &[Case], build: impl Fn(&Case) -> Builder, body: impl Fn(&Case, &Runtime)) {
    for case in cases {
        let rt = Arc::new(start(build(case)));
        let watched = Arc::clone(&rt);
        let watchdog =
            Watchdog::new(patience(), move || format!("{:#?}", testing::sample(&watched)));
        named(case, || body(case, &rt));
        drop(watchdog);
        let rt = Arc::into_inner(rt).expect("the watchdog has ended");
        let watchdog = Watchdog::new(patience(), || "in the drop of the runtime".into());
        named(case, || drop(rt));
        drop(watchdog);
    }
}

/// Runs `body` as the main goroutine of each configuration.
pub fn run(body: impl Fn() + Send + Sync) {
    each(|_, rt| rt.run(&body));
}

/// Names the configuration if `body` panics.
fn named(case: &Case, body: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(body)) {
        // Resuming does not call the hook, which would print them.
        eprintln!("failed with {case}\n{}", panics::take());
        resume_unwind(payload);
    }
}

/// Ends the process if it is not dropped in time: the usual bug of a scheduler is a hang.
pub struct Watchdog {
    ended: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Watchdog {
    pub fn new(patience: Duration, report: impl FnOnce() -> String + Send + 'static) -> Self {
        let test = std::thread::current().name().unwrap_or("?").to_owned();
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let shared = Arc::clone(&ended);
        let thread = std::thread::spawn(move || {
            let (lock, condvar) = &*shared;
            let guard = lock.lock().expect("no holder panics");
            let (guard, _) = condvar
                .wait_timeout_while(guard, patience, |ended| !*ended)
                .expect("no holder panics");
            if !*guard {
                give_up(&format!("{test} hangs: no end after {patience:?}\n{}", report()));
            }
        });
        Self { ended, thread: Some(thread) }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        *self.ended.0.lock().expect("no holder panics") = true;
        self.ended.1.notify_one();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the watchdog does not panic");
        }
    }
}

/// Ends the process with a message that the test harness does not hold back.
pub fn give_up(message: &str) -> ! {
    // An error cannot be reported any more.
    let _ = writeln!(std::io::stderr(), "{}{message}", panics::take());
    std::process::abort();
}

/// How long `HEIST_STRESS_SECS` wants stress tests to run.
pub fn stress_time() -> Option<Duration> {
    let secs = std::env::var("HEIST_STRESS_SECS").ok()?;
    let secs = secs.parse().expect("HEIST_STRESS_SECS is a number");
    Some(Duration::from_secs(secs))
}

/// Calls `round` `rounds` times, or for as long as `HEIST_STRESS_SECS` says.
pub fn stress(rounds: u64, mut round: impl FnMut(u64)) {
    match stress_time() {
        None => (0..rounds).for_each(round),
        Some(time) => {
            let until = Instant::now() + time;
            for n in 0.. {
                round(n);
                if Instant::now() > until {
                    return;
                }
            }
        }
    }
}

/// Waits, as a plain thread, until `condition` holds.
#[track_caller]
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + patience();
    while !condition() {
        assert!(Instant::now() < until, "never happened: {what}");
        std::thread::yield_now();
    }
}

/// Yields until `n` goroutines wait for `reason`.
#[track_caller]
pub fn until_parked(n: usize, reason: &str) {
    let header = format!("[{reason}]");
    yield_until(reason, || heist::dump_goroutines().matches(&header).count() == n);
}

/// Waits, as a goroutine, until `condition` holds. Gives up before the watchdog does, and prints
/// what all other goroutines wait for.
#[track_caller]
pub fn yield_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + patience() / 2;
    while !condition() {
        if Instant::now() > until {
            panic!("never happened: {what}\n{}", heist::dump_goroutines());
        }
        heist::yield_now();
    }
}
