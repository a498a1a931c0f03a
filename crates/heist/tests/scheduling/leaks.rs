//! Goroutines that can never run again are found, and no others.

use crate::child;
use heist::chan::{self, Receiver, Sender};
use heist::goroutine::find_leaks;
use heist::sync::{Barrier, Condvar, Mutex, RwLock, Semaphore, WaitGroup};
use heist::time::sleep;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A reference that is no longer used may be in memory for a while, for example in a register that
/// was saved: other work overwrites it.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `f` on frames and registers that are not left behind.
#[inline(never)]
fn apart(f: impl FnOnce() + Send + 'static) {
    heist::go(f).join().expect("it does not panic");
}

/// Overwrites what earlier calls left on the stacks of the Ms and in the free blocks of the heap.
fn stir() {
    let (tx, rx) = chan::bounded(0);
    let sender = heist::go(move || (0..100).for_each(|i| tx.send(i).expect("it is received")));
    assert_eq!(rx.iter().count(), 100);
    sender.join().expect("it does not panic");
    let blocks: Vec<_> = (1..200).map(|n| vec![0u8; 8 * n]).collect();
    drop(blocks);
}

/// Makes leaks until one of each of these states was found, and no other was. A word that is left
/// in memory by chance may hide a leak for as long as it is there, so more of them are made.
#[track_caller]
fn expect(expected: &[&str], make: fn()) {
    let start = Instant::now();
    loop {
        apart(make);
        stir();
        let leaks = find_leaks().expect("the search works");
        let found = || leaks.iter().map(ToString::to_string).collect::<String>();
        let states: Vec<_> = leaks.iter().map(|leak| leak.state).collect();
        assert!(states.iter().all(|state| expected.contains(state)), "{}", found());
        if expected.iter().all(|state| states.contains(state)) {
            return;
        }
        let dump = heist::dump_goroutines();
        assert!(start.elapsed() < PATIENCE, "found are:\n{}\nof:\n{dump}", found());
    }
}

/// Runs a test in a process of its own: a search looks at the whole process, and tests of the same
/// program would leak into each other.
fn alone(main: impl FnOnce() + Send + 'static) {
    let ended = child::run(|| {
        // SAFETY: the goroutines keep nothing across a park that is bound to a thread.
        let rt = unsafe { heist::Runtime::builder().procs(2).build() }.expect("the runtime starts");
        rt.run(main);
        // The leaked goroutines are cancelled.
        drop(rt);
    });
    ended.succeeded();
}

/// LK-01: goroutines that wait for something that never comes are leaked, with their reason.
#[test]
fn waits_that_nothing_ends() {
    alone(|| {
        expect(&["chan receive (nil chan)", "chan send (nil chan)", "select (no cases)"], || {
            drop(heist::go(|| chan::never::<u8>().recv()));
            drop(heist::go(|| Sender::never().send(1)));
            drop(heist::go(|| chan::Select::new().select().index()));
        });
    });
}

/// LK-02: goroutines that wait for a channel whose other ends are held by nobody else.
#[test]
fn channels_that_nobody_else_holds() {
    alone(|| {
        expect(&["chan receive", "chan send", "select"], || {
            drop(heist::go(|| {
                let (_tx, rx) = chan::bounded::<u8>(0);
                rx.recv()
            }));
            drop(heist::go(|| {
                let (tx, _rx) = chan::bounded::<u8>(1);
                tx.send(1)?;
                tx.send(2)
            }));
            drop(heist::go(|| {
                let (_tx, rx) = chan::unbounded::<u8>();
                let (_other_tx, other) = chan::bounded::<u8>(0);
                heist::select! {
                    recv(rx) -> message => message,
                    recv(other) -> message => message,
                }
            }));
        });
    });
}

/// LK-02: two goroutines that wait for each other, each with the end that the other one needs; also
/// if the ends are in memory of the heap.
#[test]
fn goroutines_that_wait_for_each_other() {
    alone(|| {
        expect(&["chan receive"], || {
            let (tx_a, rx_a) = chan::bounded::<u8>(0);
            let (tx_b, rx_b) = chan::bounded::<u8>(0);
            drop(heist::go(move || drop((rx_a.recv(), tx_b))));
            drop(heist::go(move || drop((rx_b.recv(), Box::new(vec![tx_a])))));
        });
    });
}

/// LK-02: a goroutine that waits for the end of one that never ends.
#[test]
fn a_goroutine_that_waits_for_a_leaked_one() {
    alone(|| {
        expect(&["goroutine join", "chan receive (nil chan)"], || {
            drop(heist::go(|| {
                let stuck = heist::go(|| chan::never::<u8>().recv());
                stuck.join()
            }));
        });
    });
}

/// LK-03: the same for locks, groups, conditions and the rest, on the stack and on the heap.
#[test]
fn locks_that_nobody_releases() {
    alone(|| {
        expect(
            &[
                "barrier wait",
                "semacquire",
                "sync.Cond.Wait",
                "sync.Mutex.Lock",
                "sync.RWMutex.Lock",
                "sync.RWMutex.RLock",
                "sync.WaitGroup.Wait",
            ],
            || {
                drop(heist::go(|| {
                    let mutex = Mutex::new(());
                    let _held = mutex.lock();
                    drop(mutex.lock());
                }));
                drop(heist::go(|| {
                    let mutex = Arc::new([Mutex::new(1), Mutex::new(2)]);
                    let _held = mutex[1].lock();
                    drop(mutex[1].lock());
                }));
                drop(heist::go(|| {
                    let lock = Arc::new(RwLock::new(()));
                    let _held = lock.write();
                    drop(lock.read());
                }));
                drop(heist::go(|| {
                    let lock = RwLock::new(());
                    let _held = lock.read();
                    drop(lock.write());
                }));
                drop(heist::go(|| {
                    let group = WaitGroup::new();
                    group.add(1);
                    group.wait();
                }));
                drop(heist::go(|| {
                    let (mutex, condition) = (Mutex::new(()), Arc::new(Condvar::new()));
                    drop(condition.wait(mutex.lock()));
                }));
                drop(heist::go(|| {
                    let semaphore = Arc::new(Semaphore::new(1));
                    let _held = semaphore.acquire(1);
                    drop(semaphore.acquire(1));
                }));
                drop(heist::go(|| Arc::new(Barrier::new(2)).wait()));
            },
        );
    });
}

/// LK-03: a thousand goroutines that deadlocked themselves.
#[test]
fn a_thousand_of_them() {
    alone(|| {
        apart(|| {
            for _ in 0..1000 {
                drop(heist::go(|| {
                    let mutex = Arc::new(Mutex::new(()));
                    let _held = mutex.lock();
                    drop(mutex.lock());
                }));
            }
        });
        let start = Instant::now();
        // A few may be hidden.
        while find_leaks().expect("the search works").len() < 950 {
            assert!(start.elapsed() < PATIENCE, "they are not found");
            stir();
        }
    });
}

/// LK-04: what running code can reach is not leaked: through a static, a local variable, memory
/// of the heap, a message in a channel, a function that runs later, a plain thread, a handle.
#[test]
fn what_can_be_reached_is_not_leaked() {
    static SENDER: OnceLock<Sender<u8>> = OnceLock::new();
    static MUTEX: Mutex<()> = Mutex::new(());
    alone(|| {
        let receives = |rx: Receiver<u8>| drop(heist::go(move || rx.recv()));
        let (tx, rx) = chan::bounded(0);
        SENDER.set(tx).expect("set once");
        receives(rx);
        let held = MUTEX.lock();
        drop(heist::go(|| drop(MUTEX.lock())));
        let (in_local, rx) = chan::bounded(0);
        receives(rx);
        let (tx, rx) = chan::bounded(0);
        let in_box = std::hint::black_box(Box::new([Some(tx), None]));
        receives(rx);
        let (tx, rx) = chan::bounded(0);
        let (post, in_message) = chan::bounded(1);
        post.send(vec![tx]).expect("there is room");
        receives(rx);
        let (tx, rx) = chan::bounded(0);
        let later = heist::time::after_func(Duration::from_secs(3600), move || drop(tx));
        receives(rx);
        let (tx, rx) = chan::bounded(0);
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            let _ = stopped.recv();
            drop(tx);
        });
        receives(rx);
        let handle = heist::go(|| chan::never::<u8>().recv());
        let (tx, rx) = chan::bounded(0);
        let sleeper = heist::go(move || {
            sleep(Duration::from_secs(3600));
            drop(tx);
        });
        receives(rx);
        let (tx, rx) = chan::bounded(0);
        let runs = Arc::new(std::sync::atomic::AtomicBool::new(true));
        let computes = {
            let runs = Arc::clone(&runs);
            heist::go(move || {
                while runs.load(std::sync::atomic::Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                drop(tx);
            })
        };
        receives(rx);
        // A group whose task waits for a channel that is reachable.
        let (tx, rx) = chan::bounded::<u8>(0);
        let group = WaitGroup::new();
        group.go(move || _ = rx.recv());
        drop(heist::go(move || group.wait()));
        for round in 0..20 {
            let leaks = find_leaks().expect("the search works");
            let texts: String = leaks.iter().map(ToString::to_string).collect();
            assert!(leaks.is_empty(), "round {round}: {texts}");
            stir();
        }
        runs.store(false, std::sync::atomic::Ordering::Relaxed);
        drop((held, in_local, in_box, in_message, tx, stop));
        assert!(later.stop());
        thread.join().expect("it ends");
        computes.join().expect("it ends");
        handle.cancel();
        sleeper.cancel();
    });
}

/// The stacks of goroutines, with their guards, look like no heap.
#[test]
fn a_search_beside_many_stacks() {
    alone(|| {
        let (tx, rx) = chan::bounded::<u8>(0);
        for _ in 0..3000 {
            let rx = rx.clone();
            drop(heist::go(move || rx.recv()));
        }
        heist::yield_now();
        assert!(find_leaks().expect("the search works").is_empty());
        drop(tx);
    });
}

/// LK-06, LK-07: shapes of programs that are written by mistake.
#[test]
fn common_mistakes() {
    alone(|| {
        // A worker that receives until all senders are gone, and holds one itself.
        expect(&["chan receive"], || {
            let (tx, rx) = chan::bounded::<u8>(0);
            let again = tx.clone();
            drop(heist::go(move || {
                for message in &rx {
                    again.send(message).expect("it is received");
                }
            }));
            drop(tx);
        });
        // The first of n results is taken; the senders of the others keep a receiver for retries.
        expect(&["chan receive", "chan send"], || {
            let (tx, rx) = chan::bounded::<u8>(0);
            for i in 0..3 {
                let (tx, retry) = (tx.clone(), rx.clone());
                drop(heist::go(move || {
                    let sent = tx.send(i);
                    drop(retry);
                    sent
                }));
            }
            rx.recv().expect("one of them sends");
        });
        // Two locks in different orders.
        expect(&["chan receive", "chan send", "sync.Mutex.Lock"], || {
            let locks = Arc::new((Mutex::new(()), Mutex::new(())));
            let both = Arc::new(Barrier::new(2));
            let other = (Arc::clone(&locks), Arc::clone(&both));
            drop(heist::go(move || {
                let _first = locks.0.lock();
                both.wait();
                drop(locks.1.lock());
            }));
            drop(heist::go(move || {
                let (locks, both) = other;
                let _first = locks.1.lock();
                both.wait();
                drop(locks.0.lock());
            }));
        });
    });
}

/// LK-08, LK-09: searches beside dumps, profiles and running goroutines disturb neither; a dump
/// shows the mark.
#[test]
fn searches_beside_other_reports() {
    alone(|| {
        apart(|| drop(heist::go(|| chan::never::<u8>().recv())));
        while find_leaks().expect("the search works").len() != 1 {
            sleep(Duration::from_millis(1));
        }
        let (tx, rx) = chan::bounded(0);
        let talk = heist::go(move || (0..2000).for_each(|i| tx.send(i).expect("it is received")));
        let listen = heist::go(move || rx.iter().sum::<i32>());
        let searches: Vec<_> = (0..3)
            .map(|_| heist::go(|| (0..5).for_each(|_| assert_eq!(find_leaks().unwrap().len(), 1))))
            .collect();
        let reports = heist::go(|| {
            (0..10).for_each(|_| drop((heist::dump_goroutines(), heist::profile::goroutines())));
        });
        talk.join().expect("it ends");
        assert_eq!(listen.join().expect("it ends"), 1999 * 1000);
        searches.into_iter().for_each(|search| search.join().expect("it finds the leak"));
        reports.join().expect("it ends");
        let dump = heist::dump_goroutines();
        assert!(dump.contains("[chan receive (nil chan) (leaked)]:"), "{dump}");
        let profile = heist::profile::leaks().expect("the search works");
        assert_eq!(profile.total(), 1);
        assert!(profile.to_string().starts_with("goroutineleak profile: total 1\n"), "{profile}");
    });
}

/// LK-04: a task that waits can run, and what its future holds is in use: also while the task waits
/// in the middle of a poll.
#[test]
fn what_a_task_holds_is_in_use() {
    alone(|| {
        let (stop, stopped) = chan::bounded::<()>(0);
        let mut tasks = Vec::new();
        for in_a_poll in [false, true] {
            let (tx, rx) = chan::bounded::<u8>(0);
            heist::go(move || rx.recv());
            let stopped = stopped.clone();
            tasks.push(heist::spawn(async move {
                let _ = if in_a_poll { stopped.recv() } else { stopped.recv_async().await };
                tx.send_async(1).await
            }));
        }
        for _ in 0..20 {
            stir();
            let leaks = find_leaks().expect("the search works");
            assert!(leaks.is_empty(), "{}", leaks[0]);
        }
        drop(stop);
        tasks.into_iter().for_each(|task| task.join().unwrap().expect("it is received"));
    });
}
