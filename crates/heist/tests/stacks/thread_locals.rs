//! Thread-locals of goroutines that change threads. `checks/` has more kinds of them, and other
//! builds.

use crate::child;
use crate::matrix;

use heist::chan::bounded;
use heist::goroutine::Builder;
use heist::{Runtime, go};
use std::cell::{Cell, RefCell};
use std::hint::black_box;
use std::time::Duration;

thread_local! {
    static NUMBERS: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// Where the calling thread's variable is; inlined, so that the compiler may keep the address.
#[inline(always)]
fn used() -> usize {
    NUMBERS.with(|numbers| {
        let mut list = numbers.borrow_mut();
        list.push(1);
        list.clear();
        std::ptr::from_ref(numbers).addr()
    })
}

#[inline(never)]
fn truth() -> usize {
    used()
}

/// An address of a variable, kept on the stack across the park as the compiler keeps it: this is
/// what the runtime moves. User code must not do this.
#[inline(never)]
fn keeps_an_address(park: impl FnOnce()) -> bool {
    let kept = black_box(COUNT.with(|count| std::ptr::from_ref(count).addr()));
    park();
    black_box(kept) == COUNT.with(|count| std::ptr::from_ref(count).addr())
}

/// A word on the stack that held an address of a variable, of which the lower half is in use again
/// for something else: a number which, with what is left of the address, looks like an address of
/// another variable.
#[inline(never)]
fn keeps_a_number_beside_what_is_left_of_an_address(park: impl FnOnce()) -> bool {
    let address = COUNT.with(|count| std::ptr::from_ref(count).addr());
    let mut word = black_box(address as u64);
    let number = black_box(address as u32).wrapping_add(8);
    // SAFETY: the lower half of the word, on a little-endian machine.
    let half = unsafe { &mut *(&raw mut word).cast::<u32>() };
    *half = number;
    park();
    let kept = *black_box(half);
    kept == black_box(number)
}

/// The rest of an address of a thread-local on a stack, with a live number of up to four bytes at
/// its low end, may be taken for an address: the number stays the same nevertheless.
#[test]
fn a_number_in_the_place_of_an_old_address_stays_as_it_is() {
    if matrix::emulator::cannot_show("its address space may be too small") {
        return;
    }
    let rt = matrix::start(Runtime::builder().procs(4));
    let count = |name: &str| rt.metrics().get(name).unwrap();
    rt.run(|| {
        testing_until(|| {
            let keep = || {
                let park = || heist::time::sleep(Duration::from_micros(10));
                keeps_a_number_beside_what_is_left_of_an_address(park)
            };
            let handles: Vec<_> = (0..16).map(|_| go(keep)).collect();
            assert!(
                handles.into_iter().all(|handle| handle.join().unwrap()),
                "a number has changed"
            );
            count("/heist/moves/relocated:words") > 100
        });
    });
}

/// However often a goroutine changes threads, the variable it uses is the one of the thread it is
/// on.
#[test]
fn a_goroutine_that_moves_uses_the_variables_of_its_new_thread() {
    matrix::run(|| {
        let handles: Vec<_> = (0..32)
            .map(|_| {
                go(|| {
                    for _ in 0..40 {
                        black_box(used());
                        heist::time::sleep(Duration::from_micros(20));
                        assert_eq!(used(), truth());
                        assert!(keeps_an_address(heist::yield_now));
                    }
                })
            })
            .collect();
        for handle in handles {
            handle.join().unwrap();
        }
    });
}

/// A goroutine may wait for longer than the thread that ran it lives: many threads end, which
/// returns their memory, and the goroutine continues on another one.
#[test]
fn a_goroutine_outlives_the_thread_that_ran_it() {
    matrix::run(|| {
        const ROUNDS: usize = 150;
        let (open, gate) = bounded::<()>(0);
        let waiting: Vec<_> = (0..ROUNDS)
            .map(|_| {
                let gate = gate.clone();
                let (started, has_started) = bounded(1);
                let handle = go(move || {
                    let before = black_box(used());
                    started.send(()).unwrap();
                    let kept = keeps_an_address(|| assert!(gate.recv().is_err()));
                    (before, kept && used() == truth())
                });
                has_started.recv().unwrap();
                // The thread that runs this one ends with it.
                Builder::new().os_thread().spawn(|| ()).unwrap().join().unwrap();
                handle
            })
            .collect();
        drop(open);
        let ended = waiting.into_iter().map(|handle| handle.join().unwrap());
        assert_eq!(ended.filter(|&(_, right)| !right).count(), 0);
    });
}

/// Moves are counted, and so are the addresses that moved.
#[test]
fn moves_are_counted() {
    let rt = matrix::start(Runtime::builder().procs(2));
    let count = |name: &str| rt.metrics().get(name).unwrap();
    rt.run(|| {
        testing_until(|| {
            let handles: Vec<_> = (0..16)
                .map(|_| go(|| keeps_an_address(|| heist::time::sleep(Duration::from_micros(10)))))
                .collect();
            assert!(handles.into_iter().all(|handle| handle.join().unwrap()));
            count("/heist/moves:events") > 0 && count("/heist/moves/relocated:words") > 0
        });
    });
}

fn testing_until(mut done: impl FnMut() -> bool) {
    while !done() {}
}

/// `HEIST_DEBUG=tlsreport` names the function that had an address, and where the goroutine was
/// spawned.
#[test]
fn the_report_names_the_function_and_the_spawn_site() {
    let ended = child::run_with(
        |command| {
            command.env("HEIST_DEBUG", "tlsreport");
        },
        || {
            // SAFETY: the goroutines keep nothing across a park but a number.
            let rt = unsafe { Runtime::builder().procs(2).build() }.unwrap();
            rt.run(|| {
                testing_until(|| {
                    let handles: Vec<_> = (0..16)
                        .map(|_| {
                            go(|| {
                                keeps_an_address(|| {
                                    heist::time::sleep(Duration::from_micros(10));
                                })
                            })
                        })
                        .collect();
                    assert!(handles.into_iter().all(|handle| handle.join().unwrap()));
                    rt.metrics().get("/heist/moves/relocated:words").unwrap() > 20
                });
            });
        },
    );
    ended.succeeded();
    ended.said("had addresses of thread-locals");
    ended.said("keeps_an_address");
    ended.said("spawned at crates/heist/tests/stacks/thread_locals.rs");
}
