//! Every metric in one table: its name, its kind, how it is read, what it means.
//!
//! The readings, the Prometheus text and the list in docs/OPERATING.md come from the rows below; a
//! test compares the list. A metric is added by adding its row. The one group that is not written
//! out is `/heist/parks/...`, which has a row for each reason to park.

use super::reading::Reading;
use super::{Description, Kind, parks};
use crate::leaks;
use crate::sched::Sched;
use crate::sys::degraded::Lack;
use heist_core::lock_rank::Rank;
use heist_core::time_histogram::TimeHistogram;
use std::sync::OnceLock;

/// A metric that is a number.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) description: Description,
    source: Source,
}

/// Where in a reading a value is.
#[derive(Clone, Copy)]
enum Source {
    Of(fn(&Reading<'_>) -> u64),
    /// How often goroutines parked, by the position of the reason in `WaitReason::ALL`.
    Parks(usize),
}

impl Row {
    pub(super) fn value(&self, reading: &Reading<'_>) -> u64 {
        match self.source {
            Source::Of(read) => read(reading),
            Source::Parks(at) => reading.parks[at],
        }
    }

    /// The row of a reason to park.
    const fn parks(name: &'static str, at: usize) -> Self {
        let help = "Times a goroutine parked for this reason.";
        let description = Description { name, kind: Kind::Counter, help };
        Self { description, source: Source::Parks(at) }
    }
}

const fn counter(name: &'static str, read: fn(&Reading<'_>) -> u64, help: &'static str) -> Row {
    let description = Description { name, kind: Kind::Counter, help };
    Row { description, source: Source::Of(read) }
}

const fn gauge(name: &'static str, read: fn(&Reading<'_>) -> u64, help: &'static str) -> Row {
    let description = Description { name, kind: Kind::Gauge, help };
    Row { description, source: Source::Of(read) }
}

/// A metric that is a histogram.
pub(super) struct HistogramRow {
    pub(super) description: Description,
    /// The histograms whose counts add up to it.
    pub(super) parts: fn(&Sched) -> Vec<&TimeHistogram>,
}

const fn histogram(
    name: &'static str,
    parts: fn(&Sched) -> Vec<&TimeHistogram>,
    help: &'static str,
) -> HistogramRow {
    HistogramRow { description: Description { name, kind: Kind::Histogram, help }, parts }
}

/// All metrics that are numbers, sorted by name.
pub(super) fn rows() -> &'static [Row] {
    static ALL: OnceLock<Vec<Row>> = OnceLock::new();
    ALL.get_or_init(|| {
        let parks = parks::names().into_iter().enumerate().map(|(at, name)| Row::parks(name, at));
        let mut all: Vec<Row> = ROWS.iter().copied().chain(parks).collect();
        all.sort_unstable_by_key(|row| row.description.name);
        all
    })
}

// Two lines for a row: what it is called and where it is, and what it means.
#[rustfmt::skip]
const ROWS: &[Row] = &[
    // CPU time.
    counter("/cpu/classes/idle:cpu-nanoseconds", |r| r.cpu.idle_ns,
        "Of the total, while a processor was idle."),
    counter("/cpu/classes/scavenge/total:cpu-nanoseconds", |r| r.cpu.scavenge_ns,
        "Of the total, for returning stack memory to the system; a thread without a processor \
         does it."),
    counter("/cpu/classes/total:cpu-nanoseconds", |r| r.cpu.total_ns,
        "CPU time that the program could have used: the lifetime of the runtime, once for each \
         processor. The other classes add up to it."),
    counter("/cpu/classes/user:cpu-nanoseconds", |r| r.cpu.user_ns(),
        "Of the total, for goroutines and for the scheduler itself."),

    // Blocking calls.
    counter("/heist/blocking/announced:events", |r| r.totals.announced,
        "Blocking calls that were announced."),
    counter("/heist/blocking/foreseen:events", |r| r.totals.foreseen,
        "Blocking calls that were expected: the goroutine gave its processor away beforehand."),
    counter("/heist/blocking/handoffs:events", |r| r.totals.handoffs,
        "Times the processor of a blocked thread was given to another thread."),
    counter("/heist/blocking/regained:events", |r| r.totals.regained,
        "Times a thread returned from a blocking call and had to get a processor."),
    counter("/heist/blocking/unannounced:events", |r| r.totals.unannounced,
        "Blocking calls that were not announced and were detected."),

    // The features that the system refuses to the process.
    counter("/heist/degraded/goroutines:goroutines", |_| Lack::Goroutine.count(),
        "Goroutines of the process that ended before they ran, because there was no memory for \
         their stacks."),
    counter("/heist/degraded/membarrier:events", |_| Lack::Membarrier.count(),
        "1 if the kernel refuses membarrier, so that entering the runtime costs a fence."),
    counter("/heist/degraded/stacks:events", |_| Lack::Stack.count(),
        "Times the system refused memory for the stack of a goroutine of the process."),
    counter("/heist/degraded/thread-states:events", |_| Lack::ThreadState.count(),
        "Times the state of a thread was derived from its CPU clock, because its file in /proc \
         could not be read."),
    counter("/heist/degraded/threads:events", |_| Lack::Thread.count(),
        "Times the system refused a thread to a runtime of the process."),

    // How goroutines ended.
    counter("/heist/goroutines/finished:goroutines", |r| r.totals.finished,
        "Goroutines that ended."),
    counter("/heist/goroutines/overflowed:goroutines", |r| r.totals.overflowed,
        "Goroutines abandoned, with their threads, after a stack overflow."),
    counter("/heist/goroutines/panicked:goroutines", |r| r.totals.panicked,
        "Goroutines ended by a panic."),

    // What the search for leaks and the watchdog found.
    gauge("/heist/leaks/found:goroutines", |_| leaks::n_found(),
        "Goroutines of the process that can never run again, as the last search for leaks found."),
    counter("/heist/leaks/searches:events", |_| leaks::n_searches(),
        "Searches for leaks."),
    counter("/heist/stuck:events", |r| r.totals.stuck,
        "Reports of goroutines that computed or blocked for too long (HEIST_DEBUG=stuck)."),

    // Waits for the runtime's own locks.
    counter("/heist/locks/wait/all-gs:nanoseconds", |r| r.lock_waits.of(Rank::AllGs),
        "Time that threads of the process have slept for the internal lock of the list of all \
         goroutine records."),
    counter("/heist/locks/wait/condvar:nanoseconds", |r| r.lock_waits.of(Rank::Condvar),
        "Time that threads of the process have slept for the internal lock of the queue of a \
         condition variable."),
    counter("/heist/locks/wait/forks:nanoseconds", |r| r.lock_waits.of(Rank::Forks),
        "Time that threads of the process have slept for the internal lock of a list of deques of \
         forks."),
    counter("/heist/locks/wait/free-gs:nanoseconds", |r| r.lock_waits.of(Rank::FreeGs),
        "Time that threads of the process have slept for the internal lock of the free goroutine \
         records of all processors."),
    counter("/heist/locks/wait/poll-desc:nanoseconds", |r| r.lock_waits.of(Rank::PollDesc),
        "Time that threads of the process have slept for the internal lock of a descriptor of \
         the poller."),
    counter("/heist/locks/wait/sched:nanoseconds", |r| r.lock_waits.of(Rank::Sched),
        "Time that threads of the process have slept for the internal lock of the scheduler: the \
         global queue, idle processors and idle threads."),
    counter("/heist/locks/wait/stacks:nanoseconds", |r| r.lock_waits.of(Rank::Stacks),
        "Time that threads of the process have slept for the internal lock of the stacks of all \
         processors."),
    counter("/heist/locks/wait/timer:nanoseconds", |r| r.lock_waits.of(Rank::Timer),
        "Time that threads of the process have slept for the internal lock of a single timer."),
    counter("/heist/locks/wait/timers:nanoseconds", |r| r.lock_waits.of(Rank::Timers),
        "Time that threads of the process have slept for the internal lock of the timers of a \
         processor."),
    counter("/heist/locks/wait/total:nanoseconds", |r| r.lock_waits.total(),
        "The sum of the waits for internal locks, which Go counts into \
         /sync/mutex/wait/total:seconds."),
    counter("/heist/locks/wait/trace:nanoseconds", |r| r.lock_waits.of(Rank::Trace),
        "Time that threads of the process have slept for the internal lock of the buffers of an \
         execution trace."),
    counter("/heist/locks/wait/wait-queue:nanoseconds", |r| r.lock_waits.of(Rank::WaitQueue),
        "Time that threads of the process have slept for the internal lock of a wait queue of a \
         channel or of a lock."),
    counter("/heist/locks/wait/world:nanoseconds", |r| r.lock_waits.of(Rank::World),
        "Time that threads of the process have slept for the internal lock of stopping the world."),
    counter("/heist/locks/wait/yielded:nanoseconds", |r| r.lock_waits.of(Rank::Yielded),
        "Time that threads of the process have slept for the internal lock of the part of the \
         global queue that belongs to a processor."),

    // Moves between threads.
    counter("/heist/moves/relocated:words", |r| r.totals.relocated_words,
        "Addresses of thread-locals that were moved with a goroutine."),
    counter("/heist/moves:events", |r| r.totals.moves,
        "Times a goroutine continued on another thread than before."),

    // Network and timers.
    counter("/heist/net/refused:connections", |r| r.totals.refused,
        "Connections that a net::Server closed without serving them."),
    gauge("/heist/poll/waiters:goroutines", |r| r.sched.outside.poller().waiters().into(),
        "Goroutines that wait for the network."),
    counter("/heist/poll/waits:events", |r| r.totals.polls,
        "Times a thread waited for the network or the clock."),
    counter("/heist/timers/added:timers", |r| r.totals.timers,
        "Times a goroutine parked with a deadline."),
    gauge("/heist/timers:timers", |r| r.timers,
        "Deadlines that are stored, including those of waits that have ended."),

    // Execution traces.
    counter("/heist/trace/bytes:bytes", |r| r.sched.recorder.n_bytes(),
        "Bytes of events that execution traces have collected."),
    counter("/heist/trace/dropped:events", |r| r.sched.recorder.n_dropped(),
        "Events that execution traces have lost, because no buffer was free."),

    // Preemption.
    counter("/heist/preempt/asked:events", |r| r.totals.preempted,
        "Times a goroutine yielded because its time slice had ended."),
    counter("/heist/preempt/forced:events", |r| r.totals.forced,
        "Times a goroutine was preempted by a signal."),
    counter("/heist/preempt/gave-way:events", |r| r.totals.gave_way,
        "Times a goroutine had to yield to one woken by the clock or the network."),
    counter("/heist/preempt/signals:events", |r| r.totals.signals,
        "Signals sent to preempt goroutines."),

    // Processors and queues.
    gauge("/heist/procs/idle:threads", |r| r.sched.rest.idle().count_all().into(),
        "Idle processors."),
    counter("/heist/queue/global-put:goroutines", |r| r.totals.global_put,
        "Goroutines put into the global queue."),
    counter("/heist/queue/global-taken:goroutines", |r| r.totals.global_taken,
        "Goroutines taken from the global queue."),
    gauge("/heist/queue/global:goroutines", |r| r.sched.global_len().get().into(),
        "Goroutines in the global queue."),
    gauge("/heist/queue/local:goroutines", |r| r.queued,
        "Goroutines in the queues of processors."),
    counter("/heist/queue/overflows:events", |r| r.totals.overflows,
        "Times a full local queue spilled to the global one."),

    // Running and parking.
    counter("/heist/sched/executed:events", |r| r.totals.executed,
        "Times a goroutine was put on a processor."),
    counter("/heist/sched/parks:events", |r| r.parks.iter().sum(),
        "Times a goroutine parked."),
    counter("/heist/sched/readied:events", |r| r.totals.readied,
        "Times a parked goroutine was made runnable."),
    counter("/heist/sched/yields:events", |r| r.totals.yields,
        "Times a goroutine yielded."),

    // The search for work.
    counter("/heist/spin/starts:events", |r| r.totals.spins,
        "Times a thread began to look for work."),
    gauge("/heist/spin/threads:threads", |r| r.sched.rest.n_spinning().into(),
        "Threads that look for work now."),
    counter("/heist/spin/time:nanoseconds", |r| r.totals.spin_ns,
        "Time that threads spent looking for work."),
    counter("/heist/steal/attempts:events", |r| r.totals.steal_attempts,
        "Looks at the queue of another processor."),
    counter("/heist/steal/far:goroutines", |r| r.totals.stolen_far,
        "Goroutines taken from processors of another NUMA node."),
    counter("/heist/steal/forks:goroutines", |r| r.totals.forks_taken,
        "Halves of forks that became goroutines because another processor took them."),
    counter("/heist/steal/goroutines:goroutines", |r| r.totals.stolen,
        "Goroutines taken from other processors."),
    counter("/heist/steal/run-next:goroutines", |r| r.totals.stolen_run_next,
        "Goroutines taken from the run_next of other processors."),
    counter("/heist/steal/successes:events", |r| r.totals.steals,
        "Looks that brought goroutines."),

    // Stacks.
    gauge("/heist/stacks/cold:stacks", |r| r.stacks.cold,
        "Free stacks of the process whose memory was returned to the system."),
    gauge("/heist/stacks/grown:kinds", |r| r.sched.stacks.n_kinds_found() as u64,
        "Kinds of goroutine that came near the end of their stacks and get larger ones."),
    gauge("/heist/stacks/in-use:stacks", |r| r.stacks_in_use(),
        "Stacks that goroutines run on."),
    gauge("/heist/stacks/mapped:bytes", |r| r.stacks.mapped_bytes,
        "Address space of the process mapped for stacks."),
    gauge("/heist/stacks/warm:stacks", |r| r.stacks.warm,
        "Free stacks of the process whose memory is resident."),

    // Threads.
    counter("/heist/threads/parks:events", |r| r.totals.m_parks,
        "Times a thread went to sleep."),
    counter("/heist/threads/unparks:events", |r| r.totals.m_unparks,
        "Times a sleeping thread was handed a processor."),
    counter("/heist/wake-ups:events", |r| r.totals.wake_ups,
        "Times a thread was woken to look for work."),

    // Names of Go.
    gauge("/sched/gomaxprocs:threads", |r| r.sched.procs().into(),
        "Goroutines that can run at the same time."),
    counter("/sched/goroutines-created:goroutines", |r| r.totals.created,
        "Goroutines spawned."),
    gauge("/sched/goroutines/not-in-go:goroutines", |r| r.states.not_in_go,
        "Goroutines in a blocking call, announced or detected."),
    gauge("/sched/goroutines/runnable:goroutines", |r| r.states.runnable,
        "Goroutines in a run queue."),
    gauge("/sched/goroutines/running:goroutines", |r| r.states.running,
        "Goroutines that are running."),
    gauge("/sched/goroutines/waiting:goroutines", |r| r.states.waiting,
        "Goroutines that are parked."),
    gauge("/sched/goroutines:goroutines", |r| r.live,
        "Goroutines that were spawned and have not ended."),
    gauge("/sched/threads/total:threads", |r| r.threads,
        "Threads that run goroutines."),
    counter("/sync/mutex/wait/total:nanoseconds", |r| r.totals.lock_wait_ns,
        "Time that goroutines have waited for a Mutex or an RwLock."),
];

/// All metrics that are histograms, sorted by name.
#[rustfmt::skip]
pub(super) const HISTOGRAMS: &[HistogramRow] = &[
    histogram("/sched/latencies:seconds",
        |sched| sched.world.all_made().map(|pp| &pp.latencies.histogram).collect(),
        "Time from becoming runnable to running, of one in eight goroutines."),
    histogram("/sched/pauses/stopping/gc:seconds", |_| Vec::new(),
        "Nothing: there is no collector."),
    histogram("/sched/pauses/stopping/other:seconds", |sched| vec![&sched.world.pauses().stopping],
        "Time from the request to stop the world until it had stopped."),
    histogram("/sched/pauses/total/gc:seconds", |_| Vec::new(),
        "Nothing: there is no collector."),
    histogram("/sched/pauses/total/other:seconds", |sched| vec![&sched.world.pauses().total],
        "Time from the request to stop the world until it ran again."),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The list of metrics in the manual is the table, row by row.
    #[test]
    fn the_manual_lists_the_table() {
        let manual = include_str!("../../docs/OPERATING.md");
        let numbers = rows().iter().map(|row| row.description);
        let numbers = numbers.filter(|described| !described.name.starts_with("/heist/parks/"));
        let mut all: Vec<_> = numbers.chain(HISTOGRAMS.iter().map(|row| row.description)).collect();
        all.sort_unstable_by_key(|described| described.name);
        let mut list = String::from("| metric | kind | meaning |\n|---|---|---|\n");
        for Description { name, kind, help } in all {
            let help = help.trim_end_matches('.');
            list.push_str(&format!("| `{name}` | {} | {help} |\n", kind.word()));
        }
        assert!(manual.contains(&list), "the list in docs/OPERATING.md is to be:\n{list}");
    }
}
