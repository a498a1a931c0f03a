//! Everything that stalls, at once, on the system's allocator.

mod stall_load;

use heist::testing::CheckedAllocator;

#[global_allocator]
static ALLOCATOR: CheckedAllocator = CheckedAllocator::new(std::alloc::System);

/// Nobody is lost and nothing hangs, at one, two and four procs.
#[test]
fn everything_at_once_on_the_systems_allocator() {
    for procs in [1, 2, 4] {
        stall_load::run(procs);
    }
}
