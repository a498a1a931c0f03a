//! Addresses of thread-locals that the compiler keeps with an offset in them.
//!
//! `TABLE[id - FIRST]` with a constant `FIRST` is compiled to an address that is beyond the table,
//! and accesses that subtract the constant again. The address is kept across a park like any other.

use std::cell::Cell;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

const ROWS: usize = 8;
const COLUMNS: usize = 64;
/// As in `table[c - b'a']`: the address that is kept is 49 KiB beyond the table.
const FIRST: usize = b'a' as usize;

thread_local! {
    static TABLE: [[Cell<u64>; COLUMNS]; ROWS] =
        const { [const { [const { Cell::new(0) }; COLUMNS] }; ROWS] };
}

static WRONG: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
fn thread_id() -> u64 {
    // SAFETY: only returns a value.
    u64::from(unsafe { libc::gettid() }.unsigned_abs())
}

/// Each slot of a thread's table only ever holds the number of that thread.
#[inline(never)]
fn count_wrong(id: usize, rounds: usize) -> u64 {
    let mut wrong = 0;
    if !(FIRST..FIRST + ROWS).contains(&id) {
        return 0;
    }
    for i in 0..rounds {
        heist::yield_now();
        let column = black_box(i) % COLUMNS;
        TABLE.with(|table| {
            let own = thread_id();
            let was = table[id - FIRST][column].replace(own);
            wrong += u64::from(was != 0 && was != own);
        });
    }
    wrong
}

/// How often goroutines used the table of another thread.
pub fn check(rounds: usize) -> u64 {
    let all: Vec<_> = (0..32)
        .map(|k| {
            heist::go(move || {
                WRONG.fetch_add(count_wrong(FIRST + k % ROWS, rounds), Ordering::Relaxed);
            })
        })
        .collect();
    all.into_iter().for_each(|handle| handle.join().expect("it ends well"));
    WRONG.swap(0, Ordering::Relaxed)
}
