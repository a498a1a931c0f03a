//! The number of allocations that operations make.

use crate::turns;

use crate::counting::fewest;
use heist::sync::{once_fn, once_value};
use heist::{chan, context, select};
use std::time::Duration;

struct Number;

impl context::Key for Number {
    type Value = u32;
}

/// Runs `body` on one P. No other test allocates meanwhile.
fn alone(body: impl FnOnce() + Send) {
    let _turn = turns::alone();
    // SAFETY: the goroutine keeps nothing across a park that is bound to a thread.
    let rt = unsafe { heist::Runtime::builder().procs(1).build() }.expect("the runtime starts");
    rt.run(body);
}

/// A select of up to eight cases allocates nothing, whether a case is ready, none is, or it waits.
#[test]
fn selects_allocate_nothing() {
    alone(|| {
        let (tx, rx) = chan::bounded::<u32>(1);
        let (other_tx, other) = chan::bounded::<u32>(0);
        let ready = || {
            tx.send(1).unwrap();
            select! {
                recv(rx) -> message => message.unwrap(),
                recv(other) -> message => message.unwrap(),
            }
        };
        let not_ready = || {
            select! {
                recv(rx) -> _ => false,
                send(other_tx, 7) -> _ => false,
                default => true,
            }
        };
        let late = || {
            select! {
                recv(rx) -> _ => false,
                recv(other) -> _ => false,
                default(Duration::from_micros(10)) => true,
            }
        };
        assert_eq!((fewest(ready), fewest(not_ready), fewest(late)), (0, 0, 0));
    });
}

/// As above, with a goroutine that wakes the select at either channel.
#[test]
fn selects_that_are_woken_allocate_nothing() {
    alone(|| {
        let (ask, asked) = chan::bounded::<bool>(0);
        let (first_tx, first) = chan::bounded::<u32>(0);
        let (second_tx, second) = chan::unbounded::<u32>();
        heist::go(move || {
            for which in asked {
                let tx = if which { &first_tx } else { &second_tx };
                tx.send(5).unwrap();
            }
        });
        let mut which = false;
        let round = || {
            which = !which;
            ask.send(which).unwrap();
            select! {
                recv(first) -> message => message.unwrap(),
                recv(second) -> message => message.unwrap(),
            }
        };
        assert_eq!(fewest(round), 0);
    });
}

/// RQ-11: a spawn allocates nothing once there are records to reuse: the closure and the result
/// live in the record of the goroutine.
#[test]
fn spawns_allocate_nothing() {
    alone(|| {
        let numbers = [1u64, 2, 3, 4];
        let joined = || {
            (0..100).map(|_| heist::go(move || numbers[3])).map(|g| g.join().unwrap()).sum::<u64>()
        };
        let detached = || (0..100).for_each(|_| drop(heist::go(move || numbers[3])));
        let figures = (fewest(joined), fewest(detached));
        println!("allocations of 100 spawns: {} joined, {} detached", figures.0, figures.1);
        assert_eq!(figures, (0, 0));
    });
}

/// SY-24: a function that runs once allocates nothing, neither when it is made nor when it is
/// called.
#[test]
fn once_functions_allocate_nothing() {
    alone(|| {
        assert_eq!(fewest(|| once_fn(|| ())), 0);
        let value = once_value(|| 7);
        assert_eq!(fewest(&value), 0);
    });
}

/// CX-08: the limits are Go's: none for the root, three for a value, five for cancelling, eight for
/// a deadline, twelve for one that comes at once.
#[test]
fn contexts_allocate_little() {
    alone(|| {
        let background = context::background();
        let (parent, _) = background.with_cancel();
        assert_eq!(fewest(|| (context::background(), context::todo(), parent.clone())), 0);
        assert_eq!(fewest(|| parent.without_cancel()), 0);
        let figures = [
            ("with_value", fewest(|| background.with_value::<Number>(1)), 1, 3),
            ("with_cancel", fewest(|| background.with_cancel()), 1, 5),
            ("below another", fewest(|| parent.with_cancel()), 1, 5),
            ("with_timeout", fewest(|| background.with_timeout(Duration::from_secs(9))), 1, 8),
            ("in the past", fewest(|| background.with_timeout(Duration::ZERO)), 1, 12),
        ];
        for (what, n, least, most) in figures {
            assert!((least..=most).contains(&n), "{what}: {n}");
        }
    });
}
