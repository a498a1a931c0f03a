//! The count behind a stop of the world.
#![cfg(not(loom))]

use heist_core::stop::StopCount;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn throws(act: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(act)).is_err()
}

/// IN-32: the count is the number of Ps, each lowers it once, and the last one is reported.
#[test]
fn the_last_p_is_reported() {
    let stop = StopCount::new();
    for procs in [1, 2, 16] {
        assert!(!stop.pending());
        stop.begin(procs);
        assert_eq!(stop.left(), procs);
        let last: Vec<_> = (0..procs).map(|_| stop.count()).collect();
        assert!(last.iter().enumerate().all(|(n, &last)| last == (n as u32 + 1 == procs)));
        assert!(stop.pending(), "the stop is over only when the stopper ends it");
        stop.end();
    }
}

/// IN-32: more Ps than there are, two stops at once, or an end before all have stopped throw.
#[test]
fn impossible_steps_throw() {
    let stop = StopCount::new();
    assert!(throws(|| assert!(stop.count())), "the world is not stopping");
    assert!(throws(|| stop.end()), "the world was not stopped");
    stop.begin(1);
    assert!(throws(|| stop.begin(1)), "it is stopping already");
    assert!(throws(|| stop.end()), "one has not stopped");
    assert!(stop.count());
    assert!(throws(|| assert!(stop.count())), "all have stopped");
    stop.end();
}
