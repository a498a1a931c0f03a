//! A service that must answer quickly, and batch work in the same program: what each way to keep
//! them apart does to the latency of the service and to the progress of the batch.
//!
//! `cargo run --release -p heist --example service_beside_batch [SECONDS]`
//!
//! The clients are plain threads that send requests at a fixed rate and measure from the moment at
//! which a request was due, so a service that stalls does not hide its own delay.

use heist::goroutine::{Builder, Class};
use heist::net::{TcpListener, TcpStream};
use heist::{Handle, Runtime};
use std::hint::black_box;
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: usize = 2;
const PERIOD: Duration = Duration::from_millis(4);
/// Rounds of the batch between two looks at the clock and at the number of workers: about 10 us.
const CHUNK: u64 = 20_000;
/// The goal of the metrics-driven way: 99 of 100 goroutines wait less than this for a processor.
const GOAL: Duration = Duration::from_micros(300);

/// A way to keep the service and the batch apart.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Alone,
    Nothing,
    ReservedProcs,
    IdleClass,
    FewerProcs,
    Metrics,
}

impl Way {
    const ALL: [Self; 6] = [
        Self::Alone,
        Self::Nothing,
        Self::ReservedProcs,
        Self::IdleClass,
        Self::FewerProcs,
        Self::Metrics,
    ];

    const fn text(self) -> &'static str {
        match self {
            Self::Alone => "the service alone",
            Self::Nothing => "batch beside it, nothing done",
            Self::ReservedProcs => "a processor reserved for it",
            Self::IdleClass => "batch in the idle class",
            Self::FewerProcs => "fewer processors during batch",
            Self::Metrics => "batch follows the metrics",
        }
    }

    const fn class_of_service(self) -> Class {
        if matches!(self, Self::ReservedProcs) { Class::Latency } else { Class::Normal }
    }

    const fn class_of_batch(self) -> Class {
        if matches!(self, Self::IdleClass) { Class::Idle } else { Class::Normal }
    }
}

/// Computes in many goroutines, of which `allowed` may run.
struct Batch {
    allowed: AtomicUsize,
    stop: AtomicBool,
    n_chunks: AtomicU64,
}

impl Batch {
    fn start(n: usize, class: Class) -> Arc<Self> {
        let (allowed, stop) = (AtomicUsize::new(n), AtomicBool::new(false));
        let batch = Arc::new(Self { allowed, stop, n_chunks: AtomicU64::new(0) });
        for number in 0..n {
            let batch = Arc::clone(&batch);
            let worker = Builder::new().name("batch").class(class);
            worker.spawn(move || batch.work(number)).expect("there is memory for it");
        }
        batch
    }

    fn work(&self, number: usize) {
        while !self.stop.load(Ordering::Relaxed) {
            if number >= self.allowed.load(Ordering::Relaxed) {
                heist::time::sleep(Duration::from_millis(5));
                continue;
            }
            black_box((0..CHUNK).fold(number as u64, |sum, n| black_box(sum ^ n)));
            self.n_chunks.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Lets fewer workers run while goroutines wait for too long for a processor, and one more
    /// while they do not. The metric counts from the start, so two readings are compared.
    fn follow_metrics(&self, runtime: &Handle, most: usize) {
        let mut before = latencies(runtime);
        while !self.stop.load(Ordering::Relaxed) {
            heist::time::sleep(Duration::from_millis(50));
            let now = latencies(runtime);
            let recent: Vec<u64> = now.iter().zip(&before).map(|(a, b)| a - b).collect();
            before = now;
            let allowed = self.allowed.load(Ordering::Relaxed);
            let next = if late_share(&recent) > 0.01 { allowed / 2 } else { allowed + 1 };
            self.allowed.store(next.clamp(1, most), Ordering::Relaxed);
        }
    }
}

/// How many goroutines have waited for a processor, by the buckets of the histogram.
fn latencies(runtime: &Handle) -> Vec<u64> {
    let metrics = runtime.metrics();
    let waits = metrics.histogram("/sched/latencies:seconds").expect("it is always there");
    waits.counts().to_vec()
}

/// The share of waits that were longer than the goal.
fn late_share(counts: &[u64]) -> f64 {
    let edges = heist::metrics::Histogram::edges();
    let late = counts.iter().zip(&edges).filter(|&(_, &edge)| edge >= GOAL.as_secs_f64());
    let late: u64 = late.map(|(count, _)| count).sum();
    late as f64 / counts.iter().sum::<u64>().max(1) as f64
}

/// Answers each request of eight bytes, after a little work.
fn serve(listener: &TcpListener, class: Class) {
    while let Ok((stream, _)) = listener.accept() {
        let answer = move || answer_requests(stream);
        if Builder::new().name("service").class(class).spawn(answer).is_err() {
            eprintln!("no memory to serve a connection");
        }
    }
}

fn answer_requests(mut stream: TcpStream) {
    let mut request = [0; 8];
    while stream.read_exact(&mut request).is_ok() {
        black_box((0..CHUNK).fold(0, |sum, n| black_box(sum ^ n)));
        if stream.write_all(&request).is_err() {
            return;
        }
    }
}

/// Sends requests at a fixed rate until `until`. Returns how long after its due time each of them
/// was answered.
fn measure(address: SocketAddr, until: Instant) -> std::io::Result<Vec<Duration>> {
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut taken = Vec::new();
    let mut due = Instant::now() + PERIOD;
    while due < until {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        stream.write_all(&[1; 8])?;
        stream.read_exact(&mut [0; 8])?;
        taken.push(due.elapsed());
        due += PERIOD;
    }
    Ok(taken)
}

struct Row {
    p50: Duration,
    p99: Duration,
    chunks_per_ms: f64,
}

fn run(way: Way, length: Duration) -> Result<Row, Box<dyn std::error::Error>> {
    let cpus = std::thread::available_parallelism()?.get();
    let mut builder = Runtime::builder().procs(cpus.max(2));
    if way == Way::ReservedProcs {
        // One more than there are CPUs: the reserved processor is idle most of the time.
        builder = builder.procs(cpus.max(2) + 1).latency_procs(1);
    }
    // SAFETY: no goroutine of this program keeps a value that is not `Send`, or a borrow of a
    // thread-local, across a call into heist.
    let runtime = unsafe { builder.build() }?;
    let listener = runtime.run(|| TcpListener::bind("127.0.0.1:0"))?;
    let address = listener.local_addr()?;
    let class = way.class_of_service();
    let acceptor = Builder::new().name("acceptor").class(class);
    drop(acceptor.spawn_on(&runtime, move || serve(&listener, class)));
    let n_workers = 2 * cpus;
    let batch = (way != Way::Alone)
        .then(|| runtime.run(move || Batch::start(n_workers, way.class_of_batch())));
    if way == Way::FewerProcs && cpus > 1 {
        runtime.set_procs(cpus / 2);
    }
    if let (Way::Metrics, Some(batch)) = (way, &batch) {
        let (batch, handle) = (Arc::clone(batch), runtime.handle());
        drop(runtime.spawn(move || batch.follow_metrics(&handle, n_workers)));
    }
    let begun = Instant::now();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| std::thread::spawn(move || measure(address, begun + length)))
        .collect();
    let mut taken = Vec::new();
    for client in clients {
        taken.extend(client.join().expect("a client does not panic")?);
    }
    let n_chunks = batch.as_ref().map_or(0, |batch| {
        batch.stop.store(true, Ordering::Relaxed);
        batch.n_chunks.load(Ordering::Relaxed)
    });
    taken.sort_unstable();
    let quantile = |per_cent: usize| taken[(taken.len() - 1) * per_cent / 100];
    let chunks_per_ms = n_chunks as f64 / begun.elapsed().as_secs_f64() / 1000.0;
    Ok(Row { p50: quantile(50), p99: quantile(99), chunks_per_ms })
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).map_or(Ok(2.0), |text| text.parse());
    let Ok(Ok(length)) = seconds.map(Duration::try_from_secs_f64) else {
        eprintln!("usage: service_beside_batch [SECONDS], such as 2 or 0.5");
        std::process::exit(2);
    };
    if length < 10 * PERIOD {
        eprintln!("service_beside_batch: {length:?} is too short to measure anything");
        std::process::exit(2);
    }
    println!("{:<31} {:>12} {:>12} {:>14}", "", "p50", "p99", "batch, 1/ms");
    for way in Way::ALL {
        let Row { p50, p99, chunks_per_ms } = run(way, length)?;
        let (p50, p99) = (p50.as_secs_f64() * 1e3, p99.as_secs_f64() * 1e3);
        println!("{:<31} {p50:>9.2} ms {p99:>9.2} ms {chunks_per_ms:>14.1}", way.text());
    }
    Ok(())
}
