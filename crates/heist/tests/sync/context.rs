//! Contexts: cancel trees, deadlines, causes, values.

use crate::matrix;

use heist::chan::Sender;
use heist::context::{self, Canceller, Cause, Context, ContextError, Key};
use heist::{go, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// A context that is not done: its channel is open and it has no error.
#[track_caller]
fn assert_live(ctx: &Context) {
    assert!(ctx.done().try_recv().unwrap_err().is_empty());
    assert_eq!(ctx.err(), None);
    assert!(ctx.cause().is_none());
}

/// Checks that a context is done, in every way in which that can be observed.
#[track_caller]
pub fn assert_done(ctx: &Context, error: ContextError) {
    assert_eq!(ctx.err(), Some(error));
    assert!(ctx.done().is_closed());
    assert!(ctx.done().recv().is_err());
    assert_eq!(ctx.wait(), error);
    assert!(ctx.cause().is_some());
}

/// The roots are never done and have nothing.
#[test]
fn the_roots_are_never_done() {
    for ctx in [context::background(), context::todo(), Context::default()] {
        assert_live(&ctx);
        assert!(ctx.deadline().is_none());
        assert!(ctx.after_func(|| unreachable!()).stop());
    }
    assert_eq!(ContextError::Canceled.to_string(), "context canceled");
    assert_eq!(ContextError::DeadlineExceeded.to_string(), "context deadline exceeded");
}

/// CX-01: cancelling a parent cancels its children and theirs, and nothing else.
#[test]
fn cancelling_a_parent_cancels_below() {
    matrix::run(|| {
        let (parent, canceller) = context::background().with_cancel();
        let (child, _) = parent.with_cancel();
        let (grandchild, _) = child.with_value::<Number>(1).with_timeout(HOUR);
        let (sibling, _) = context::background().with_cancel();
        let all = [&parent, &child, &grandchild];
        all.iter().for_each(|ctx| assert_live(ctx));
        canceller.cancel();
        canceller.cancel();
        all.iter().for_each(|ctx| assert_done(ctx, ContextError::Canceled));
        assert_live(&sibling);
        // Too late for a new child.
        let (late, _) = parent.with_cancel();
        assert_done(&late, ContextError::Canceled);
    });
}

/// CX-01: a child that is cancelled, or that is no longer used, leaves its parent, which continues.
#[test]
fn finished_children_leave() {
    matrix::run(|| {
        let (parent, canceller) = context::background().with_cancel();
        let (child, cancel_child) = parent.with_cancel();
        assert_eq!(heist::testing::context_children(&parent), 1);
        cancel_child.cancel();
        assert_done(&child, ContextError::Canceled);
        assert_live(&parent);
        assert_eq!(heist::testing::context_children(&parent), 0);
        {
            let (_one, _) = parent.with_cancel();
            let (_two, _) = parent.with_timeout(HOUR);
            let stopped = parent.after_func(|| unreachable!());
            assert_eq!(heist::testing::context_children(&parent), 3);
            assert!(stopped.stop());
        }
        assert_eq!(heist::testing::context_children(&parent), 0);
        canceller.cancel();
    });
}

/// CX-02: deadlines fire, not before their time; the earlier one wins; one that has passed is done
/// at once; cancelling comes first if it does.
#[test]
fn deadlines_fire_in_time() {
    let deadlines = || {
        let start = Instant::now();
        let (ctx, _) = context::background().with_timeout(Duration::from_millis(2));
        assert_eq!(ctx.deadline().map(|at| at >= start + Duration::from_millis(2)), Some(true));
        assert_eq!(ctx.wait(), ContextError::DeadlineExceeded);
        assert!(start.elapsed() >= Duration::from_millis(2));
        assert_done(&ctx, ContextError::DeadlineExceeded);

        let (outer, _) = context::background().with_timeout(Duration::from_millis(2));
        let (inner, _) = outer.with_timeout(HOUR);
        assert_eq!(inner.deadline(), outer.deadline());
        assert_eq!(inner.wait(), ContextError::DeadlineExceeded);

        let (outer, _) = context::background().with_timeout(HOUR);
        let (inner, _) = outer.with_timeout(Duration::from_millis(1));
        assert_eq!(inner.wait(), ContextError::DeadlineExceeded);
        assert_live(&outer);

        let (past, _) = context::background().with_deadline(Instant::now());
        assert_done(&past, ContextError::DeadlineExceeded);

        let (ctx, canceller) = context::background().with_timeout(HOUR);
        let (inner, _) = ctx.with_timeout(HOUR / 2);
        canceller.cancel();
        assert_done(&ctx, ContextError::Canceled);
        assert_done(&inner, ContextError::Canceled);

        let (ctx, _) = context::background().with_timeout(Duration::MAX);
        assert_live(&ctx);
    };
    matrix::run(deadlines);
    // On a plain thread, outside a runtime.
    deadlines();
}

/// CX-04: a goroutine that waits for one context and then cancels another does not deadlock.
#[test]
fn interlocked_cancels_do_not_deadlock() {
    matrix::run(|| {
        let (parent, cancel_parent) = context::background().with_cancel();
        let (child, cancel_child) = parent.with_cancel();
        let watcher = {
            let parent = parent.clone();
            go(move || {
                assert!(parent.done().recv().is_err());
                cancel_child.cancel();
            })
        };
        cancel_parent.cancel();
        child.wait();
        watcher.join().unwrap();
    });
}

/// CX-04: children made while their parent is being cancelled have its error and cause.
#[test]
fn racing_with_the_parent_keeps_error_and_cause() {
    matrix::each(|_, rt| {
        rt.run(|| {
            for _ in 0..100 {
                let (parent, canceller) = context::background().with_cancel();
                let canceller = go(move || canceller.cancel_with("the parent's"));
                let (child, _) = parent.with_cancel();
                let (timed, _) = child.with_timeout(HOUR);
                assert_eq!(child.wait(), ContextError::Canceled);
                assert_eq!(timed.wait(), ContextError::Canceled);
                for ctx in [&parent, &child, &timed] {
                    assert_eq!(ctx.cause().unwrap().to_string(), "the parent's");
                }
                canceller.join().unwrap();
            }
        });
    });
}

struct Number;

impl Key for Number {
    type Value = u32;
}

struct Text;

impl Key for Text {
    type Value = String;
}

/// CX-05: thirty layers of values, cancels and timeouts in random order all react.
#[test]
fn many_layers_react() {
    let layers = |seed: u64, by_timeout: bool| {
        let mut random = seed | 1;
        let mut ctx = context::background();
        let mut cancellers: Vec<Canceller> = Vec::new();
        let mut seen = Vec::new();
        let mut number = None;
        while cancellers.len() < 30 {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            match random % 3 {
                0 => {
                    number = Some(random as u32);
                    ctx = ctx.with_value::<Number>(random as u32);
                }
                kind => {
                    let timeout = if by_timeout { Duration::from_millis(5) } else { HOUR };
                    let (below, canceller) = if kind == 1 && !by_timeout {
                        ctx.with_cancel()
                    } else {
                        ctx.with_timeout(timeout)
                    };
                    ctx = below;
                    cancellers.push(canceller);
                    seen.push(ctx.clone());
                }
            }
            assert_eq!(ctx.value::<Number>().copied(), number);
            assert_eq!(ctx.value::<Text>(), None);
        }
        if !by_timeout {
            seen.iter().for_each(assert_live);
            let middle = random as usize % cancellers.len();
            cancellers[middle].cancel();
            for (i, ctx) in seen.iter().enumerate() {
                assert_eq!(ctx.err().is_some(), i >= middle, "layer {i} of {middle}");
            }
            cancellers[0].cancel();
        }
        let error =
            if by_timeout { ContextError::DeadlineExceeded } else { ContextError::Canceled };
        seen.iter().for_each(|ctx| {
            ctx.wait();
            assert_done(ctx, error);
        });
    };
    matrix::each(|case, rt| {
        rt.run(|| {
            for by_timeout in [false, true] {
                layers(case.chaos.unwrap_or(99) + case.procs as u64, by_timeout);
            }
        });
    });
}

/// CX-06: the cause is the first one given or, without one, the error itself; contexts below share
/// it.
#[test]
fn the_first_cause_is_kept() {
    matrix::run(|| {
        let (parent, canceller) = context::background().with_cancel_cause();
        let (child, cancel_child) = parent.with_cancel();
        cancel_child.cancel_with("the child's");
        canceller.cancel_with("the parent's");
        assert_eq!(parent.cause().unwrap().to_string(), "the parent's");
        assert_eq!(child.cause().unwrap().to_string(), "the child's");
        assert_eq!(child.err(), Some(ContextError::Canceled));

        let (ctx, canceller) = context::background().with_cancel();
        canceller.cancel();
        canceller.cancel_with("too late");
        assert_eq!(ctx.cause().unwrap().downcast_ref(), Some(&ContextError::Canceled));

        let (ctx, _) = context::background().with_timeout_cause(Duration::from_millis(1), "slow");
        let (below, _) = ctx.with_cancel();
        assert_eq!(below.wait(), ContextError::DeadlineExceeded);
        assert_eq!(below.cause().unwrap().to_string(), "slow");
        let (ctx, canceller) =
            context::background().with_deadline_cause(Instant::now() + HOUR, "slow");
        canceller.cancel();
        assert_eq!(ctx.cause().unwrap().to_string(), "context canceled");
    });
}

/// CX-06: a goroutine that sees a context done sees its error and its cause, and one that sees the
/// error sees the context done.
#[test]
fn error_cause_and_channel_are_seen_together() {
    matrix::each(|_, rt| {
        for _ in 0..30 {
            let (ctx, canceller) = context::background().with_cancel();
            let by_channel = {
                let ctx = ctx.clone();
                rt.handle().spawn(move || {
                    assert!(ctx.done().recv().is_err());
                    assert_eq!(ctx.err(), Some(ContextError::Canceled));
                    assert_eq!(ctx.cause().unwrap().to_string(), "why");
                })
            };
            let by_error = {
                let ctx = ctx.clone();
                rt.handle().spawn(move || {
                    let done = ctx.done();
                    while ctx.err().is_none() {
                        yield_now();
                    }
                    assert!(done.is_closed());
                    assert_eq!(ctx.cause().unwrap().to_string(), "why");
                })
            };
            canceller.cancel_with("why");
            by_channel.join().unwrap();
            by_error.join().unwrap();
        }
    });
}

/// CX-06: a context without cancellation keeps the values and nothing else.
#[test]
fn without_cancel_keeps_values() {
    matrix::run(|| {
        let (ctx, canceller) = context::background().with_value::<Number>(3).with_timeout(HOUR);
        let detached = ctx.without_cancel();
        canceller.cancel();
        assert_live(&detached);
        assert!(detached.deadline().is_none());
        assert_eq!(detached.value::<Number>(), Some(&3));
        let (below, cancel_below) = detached.with_cancel();
        cancel_below.cancel();
        assert_done(&below, ContextError::Canceled);
        assert_live(&detached);
    });
}

/// Values are found by their key, the nearest first, and each key has its own type.
#[test]
fn values_are_found_by_their_key() {
    let ctx = context::background().with_value::<Number>(1).with_value::<Text>("one".into());
    let nearer = ctx.with_value::<Number>(2);
    assert_eq!((ctx.value::<Number>(), nearer.value::<Number>()), (Some(&1), Some(&2)));
    assert_eq!(nearer.value::<Text>().map(String::as_str), Some("one"));
    assert!(context::background().value::<Number>().is_none());
}

/// Goroutines and plain threads wait for one context.
#[test]
fn goroutines_and_threads_see_the_end() {
    matrix::each(|_, rt| {
        let (ctx, canceller) = context::background().with_cancel();
        let wait = || {
            let ctx = ctx.clone();
            move || ctx.wait()
        };
        let goroutines: Vec<_> = (0..20).map(|_| rt.handle().spawn(wait())).collect();
        let threads: Vec<_> = (0..3).map(|_| std::thread::spawn(wait())).collect();
        canceller.cancel();
        for goroutine in goroutines {
            assert_eq!(goroutine.join().unwrap(), ContextError::Canceled);
        }
        for thread in threads {
            assert_eq!(thread.join().unwrap(), ContextError::Canceled);
        }
    });
}

/// A context is one of the cases of a select.
#[test]
fn a_select_waits_for_a_context() {
    matrix::run(|| {
        let (ctx, canceller) = context::background().with_cancel();
        let (tx, rx) = heist::chan::bounded(1);
        let next = || {
            heist::select! {
                recv(rx) -> message => message.ok(),
                recv(ctx.done()) -> _ => None,
            }
        };
        tx.send(1).unwrap();
        assert_eq!(next(), Some(1));
        let canceller = go(move || canceller.cancel());
        assert_eq!(next(), None);
        assert_done(&ctx, ContextError::Canceled);
        canceller.join().unwrap();
    });
}

/// A guard cancels when it is dropped, also by a panic; a canceller does not.
#[test]
fn guards_cancel() {
    matrix::run(|| {
        let (ctx, canceller) = context::background().with_cancel();
        drop(canceller.clone());
        assert_live(&ctx);
        let _ = go(move || {
            let _guard = canceller.on_drop();
            panic!("unwinds past the guard");
        })
        .join();
        assert_done(&ctx, ContextError::Canceled);
    });
}

/// Cancelling works from a destructor of a goroutine that is itself cancelled.
#[test]
fn a_cancelled_goroutine_can_cancel() {
    matrix::run(|| {
        let (ctx, canceller) = context::background().with_cancel();
        let (below, _) = ctx.with_cancel();
        let began = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&began);
        let goroutine = go(move || {
            let _guard = canceller.on_drop();
            tell.store(true, Ordering::SeqCst);
            context::background().wait_for_ever();
        });
        matrix::yield_until("begun", || began.load(Ordering::SeqCst));
        goroutine.cancel();
        assert!(goroutine.join().unwrap_err().is_cancelled());
        assert_done(&below, ContextError::Canceled);
    });
}

trait WaitForEver {
    fn wait_for_ever(&self);
}

impl WaitForEver for Context {
    fn wait_for_ever(&self) {
        let Err(_) = self.done().recv();
    }
}

/// LK-10: a tree of contexts starts no goroutine: not to watch the parents, not for deadlines, and
/// not to tell the children.
#[test]
fn cancel_trees_start_no_goroutine() {
    matrix::each(|_, rt| {
        let handle = rt.handle();
        let created = || handle.metrics().get("/sched/goroutines-created:goroutines").unwrap();
        rt.run(|| {
            let before = (created(), heist::num_goroutines());
            let mut level = vec![context::background().with_cancel()];
            let mut all = Vec::new();
            for _ in 0..4 {
                let below = |(ctx, _): &(Context, Canceller)| {
                    [ctx.with_cancel(), ctx.with_cancel_cause(), ctx.with_timeout(HOUR)]
                };
                let next = level.iter().flat_map(below).collect();
                all.append(&mut std::mem::replace(&mut level, next));
            }
            all.append(&mut level);
            assert_eq!(all.len(), 1 + 3 + 9 + 27 + 81);
            assert_eq!((created(), heist::num_goroutines()), before, "made");
            all[0].1.cancel();
            all.iter().for_each(|(ctx, _)| assert_done(ctx, ContextError::Canceled));
            assert_eq!((created(), heist::num_goroutines()), before, "cancelled");
        });
    });
}

/// A deadline holds though the runtime it was set on is gone: for a query, for a wait, and in a
/// select.
#[test]
fn a_deadline_outlives_its_runtime() {
    const SOON: Duration = Duration::from_millis(20);
    matrix::each(|_, rt| {
        let made = |cause| context::background().with_timeout_cause(SOON, cause);
        let first = matrix::plain(1);
        let (ctx, _kept) = first.run(|| made("too slow"));
        let (other, _kept) = first.run(|| made("again"));
        let (cancelled, canceller) = first.run(|| context::background().with_timeout(HOUR));
        let (child, _) = ctx.with_cancel();
        let never_runs = first.run(|| ctx.after_func(|| unreachable!()));
        drop(first);
        assert_eq!(child.wait(), ContextError::DeadlineExceeded);
        assert!(Instant::now() >= child.deadline().unwrap());
        assert_done(&ctx, ContextError::DeadlineExceeded);
        assert_eq!(ctx.cause().unwrap().to_string(), "too slow");
        assert!(!never_runs.stop(), "it was dropped with its runtime");
        rt.run(|| {
            let never = heist::chan::never::<u8>();
            heist::select! {
                recv(other.done()) -> _ => assert_done(&other, ContextError::DeadlineExceeded),
                recv(never) -> _ => unreachable!(),
            }
        });
        assert_live(&cancelled);
        canceller.cancel();
        assert_done(&cancelled, ContextError::Canceled);
    });
}

/// A deadline that is set while the runtime shuts down holds too.
#[test]
fn a_deadline_set_during_shutdown_holds() {
    struct SetsOne(Sender<Context>);

    impl Drop for SetsOne {
        fn drop(&mut self) {
            let (ctx, _) = context::background().with_timeout(Duration::from_millis(5));
            self.0.send(ctx).unwrap();
        }
    }

    let (tx, rx) = heist::chan::unbounded();
    let rt = matrix::plain(2);
    let sets = SetsOne(tx);
    rt.run(|| {
        go(move || {
            let _sets = sets;
            heist::chan::never::<u8>().recv()
        });
        yield_now();
    });
    drop(rt);
    assert_eq!(rx.recv().unwrap().wait(), ContextError::DeadlineExceeded);
}

/// Many deadlines on plain threads: they come in order, those that are cancelled do not come.
#[test]
fn deadlines_work_on_plain_threads() {
    let start = Instant::now();
    let at = |ms| context::background().with_deadline(start + Duration::from_millis(ms));
    let contexts: Vec<_> = (0..50).map(|i| at(2 * (i * 7 % 50) + 5)).collect();
    let (far, _) = at(3_600_000);
    for (i, (ctx, canceller)) in contexts.iter().enumerate() {
        if i % 3 == 0 {
            canceller.cancel();
        }
        let error = ctx.wait();
        assert!(error == ContextError::Canceled || Instant::now() >= ctx.deadline().unwrap());
    }
    assert_live(&far);
}

/// A chain of contexts may be longer than a stack is deep.
#[test]
fn long_chains_are_dropped() {
    const LEVELS: u64 = 100_000;
    matrix::plain(1).run(|| {
        let (mut ctx, canceller) = context::background().with_cancel();
        let mut middle = None;
        for level in 0..LEVELS {
            ctx = ctx.with_cancel().0;
            if level == LEVELS / 2 {
                middle = Some(ctx.clone());
            }
        }
        drop(ctx);
        let ctx = middle.take().unwrap();
        assert_live(&ctx);
        canceller.cancel();
        assert_done(&ctx, ContextError::Canceled);
        drop((ctx, canceller));

        let mut ctx = context::background();
        for level in 0..LEVELS {
            ctx = ctx.with_value::<Number>(level as _);
            if level == LEVELS / 2 {
                middle = Some(ctx.clone());
            }
        }
        drop(ctx);
        assert_eq!(middle.unwrap().value::<Number>().copied(), Some((LEVELS / 2) as _));
    });
}

/// The channel of a context is the context's to close.
#[test]
fn users_cannot_close_the_channel() {
    matrix::run(|| {
        let (ctx, canceller) = context::background().with_cancel();
        assert!(!ctx.done().close());
        assert_live(&ctx);
        assert!(!ctx.is_cancelled());
        let waiter = {
            let ctx = ctx.clone();
            go(move || ctx.wait())
        };
        yield_now();
        canceller.cancel();
        assert_eq!(waiter.join().unwrap(), ContextError::Canceled);
        assert!(ctx.is_cancelled() && !ctx.done().close());
        assert_done(&ctx, ContextError::Canceled);
    });
}

/// A cause is made of an error, and is the same when it is passed on.
#[test]
fn causes_are_passed_on() {
    let (first, cancel_first) = context::background().with_cancel();
    let (second, cancel_second) = context::background().with_cancel();
    cancel_first.cancel_with(Cause::new(ContextError::DeadlineExceeded));
    cancel_second.cancel_with(first.cause().unwrap());
    let cause = second.cause().unwrap();
    assert_eq!(cause.downcast_ref(), Some(&ContextError::DeadlineExceeded));
}
