//! An allocator that unmaps freed memory: a use after free is a fault.
//!
//! Blocks above a minimum size have their own pages. A freed block cannot be touched any more, and
//! its addresses are not used again before many others have been freed. It takes no lock.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use heist::testing::CheckedAllocator;
use std::alloc::{GlobalAlloc, Layout, System};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Smaller blocks are the system allocator's.
const OWN_PAGES_MIN: usize = 512;
const PAGE: usize = 4096;
/// Freed blocks whose addresses are kept.
const N_KEPT: usize = 8192;

#[global_allocator]
static ALLOCATOR: CheckedAllocator<Unmapping> = CheckedAllocator::new(Unmapping);

/// Freed blocks: the address, and in its low bits the pages.
static KEPT: [AtomicUsize; N_KEPT] = [const { AtomicUsize::new(0) }; N_KEPT];
static N_FREED: AtomicUsize = AtomicUsize::new(0);

pub struct Unmapping;

fn bytes(layout: Layout) -> usize {
    layout.size().next_multiple_of(PAGE)
}

/// Whether a block has its own pages.
fn has_pages(layout: Layout) -> bool {
    layout.size() >= OWN_PAGES_MIN && layout.align() <= PAGE && bytes(layout) / PAGE < PAGE
}

// SAFETY: a block is its own mapping, or the system allocator's.
unsafe impl GlobalAlloc for Unmapping {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if !has_pages(layout) {
            // SAFETY: passed on.
            return unsafe { System.alloc(layout) };
        }
        let (rights, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping touches nothing that is there.
        let base = unsafe { libc::mmap(null_mut(), bytes(layout), rights, kind, -1, 0) };
        if base == libc::MAP_FAILED { null_mut() } else { base.cast() }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if !has_pages(layout) {
            // SAFETY: passed on.
            return unsafe { System.dealloc(block, layout) };
        }
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: the caller gives the block up; nothing else is in its pages.
        unsafe { libc::mmap(block.cast(), bytes(layout), libc::PROT_NONE, kind, -1, 0) };
        let place = &KEPT[N_FREED.fetch_add(1, Ordering::Relaxed) % N_KEPT];
        let oldest = place.swap(block.addr() | (bytes(layout) / PAGE), Ordering::Relaxed);
        if oldest != 0 {
            let (base, pages) = (oldest & !(PAGE - 1), oldest & (PAGE - 1));
            // SAFETY: a mapping that was given up, taken out of the list by this thread alone.
            unsafe { libc::munmap(base as *mut libc::c_void, pages * PAGE) };
        }
    }
}

/// Ends the process if `f` does not return in time.
pub fn within<T>(patience: Duration, what: &str, f: impl FnOnce() -> T) -> T {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let text = what.to_owned();
    let watchdog = std::thread::spawn(move || {
        if receiver.recv_timeout(patience) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{text}: no end after {patience:?}");
            std::process::abort();
        }
    });
    let result = f();
    drop(sender);
    watchdog.join().expect("the watchdog does not panic");
    result
}

/// Waits until a condition holds.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(120);
    while !is_so() {
        assert!(Instant::now() < until, "never happened: {what}");
        std::thread::yield_now();
    }
}
