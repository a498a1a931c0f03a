//! An allocator that ends the process if the scheduler allocates.
//!
//! A goroutine that was preempted by a signal may be inside the allocator and hold its lock. A
//! thread that waits for that lock while it holds a P or a lock of the runtime, in the handler of
//! the signal or on sysmon, may wait forever; but only if the two use the same arena, which takes
//! many threads and some luck. This allocator detects the mistake at its first occurrence, and
//! names it.

use std::alloc::{GlobalAlloc, Layout, System};

/// An allocator that wraps another one and, in debug builds, refuses to serve the scheduler.
///
/// ```no_run
/// use heist::testing::CheckedAllocator;
/// use std::alloc::System;
///
/// #[global_allocator]
/// static ALLOCATOR: CheckedAllocator<System> = CheckedAllocator::new(System);
/// ```
#[derive(Debug, Default)]
pub struct CheckedAllocator<A = System>(A);

impl<A> CheckedAllocator<A> {
    /// Checks each call and passes it on to `inner`.
    pub const fn new(inner: A) -> Self {
        Self(inner)
    }
}

// SAFETY: everything is passed on unchanged.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CheckedAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        check("an allocation", layout);
        // SAFETY: passed on.
        unsafe { self.0.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        check("an allocation", layout);
        // SAFETY: passed on.
        unsafe { self.0.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        check("a free", layout);
        // SAFETY: passed on.
        unsafe { self.0.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        check("a reallocation", layout);
        // SAFETY: passed on.
        unsafe { self.0.realloc(at, layout, bytes) }
    }
}

#[cfg(not(debug_assertions))]
#[inline]
fn check(_: &str, _: Layout) {}

#[cfg(debug_assertions)]
fn check(what: &str, layout: Layout) {
    if let Some(place) = crate::current::allocation_forbidden() {
        caught(what, layout, place);
    }
}

/// Reports the caller and ends the process.
#[cfg(debug_assertions)]
#[cold]
fn caught(what: &str, layout: Layout, place: &str) -> ! {
    use crate::sys::stderr;
    // The report itself allocates. If a stopped goroutine holds the lock, the report hangs here;
    // the first line is written by then.
    crate::current::allow_allocation();
    let bytes = layout.size();
    stderr::report(format_args!("fatal error: heist: {what} of {bytes} bytes {place}\n"));
    let trace = std::backtrace::Backtrace::force_capture();
    stderr::report(format_args!("{trace}\n"));
    std::process::abort();
}
