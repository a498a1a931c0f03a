//! Profiles in the format of pprof, of all runtimes of the process.
//!
//! | profile | samples | switched on by |
//! |---|---|---|
//! | [`CpuProfile`], [`cpu`] | CPU time of threads that run goroutines | [`CpuProfile::start`] |
//! | [`goroutines`] | all goroutines that are alive | always |
//! | [`leaks`] | goroutines that can never run again | always |
//! | [`block`] | waits for channels, locks and other goroutines | [`set_block_rate`] |
//! | [`mutex`] | waits for a lock, charged to the one that releases it | [`set_mutex_fraction`] |
//! | [`threads`] | threads that run goroutines | always |
//!
//! `go tool pprof FILE` and every other tool that reads pprof's format opens what
//! [`Profile::write_to`] writes. Functions, files and lines are in it; the program is not needed.
//! A profile that is off costs one load of a word at each wait, and nothing elsewhere.
//!
//! # Examples
//! ```
//! use heist::profile;
//!
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| -> std::io::Result<()> {
//! let mut file = Vec::new();
//! profile::goroutines().write_to(&mut file)?;
//! // goroutine profile: total 1
//! // 1 @ 0x55d0c0ffee01 ...
//! println!("{}", profile::goroutines());
//! # assert!(profile::goroutines().to_string().starts_with("goroutine profile: total 1\n"));
//! # Ok(())
//! # }).unwrap();
//! ```

mod cpu;
mod pprof;
mod text;

pub use cpu::{CpuProfile, cpu};

use crate::current;
use crate::leaks;
use crate::sampler::table::{PARTS, Row, Table, Tag};
use crate::sampler::{self, Current, waits};
use crate::sched::Sched;
use crate::sys::walk::Registers;
use crate::traceback::collect::Entry;
use crate::traceback::{collect, here, on_large_stack, reports};
use std::collections::HashMap;
use std::io::{self, Write};
use std::panic::Location;
use std::time::{Duration, SystemTime};

/// The unit of a value of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unit {
    name: &'static str,
    unit: &'static str,
}

/// Stacks that are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Sample {
    /// Addresses inside the calls, the innermost first.
    frames: Vec<usize>,
    /// One for each unit of the profile.
    values: Vec<u64>,
    labels: Vec<(&'static str, String)>,
}

/// A profile: stacks, with how often each was seen.
#[derive(Clone, Debug)]
pub struct Profile {
    name: &'static str,
    units: Vec<Unit>,
    period: Option<(Unit, u64)>,
    samples: Vec<Sample>,
    taken: SystemTime,
    duration: Duration,
    lost: u64,
    /// Whether functions of the runtime below a call of the program are left out.
    hides_runtime: bool,
}

impl Profile {
    fn new(name: &'static str, units: &[(&'static str, &'static str)]) -> Self {
        Self {
            name,
            units: units.iter().map(|&(name, unit)| Unit { name, unit }).collect(),
            period: None,
            samples: Vec::new(),
            taken: SystemTime::now(),
            duration: Duration::ZERO,
            lost: 0,
            hides_runtime: true,
        }
    }

    /// Writes it in pprof's format, not compressed.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write_to(&self, mut to: impl Write) -> io::Result<()> {
        let encoded = on_large_stack(|| pprof::encode(self));
        to.write_all(&encoded)
    }

    /// How many events or samples it counts.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.samples.iter().fold(0, |sum, sample| sum.saturating_add(sample.values[0]))
    }

    /// How many samples could not be kept: because there were too many different stacks, or too
    /// many samples at the same moment.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.lost
    }
}

/// Every goroutine of every runtime, by stack.
///
/// The goroutines continue to run meanwhile. Each sample has the labels `state`, in the words of a
/// dump, and `spawned_at`.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// let profile = rt.run(heist::profile::goroutines);
/// assert!(profile.total() >= 1);
/// ```
#[doc(alias = "GoroutineProfile")]
#[must_use]
#[inline(never)]
pub fn goroutines() -> Profile {
    of_goroutines("goroutine", here(), |_| true)
}

/// The goroutines of every runtime that can never run again, by stack; see
/// [`find_leaks`](crate::goroutine::find_leaks), whose search it makes.
///
/// # Errors
/// Those of the search.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// assert_eq!(rt.run(heist::profile::leaks)?.total(), 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "goroutineleak")]
#[inline(never)]
pub fn leaks() -> io::Result<Profile> {
    leaks::search()?;
    Ok(of_goroutines("goroutineleak", here(), |entry| entry.is_leaked))
}

fn of_goroutines(
    name: &'static str,
    here: Registers,
    is_meant: impl Fn(&Entry) -> bool,
) -> Profile {
    let mut profile = Profile::new(name, &[(name, "count")]);
    profile.period = Some((Unit { name, unit: "count" }, 1));
    let mut counts: HashMap<(Vec<usize>, &str, Option<&Location<'_>>), u64> = HashMap::new();
    for sched in reports::runtimes() {
        for entry in collect::entries(&sched, here).into_iter().filter(&is_meant) {
            let frames = entry.stack.map_or_else(|_| vec![], |frames| frames.addresses().to_vec());
            let key = (frames, entry.state, entry.spawn_site);
            *counts.entry(key).or_default() += 1;
        }
    }
    for ((frames, state, site), n) in counts {
        let mut labels = vec![("state", state.to_owned())];
        labels.extend(site.map(|site| ("spawned_at", site.to_string())));
        profile.samples.push(Sample { frames, values: vec![n], labels });
    }
    profile.sorted()
}

/// The threads that run goroutines, one sample each, without a stack.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// assert!(rt.run(heist::profile::threads).total() >= 1);
/// ```
#[must_use]
pub fn threads() -> Profile {
    let mut profile = Profile::new("threadcreate", &[("threadcreate", "count")]);
    for sched in reports::runtimes() {
        let n = running(&sched);
        let labels = vec![("runtime", sched.config.name.clone())];
        profile.samples.push(Sample { frames: vec![], values: vec![n], labels });
    }
    profile
}

fn running(sched: &Sched) -> u64 {
    // A goroutine must not be preempted while it holds the lock.
    let _rt = current::enter();
    let locked = sched.lock.lock();
    locked.roster.n_running().into()
}

/// Waits of goroutines for channels, select, locks, conditions, semaphores and other goroutines
/// since the profile was first switched on by [`set_block_rate`]: how many, and for how long. Waits
/// for the clock and for the network are not in it.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// heist::profile::set_block_rate(Some(Duration::from_nanos(1))).unwrap();
/// let (tx, rx) = heist::chan::bounded::<()>(0);
/// heist::go(move || {
///     heist::time::sleep(Duration::from_millis(1));
///     tx.send(())
/// });
/// rx.recv().unwrap();
/// assert!(heist::profile::block().total() >= 1);
/// heist::profile::set_block_rate(None).unwrap();
/// # });
/// ```
#[must_use]
pub fn block() -> Profile {
    contention("contention", &waits::BLOCK)
}

/// The time that goroutines have waited for a [`Mutex`](crate::sync::Mutex) or a
/// [`RwLock`](crate::sync::RwLock), charged to the goroutines that held it: each stack is that of a
/// release. Since the profile was first switched on by [`set_mutex_fraction`].
///
/// # Examples
/// ```
/// heist::profile::set_mutex_fraction(1).unwrap();
/// assert_eq!(heist::profile::mutex().total(), 0);
/// heist::profile::set_mutex_fraction(0).unwrap();
/// ```
#[must_use]
pub fn mutex() -> Profile {
    contention("mutex", &waits::MUTEX)
}

fn contention(name: &'static str, current: &Current) -> Profile {
    let mut profile = Profile::new(name, &[("contentions", "count"), ("delay", "nanoseconds")]);
    profile.period = Some((Unit { name: "contentions", unit: "count" }, 1));
    profile.lost = current.lost();
    profile.add_rows(current.read());
    profile.sorted()
}

/// Samples waits for the [`block`] profile: on average one in each `rate` of time that goroutines
/// wait; all waits that take longer, and of shorter ones a fair part. None switches it off; a rate
/// of one nanosecond records every wait. Returns the previous rate.
///
/// # Errors
/// If there is no memory for the profile.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// let rate = Duration::from_micros(100);
/// assert_eq!(heist::profile::set_block_rate(Some(rate))?, None);
/// assert_eq!(heist::profile::set_block_rate(None)?, Some(rate));
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "SetBlockProfileRate")]
pub fn set_block_rate(rate: Option<Duration>) -> io::Result<Option<Duration>> {
    if rate.is_some() {
        switch_on(&waits::BLOCK)?;
    }
    let ns = |rate: Duration| u64::try_from(rate.as_nanos()).unwrap_or(u64::MAX).clamp(1, MAX_NS);
    let before = waits::set_block_rate(rate.map_or(0, ns));
    Ok((before != 0).then(|| Duration::from_nanos(before)))
}

/// The largest rate, an hour: counts are scaled by it.
const MAX_NS: u64 = 3600 * 1_000_000_000;

/// Samples one in `fraction` releases of locks that others wait for, for the [`mutex`] profile.
/// Zero switches it off. Returns the previous fraction. While it is on, a release of a lock looks
/// at all goroutines that wait for it.
///
/// # Errors
/// If there is no memory for the profile.
///
/// # Examples
/// ```
/// assert_eq!(heist::profile::set_mutex_fraction(5)?, 0);
/// assert_eq!(heist::profile::set_mutex_fraction(0)?, 5);
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "SetMutexProfileFraction")]
pub fn set_mutex_fraction(fraction: u32) -> io::Result<u32> {
    if fraction != 0 {
        switch_on(&waits::MUTEX)?;
    }
    Ok(waits::set_mutex_fraction(fraction.into()) as u32)
}

fn switch_on(current: &Current) -> io::Result<()> {
    on_large_stack(sampler::prepare);
    // There may be one already, which stays.
    current.set(Table::new()?);
    Ok(())
}

impl Profile {
    /// Adds the rows of a table with two values: the count and the value.
    fn add_rows(&mut self, rows: Vec<Row>) {
        let mut sums: HashMap<(Vec<usize>, Tag), (u64, u64)> = HashMap::new();
        for row in rows {
            let sum = sums.entry((row.frames, row.tag)).or_default();
            *sum = (sum.0.saturating_add(row.count), sum.1.saturating_add(row.value));
        }
        for ((frames, tag), (count, value)) in sums {
            let values = vec![count.saturating_add(PARTS / 2) / PARTS, value];
            self.samples.push(Sample { frames, values, labels: labels(&tag) });
        }
    }

    /// The largest samples first.
    fn sorted(mut self) -> Self {
        let key = |sample: &Sample| {
            let value = *sample.values.last().unwrap_or(&0);
            (std::cmp::Reverse(value), sample.frames.clone(), sample.labels.clone())
        };
        self.samples.sort_by_cached_key(key);
        self
    }
}

/// What a tag says about the goroutine of a sample.
fn labels(tag: &Tag) -> Vec<(&'static str, String)> {
    let mut labels = Vec::new();
    // SAFETY: zero, or the address of a location, which is static.
    if let Some(site) = unsafe { (tag.site as *const Location<'static>).as_ref() } {
        labels.push(("spawned_at", site.to_string()));
        labels.push(("class", ["normal", "latency", "idle"][tag.class.min(2)].to_owned()));
    }
    let name = tag.name();
    if !name.is_empty() {
        labels.push(("goroutine", name));
    }
    labels
}
