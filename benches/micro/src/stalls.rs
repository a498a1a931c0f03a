//! What it costs that nobody stalls: figures that are no single path, each a run of some seconds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use clap::ValueEnum as _;
use heist::goroutine::{Builder, Class};
use heist::{JoinHandle, Runtime};
use heist_micro::find;

/// What there is to measure.
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
            Figure::Throughput => throughput(length),
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

/// How late a ticker of 1 ms is next to twice as many hogs as there are CPUs; of the latency class, with
/// one of the Ps reserved for it.
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

/// How much hogs get done when they are preempted, against when they are not: the same goroutines on
/// the same number of Ps, in rounds that take turns.
fn throughput(length: Duration) {
    const ROUNDS: u32 = 5;
    let once = |forced: bool, n: usize| {
        let rt = runtime(cpus(), forced);
        let from = Instant::now();
        let hogs = Hogs::start(&rt, n);
        std::thread::sleep(length / ROUNDS);
        hogs.end() as f64 / from.elapsed().as_secs_f64()
    };
    // Without preemption the first of them run to the end: as many as there are Ps.
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        without.push(once(false, cpus()));
        with.push(once(true, 2 * cpus()));
    }
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let (with, without) = (median(with), median(without));
    println!(
        "throughput of hogs      {:8.2} % of that without preemption ({:.0} against {:.0} million \
         rounds a second)",
        100.0 * with / without,
        with / 1e6,
        without / 1e6
    );
}

/// set_procs from 1 to 16 and back, each millisecond, next to goroutines that compute, talk and sleep:
/// nothing is lost; the pauses as a histogram.
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
