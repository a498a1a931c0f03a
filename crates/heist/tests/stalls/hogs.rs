//! Goroutines that compute without end, next to others and to stops of the world.

use crate::child;
use crate::matrix;

use heist::{Handle, Runtime, chan, go, testing, yield_now};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn runtime(procs: usize) -> Runtime {
    matrix::start(Runtime::builder().procs(procs))
}

/// Counts without a call and without a frame, forever.
fn arithmetic_without_end(mut n: u32) -> ! {
    loop {
        n = n.wrapping_mul(3).wrapping_add(1);
        // Read once: an empty loop is the other one.
        if n == 0 {
            n = black_box(7);
        }
    }
}

/// PR-04: one processor, an empty infinite loop and one that does nothing but arithmetic, neither
/// of which ever ends: the world stops and runs again, for a thread and for a goroutine, the number
/// of processors changes, others run, and the program ends.
#[test]
fn the_world_stops_for_loops_that_never_end() {
    let ended = child::run(|| {
        let builder = Runtime::builder().procs(1);
        let rt = matrix::start(builder.shutdown_timeout(Duration::from_millis(100)));
        let started = Arc::new(AtomicU64::new(0));
        let start = |hog: fn() -> u8| {
            let started = Arc::clone(&started);
            drop(rt.handle().spawn(move || {
                started.fetch_add(1, Ordering::SeqCst);
                hog()
            }));
        };
        #[expect(clippy::empty_loop, reason = "this is what must be stopped")]
        start(|| loop {});
        start(|| arithmetic_without_end(1));
        matrix::eventually("both loops", || started.load(Ordering::SeqCst) == 2);
        for _ in 0..10 {
            assert_eq!(testing::stop_the_world(&rt.handle(), || 1), Some(1));
        }
        rt.run(|| {
            assert_eq!(testing::stop_the_world(&Handle::current().unwrap(), || 2), Some(2));
            assert_eq!(go(|| 3).join().unwrap(), 3);
        });
        assert_eq!(rt.set_procs(3), 1);
        assert_eq!(rt.set_procs(1), 3);
        drop(rt);
    });
    ended.succeeded();
    ended.said("hogs.rs");
}

/// PR-04: the same in a process that was started with signals blocked, the one for preemption among
/// them.
#[test]
fn loops_are_preempted_where_signals_were_blocked_before() {
    let ended = child::run(|| {
        // SAFETY: all zero is an empty set; a setting of the calling thread, which others inherit.
        unsafe {
            let mut blocked: libc::sigset_t = std::mem::zeroed();
            for signal in [libc::SIGWINCH, libc::SIGUSR1, libc::SIGURG] {
                libc::sigaddset(&raw mut blocked, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, std::ptr::null_mut());
        }
        let builder = Runtime::builder().procs(1);
        let rt = matrix::start(builder.shutdown_timeout(Duration::from_millis(100)));
        for _ in 0..2 {
            drop(rt.handle().spawn(|| arithmetic_without_end(1)));
        }
        let forced = || rt.metrics().get("/heist/preempt/forced:events").unwrap_or(0);
        matrix::eventually("both were preempted, and continued", || forced() > 3);
        assert_eq!(rt.run(|| go(|| 3).join().unwrap()), 3);
    });
    ended.succeeded();
}

/// PR-05: two processors; a goroutine that counts for long and then calls a function with a large
/// frame: three requests to stop, 10 us apart, are all honoured, at any point.
#[test]
fn a_request_in_a_long_stretch_is_not_lost() {
    #[inline(never)]
    fn large_frame(n: u64) -> u64 {
        let frame = black_box([n; 1024]);
        frame[(n % 1024) as usize]
    }
    let rt = runtime(2);
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let (started, wait) = chan::bounded(1);
        let counts = {
            let stop = Arc::clone(&stop);
            go(move || {
                started.send(()).unwrap();
                let mut calls = 0_u64;
                while !stop.load(Ordering::Relaxed) {
                    let mut n = 0_u64;
                    for i in 0..10_000_000 {
                        n = black_box(n + i);
                    }
                    calls += large_frame(n) / n;
                }
                calls
            })
        };
        wait.recv().unwrap();
        for _ in 0..3 {
            let until = Instant::now() + Duration::from_micros(10);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            let stopped = testing::stop_the_world(&Handle::current().unwrap(), || 1);
            assert_eq!(stopped, Some(1));
        }
        stop.store(true, Ordering::Relaxed);
        assert!(counts.join().unwrap() > 0);
    });
}

/// PR-08: two goroutines that play ping-pong next to a hog on one processor share slices with each
/// other: they wait for the hog once in a slice, not in every turn.
#[test]
fn ping_pong_next_to_a_hog_waits_once_per_slice() {
    const TURNS: u64 = 20_000;
    let rt = runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let hog = {
        let stop = Arc::clone(&stop);
        rt.handle().spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    };
    rt.run(|| {
        let (ping, pings) = chan::bounded(0);
        let (pong, pongs) = chan::bounded(0);
        let other = go(move || pings.iter().for_each(|n: u64| pong.send(n + 1).unwrap()));
        for n in 0..TURNS {
            ping.send(n).unwrap();
            assert_eq!(pongs.recv(), Ok(n + 1));
        }
        drop(ping);
        other.join().unwrap();
    });
    let slices: u64 = ["asked", "forced"]
        .map(|how| rt.metrics().get(&format!("/heist/preempt/{how}:events")).unwrap())
        .iter()
        .sum();
    stop.store(true, Ordering::Relaxed);
    hog.join().unwrap();
    // A slice of the hog each turn would be as many.
    assert!((1..TURNS / 10).contains(&slices), "{slices}");
}

/// PR-10: one processor, three goroutines that allocate forever: each has run after 30 ms, or at
/// least after another second.
#[test]
fn goroutines_that_allocate_for_ever_take_turns() {
    let rt = runtime(1);
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let counts: Arc<[AtomicU64; 3]> = Arc::default();
        let hogs: Vec<_> = (0..3)
            .map(|i| {
                let (stop, counts) = (Arc::clone(&stop), Arc::clone(&counts));
                go(move || {
                    while !stop.load(Ordering::Relaxed) {
                        black_box(vec![i; 1000]);
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let all = || counts.iter().all(|count| count.load(Ordering::Relaxed) > 0);
        heist::time::sleep(Duration::from_millis(30));
        if !all() {
            heist::time::sleep(Duration::from_secs(1));
        }
        assert!(all(), "{counts:?}");
        // Each of them runs again and again.
        let before: Vec<_> = counts.iter().map(|count| count.load(Ordering::Relaxed)).collect();
        matrix::yield_until("another turn of each", || {
            counts.iter().zip(&before).all(|(now, before)| now.load(Ordering::Relaxed) > *before)
        });
        yield_now();
        stop.store(true, Ordering::Relaxed);
        hogs.into_iter().for_each(|hog| hog.join().unwrap());
    });
}
