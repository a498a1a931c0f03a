//! A thread that looks at a runtime at intervals and reports what is wrong, if it is asked to.
//!
//! `HEIST_DEBUG` asks for it: `stuck=2s` names goroutines that compute or block for so long without
//! a call into the runtime, with their stacks; `leaks=60s` searches for goroutines that can never
//! run again; `slowstart=100ms`, with `flightrecorder`, writes the flight recorder when a goroutine
//! waited longer than that for a processor.
//!
//! The thread is no M and takes no lock of the scheduler that could be held for long: it reports
//! also when all Ps are stuck. sysmon cannot do this: a report allocates.

use crate::leaks;
use crate::metrics::{Histogram, Metrics};
use crate::sched::Sched;
use crate::sys::bystanders::Bystander;
use crate::sys::{stderr, thread};
use crate::trace::FlightRecorder;
use crate::traceback::{collect, here, text};
use heist_core::m_word::{Place, Stamp};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The longest and the shortest time between two looks.
const PERIOD_MAX: Duration = Duration::from_millis(250);
const PERIOD_MIN: Duration = Duration::from_millis(5);
/// The flight recorder is written at most once in this time.
const DUMP_PERIOD: Duration = Duration::from_secs(60);
/// The most goroutines that are reported at a look.
const REPORTS_MAX: usize = 8;

/// What to look for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Orders {
    /// Goroutines that stay outside the runtime for so long.
    pub(crate) stuck: Option<Duration>,
    /// Search for leaks at such intervals.
    pub(crate) leaks: Option<Duration>,
    /// Goroutines that waited for a processor for so long.
    pub(crate) slow_start: Option<Duration>,
}

impl Orders {
    fn period(&self) -> Option<Duration> {
        let quarters = [self.stuck, self.slow_start].into_iter().flatten().map(|time| time / 4);
        let all = quarters.chain(self.leaks);
        all.min().map(|period| period.clamp(PERIOD_MIN, PERIOD_MAX))
    }
}

/// Whether the watchdog is to end.
#[derive(Debug, Default)]
struct Control {
    ends: Mutex<bool>,
    changed: Condvar,
}

impl Control {
    /// Waits for a period. False if the watchdog is to end.
    fn wait(&self, period: Duration) -> bool {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(ends, period, |ends| !*ends);
        let (ends, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !*ends
    }

    fn end(&self) {
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }
}

/// A running watchdog. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
}

impl Watchdog {
    /// Starts it, if there is anything to look for. `flight` is the flight recorder of the runtime.
    pub(crate) fn start(
        sched: &Arc<Sched>,
        orders: Orders,
        flight: Option<Arc<FlightRecorder>>,
    ) -> io::Result<Option<Self>> {
        let Some(period) = orders.period() else { return Ok(None) };
        let control = Arc::new(Control::default());
        let (own, name) = (Arc::clone(&control), format!("{}-watchdog", sched.config.name));
        // A runtime that is dropped is not kept alive.
        let sched = Arc::downgrade(sched);
        let thread = thread::spawn_roomy_joinable(&name, move || {
            let _bystander = Bystander::new();
            let mut looks = Looks::new(orders, flight);
            while own.wait(period) {
                let Some(sched) = sched.upgrade() else { return };
                looks.look(&sched, Instant::now());
            }
        })?;
        Ok(Some(Self { control, thread: Some(thread) }))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.control.end();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// A goroutine that stays outside the runtime.
struct Stay {
    stamp: Stamp,
    since: Instant,
    /// When it is reported.
    due: Duration,
    last_look: Instant,
}

struct Looks {
    orders: Orders,
    flight: Option<Arc<FlightRecorder>>,
    stays: HashMap<u64, Stay>,
    n_slow: Option<u64>,
    last_dump: Option<Instant>,
    n_dumps: u32,
    last_search: Instant,
    n_leaks: u64,
    has_failed: bool,
}

impl Looks {
    fn new(orders: Orders, flight: Option<Arc<FlightRecorder>>) -> Self {
        Self {
            orders,
            flight,
            stays: HashMap::new(),
            n_slow: None,
            last_dump: None,
            n_dumps: 0,
            last_search: Instant::now(),
            n_leaks: 0,
            has_failed: false,
        }
    }

    fn look(&mut self, sched: &Sched, now: Instant) {
        if let Some(limit) = self.orders.stuck {
            self.look_for_stuck(sched, limit, now);
        }
        if let (Some(limit), Some(flight)) = (self.orders.slow_start, self.flight.clone()) {
            self.look_for_slow(sched, limit, &flight, now);
        }
        if let Some(period) = self.orders.leaks
            && now.duration_since(self.last_search) >= period
        {
            self.look_for_leaks();
            self.last_search = Instant::now();
        }
    }

    fn look_for_stuck(&mut self, sched: &Sched, limit: Duration, now: Instant) {
        let mut n_reports = 0;
        for m in sched.threads.all_ms().iter() {
            let (stamp, Some(gp)) = (m.word.stamp(), m.current()) else { continue };
            // An announced call may take as long as it likes.
            if stamp.place() == Place::Blocked {
                continue;
            }
            let id = gp.id.get();
            let computes = collect::computes(gp);
            let stay = self.stays.entry(id).or_insert(Stay {
                stamp,
                since: now,
                due: limit,
                last_look: now,
            });
            stay.last_look = now;
            // A goroutine that a signal preempted has another stamp, and is still a hog.
            if stay.stamp != stamp && !computes {
                *stay = Stay { stamp, since: now, due: limit, last_look: now };
                continue;
            }
            stay.stamp = stamp;
            let time = now.duration_since(stay.since);
            if time >= stay.due && n_reports < REPORTS_MAX {
                stay.due = time * 2;
                n_reports += 1;
                // The thread of a goroutine that was preempted by a signal sleeps in its handler.
                let is_frozen = m.captured.sleeping().is_some();
                let blocks = !is_frozen && thread::is_asleep(m.tid());
                report_stuck(sched, id, time, blocks);
            }
        }
        self.stays.retain(|_, stay| stay.last_look == now);
    }

    fn look_for_slow(
        &mut self,
        sched: &Sched,
        limit: Duration,
        flight: &FlightRecorder,
        now: Instant,
    ) {
        let metrics = Metrics::read(sched);
        let Some(latencies) = metrics.histogram("/sched/latencies:seconds") else { return };
        let n = n_above(latencies, limit);
        let is_more = self.n_slow.is_some_and(|before| n > before);
        self.n_slow = Some(n);
        let is_free = self.last_dump.is_none_or(|last| now.duration_since(last) >= DUMP_PERIOD);
        if !is_more || !is_free {
            return;
        }
        self.last_dump = Some(now);
        self.n_dumps += 1;
        let path = format!("heist-{}-slow-{}.trace", std::process::id(), self.n_dumps);
        let written = File::create(PathBuf::from(&path)).and_then(|file| flight.dump(file));
        match written {
            Ok(_) => stderr::report(format_args!(
                "heist: a goroutine waited for a processor for more than {limit:?}; the events before that \
                 are in {path}\n"
            )),
            Err(error) => {
                stderr::report(format_args!("heist: {path} could not be written: {error}\n"))
            }
        }
    }

    fn look_for_leaks(&mut self) {
        match leaks::find_leaks() {
            Ok(found) => {
                let n = found.len() as u64;
                if n > self.n_leaks {
                    stderr::report(format_args!(
                        "heist: partial deadlock: {n} goroutines can never run again\n"
                    ));
                    let new = found.iter().skip(self.n_leaks as usize).take(REPORTS_MAX);
                    new.for_each(|leak| stderr::report(format_args!("\n{leak}")));
                }
                self.n_leaks = n;
            }
            Err(error) if !self.has_failed => {
                self.has_failed = true;
                stderr::report(format_args!("heist: leaks cannot be searched for: {error}\n"));
            }
            Err(_) => {}
        }
    }
}

/// How many durations are certainly longer than `limit`.
fn n_above(histogram: &Histogram, limit: Duration) -> u64 {
    let (edges, limit) = (Histogram::edges(), limit.as_secs_f64());
    let buckets = histogram.counts().iter().zip(edges);
    buckets.filter(|&(_, lower)| lower >= limit).map(|(count, _)| count).sum()
}

fn report_stuck(sched: &Sched, id: u64, time: Duration, blocks: bool) {
    sched.stats.stuck.add_shared(1);
    let Some(entry) = collect::entry_of(sched, id, here()) else { return };
    let did = if blocks {
        "has blocked its thread without announcing that"
    } else {
        "has computed without a call into the runtime"
    };
    let seconds = time.as_secs_f64();
    let goroutine = text::dump(vec![entry], None);
    stderr::report(format_args!("heist: goroutine {id} {did} for {seconds:.1} s:\n{goroutine}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_as_frequent_as_what_is_looked_for() {
        let ms = |ms| Some(Duration::from_millis(ms));
        let period = |stuck, leaks, slow_start| Orders { stuck, leaks, slow_start }.period();
        assert_eq!(period(None, None, None), None);
        assert_eq!(period(ms(100), None, None), ms(25));
        assert_eq!(period(ms(100), None, ms(1)), ms(5));
        assert_eq!(period(ms(60_000), ms(60_000), None), ms(250));
    }
}
