//! The cost of preventing stalls: figures that are not of a single path, each from a run of several
//! seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use heist::goroutine::{Builder, Class};
use heist::{JoinHandle, Runtime};
use heist_micro::find;

/// The measurements.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Figure {
    Enter,
    Sysmon,
    Ticker,
    Latency,
    Throughput,
    Pauses,
}

/// Takes the figures, all if none is named, and prints them.
pub fn measure(secs: u64, only: &[Figure]) -> Result<(), String> {
    let length = Duration::from_secs(secs);
    for &figure in Figure::value_variants() {
        if !only.is_empty() && !only.contains(&figure) {
            continue;
        }
        match figure {
            Figure::Enter => println!("enter + exit            {:8.2} ns", enter_and_exit()),
            Figure::Sysmon => sysmon_next_to_hogs(length)?,
            Figure::Ticker => ticker("a ticker next to hogs", Class::Normal, length),
            Figure::Latency => ticker("of the latency class", Class::Latency, length),
            Figure::Throughput => throughput(length)?,
            Figure::Pauses => pauses(length),
        }
    }
    Ok(())
}

/// The least of several rounds, in nanoseconds.
fn enter_and_exit() -> f64 {
    const N: usize = 10_000_000;
    let mut repeat = (find("enter_leave").expect("it is a path").prepare)();
    repeat(N / 10);
    let round = |_| {
        let from = Instant::now();
        repeat(N);
        from.elapsed().as_secs_f64() * 1e9 / N as f64
    };
    (0..10).map(round).fold(f64::INFINITY, f64::min)
}

fn runtime(procs: usize, forced: bool) -> Runtime {
    let builder = Runtime::builder().procs(procs).name("stalls").forced_preemption(forced);
    // SAFETY: the goroutines keep nothing that is bound to a thread.
    unsafe { builder.build() }.expect("the runtime starts")
}

/// Goroutines that count without a call until they are told to stop.
struct Hogs {
    stop: Arc<AtomicBool>,
    handles: Vec<JoinHandle<u64>>,
}

impl Hogs {
    fn start(rt: &Runtime, n: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let hog = |_| {
            let stop = Arc::clone(&stop);
            rt.handle().spawn(move || {
                let mut n = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                }
                n
            })
        };
        Self { handles: (0..n).map(hog).collect(), stop }
    }

    /// How often they have counted, all together.
    fn end(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.handles.into_iter().map(|hog| hog.join().expect("it ends")).sum()
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// CPU time that this process has used, threads that have ended included.
pub fn process_cpu() -> Result<Duration, String> {
    // SAFETY: all zeros is a value of it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: it is written to.
    if unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) } != 0 {
        return Err("the kernel does not tell how much CPU time was used".to_owned());
    }
    let time = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.unsigned_abs())
            + Duration::from_micros(t.tv_usec.unsigned_abs())
    };
    Ok(time(usage.ru_utime) + time(usage.ru_stime))
}

/// CPU time that the threads of this process have used whose names contain `part`.
fn cpu_time(part: &str) -> Result<Duration, String> {
    let wrong = |error: std::io::Error| format!("/proc/self/task: {error}");
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").map_err(wrong)? {
        let path = task.map_err(wrong)?.path();
        // A thread may end meanwhile.
        let (Ok(name), Ok(times)) = (
            std::fs::read_to_string(path.join("comm")),
            std::fs::read_to_string(path.join("schedstat")),
        ) else {
            continue;
        };
        if name.contains(part) {
            let ran = times.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok());
            sum += ran.ok_or("the kernel does not tell how long threads have run")?;
        }
    }
    Ok(Duration::from_nanos(sum))
}

/// How much of a core sysmon uses next to twice as many hogs as there are CPUs; and how many cores
/// those use.
fn sysmon_next_to_hogs(length: Duration) -> Result<(), String> {
    let rt = runtime(cpus(), true);
    let hogs = Hogs::start(&rt, 2 * cpus());
    std::thread::sleep(length / 10);
    let (from, before) = (Instant::now(), (cpu_time("sysmon")?, cpu_time("stalls-m")?));
    std::thread::sleep(length);
    let (after, took) = ((cpu_time("sysmon")?, cpu_time("stalls-m")?), from.elapsed());
    hogs.end();
    let share = |time: Duration| time.as_secs_f64() / took.as_secs_f64();
    println!(
        "sysmon next to hogs     {:8.3} % of a core ({:.2} cores used by hogs)",
        100.0 * share(after.0 - before.0),
        share(after.1 - before.1)
    );
    Ok(())
}

/// How late a ticker of 1 ms is next to twice as many hogs as there are CPUs; of the latency class,
/// with one of the Ps reserved for it.
fn ticker(name: &str, class: Class, length: Duration) {
    const PERIOD: Duration = Duration::from_millis(1);
    let reserved = usize::from(class == Class::Latency);
    let builder = Runtime::builder().procs(cpus()).latency_procs(reserved.min(cpus() - 1));
    // SAFETY: the goroutines keep nothing that is bound to a thread.
    let rt = unsafe { builder.build() }.expect("the runtime starts");
    let hogs = Hogs::start(&rt, 2 * cpus());
    let mut late = rt.run(|| {
        let ticks = Builder::new().class(class).spawn(move || {
            let from = Instant::now();
            let n = (length.as_nanos() / PERIOD.as_nanos()) as u32;
            let tick = |i| {
                let due = from + i * PERIOD;
                heist::time::sleep_until(due);
                due.elapsed()
            };
            (1..=n).map(tick).collect::<Vec<_>>()
        });
        ticks.expect("there is memory").join().expect("it ends")
    });
    hogs.end();
    late.sort();
    let at = |q: f64| late[((late.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e3;
    println!(
        "{name:23} {:8.3} ms late p50  {:.3} p95  {:.3} p99  {:.3} max",
        at(0.5),
        at(0.95),
        at(0.99),
        at(1.0)
    );
}

/// The work that hogs did in a period.
struct Work {
    rounds: f64,
    /// How long they computed, all together.
    computed_secs: f64,
    wall_secs: f64,
    /// CPU time of the whole process.
    cpu_secs: f64,
    /// CPU time of all other processes.
    others_secs: f64,
    /// CPU time that the host of a virtual machine kept for others, of all CPUs.
    stolen_secs: f64,
}

impl Work {
    /// The work that hogs do after the start-up.
    fn of(hogs: &CountingHogs) -> Result<Self, String> {
        const SETTLE: Duration = Duration::from_millis(60);
        const WINDOW: Duration = Duration::from_millis(300);
        let now = || Ok::<_, String>((Instant::now(), hogs.sums(), cpu_time("")?, machine_secs()?));
        hogs.go_on();
        std::thread::sleep(SETTLE);
        let before = now()?;
        std::thread::sleep(WINDOW);
        let after = now()?;
        hogs.pause();
        Ok(Self {
            rounds: (after.1.0 - before.1.0) as f64,
            computed_secs: (after.1.1 - before.1.1) as f64 / 1e9,
            wall_secs: (after.0 - before.0).as_secs_f64(),
            cpu_secs: (after.2 - before.2).as_secs_f64(),
            others_secs: (after.3.0 - before.3.0) - (after.2 - before.2).as_secs_f64(),
            stolen_secs: after.3.1 - before.3.1,
        })
    }

    /// How many of them computed at each moment, on average.
    fn computing(&self) -> f64 {
        self.computed_secs / self.wall_secs
    }

    /// Whether others used the machine meanwhile. Its times are counted in steps of 10 ms.
    fn was_disturbed(&self) -> bool {
        self.others_secs + self.stolen_secs > 0.025
    }

    fn per_wall_sec(&self) -> f64 {
        self.rounds / self.wall_secs
    }

    fn per_cpu_sec(&self) -> f64 {
        self.rounds / self.cpu_secs
    }
}

/// Hogs that report their progress while they run: each writes to its own counter.
///
/// Rounds are not a good measure on a virtual machine, whose CPUs change speed. So each hog also
/// reads the clock all the time: long pauses between two reads are those in which it was
/// interrupted or preempted, and the rest is its CPU time.
struct CountingHogs {
    counts: Vec<Arc<Count>>,
    /// They compute.
    on: Arc<AtomicBool>,
    /// Lets one of them compute.
    turns: heist::chan::Sender<()>,
    /// One of them has paused.
    pauses: heist::chan::Receiver<()>,
    _runtime: Runtime,
}

#[derive(Default)]
#[repr(align(128))]
struct Count {
    rounds: AtomicU64,
    computed_ns: AtomicU64,
}

impl Count {
    fn hog(&self, on: &AtomicBool) {
        /// A round takes a hundredth of it.
        const PAUSE: Duration = Duration::from_micros(10);
        let (mut rounds, mut computed_ns) =
            (self.rounds.load(Ordering::Relaxed), self.computed_ns.load(Ordering::Relaxed));
        let mut last = Instant::now();
        while on.load(Ordering::Relaxed) {
            (0..64).for_each(|i| {
                std::hint::black_box(i);
            });
            let now = Instant::now();
            let took = now - std::mem::replace(&mut last, now);
            if took < PAUSE {
                computed_ns += took.as_nanos() as u64;
                self.computed_ns.store(computed_ns, Ordering::Relaxed);
            }
            rounds += 1;
            self.rounds.store(rounds, Ordering::Relaxed);
        }
    }
}

impl CountingHogs {
    /// `n` of them on as many Ps as there are CPUs.
    fn new(n: usize, forced: bool) -> Self {
        let rt = runtime(cpus(), forced);
        let on = Arc::new(AtomicBool::new(false));
        let counts: Vec<_> = (0..n).map(|_| Arc::new(Count::default())).collect();
        let (turns, has_turn) = heist::chan::unbounded();
        let (has_paused, pauses) = heist::chan::unbounded();
        for count in &counts {
            let (on, count) = (Arc::clone(&on), Arc::clone(count));
            let (has_turn, has_paused) = (has_turn.clone(), has_paused.clone());
            rt.handle().spawn(move || {
                while has_turn.recv().is_ok() {
                    count.hog(&on);
                    let _ = has_paused.send(());
                }
            });
        }
        Self { counts, on, turns, pauses, _runtime: rt }
    }

    fn go_on(&self) {
        self.on.store(true, Ordering::Relaxed);
        self.counts.iter().for_each(|_| self.turns.send(()).expect("they wait for it"));
    }

    fn pause(&self) {
        self.on.store(false, Ordering::Relaxed);
        self.counts.iter().for_each(|_| self.pauses.recv().expect("they are there"));
    }

    /// Rounds and nanoseconds.
    fn sums(&self) -> (u64, u64) {
        let sum = |of: fn(&Count) -> &AtomicU64| {
            self.counts.iter().map(|count| of(count).load(Ordering::Relaxed)).sum()
        };
        (sum(|count| &count.rounds), sum(|count| &count.computed_ns))
    }
}

/// CPU time of the whole machine that was used, and that the host of a virtual machine kept for
/// others.
fn machine_secs() -> Result<(f64, f64), String> {
    /// Of the kernel's times for programs.
    const TICKS_A_SECOND: f64 = 100.0;
    let all = std::fs::read_to_string("/proc/stat").map_err(|e| format!("/proc/stat: {e}"))?;
    let times = all.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let secs: Vec<_> = times.flat_map(str::parse::<f64>).map(|n| n / TICKS_A_SECOND).collect();
    let &[user, nice, system, _idle, _wait, irq, soft_irq, stolen, ..] = secs.as_slice() else {
        return Err("/proc/stat: no times".to_owned());
    };
    Ok((user + nice + system + irq + soft_irq, stolen))
}

/// How much work hogs do when they are preempted, compared with one hog per P, which are not
/// preempted. Both take turns in short rounds, and each round is compared with its neighbour,
/// because other load on the machine changes more slowly.
fn throughput(length: Duration) -> Result<(), String> {
    const A_PAIR: Duration = Duration::from_millis(750);
    let n_pairs = (length.as_nanos() / A_PAIR.as_nanos()).max(3) as usize;
    let (mut with, mut without) = (Vec::new(), Vec::new());
    let [stopped, left_alone] =
        [CountingHogs::new(2 * cpus(), true), CountingHogs::new(cpus(), false)];
    for i in 0..n_pairs {
        for forced in [i % 2 == 0, i % 2 != 0] {
            if forced {
                with.push(Work::of(&stopped)?);
            } else {
                without.push(Work::of(&left_alone)?);
            }
        }
    }
    let is_quiet = |pair: &(&Work, &Work)| !pair.0.was_disturbed() && !pair.1.was_disturbed();
    let n_quiet = with.iter().zip(&without).filter(is_quiet).count();
    let only_quiet = n_quiet >= 5;
    let compare = |what: fn(&Work) -> f64| {
        let pairs = with.iter().zip(&without).filter(|pair| !only_quiet || is_quiet(pair));
        Quartiles::of(pairs.map(|(with, without)| 100.0 * what(with) / what(without)).collect())
    };
    let time = compare(Work::computing);
    println!("throughput of hogs      {:8.2} % of that without preemption", time.median);
    println!(
        "  {} of {n_pairs} pairs, median (quartiles): time in which they compute {time},",
        if only_quiet {
            format!("the {n_quiet} quiet ones")
        } else {
            "too few were quiet: all".into()
        }
    );
    println!(
        "  rounds a second {}, rounds a second of CPU {}",
        compare(Work::per_wall_sec),
        compare(Work::per_cpu_sec)
    );
    for (what, all) in [("with", &with), ("without", &without)] {
        let mean = |of: fn(&Work) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
        println!(
            "  {what:7}: {:.3} CPUs computed for hogs, {:.3} were used by the process, {:.3} by others, \
             {:.3} by the host",
            mean(Work::computing),
            mean(|work| work.cpu_secs / work.wall_secs),
            mean(|work| work.others_secs / work.wall_secs),
            mean(|work| work.stolen_secs / work.wall_secs)
        );
    }
    Ok(())
}

/// Where most values are.
struct Quartiles {
    first: f64,
    median: f64,
    third: f64,
}

impl Quartiles {
    fn of(mut all: Vec<f64>) -> Self {
        all.sort_by(f64::total_cmp);
        let at = |quarters: usize| all[(all.len() - 1) * quarters / 4];
        Self { first: at(1), median: at(2), third: at(3) }
    }
}

impl std::fmt::Display for Quartiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} % ({:.2}..{:.2})", self.median, self.first, self.third)
    }
}

/// set_procs from 1 to 16 and back, each millisecond, next to goroutines that compute, talk and
/// sleep: nothing is lost; the pauses as a histogram.
fn pauses(length: Duration) {
    let rt = runtime(1, true);
    let hogs = Hogs::start(&rt, 2);
    let stop = Arc::new(AtomicBool::new(false));
    let (sent, received) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let mut talkers = Vec::new();
    for i in 0..8 {
        let (tx, rx) = heist::chan::bounded::<u64>(i % 3);
        let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
        talkers.push(rt.handle().spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                tx.send(1).expect("there is a receiver");
                sent.fetch_add(1, Ordering::Relaxed);
                if i % 2 == 0 {
                    heist::time::sleep(Duration::from_micros(100));
                }
            }
        }));
        let received = Arc::clone(&received);
        talkers.push(rt.handle().spawn(move || {
            for n in rx.iter() {
                received.fetch_add(n, Ordering::Relaxed);
            }
        }));
    }
    let up_and_down = (1..=16).chain((2..16).rev()).cycle();
    let until = Instant::now() + length;
    let mut n_changes = 0_u32;
    for n in up_and_down {
        rt.set_procs(n);
        n_changes += 1;
        if Instant::now() >= until {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    stop.store(true, Ordering::Relaxed);
    hogs.end();
    talkers.into_iter().for_each(|talker| talker.join().expect("it ends"));
    let (sent, received) = (sent.load(Ordering::Relaxed), received.load(Ordering::Relaxed));
    assert_eq!(sent, received, "messages were lost");
    println!("set_procs 1..16..1      {n_changes:8} changes, {sent} messages, none lost");
    let metrics = rt.metrics();
    for what in ["stopping", "total"] {
        let name = format!("/sched/pauses/{what}/other:seconds");
        let pauses = metrics.histogram(&name).expect("it is a metric");
        let at = |q: f64| pauses.quantile(q).unwrap_or(0.0) * 1e6;
        println!(
            "  {what:10} in us: p10 {:.0}  p50 {:.0}  p90 {:.0}  p99 {:.0}  p99.9 {:.0}  max {:.0}",
            at(0.1),
            at(0.5),
            at(0.9),
            at(0.99),
            at(0.999),
            at(1.0)
        );
    }
}
