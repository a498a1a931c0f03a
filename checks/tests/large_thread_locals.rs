//! Thread-locals of a program whose area of them is larger than most: 2 MiB for each thread.

use std::cell::Cell;
use std::hint::black_box;
use std::time::Duration;

const WORDS: usize = (2 << 20) / size_of::<u64>();

thread_local! {
    static TABLE: [Cell<u64>; WORDS] = const { [const { Cell::new(0) }; WORDS] };
}

#[inline(never)]
fn thread_id() -> u64 {
    // SAFETY: only returns a value.
    u64::from(unsafe { libc::gettid() }.unsigned_abs())
}

/// Each word of a thread's table only ever holds the number of that thread. Returns how often that
/// was not so, and how often the goroutine had changed threads.
#[inline(never)]
fn use_table(from: usize, rounds: usize) -> (u64, u64) {
    let (mut wrong, mut moves, mut last) = (0, 0, thread_id());
    TABLE.with(|table| {
        for i in 0..rounds {
            if i % 50 == 0 {
                heist::time::sleep(Duration::from_micros(50));
            }
            heist::yield_now();
            let own = thread_id();
            moves += u64::from(std::mem::replace(&mut last, own) != own);
            // From one end of the table to the other.
            for word in [from, WORDS / 2 + from, WORDS - 1 - from] {
                let was = table[black_box(word)].replace(own);
                wrong += u64::from(was != 0 && was != own);
            }
        }
    });
    (wrong, moves)
}

/// A reference to a large thread-local that a goroutine keeps across its parks is always that of
/// the thread that uses it, from the first word to the last.
fn a_large_thread_local_is_the_one_of_the_thread_that_uses_it() {
    let mut n_moves = 0;
    for round in 0..50 {
        let all: Vec<_> =
            (0..32).map(|k| heist::go(move || use_table(32 * round + k, 200))).collect();
        for handle in all {
            let (wrong, moves) = handle.join().expect("it ends well");
            assert_eq!(wrong, 0, "after {moves} moves");
            n_moves += moves;
        }
        if n_moves > 1000 {
            return;
        }
    }
    assert_ne!(n_moves, 0, "no goroutine has changed threads");
}

/// The C library takes the thread-locals from the stack of a thread. A function that runs on a
/// thread of heist's making still has a stack for itself.
fn a_function_on_a_thread_has_a_stack_beside_its_thread_locals() {
    #[inline(never)]
    fn use_stack(kib: usize) -> u8 {
        let page = black_box([0_u8; 1024]);
        if kib == 0 { page[0] } else { use_stack(kib - 1).wrapping_add(page[kib % 1024]) }
    }
    let (context, canceller) = heist::context::background().with_cancel();
    let (send, ran) = std::sync::mpsc::channel();
    let _func = context.after_func(move || send.send(use_stack(300)).expect("the test waits"));
    canceller.cancel();
    assert_eq!(ran.recv(), Ok(0));
}

/// The thread of a test has a stack of 2 MiB, from which the C library takes the thread-locals: the
/// main thread is used.
fn main() {
    for procs in [2, 4, 16] {
        // SAFETY: the goroutines keep nothing across a park that is bound to a thread, except
        // references to thread-locals, which are moved.
        let rt = unsafe { heist::Runtime::builder().procs(procs).build() };
        rt.expect("the runtime starts")
            .run(a_large_thread_local_is_the_one_of_the_thread_that_uses_it);
    }
    a_function_on_a_thread_has_a_stack_beside_its_thread_locals();
    println!("large thread-locals: ok");
}
