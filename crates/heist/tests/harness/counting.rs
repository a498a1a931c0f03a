//! An allocator that counts, for test programs that use this module.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: everything is the system's allocator; counting is on the side.
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
static COUNTING: Counting = Counting;

/// Allocations of the whole process so far.
pub fn allocations() -> usize {
    ALLOCATIONS.load(Ordering::Relaxed)
}

/// The fewest allocations that `body` takes: other threads may allocate meanwhile.
pub fn fewest<T>(mut body: impl FnMut() -> T) -> usize {
    let count = |_| {
        let before = allocations();
        let made = body();
        let after = allocations();
        drop(made);
        after - before
    };
    (0..20).map(count).min().expect("twenty rounds")
}
