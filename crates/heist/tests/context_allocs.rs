//! What contexts cost, in allocations.

use heist::context;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

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

struct Number;

impl context::Key for Number {
    type Value = u32;
}

/// The fewest allocations that `body` takes: other threads may allocate meanwhile.
fn fewest<T>(mut body: impl FnMut() -> T) -> usize {
    let count = |_| {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        let made = body();
        let after = ALLOCATIONS.load(Ordering::Relaxed);
        drop(made);
        after - before
    };
    (0..20).map(count).min().expect("twenty rounds")
}

/// CX-08: the limits are Go's: none for the root, three for a value, five for cancelling, eight for
/// a deadline, twelve for one that comes at once.
#[test]
fn contexts_allocate_little() {
    // SAFETY: the goroutine keeps nothing across a park that is bound to a thread.
    let rt = unsafe { heist::Runtime::builder().procs(1).build() }.expect("the runtime starts");
    rt.run(|| {
        let background = context::background();
        let (parent, _) = background.with_cancel();
        assert_eq!(fewest(|| (context::background(), context::todo(), parent.clone())), 0);
        assert_eq!(fewest(|| parent.without_cancel()), 0);
        let figures = [
            ("with_value", fewest(|| background.with_value::<Number>(1)), 1, 3),
            ("with_cancel", fewest(|| background.with_cancel()), 1, 5),
            ("below another", fewest(|| parent.with_cancel()), 1, 5),
            ("with_timeout", fewest(|| background.with_timeout(Duration::from_secs(9))), 1, 8),
            ("in the past", fewest(|| background.with_timeout(Duration::ZERO)), 1, 12),
        ];
        for (what, n, least, most) in figures {
            assert!((least..=most).contains(&n), "{what}: {n}");
        }
    });
}
