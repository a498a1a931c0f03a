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

/// The bytes of an address of a variable, kept on the stack across a park: which of them are the
/// same afterwards.
#[inline(never)]
fn kept_bytes(park: impl FnOnce()) -> [bool; 8] {
    let before = COUNT.with(|count| std::ptr::from_ref(count).addr()).to_le_bytes();
    let mut word = usize::from_le_bytes(before);
    let mut inverse = black_box(!word);
    black_box(&mut word);
    park();
    let after = black_box(&mut word).to_le_bytes();
    let before = (!*black_box(&mut inverse)).to_le_bytes();
    std::array::from_fn(|i| after[i] == before[i])
}

/// What is left of an address of a thread-local on a stack, around a smaller live value, may be
/// taken for an address. A move changes one byte of it, which is never that of a small number: a
/// counter in the upper half stays as it is when it has the value of the upper half of an address.
#[test]
fn a_move_changes_one_byte_of_an_address() {
    // In a process with few threads: those of several rows differ in more.
    let ended = child::run(|| {
        let rt = matrix::start(Runtime::builder().procs(4));
        let count = |name: &str| rt.metrics().get(name).unwrap();
        rt.run(|| {
            testing_until(|| {
                let keep = || kept_bytes(|| heist::time::sleep(Duration::from_micros(10)));
                for handle in (0..16).map(|_| go(keep)).collect::<Vec<_>>() {
                    let kept = handle.join().unwrap();
                    let others = [&kept[..3], &kept[4..]].concat();
                    assert!(others.iter().all(|&kept| kept), "{kept:?}");
                }
                count("/heist/moves/relocated:words") > 100
            });
        });
    });
    ended.succeeded();
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
