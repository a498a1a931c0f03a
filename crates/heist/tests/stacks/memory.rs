//! Stacks: deep recursion is intact, memory is bounded and given to the next goroutine.

use crate::child;
use crate::matrix;

use heist::goroutine::{Builder, SpawnError};
use heist::sync::WaitGroup;
use heist::{Runtime, chan, context, go, time, yield_now};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Recurses and checks on return that no frame was changed meanwhile.
fn intact(n: u64, park_at: u64) -> u64 {
    let frame = black_box([n + 1; 8]);
    if n == 0 {
        return 0;
    }
    if n.is_multiple_of(park_at) {
        yield_now();
    }
    let below = intact(n - 1, park_at);
    assert_eq!(frame, [n + 1; 8], "a frame was overwritten");
    below + 1
}

/// SP-02: a thousand levels deep every frame is as it was, also across parks.
#[test]
fn deep_recursion_keeps_every_frame() {
    matrix::run(|| {
        assert_eq!(intact(300, 100), 300);
        let handles: Vec<_> = (0..8)
            .map(|i| {
                let big = Builder::new().stack_size(1 << 20);
                big.spawn(move || intact(1 << 10, 100 + i)).unwrap()
            })
            .collect();
        for handle in handles {
            assert_eq!(handle.join().unwrap(), 1 << 10);
        }
    });
}

/// SP-02: the same on its own thread.
#[test]
fn deep_recursion_on_a_locked_thread_keeps_every_frame() {
    matrix::run(|| {
        let own = Builder::new().os_thread().stack_size(1 << 20);
        assert_eq!(own.spawn(|| intact(1 << 10, 100)).unwrap().join().unwrap(), 1 << 10);
        let guard = heist::lock_os_thread();
        assert_eq!(intact(300, 100), 300);
        drop(guard);
    });
}

/// SP-02: the same in functions that the runtime calls: when their time has come, and when a
/// context is cancelled.
#[test]
fn deep_recursion_in_callbacks_keeps_every_frame() {
    for case in matrix::cases_with(&[1, 4]) {
        let rt = matrix::start(case.builder().stack_size(1 << 20));
        rt.run(|| {
            let (tx, rx) = chan::unbounded();
            let (ctx, cancel) = context::background().with_cancel();
            for i in 0..4 {
                let (by_clock, by_context) = (tx.clone(), tx.clone());
                time::after_func(Duration::from_micros(i), move || {
                    by_clock.send(intact(1 << 10, 100 + i)).unwrap();
                });
                ctx.after_func(move || by_context.send(intact(1 << 10, 90 + i)).unwrap());
            }
            cancel.cancel();
            drop(tx);
            assert_eq!(rx.iter().collect::<Vec<_>>(), [1 << 10; 8], "{case}");
        });
    }
}

/// SP-02: in a goroutine of 64 MiB, very deep.
#[test]
fn a_large_stack_is_as_large_as_asked() {
    for procs in [1, 2] {
        matrix::plain(procs).run(|| {
            let builder = Builder::new().stack_size(64 << 20);
            // Far more than the default would hold, with at least 64 bytes in each frame.
            let handle = builder.spawn(|| intact(50_000, 20_000)).unwrap();
            assert_eq!(handle.join().unwrap(), 50_000);
        });
    }
}

/// The size of the runtime's stacks is a setting too.
#[test]
fn the_runtime_sets_the_size_for_all() {
    let rt = matrix::start(Runtime::builder().procs(2).stack_size(8 << 20));
    assert_eq!(rt.run(|| go(|| intact(10_000, 5000)).join().unwrap()), 10_000);
    let rt = matrix::start(Runtime::builder().procs(2).stack_size(32 << 10));
    assert_eq!(rt.run(|| go(|| intact(20, 5)).join().unwrap()), 20);
}

/// A stack that is too large is an error, and a small one is rounded up to the size that a panic
/// needs.
#[test]
fn sizes_out_of_range_are_handled() {
    matrix::plain(1).run(|| {
        for bytes in [(1 << 30) + 1, usize::MAX] {
            let refused = Builder::new().stack_size(bytes).spawn(|| ());
            let error = refused.unwrap_err();
            assert_eq!(error, SpawnError::StackTooLarge { bytes });
            assert!(error.to_string().contains("1073741824"), "{error}");
        }
        for bytes in [0, 1, 4096] {
            let small = Builder::new().stack_size(bytes);
            let handle = small.spawn(|| panic!("unwinds on {} bytes", 32 << 10));
            let error = heist::JoinHandle::<()>::join(handle.unwrap()).unwrap_err();
            assert_eq!(error.panic_message(), Some("unwinds on 32768 bytes"));
        }
    });
}

fn mapped_bytes(rt: &Runtime) -> u64 {
    rt.metrics().get("/heist/stacks/mapped:bytes").unwrap()
}

/// Recurses with frames of a kibibyte.
fn deep(n: u32) -> u64 {
    let frame = black_box([u64::from(n); 128]);
    match n {
        0 => 0,
        _ => deep(n - 1) + frame[64] - u64::from(n) + 1,
    }
}

/// Eight times what one batch of the test below uses, as in Go.
const LIMIT_KIB: u64 = 8 * 32 * 128;
/// Every processor caches up to 32 stacks, each with the memory that its goroutine has used:
/// without optimisation a frame of one kibibyte takes more than two.
const KEPT_KIB: u64 = 33 * 320;

/// SP-03: 256 batches of 32 goroutines, each 128 frames of a kibibyte deep, do not need the memory
/// of more than a few.
#[test]
fn stack_memory_is_bounded_over_batches() {
    let ended = child::run(|| {
        for case in matrix::cases_with(&[1, 2, 16]).iter().step_by(5) {
            let rt = matrix::start(case.builder().stack_size(512 << 10));
            let (before, resident) = (mapped_bytes(&rt), child::own_status("VmRSS"));
            let batch = || {
                rt.run(|| {
                    let gate = WaitGroup::new();
                    gate.add(32);
                    let handles: Vec<_> = (0..32)
                        .map(|_| {
                            let gate = gate.clone();
                            go(move || {
                                assert_eq!(deep(128), 128);
                                // All of them have a stack at the same time.
                                gate.done();
                                gate.wait();
                            })
                        })
                        .collect();
                    for handle in handles {
                        handle.join().unwrap();
                    }
                });
            };
            (0..256).for_each(|_| batch());
            matrix::eventually("no stack in use", || {
                rt.metrics().get("/heist/stacks/in-use:stacks") == Some(0)
            });
            // One batch, the stacks that the processors keep, and the rest of a slab.
            let mapped = mapped_bytes(&rt) - before;
            let most = (case.procs as u64 + 1) * 33 * (512 << 10) + (64 << 20);
            assert!(mapped <= most, "{case}: {mapped} bytes for 33 stacks");
            let grown = child::own_status("VmRSS").saturating_sub(resident);
            let kept = case.procs as u64 * KEPT_KIB;
            assert!(grown <= LIMIT_KIB.max(kept), "{case}: {grown} KiB of memory");
        }
    });
    ended.succeeded();
}

/// Goroutines that come near the end of their stacks get larger ones after a while, those of other
/// kinds and those whose size was chosen do not.
#[test]
fn kinds_with_deep_recursion_get_larger_stacks() {
    /// It does not read the size of the stack: it recurses until `bytes` are used.
    #[inline(never)]
    fn use_up(from: usize, bytes: usize) -> u64 {
        let frame = black_box([from as u64 | 1; 16]);
        let here = black_box(&raw const frame).addr();
        if from - here < bytes { use_up(from, bytes) + black_box(frame)[3] } else { 0 }
    }
    fn use_most_of(bytes: usize) {
        let here = 0_u8;
        black_box(use_up((&raw const here).addr(), bytes / 8 * 7));
    }
    const DEFAULT: usize = 64 << 10;
    for procs in [1, 2] {
        let rt = matrix::start(Runtime::builder().procs(procs).stack_size(DEFAULT));
        let grown = || rt.metrics().get("/heist/stacks/grown:kinds").unwrap();
        rt.run(|| {
            for _ in 0..500 {
                go(|| ()).join().unwrap();
                let chosen = Builder::new().stack_size(DEFAULT);
                chosen.spawn(|| use_most_of(DEFAULT)).unwrap().join().unwrap();
            }
        });
        assert_eq!(grown(), 0);
        let used = AtomicU64::new(DEFAULT as u64);
        rt.run(|| {
            // They would overflow if the later ones had no more than the first.
            for round in 0..4_u64 {
                for _ in 0..2000 {
                    heist::scope(|scope| {
                        scope.go(|| use_most_of(used.load(Ordering::SeqCst) as usize));
                    });
                }
                used.store((DEFAULT as u64) << (round + 1), Ordering::SeqCst);
            }
        });
        assert_eq!(grown(), 1);
    }
}

/// SP-04: goroutines that recurse to different depths on request, in rounds: nothing is corrupted.
#[test]
fn stacks_of_different_use_are_reused() {
    matrix::run(|| {
        for _ in 0..4 {
            let depth = Arc::new(AtomicU64::new(0));
            let handles: Vec<_> = (0..200)
                .map(|_| {
                    let depth = Arc::clone(&depth);
                    go(move || {
                        let mut n = 0;
                        for asked in [1, 2, 4, 8, 16] {
                            while depth.load(Ordering::SeqCst) < asked {
                                yield_now();
                            }
                            n += intact(asked, 7);
                        }
                        n
                    })
                })
                .collect();
            for asked in [1, 2, 4, 8, 16] {
                depth.store(asked, Ordering::SeqCst);
                yield_now();
            }
            for handle in handles {
                assert_eq!(handle.join().unwrap(), 31);
            }
        }
    });
}

/// Uses mappings of the process up until only `left` can be had.
fn use_up_mappings(left: usize) {
    const PAGE: usize = 64 << 10;
    let text = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
    let most: usize = text.trim().parse().unwrap();
    let used = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    let n = most - used - left;
    // SAFETY: a new mapping, of which every other page is made to differ from its neighbours.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let base = libc::mmap(std::ptr::null_mut(), n * PAGE, libc::PROT_NONE, flags, -1, 0);
        assert_ne!(base, libc::MAP_FAILED);
        for i in (0..n).step_by(2) {
            assert_eq!(libc::mprotect(base.byte_add(i * PAGE), PAGE, libc::PROT_READ), 0);
        }
    }
}

/// Where guards take mappings and there are no more, goroutines that have not begun wait, one
/// message says which limit it is, and everything continues when stacks are returned.
#[test]
fn goroutines_wait_for_guarded_stacks() {
    if matrix::emulator::cannot_show("it needs mappings of its own when there are no more") {
        return;
    }
    const N: u64 = 2000;
    let ended = child::run_with(
        |child| {
            child.env("HEIST_DEBUG", "guard=protect");
        },
        || {
            // A runtime is refused later: its threads need mappings.
            let runtimes = [1, 2].map(matrix::plain);
            for rt in &runtimes {
                rt.run(|| (0..8).for_each(|_| drop(go(yield_now))));
            }
            use_up_mappings(1000);
            for rt in runtimes {
                rt.run(|| {
                    let gate = WaitGroup::new();
                    gate.add(1);
                    let begun = Arc::new(AtomicU64::new(0));
                    let handles: Vec<_> = (0..N)
                        .map_while(|i| {
                            let (gate, begun) = (gate.clone(), Arc::clone(&begun));
                            let waits = move || {
                                let frame = black_box([i; 64]);
                                begun.fetch_add(1, Ordering::SeqCst);
                                gate.wait();
                                assert_eq!(frame, [i; 64], "a frame was overwritten");
                            };
                            heist::try_go(waits).ok()
                        })
                        .collect();
                    matrix::yield_until("no stack is left", || {
                        heist::try_go(|| ()).is_err_and(|error| error == SpawnError::NoMemory)
                    });
                    // Goroutines that have a stack continue meanwhile.
                    time::sleep(Duration::from_millis(1));
                    let n = handles.len() as u64;
                    assert!(begun.load(Ordering::SeqCst) < n);
                    gate.done();
                    handles.into_iter().for_each(|handle| handle.join().unwrap());
                    assert_eq!(begun.load(Ordering::SeqCst), n);
                    matrix::yield_until("stacks are there again", || heist::try_go(|| ()).is_ok());
                });
            }
        },
    );
    ended.succeeded();
    assert_eq!(ended.stderr.matches("vm.max_map_count").count(), 1, "{}", ended.stderr);
}

/// SP-04: stacks of all sizes at the same time, again and again.
#[test]
fn stacks_of_all_sizes_mix() {
    matrix::run(|| {
        for round in 0..5_u64 {
            let handles: Vec<_> = (0..40)
                .map(|i| {
                    let bytes = (32 << 10) << (i % 6);
                    let sized = Builder::new().stack_size(bytes);
                    sized.spawn(move || intact(20 << (i % 6), 9 + round)).unwrap()
                })
                .collect();
            for (i, handle) in handles.into_iter().enumerate() {
                assert_eq!(handle.join().unwrap(), 20 << (i % 6));
            }
        }
    });
}
