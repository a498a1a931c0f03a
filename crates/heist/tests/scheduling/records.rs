//! Goroutine numbers, counts and records.

use crate::matrix;

use heist::sync::WaitGroup;
use heist::{go, num_goroutines, testing, yield_now};
use std::collections::HashSet;

/// IN-30: numbers are unique in a runtime, also across recycled records and outside spawns; the
/// first goroutine is number 1.
#[test]
fn numbers_are_unique_and_start_at_one() {
    matrix::each(|_, rt| {
        let first = rt.run(|| heist::current_id().unwrap().as_u64());
        assert_eq!(first, 1);
        let outside: Vec<_> = (0..3)
            .map(|_| {
                let handle = rt.handle();
                std::thread::spawn(move || {
                    let mut ids = Vec::new();
                    for _ in 0..50 {
                        ids.push(handle.spawn(|| heist::current_id().unwrap()).join().unwrap());
                    }
                    ids
                })
            })
            .collect();
        let mut ids = rt.run(|| {
            let mut ids = vec![heist::current_id().unwrap()];
            for _ in 0..10 {
                let handles: Vec<_> = (0..100)
                    .map(|_| {
                        go(|| {
                            let inner = go(|| heist::current_id().unwrap());
                            yield_now();
                            [heist::current_id().unwrap(), inner.join().unwrap()]
                        })
                    })
                    .collect();
                ids.extend(handles.into_iter().flat_map(|h| h.join().unwrap()));
            }
            ids
        });
        ids.extend(outside.into_iter().flat_map(|t| t.join().unwrap()));
        let distinct: HashSet<_> = ids.iter().collect();
        assert_eq!(distinct.len(), ids.len());
        assert!(ids.iter().all(|id| id.as_u64() > 1));
    });
}

/// IN-30: numbers are handed out in blocks of 16: on one processor they follow each other.
#[test]
fn numbers_come_in_blocks() {
    let rt = matrix::plain(1);
    let ids: Vec<u64> =
        rt.run(|| (0..100).map(|_| go(|| ())).map(|handle| handle.id().as_u64()).collect());
    let base = ids[0];
    assert!(ids.iter().copied().eq(base..base + 100), "{ids:?}");
    // Main took number 1 alone; the processor's first block begins right after.
    assert_eq!(base, 2);
}

/// IN-30: a processor keeps fewer than 64 free records, and returns the rest.
#[test]
fn free_records_are_bounded() {
    matrix::run(|| {
        for n in [1, 10, 63, 64, 65, 200, 1000] {
            let handles: Vec<_> = (0..n).map(|_| go(|| ())).collect();
            for handle in handles {
                handle.join().unwrap();
                let free = testing::free_records().unwrap();
                assert!(free < 64, "{free} records kept");
            }
        }
    });
}

/// IN-30: on one processor the list is cut from 64 down to 31 and refilled to 32.
#[test]
fn free_records_are_cut_to_half() {
    let rt = matrix::plain(1);
    rt.run(|| {
        let mut seen = HashSet::new();
        let handles: Vec<_> = (0..500).map(|_| go(|| ())).collect();
        for handle in handles {
            handle.join().unwrap();
            seen.insert(testing::free_records().unwrap());
        }
        let most = seen.iter().copied().max().unwrap();
        assert_eq!(most, 63, "{seen:?}");
        assert!(seen.contains(&31), "{seen:?}");
    });
}

/// SP-06: a fresh program counts one goroutine, and those that have ended are not counted.
#[test]
fn living_goroutines_are_counted() {
    assert_eq!(num_goroutines(), 0, "a plain thread has none");
    matrix::run(|| {
        assert_eq!(num_goroutines(), 1);
        let gate = WaitGroup::new();
        gate.add(1);
        let handles: Vec<_> = (0..100)
            .map(|_| {
                let gate = gate.clone();
                go(move || gate.wait())
            })
            .collect();
        assert_eq!(num_goroutines(), 101);
        gate.done();
        for handle in handles {
            handle.join().unwrap();
        }
        matrix::yield_until("only main is left", || num_goroutines() == 1);
        let detached = go(|| ());
        drop(detached);
        matrix::yield_until("only main is left", || num_goroutines() == 1);
    });
}
