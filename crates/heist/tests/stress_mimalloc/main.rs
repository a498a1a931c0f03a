//! Everything that stalls, at once, on mimalloc, which keeps a heap for each thread.

#[path = "../harness/stall_load/mod.rs"]
mod stall_load;

use heist::testing::CheckedAllocator;
use mimalloc::MiMalloc;

#[global_allocator]
static ALLOCATOR: CheckedAllocator<MiMalloc> = CheckedAllocator::new(MiMalloc);

/// No goroutine is lost and nothing hangs, at one, two and four procs.
#[test]
fn everything_at_once_on_mimalloc() {
    for procs in [1, 2, 4] {
        stall_load::run(procs);
    }
}
