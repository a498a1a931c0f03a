//! Everything that stalls, at once, on the system's allocator.

use crate::{stall_load, turns};

/// No goroutine is lost and nothing hangs, at one, two and four procs. It sends signals to every
/// thread of the process, so no other test runs beside it.
#[test]
fn everything_at_once_on_the_systems_allocator() {
    let _turn = turns::alone();
    for procs in [1, 2, 4] {
        stall_load::run(procs);
    }
}
