//! Thread-locals are right after every move, also those of other people's crates.

use heist_checks::thread_locals::{KINDS, PARKS, check};

/// Whatever kind of thread-local a goroutine uses again after whatever kind of park, it is the one of the
/// thread it is on.
#[heist::test(unsafe, procs = [1, 2, 4, 16])]
fn a_thread_local_is_the_one_of_the_thread_that_uses_it() {
    for (i, park) in PARKS.iter().enumerate() {
        for (kind, tally) in KINDS.iter().zip(check(i, 30)) {
            assert_eq!(tally.wrong(), 0, "{kind} after {park}: {tally}");
        }
    }
}
