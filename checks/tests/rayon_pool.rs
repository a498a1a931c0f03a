//! rayon's pool on the processors of a runtime: its workers are goroutines that are locked to their
//! threads.
//!
//! A worker that runs holds a P, so rayon and the goroutines together use no more CPUs than there
//! are Ps. A worker that waits for work blocks its thread; the runtime takes its P.

use rayon::{ThreadPool, ThreadPoolBuilder};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A pool with `n` workers on the calling goroutine's runtime.
fn pool(n: usize) -> ThreadPool {
    let builder = ThreadPoolBuilder::new().num_threads(n).spawn_handler(|worker| {
        let name = format!("rayon {}", worker.index());
        let size = worker.stack_size().unwrap_or(2 << 20);
        let goroutine = heist::goroutine::Builder::new().name(&name).os_thread().stack_size(size);
        goroutine.spawn(move || worker.run()).map(drop).map_err(std::io::Error::other)
    });
    builder.build().expect("the workers start")
}

fn fib(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = rayon::join(|| fib(n - 1), || fib(n - 2));
    a + b
}

/// rayon computes beside goroutines, and both make progress. The goroutine that waits for rayon
/// announces that it blocks.
#[heist::test(unsafe, procs = [1, 2, 4, 16])]
fn rayon_computes_on_the_processors_of_a_runtime() {
    let pool = pool(heist::procs());
    let (done, turns) = (AtomicBool::new(false), AtomicU64::new(0));
    heist::scope(|s| {
        s.go(|| {
            while !done.load(Ordering::Relaxed) {
                turns.fetch_add(1, Ordering::Relaxed);
                heist::yield_now();
            }
        });
        for _ in 0..3 {
            assert_eq!(heist::blocking(|| pool.install(|| fib(20))), 6765);
        }
        assert_eq!(heist::join(|| fib_of_heist(15), || fib_of_heist(14)), (610, 377));
        done.store(true, Ordering::Relaxed);
    });
    assert!(turns.into_inner() > 0);
    heist::blocking(|| drop(pool));
}

fn fib_of_heist(n: u32) -> u64 {
    if n < 2 {
        return n.into();
    }
    let (a, b) = heist::join(|| fib_of_heist(n - 1), || fib_of_heist(n - 2));
    a + b
}

/// The workers are goroutines of this runtime, as a dump shows.
#[heist::test(unsafe, procs = 2)]
fn the_workers_are_goroutines() {
    let pool = pool(2);
    // Each worker answers, so each has begun.
    let on_goroutine = heist::blocking(|| pool.broadcast(|_| heist::current_id().is_some()));
    assert_eq!(on_goroutine, [true, true]);
    assert!(heist::dump_goroutines().matches("locked to thread").count() >= 2);
    heist::blocking(|| drop(pool));
}
