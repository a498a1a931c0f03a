//! Thread-locals are right after every move, also those of other people's crates.

use heist_checks::offsets;
use heist_checks::thread_locals::{KINDS, PARKS, check};

/// A thread-local of any kind that a goroutine uses again after any kind of park is the one of its
/// current thread.
#[heist::test(unsafe, procs = [1, 2, 4, 16])]
fn a_thread_local_is_the_one_of_the_thread_that_uses_it() {
    for (i, park) in PARKS.iter().enumerate() {
        for (kind, tally) in KINDS.iter().zip(check(i, 30)) {
            assert_eq!(tally.wrong(), 0, "{kind} after {park}: {tally}");
        }
    }
}

/// An address that the compiler keeps with an offset in it moves too. (Only an optimised build has
/// some.)
#[heist::test(unsafe, procs = [2, 4, 16])]
fn a_thread_local_whose_address_is_kept_with_an_offset_is_the_right_one() {
    assert_eq!(offsets::check(2_000), 0);
}

/// A goroutine that has switched to a stack that it made itself and parks there continues on its
/// thread: the addresses that the compiler keeps on that stack stay right.
#[heist::test(unsafe, procs = [1, 2, 4, 16])]
fn a_goroutine_on_a_stack_of_its_own_making_stays_on_its_thread() {
    let handles: Vec<_> = (0..16)
        .map(|_| {
            heist::go(|| {
                for _ in 0..20 {
                    stacker::grow(1 << 20, || {
                        let before = std::thread::current().id();
                        for _ in 0..5 {
                            heist::time::sleep(std::time::Duration::from_micros(20));
                            heist::yield_now();
                        }
                        assert_eq!(std::thread::current().id(), before);
                    });
                    heist::yield_now();
                }
            })
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
}
