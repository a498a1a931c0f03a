//! The CPU profile: each thread that runs goroutines has a timer of its own CPU time.

use super::{Profile, Unit};
use crate::sampler;
use crate::sampler::cpu::{CURRENT, on_tick};
use crate::sampler::table::Table;
use crate::sys::bystanders::Bystander;
use crate::sys::profile_timer::{self, ThreadTimer};
use crate::sys::thread;
use crate::traceback::{on_large_stack, reports};
use std::collections::HashMap;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How often threads are looked for that have begun meanwhile.
const LOOK_PERIOD: Duration = Duration::from_millis(20);

/// The usual number of samples in a second of CPU time, as in Go.
const USUAL_HZ: u32 = 100;
/// More cost too much.
const MAX_HZ: u32 = 10_000;

/// A CPU profile that is being made. There is one at a time in a process.
///
/// Every thread that runs goroutines is interrupted by SIGPROF after each hundredth of a second of
/// its CPU time, and the stack of its goroutine, or of the scheduler, is counted. Samples have the
/// labels `goroutine` (its name), `class` and `spawned_at`.
///
/// Dropping it ends the profile and forgets it.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| -> std::io::Result<()> {
/// let profile = heist::profile::CpuProfile::start()?;
/// heist::go(|| (0..1000_u64).map(std::hint::black_box).sum::<u64>()).join().unwrap();
/// let mut file = Vec::new();
/// profile.stop().write_to(&mut file)?;
/// # assert!(!file.is_empty());
/// # Ok(())
/// # }).unwrap();
/// ```
#[derive(Debug)]
#[must_use = "the profile ends when this is dropped"]
pub struct CpuProfile {
    /// Dropped to stop the thread that owns the timers.
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
    started: (SystemTime, Instant),
    period_ns: u64,
    has_ended: bool,
}

impl CpuProfile {
    /// Starts a profile with 100 samples in a second of CPU time.
    ///
    /// # Errors
    /// If a CPU profile is being made already, if the program has a handler for SIGPROF, or if
    /// there is no memory, no thread or no timer for it.
    #[doc(alias = "StartCPUProfile")]
    pub fn start() -> io::Result<Self> {
        Self::start_at(USUAL_HZ)
    }

    /// As [`start`](Self::start), with `hz` samples in a second of CPU time, up to 10,000. The
    /// kernel may take fewer: its clock ticks 100 to 1000 times a second.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_at(hz: u32) -> io::Result<Self> {
        let period_ns = 1_000_000_000 / u64::from(hz.clamp(1, MAX_HZ));
        on_large_stack(sampler::prepare);
        if !CURRENT.set(Table::new()?) {
            let why = "a CPU profile is being made already";
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, why));
        }
        let started = (SystemTime::now(), Instant::now());
        // From here on dropping it takes the table out again.
        let mut profile = Self { stop: None, keeper: None, started, period_ns, has_ended: false };
        profile_timer::install(on_tick, period_ns)?;
        let (stop, stopped) = mpsc::channel();
        let mut timers = HashMap::new();
        start_timers(&mut timers, period_ns);
        let keep = move || {
            let _bystander = Bystander::new();
            while stopped.recv_timeout(LOOK_PERIOD) == Err(RecvTimeoutError::Timeout) {
                start_timers(&mut timers, period_ns);
            }
        };
        profile.keeper = Some(thread::spawn_roomy_joinable("heist-profile", keep)?);
        profile.stop = Some(stop);
        Ok(profile)
    }

    /// Ends the profile and returns it.
    #[doc(alias = "StopCPUProfile")]
    pub fn stop(mut self) -> Profile {
        let mut profile = Profile::new("cpu", &[("samples", "count"), ("cpu", "nanoseconds")]);
        profile.hides_runtime = false;
        profile.taken = self.started.0;
        profile.duration = self.started.1.elapsed();
        profile.period = Some((Unit { name: "cpu", unit: "nanoseconds" }, self.period_ns));
        if let Some(table) = self.end() {
            profile.lost = table.lost();
            profile.add_rows(table.rows());
        }
        profile.sorted()
    }

    fn end(&mut self) -> Option<Table> {
        self.has_ended = true;
        drop(self.stop.take());
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
        CURRENT.take()
    }
}

impl Drop for CpuProfile {
    fn drop(&mut self) {
        // After `stop` another one may have begun.
        if !self.has_ended {
            drop(self.end());
        }
    }
}

/// Starts timers for the threads of all runtimes that have none.
fn start_timers(timers: &mut HashMap<u32, ThreadTimer>, period_ns: u64) {
    for sched in reports::runtimes() {
        let tids = sched.threads.all_ms().iter().map(|m| m.tid()).filter(|&tid| tid != 0);
        for tid in tids {
            if !timers.contains_key(&tid)
                && let Ok(timer) = ThreadTimer::start(tid, period_ns)
            {
                timers.insert(tid, timer);
            }
        }
    }
}

/// Makes a CPU profile for `duration`, while the caller waits.
///
/// # Errors
/// As [`CpuProfile::start`].
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// let profile = heist::profile::cpu(std::time::Duration::from_millis(10))?;
/// profile.write_to(std::io::sink())?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn cpu(duration: Duration) -> io::Result<Profile> {
    let profile = CpuProfile::start()?;
    crate::time::sleep(duration);
    Ok(profile.stop())
}
