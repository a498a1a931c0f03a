//! A watching thread in place of a wake-up, for a goroutine that its own P most likely runs next.

use heist::Runtime;
use heist::chan;
use heist::goroutine::{self, Class};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// No goroutine is preempted: goroutines in the queue of a busy processor run elsewhere, or not at
/// all.
fn runtime(procs: usize) -> Runtime {
    let builder = Runtime::builder().procs(procs).quantum(Duration::from_secs(3600));
    // SAFETY: nothing here is bound to a thread.
    unsafe { builder.forced_preemption(false).build() }.expect("a runtime")
}

/// A goroutine that is woken by one which then computes is taken over by another P, however many
/// were run by their own P right before: it is never left to the watcher forever.
#[test]
fn a_goroutine_woken_behind_a_busy_one_moves_to_another_p() {
    for procs in [2, 4, 16] {
        runtime(procs).run(|| {
            let answers = Arc::new(AtomicU32::new(0));
            let (there, ping) = chan::bounded::<u32>(0);
            let (pong, back) = chan::bounded::<u32>(0);
            let other = heist::go({
                let answers = answers.clone();
                move || {
                    for token in ping {
                        answers.fetch_add(1, Ordering::Relaxed);
                        if token == 0 {
                            pong.send(0).expect("the channel is open");
                        }
                    }
                }
            });
            let mut n_sent = 0;
            for round in 0..40 {
                // Up to hundreds of microseconds of it, so that a watch has begun, or not yet.
                for _ in 0..50 * round {
                    there.send(0).expect("the channel is open");
                    assert_eq!(back.recv(), Ok(0));
                    n_sent += 1;
                }
                there.send(1).expect("the channel is open");
                n_sent += 1;
                while answers.load(Ordering::Relaxed) < n_sent {
                    std::hint::spin_loop();
                }
            }
            drop(there);
            other.join().expect("it does not panic");
        });
    }
}

/// A watcher may be woken with a reserved processor, with which no thread looks for work.
#[test]
fn a_watcher_serves_the_latency_class() {
    let builder = Runtime::builder().procs(3).latency_procs(1).quantum(Duration::from_secs(3600));
    // SAFETY: nothing here is bound to a thread.
    let rt = unsafe { builder.forced_preemption(false).build() }.expect("a runtime");
    rt.run(|| {
        let stop = Arc::new(AtomicU32::new(0));
        let latency = goroutine::Builder::new().class(Class::Latency).spawn({
            let stop = stop.clone();
            move || {
                for _ in 0..1000 {
                    heist::time::sleep(Duration::from_micros(150));
                }
                stop.store(1, Ordering::Relaxed);
            }
        });
        let (there, ping) = chan::bounded::<u32>(0);
        let (pong, back) = chan::bounded::<u32>(0);
        let other = heist::go(move || {
            for token in ping {
                pong.send(token).expect("the channel is open");
            }
        });
        while stop.load(Ordering::Relaxed) == 0 {
            there.send(7).expect("the channel is open");
            assert_eq!(back.recv(), Ok(7));
        }
        drop(there);
        other.join().expect("it does not panic");
        latency.expect("it is spawned").join().expect("it does not panic");
    });
}

/// How often the threads of this process have gone to sleep so far.
fn n_sleeps() -> u64 {
    let of_thread = |status: String| {
        let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        line.and_then(|count| count.trim().parse::<u64>().ok())
    };
    let threads = std::fs::read_dir("/proc/self/task").expect("there is /proc");
    let status =
        threads.filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("status")).ok());
    status.filter_map(of_thread).sum()
}

/// A watch ends with the exchange that it was begun for: a program that was busy and is idle now
/// does not wake up again and again.
#[test]
fn no_watch_goes_on_when_nothing_happens() {
    let ended = crate::child::run(|| {
        runtime(2).run(|| {
            for round in 0..20 {
                let (there, ping) = chan::bounded::<u32>(0);
                let (pong, back) = chan::bounded::<u32>(0);
                let other = heist::go(move || ping.iter().all(|token| pong.send(token).is_ok()));
                for token in 0..5000 {
                    there.send(token).expect("the other one receives");
                    assert_eq!(back.recv(), Ok(token));
                }
                drop(there);
                assert!(other.join().expect("it does not panic"));
                // Ms that found nothing fall asleep meanwhile.
                heist::time::sleep(Duration::from_millis(20));
                let before = n_sleeps();
                heist::time::sleep(Duration::from_millis(100));
                let n = n_sleeps() - before;
                assert!(n < 200, "round {round}: {n} sleeps in 100 ms without work");
            }
        });
    });
    ended.succeeded();
}
