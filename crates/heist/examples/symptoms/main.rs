//! The symptoms of a scheduler in trouble, each made by a small program, and what cures them.
//!
//! `cargo run --release -p heist --example symptoms -- hogs [--cured] [SECONDS]`, or without
//! arguments for the list. docs/OPERATING.md shows what the tools say about each.

mod hold_ups;
mod loads;
mod seen;

use heist::{Builder, Runtime, StealPolicy};
use loads::Load;
pub use seen::Seen;
use std::time::{Duration, Instant};

/// A symptom, and how to make it.
pub struct Symptom {
    pub name: &'static str,
    what: &'static str,
    remedy: &'static str,
    /// What to look at.
    figures: &'static [Figure],
    /// Chooses the runtime; the flag says whether the symptom is cured.
    runtime: fn(Builder, bool) -> Builder,
    /// Starts the goroutines.
    start: fn(&Runtime, &Load),
}

/// A text, and the number for it.
type Figure = (&'static str, fn(&Seen) -> f64);

const IDLE: Figure = ("idle processors, on average", |seen| seen.mean("/heist/procs/idle:threads"));
const QUEUED: Figure = ("queued goroutines, on average", Seen::queued);
const BOTH: Figure =
    ("looks that found idle processors beside queued work, in %", Seen::idle_beside_queued);
const ROUNDS: Figure = ("rounds of the work per second", Seen::rounds_per_second);

/// All symptoms.
pub const ALL: &[Symptom] = &[
    Symptom {
        name: "gentle",
        what: "processors are idle beside queued work that nobody steals",
        remedy: "HEIST_STEAL_POLICY=go",
        figures: &[BOTH, IDLE, QUEUED, ROUNDS],
        runtime: |builder, cured| {
            let policy = if cured { StealPolicy::go() } else { StealPolicy::gentle() };
            builder.procs(2).steal_policy(policy)
        },
        start: loads::forks,
    },
    Symptom {
        name: "reserved",
        what: "processors are idle beside queued work, because they are reserved",
        remedy: "reserve fewer processors",
        figures: &[BOTH, IDLE, QUEUED, ROUNDS],
        runtime: |builder, cured| builder.procs(3).latency_procs(if cured { 0 } else { 2 }),
        start: loads::turns,
    },
    Symptom {
        name: "spinning",
        what: "threads search for work again and again, and there is hardly any",
        remedy: "hand over more work at once",
        figures: &[
            ("searches per 1000 rounds", |seen| {
                1000.0 * seen.per_round("/heist/spin/starts:events")
            }),
            ("looks into queues of others per second", |seen| {
                seen.per_second("/heist/steal/attempts:events")
            }),
            ROUNDS,
        ],
        runtime: |builder, _| builder.procs(4),
        start: loads::trickle,
    },
    Symptom {
        name: "global-queue",
        what: "the global queue grows, because work comes in faster than it is done",
        remedy: "a bounded channel and workers, so that the producer waits",
        figures: &[
            ("longest global queue", |seen| seen.peak("/heist/queue/global:goroutines")),
            ("goroutines", |seen| seen.peak("/sched/goroutines:goroutines")),
            ROUNDS,
        ],
        runtime: |builder, _| builder.procs(2),
        start: loads::flood,
    },
    Symptom {
        name: "locked",
        what: "a goroutine never moves, and every switch to it is one between threads",
        remedy: "lock to threads only what must have its own",
        figures: &[
            ("thread wake-ups per 1000 rounds", |seen| {
                1000.0 * seen.per_round("/heist/threads/unparks:events")
            }),
            ROUNDS,
        ],
        runtime: |builder, _| builder.procs(1),
        start: hold_ups::ping_pong,
    },
    Symptom {
        name: "one-lock",
        what: "goroutines never move, because they are not runnable: all wait for one lock",
        remedy: "compute outside of the lock",
        figures: &[
            IDLE,
            ("waiting goroutines, on average", |seen| {
                seen.mean("/sched/goroutines/waiting:goroutines")
            }),
            ("seconds of waiting for locks per second", |seen| {
                seen.per_second("/sync/mutex/wait/total:nanoseconds") / 1e9
            }),
            ROUNDS,
        ],
        runtime: |builder, _| builder.procs(4),
        start: hold_ups::one_lock,
    },
    Symptom {
        name: "late",
        what: "latency spikes: a 1 ms ticker is late beside goroutines that compute",
        remedy: "Class::Latency and Builder::latency_procs(1)",
        figures: &[
            ("lateness of the median tick, in us", |seen| seen.lateness_us(50)),
            ("lateness of 1 tick in 100, in us", |seen| seen.lateness_us(99)),
            ("goroutines per second that gave way", |seen| {
                seen.per_second("/heist/preempt/gave-way:events")
            }),
            ("goroutines per second that were preempted", |seen| {
                seen.per_second("/heist/preempt/forced:events")
            }),
        ],
        runtime: |builder, cured| builder.procs(3).latency_procs(usize::from(cured)),
        start: hold_ups::ticker,
    },
    Symptom {
        name: "hogs",
        what: "goroutines compute without a call into the runtime, and are preempted by signals",
        remedy: "smaller pieces, with heist::yield_now between them",
        figures: &[
            ("time slices that a signal ended, in %", Seen::forced_share),
            ("voluntary yields per second", |seen| seen.per_second("/heist/sched/yields:events")),
            ROUNDS,
        ],
        runtime: |builder, _| builder.procs(2),
        start: hold_ups::hogs,
    },
    Symptom {
        name: "blocking",
        what: "the number of threads grows, because goroutines block them",
        remedy: "a semaphore bounds how many block at once",
        figures: &[
            ("threads", |seen| seen.peak("/sched/threads/total:threads")),
            ("unannounced blocking calls per second, detected or foreseen", |seen| {
                seen.per_second("/heist/blocking/unannounced:events")
                    + seen.per_second("/heist/blocking/foreseen:events")
            }),
            ROUNDS,
        ],
        runtime: |builder, _| builder.procs(2),
        start: hold_ups::blocking,
    },
    Symptom {
        name: "leak",
        what: "goroutines become more and more, and all wait at one place",
        remedy: "drop the sender, so that the channel closes",
        figures: &[
            ("goroutines", |seen| seen.peak("/sched/goroutines:goroutines")),
            ("goroutines that do not end, in % of those made", Seen::share_that_stays),
            ROUNDS,
        ],
        runtime: |builder, _| builder.procs(2),
        start: hold_ups::leak,
    },
    Symptom {
        name: "idle-class",
        what: "a goroutine never runs, because it is of the idle class and no processor is idle",
        remedy: "Class::Normal",
        figures: &[IDLE, ROUNDS],
        runtime: |builder, _| builder.procs(2),
        start: hold_ups::starved,
    },
];

/// Makes a symptom for some time.
pub fn show(
    symptom: &Symptom,
    is_cured: bool,
    length: Duration,
) -> Result<Seen, Box<dyn std::error::Error>> {
    let builder = (symptom.runtime)(Runtime::builder(), is_cured);
    // SAFETY: no goroutine of this program keeps a value that is not `Send`, or a borrow of a
    // thread-local, across a call into heist.
    let runtime = unsafe { builder.build() }?;
    let load = Load::new(is_cured);
    (symptom.start)(&runtime, &load);
    // What the start looks like is another story.
    std::thread::sleep(length / 4);
    let seen = Seen::watch(&runtime, &load, Instant::now() + length);
    load.stop();
    Ok(seen)
}

fn usage() -> ! {
    eprintln!("usage: symptoms NAME [--cured] [SECONDS], where NAME is one of");
    for Symptom { name, what, .. } in ALL {
        eprintln!("  {name:<13} {what}");
    }
    std::process::exit(2);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut name, mut is_cured, mut length) = (None, false, Duration::from_secs(3));
    for argument in std::env::args().skip(1) {
        let seconds = argument.parse().map(Duration::try_from_secs_f64);
        match (argument.as_str(), seconds) {
            ("--cured", _) => is_cured = true,
            (_, Ok(Ok(seconds))) if seconds > Duration::from_millis(10) => length = seconds,
            _ => name = Some(argument),
        }
    }
    let chosen = ALL.iter().find(|symptom| name.as_deref() == Some(symptom.name));
    let Some(symptom) = chosen else { usage() };
    println!("{}: {}", symptom.name, symptom.what);
    match is_cured {
        true => println!("cured by this: {}", symptom.remedy),
        false => println!("the remedy (--cured): {}", symptom.remedy),
    }
    let seen = show(symptom, is_cured, length)?;
    for (text, number) in symptom.figures {
        println!("{:>12.1}  {text}", number(&seen));
    }
    Ok(())
}
