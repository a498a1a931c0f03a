//! What a request costs besides its system calls: no allocation.

mod wire;

use std::alloc::{GlobalAlloc, Layout, System};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: passed on.
        unsafe { System.dealloc(place, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// NP-21: reads and writes, with deadlines and with waits, allocate nothing.
#[test]
fn requests_allocate_nothing() {
    // SAFETY: nothing here is bound to a thread.
    let rt = unsafe { heist::Runtime::builder().procs(2).build() }.expect("the runtime starts");
    rt.run(|| {
        let (mut near, far) = wire::pair();
        let echo = heist::go(move || wire::echo(far));
        let mut buffer = [0; 64];
        let mut ask = |n: u32| {
            for _ in 0..n {
                let until = Instant::now().checked_add(Duration::from_secs(60));
                near.set_read_deadline(until).expect("a deadline");
                near.write_all(&buffer).expect("writes");
                near.read_exact(&mut buffer).expect("reads");
            }
        };
        ask(100);
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        ask(1000);
        let after = ALLOCATIONS.load(Ordering::Relaxed);
        // There are two reads and two writes in a request. A thread that the scheduler starts
        // meanwhile allocates as well, a few times.
        assert!(after - before < 250, "{} allocations in 1000 requests", after - before);
        drop(near);
        echo.join().expect("ends well");
    });
}
