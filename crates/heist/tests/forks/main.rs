//! `join` and `par`: halves that run at the same time, or one after the other.

#[path = "../harness/child.rs"]
mod child;
#[path = "../harness/coroutine.rs"]
mod coroutine;
#[path = "../harness/matrix/mod.rs"]
mod matrix;
#[path = "../harness/unwinding.rs"]
mod unwinding;

mod cancel;
mod coroutines;
mod join;
mod measure;
mod panics;
mod par;
mod stress;

use std::sync::atomic::{AtomicBool, Ordering};

/// A flag that a half sets and the other one waits for, yielding: so the half that sets it must
/// have been taken by then.
#[derive(Default)]
struct Sign(AtomicBool);

impl Sign {
    fn give(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn is_given(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    #[track_caller]
    fn wait(&self) {
        matrix::yield_until("the sign", || self.is_given());
    }
}

/// Runs both halves. The second one is taken: it begins before the first one returns.
fn join_taken<RA, RB: Send>(a: impl FnOnce() -> RA, b: impl FnOnce() -> RB + Send) -> (RA, RB) {
    let begun = Sign::default();
    let a = || {
        begun.wait();
        a()
    };
    heist::join(a, || {
        begun.give();
        b()
    })
}
