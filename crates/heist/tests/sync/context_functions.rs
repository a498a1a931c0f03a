//! Functions that run when a context is done.

use crate::context::assert_done;
use crate::matrix;

use heist::context::{self, Context, ContextError};
use heist::go;
use heist::sync::{Mutex, WaitGroup};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// CX-07: a function runs once, on its own goroutine, after its context is cancelled by a
/// canceller, by a parent, or by a deadline; at once if that has happened.
#[test]
fn functions_run_once() {
    matrix::run(|| {
        let (ctx, canceller) = context::background().with_cancel();
        let (timed, _) = context::background().with_timeout(Duration::from_millis(1));
        let (below, _) = ctx.with_cancel();
        let (calls, called) = (Arc::new(AtomicUsize::new(0)), WaitGroup::new());
        let me = heist::current_id();
        let call = || {
            called.add(1);
            let (calls, called) = (Arc::clone(&calls), called.clone());
            move || {
                assert_ne!(heist::current_id(), me);
                calls.fetch_add(1, Ordering::SeqCst);
                called.done();
            }
        };
        let funcs = [ctx.after_func(call()), below.after_func(call()), timed.after_func(call())];
        assert!(calls.load(Ordering::SeqCst) <= 1, "only the one with the deadline");
        canceller.cancel();
        canceller.cancel();
        called.wait();
        ctx.after_func(call());
        called.wait();
        assert_eq!(calls.load(Ordering::SeqCst), 4);
        assert!(funcs.iter().all(|func| !func.stop()));
    });
}

/// CX-07: a function that is stopped in time does not run, and only the first stop returns true.
#[test]
fn stopped_functions_do_not_run() {
    matrix::run(|| {
        let (ctx, canceller) = context::background().with_cancel();
        let dropped = Arc::new(());
        let held = Arc::clone(&dropped);
        let stopped = ctx.after_func(move || {
            let _held = held;
            unreachable!("stopped");
        });
        assert!(stopped.stop());
        assert!(!stopped.stop());
        assert_eq!(Arc::strong_count(&dropped), 1, "what it captured is gone");
        canceller.cancel();
        assert!(!stopped.stop());
        // Stopping races with cancelling: one of the two has the function.
        for _ in 0..50 {
            let (ctx, canceller) = context::background().with_cancel();
            let ran = WaitGroup::new();
            ran.add(1);
            let run = ran.clone();
            let func = ctx.after_func(move || run.done());
            let canceller = go(move || canceller.cancel());
            if func.stop() {
                ran.done();
            }
            ran.wait();
            canceller.join().unwrap();
        }
    });
}

/// CX-07: functions work on plain threads as well, on their own thread.
#[test]
fn functions_run_on_plain_threads() {
    let (ctx, canceller) = context::background().with_cancel();
    let done = WaitGroup::new();
    done.add(1);
    let me = std::thread::current().id();
    let call = done.clone();
    ctx.after_func(move || {
        assert_ne!(std::thread::current().id(), me);
        call.done();
    });
    canceller.cancel();
    done.wait();
    // Registered by a goroutine, cancelled by a thread: runs on the goroutine's runtime.
    let rt = matrix::plain(2);
    let (ctx, canceller) = context::background().with_cancel();
    let on_goroutine = Arc::new(Mutex::new(None));
    let (tell, called) = (Arc::clone(&on_goroutine), WaitGroup::new());
    called.add(1);
    let call = called.clone();
    rt.run(|| {
        ctx.after_func(move || {
            *tell.lock() = Some(heist::current_id().is_some());
            call.done();
        });
    });
    canceller.cancel();
    called.wait();
    assert_eq!(*on_goroutine.lock(), Some(true));
}

/// A function that cannot run any more is dropped. If that panics, the others run nevertheless, and
/// the panic is passed on.
#[test]
fn functions_run_although_the_drop_of_another_panics() {
    struct Bad;
    impl Drop for Bad {
        fn drop(&mut self) {
            panic!("a bad drop");
        }
    }
    let (ctx, canceller) = context::background().with_cancel();
    let gone = matrix::plain(1);
    let bad = Bad;
    let never_runs = gone.run(|| ctx.after_func(move || drop(bad)));
    drop(gone);
    let group = heist::sync::WaitGroup::new();
    let funcs: Vec<_> = (0..3)
        .map(|_| {
            group.add(1);
            let group = group.clone();
            ctx.after_func(move || group.done())
        })
        .collect();
    let payload =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| canceller.cancel())).unwrap_err();
    assert_eq!(payload.downcast_ref::<&str>(), Some(&"a bad drop"));
    group.wait();
    assert_done(&ctx, ContextError::Canceled);
    drop((funcs, never_runs));
}

/// The goroutine of a function is described by where it was registered, whatever cancels it.
#[test]
fn a_function_is_described_by_where_it_was_registered() {
    type Function = Box<dyn FnOnce() + Send>;
    let dump_of = |register: &dyn Fn(&Context, Function)| {
        let (ctx, canceller) = context::background().with_cancel();
        let (tell, told) = heist::chan::bounded(1);
        register(&ctx, Box::new(move || tell.send(heist::dump_goroutines()).unwrap()));
        canceller.cancel();
        told.recv().expect("it ran")
    };
    matrix::run(|| {
        let here = dump_of(&|ctx, f| drop(ctx.after_func(f)));
        assert!(!here.contains("func.rs"), "{here}");
        // Registered where there is no runtime: it is run by that of the canceller.
        let elsewhere = dump_of(&|ctx, f| {
            let ctx = ctx.clone();
            std::thread::spawn(move || drop(ctx.after_func(f))).join().expect("ends well");
        });
        assert!(!elsewhere.contains("func.rs"), "{elsewhere}");
    });
}
