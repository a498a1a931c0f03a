//! Far more Ps than CPUs: correct, and at rest when there is nothing to do.

use crate::matrix;
use heist::sync::WaitGroup;
use heist::{Builder, chan, testing};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const GOROUTINES: u64 = 5_000;

/// Goroutines that spawn, yield, and talk over one channel.
fn load() -> u64 {
    let (tx, rx) = chan::bounded(64);
    let group = Arc::new(WaitGroup::new());
    let yields = Arc::new(AtomicU64::new(0));
    for i in 0..GOROUTINES {
        let (tx, group, yields) = (tx.clone(), Arc::clone(&group), Arc::clone(&yields));
        group.add(1);
        heist::go(move || {
            heist::yield_now();
            yields.fetch_add(1, Ordering::Relaxed);
            tx.send(i).unwrap();
            group.done();
        });
    }
    drop(tx);
    let sum = rx.iter().sum();
    group.wait();
    assert_eq!(yields.load(Ordering::Relaxed), GOROUTINES);
    sum
}

/// With 64, 256 and 1024 Ps on a few CPUs nothing is lost, and afterwards no thread searches or is
/// woken.
#[test]
fn a_thousand_procs_work_and_come_to_rest() {
    for procs in [64, 256, 1024] {
        for nodes in [1, 8] {
            let rt = matrix::start(Builder::new().procs(procs).fake_nodes(nodes));
            let wanted = GOROUTINES * (GOROUTINES - 1) / 2;
            assert_eq!(rt.run(load), wanted, "procs={procs} nodes={nodes}");
            matrix::eventually("all processors are idle", || {
                let sample = testing::sample(&rt);
                sample.n_idle == sample.procs && sample.n_spinning == 0
            });
            let counts = || {
                ["/heist/wake-ups:events", "/heist/spin/starts:events"]
                    .map(|name| rt.metrics().get(name).unwrap())
            };
            let before = counts();
            let until = Instant::now() + Duration::from_millis(50);
            while Instant::now() < until {
                std::thread::yield_now();
            }
            assert_eq!(counts(), before, "procs={procs} nodes={nodes}");
        }
    }
}
