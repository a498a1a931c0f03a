//! How exact short sleeps are, and the cost of many of them.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use heist::Runtime;
use heist::sync::WaitGroup;

use crate::stalls::process_cpu;

/// The lengths, in microseconds.
const LENGTHS_US: [u64; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
/// Sleeps of each length.
const N_SLEEPS: usize = 1000;
/// Ticks of a ticker, and its period.
const N_TICKS: usize = 3000;
const PERIOD: Duration = Duration::from_micros(2);

/// Takes the figures and prints them.
pub fn measure() -> Result<(), String> {
    // SAFETY: the goroutines keep nothing that is bound to a thread.
    let rt = unsafe { Runtime::builder().procs(2).build() }.map_err(|error| error.to_string())?;
    let mut figures = Vec::new();
    for hogs in [0, 1] {
        let stop = Arc::new(AtomicBool::new(false));
        let hogs: Vec<_> = (0..hogs).map(|_| hog(&rt, &stop)).collect();
        figures.push(rt.run(|| (LENGTHS_US.map(overshoot), ticks())));
        stop.store(true, Ordering::Relaxed);
        hogs.into_iter().for_each(|hog| hog.join().expect("it ends"));
    }
    let [(alone, ticker), (beside, ticker_beside)] = &figures[..] else { unreachable!() };
    println!("overshoot in us         alone: p50      p99    beside a hog: p50      p99");
    for (i, us) in LENGTHS_US.iter().enumerate() {
        let ((p50, p99), (p50_beside, p99_beside)) = (alone[i], beside[i]);
        println!(
            "  sleep of {us:4} us      {p50:10.1} {p99:8.1}         {p50_beside:10.1} {p99_beside:8.1}"
        );
    }
    println!(
        "ticker of 2 us, {N_TICKS} times: {ticker:.1?} alone, {ticker_beside:.1?} beside a hog"
    );
    many(&rt)
}

fn hog(rt: &Runtime, stop: &Arc<AtomicBool>) -> heist::JoinHandle<()> {
    let stop = Arc::clone(stop);
    rt.handle().spawn(move || {
        while !stop.load(Ordering::Relaxed) {
            black_box(0);
        }
    })
}

/// By how much sleeps of a length are too long: median and 99th percentile, in microseconds.
fn overshoot(us: u64) -> (f64, f64) {
    let length = Duration::from_micros(us);
    let one = |_| {
        let from = Instant::now();
        heist::time::sleep(length);
        from.elapsed().saturating_sub(length)
    };
    quantiles((0..N_SLEEPS).map(one).collect())
}

fn quantiles(mut all: Vec<Duration>) -> (f64, f64) {
    all.sort();
    let at = |q: f64| all[((all.len() - 1) as f64 * q) as usize].as_secs_f64() * 1e6;
    (at(0.5), at(0.99))
}

fn ticks() -> Duration {
    let from = Instant::now();
    let ticks = heist::chan::tick(PERIOD);
    (0..N_TICKS).for_each(|_| assert!(ticks.recv().is_ok()));
    from.elapsed()
}

/// The cost of goroutines that sleep at the same time: many for long, and some repeatedly for a
/// short time.
fn many(rt: &Runtime) -> Result<(), String> {
    let before = process_cpu()?;
    let over = rt.run(|| {
        let group = WaitGroup::new();
        let from = Instant::now();
        for i in 0..100_000_u64 {
            group.go(move || heist::time::sleep(Duration::from_millis(1 + i * 7919 % 1000)));
        }
        group.wait();
        from.elapsed().saturating_sub(Duration::from_secs(1))
    });
    let cpu = process_cpu()? - before;
    println!("100,000 sleep for 1 to 1000 ms: {cpu:.0?} of CPU, the last ends {over:.1?} late");
    for (n, us) in [(20, 50), (20, 500), (1000, 500), (1000, 5000)] {
        let length = Duration::from_micros(us);
        let (before, from) = (process_cpu()?, Instant::now());
        let all = rt.run(|| {
            let sleepers: Vec<_> =
                (0..n).map(|_| heist::go(move || again_and_again(length))).collect();
            sleepers.into_iter().flat_map(|s| s.join().expect("it ends")).collect()
        });
        let (cpu, took) = (process_cpu()? - before, from.elapsed());
        let (p50, p99) = quantiles(all);
        println!(
            "{n:4} sleep for {us:4} us again and again: p50 {p50:.1} us late, p99 {p99:.1}; {:.3} cores",
            cpu.as_secs_f64() / took.as_secs_f64()
        );
    }
    Ok(())
}

fn again_and_again(length: Duration) -> Vec<Duration> {
    let end = Instant::now() + Duration::from_secs(1);
    let mut late = Vec::new();
    while Instant::now() < end {
        let from = Instant::now();
        heist::time::sleep(length);
        late.push(from.elapsed().saturating_sub(length));
    }
    late
}
