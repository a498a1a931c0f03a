//! Work and span of a computation, measured while it runs.

use crate::goroutine::measured;
use heist_core::work_span;
use std::fmt;
use std::time::Duration;

/// Runs `f`, and measures how parallel it is.
///
/// The forks of `f`, by [`join`](crate::join) and by the loops and sorts of [`par`](crate::par),
/// make a graph. The pieces of code between forks and joins are its strands. While `f` runs, the
/// time of each strand is taken:
/// - Time in which a strand runs is *work*, and *span*.
/// - Time from when a strand parks (it sleeps, waits for a channel, a lock, a socket, another
///   goroutine) until what it waits for has happened is *latency*: it is span, and no work.
/// - Time in which a strand could run and does not, because it was preempted, has yielded or waits
///   in a queue, is neither. So is the wait of a fork for its second half.
///
/// Halves add their work, and the longer one is the span. The work is `T1`, the time that one
/// processor needs. The span is `Tinf`, the time that infinitely many need. Loops and sorts, which
/// split while a processor is idle, split as if one always were.
///
/// The clock is that of the machine. If the system runs something else on the CPU meanwhile, or if
/// a strand blocks its thread, the time counts as work. Goroutines that `f` spawns are not a part
/// of the computation; to wait for them is latency.
///
/// Measuring costs a fork up to a microsecond. Most of that is in [`Measurement::books`], the rest
/// counts as work. So the work of a computation whose strands are as short as that is too large.
/// Take the time of the whole in a second run, without this function, and give it to
/// [`Measurement::constant_of`]. A fork outside of this function costs what it cost before.
///
/// Measurements may be nested: the inner one is a part of the outer one. On a plain thread nothing
/// is forked, and the whole run is one strand.
///
/// # Panics
/// If `f` panics, the panic continues and there is no measurement. An outer measurement counts what
/// ran until then.
///
/// # Examples
/// ```
/// fn fib(n: u32) -> u64 {
///     if n < 2 {
///         return n.into();
///     }
///     let (a, b) = heist::join(|| fib(n - 1), || fib(n - 2));
///     a + b
/// }
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let (value, measured) = heist::par::measure(|| fib(15));
/// assert_eq!(value, 610);
/// assert_eq!(measured.forks, 986);
/// assert!(measured.work >= measured.span);
/// println!("{measured}");
/// # });
/// ```
pub fn measure<T>(f: impl FnOnce() -> T) -> (T, Measurement) {
    let (value, run) = measured::run(f);
    let ns = Duration::from_nanos;
    let elapsed = ns(run.elapsed_ns);
    let measurement = match run.tally {
        Some(tally) => Measurement {
            work: ns(tally.work_ns),
            span: ns(tally.span_ns),
            latency: ns(tally.latency_ns),
            books: ns(tally.books_ns),
            elapsed,
            procs: run.procs,
            forks: tally.n_forks,
            taken: tally.n_taken,
            chain: tally.chain,
            depth: tally.depth,
            open: run.n_open.into(),
            suspended: run.n_suspended.into(),
        },
        None => Measurement::of_one_strand(elapsed, run.procs),
    };
    (value, measurement)
}

/// How parallel a computation was; see [`measure`].
///
/// It is written as a table:
/// ```text
/// work T1             41.2 ms
/// span Tinf            1.1 ms
/// ...
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Measurement {
    /// `T1`: how long all strands ran.
    pub work: Duration,
    /// `Tinf`: the longest chain of strands and waits of which each follows the one before.
    pub span: Duration,
    /// All waits for events together. Those on the longest chain are a part of the span.
    pub latency: Duration,
    /// How long the forkers were busy with forks, joins and the measurement.
    pub books: Duration,
    /// `T_P`: how long the whole took.
    pub elapsed: Duration,
    /// `P`: the number of processors of the runtime.
    pub procs: u32,
    /// How many forks there were.
    pub forks: u64,
    /// How many second halves became goroutines, because a thief took them.
    pub taken: u64,
    /// The forks on the longest chain of forks: the span, counted in forks.
    pub chain: u64,
    /// `S1`: how many forks are open at the same time if one processor runs the computation.
    pub depth: u64,
    /// How many forks were open at the same time, at most.
    pub open: u64,
    /// `U`, the suspension width: how many strands waited for an event at the same time, at most.
    pub suspended: u64,
}

impl Measurement {
    const fn of_one_strand(elapsed: Duration, procs: u32) -> Self {
        Self {
            work: elapsed,
            span: elapsed,
            latency: Duration::ZERO,
            books: Duration::ZERO,
            elapsed,
            procs,
            forks: 0,
            taken: 0,
            chain: 0,
            depth: 0,
            open: 0,
            suspended: 0,
        }
    }

    /// `T1 / Tinf`: more processors than this cannot make the computation faster. One if it took no
    /// time that could be measured.
    #[must_use]
    pub fn parallelism(&self) -> f64 {
        if self.span.is_zero() { 1.0 } else { self.work.div_duration_f64(self.span) }
    }

    /// The constant `c` of `T_P = T1 / P + c * Tinf`, in this run. The work includes the
    /// [`books`](Self::books), which the processors shared as they shared the work. Zero if the run
    /// took no longer than `T1 / P`.
    #[must_use]
    pub fn constant(&self) -> f64 {
        constant(self.work + self.books, self.span, self.elapsed, self.procs)
    }

    /// The constant `c` of another run of the same computation, which was not measured and took
    /// `elapsed` on `procs` processors.
    #[must_use]
    pub fn constant_of(&self, elapsed: Duration, procs: u32) -> f64 {
        constant(self.work, self.span, elapsed, procs)
    }

    /// `S1 * P`: with no latency, a computation has no more forks open than this.
    #[must_use]
    pub fn space_bound(&self) -> u64 {
        self.depth * u64::from(self.procs)
    }

    /// `P * Tinf`, with the span counted in forks: the order of the number of thefts.
    #[must_use]
    pub fn theft_bound(&self) -> u64 {
        self.chain * u64::from(self.procs)
    }
}

fn constant(work: Duration, span: Duration, elapsed: Duration, procs: u32) -> f64 {
    let ns = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    work_span::constant(ns(work), ns(span), ns(elapsed), procs)
}

/// A duration with three digits or more.
struct Short(Duration);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.0.as_nanos() as f64;
        let (number, unit) = match ns {
            ..1e3 => (ns, "ns"),
            ..1e6 => (ns / 1e3, "us"),
            ..1e9 => (ns / 1e6, "ms"),
            _ => (ns / 1e9, "s"),
        };
        let decimals = if ns < 1e3 { 0 } else { 1 };
        f.pad(&format!("{number:.decimals$} {unit}"))
    }
}

impl fmt::Display for Measurement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { procs, forks, taken, depth, open, suspended, .. } = self;
        let (space, thefts) = (self.space_bound(), self.theft_bound());
        writeln!(f, "work T1          {:>10}", Short(self.work))?;
        writeln!(f, "span Tinf        {:>10}", Short(self.span))?;
        writeln!(f, "parallelism      {:>10.1}  T1 / Tinf", self.parallelism())?;
        writeln!(f, "elapsed T_P      {:>10}  on {procs} procs", Short(self.elapsed))?;
        writeln!(f, "constant c       {:>10.2}  T_P = T1 / P + c * Tinf", self.constant())?;
        writeln!(f, "forks            {forks:>10}  {depth} deep")?;
        writeln!(f, "taken            {taken:>10}  P * Tinf in forks: {thefts}")?;
        writeln!(f, "open at once     {open:>10}  S1 * P: {space}")?;
        writeln!(f, "latency          {:>10}  {suspended} at once", Short(self.latency))?;
        write!(f, "measuring took   {:>10}", Short(self.books))
    }
}
