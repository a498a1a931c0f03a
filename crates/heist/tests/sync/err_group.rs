//! `ErrGroup`: the first error, limits, panics.

use crate::matrix;

use heist::chan::{self, Receiver};
use heist::context::{self, ContextError};
use heist::sync::{ErrGroup, WaitGroup};
use heist::yield_now;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// CX-09: a group without a context waits for all and returns the first error.
#[test]
fn the_first_error_is_returned() {
    matrix::run(|| {
        for errors in [vec![], vec![None], vec![Some(1)], vec![None, Some(2)], vec![Some(3), None]]
        {
            let group = ErrGroup::new();
            let mut first = None;
            for error in errors {
                let ended = WaitGroup::new();
                ended.add(1);
                let end = ended.clone();
                group.go(move || {
                    end.done();
                    error.map_or(Ok(()), Err)
                });
                ended.wait();
                first = first.or(error);
            }
            assert_eq!(group.wait(), first.map_or(Ok(()), Err));
            assert_eq!(group.wait(), Ok(()), "an error is returned once");
        }
    });
}

/// CX-09: the first error cancels the context and is its cause; `wait` cancels it in any case.
#[test]
fn the_first_error_cancels() {
    matrix::run(|| {
        let (group, ctx) = ErrGroup::with_context(&context::background());
        for i in 0..10 {
            let ctx = ctx.clone();
            group.go(move || {
                if i == 5 {
                    return Err(format!("error {i}"));
                }
                // All the others stop because of it.
                assert_eq!(ctx.wait(), ContextError::Canceled);
                Err("a later one".to_owned())
            });
        }
        assert_eq!(group.wait(), Err("error 5".to_owned()));
        assert_eq!(ctx.cause().unwrap().to_string(), "error 5");

        let (group, ctx) = ErrGroup::<String>::with_context(&context::background());
        group.go(|| Ok(()));
        assert_eq!(group.wait(), Ok(()));
        assert_eq!(ctx.err(), Some(ContextError::Canceled));
        assert_eq!(ctx.cause().unwrap().to_string(), "context canceled");
    });
}

/// CX-09: cancelling the parent reaches the goroutines.
#[test]
fn the_parent_reaches_the_group() {
    matrix::run(|| {
        let (parent, canceller) = context::background().with_cancel();
        let (group, ctx) = ErrGroup::with_context(&parent);
        for _ in 0..5 {
            let ctx = ctx.clone();
            group.go(move || Err(ctx.wait()));
        }
        canceller.cancel();
        assert_eq!(group.wait(), Err(ContextError::Canceled));
    });
}

/// CX-10: with a limit of 42 the 43rd attempt fails, until there is room again; zero refuses all.
#[test]
fn attempts_fail_at_the_limit() {
    matrix::run(|| {
        let group = ErrGroup::<String>::new().limit(42);
        let gate = WaitGroup::new();
        gate.add(1);
        for i in 0..42 {
            let gate = gate.clone();
            let began = group.try_go(move || {
                gate.wait();
                Ok(())
            });
            assert!(began, "{i}");
        }
        assert!(!group.try_go(|| unreachable!("the 43rd")));
        gate.done();
        group.wait().unwrap();
        assert!(group.try_go(|| Err("again".to_owned())));
        assert_eq!(group.wait(), Err("again".to_owned()));

        let none = ErrGroup::<String>::new().limit(0);
        assert!((0..1024).all(|_| !none.try_go(|| unreachable!())));
        none.wait().unwrap();
    });
}

/// CX-10: a limit of ten is never exceeded, over 1025 goroutines that wait for their turn.
#[test]
fn the_limit_is_never_exceeded() {
    matrix::run(|| {
        let group = ErrGroup::<String>::new().limit(10);
        let (active, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..=1024 {
            let (active, most) = (Arc::clone(&active), Arc::clone(&most));
            group.go(move || {
                most.fetch_max(active.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                yield_now();
                active.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            });
        }
        group.wait().unwrap();
        assert!((1..=10).contains(&most.load(Ordering::SeqCst)));
    });
}

/// A goroutine that panics cancels the context, and `wait` panics when all have ended; one that
/// ends itself does not.
#[test]
fn panics_come_out_of_wait() {
    matrix::run(|| {
        let (group, ctx) = ErrGroup::<String>::with_context(&context::background());
        let ended = Arc::new(AtomicUsize::new(0));
        for _ in 0..3 {
            let (ctx, ended) = (ctx.clone(), Arc::clone(&ended));
            group.go(move || {
                ctx.wait();
                ended.fetch_add(1, Ordering::SeqCst);
                Ok(())
            });
        }
        group.go(|| panic!("in a goroutine"));
        let caught = catch_unwind(AssertUnwindSafe(|| group.wait())).unwrap_err();
        let text = "errgroup: a goroutine of the group panicked";
        assert_eq!(caught.downcast_ref::<&str>(), Some(&text));
        assert_eq!(ended.load(Ordering::SeqCst), 3);

        let group = ErrGroup::<String>::new();
        group.go(|| heist::exit_current());
        group.wait().unwrap();
    });
}

/// A group that is in use cannot be limited; one outside a runtime refuses, and counts nothing.
#[test]
fn misuse_is_refused() {
    matrix::run(|| {
        let group = ErrGroup::<String>::new();
        let (stop, stopped) = chan::bounded::<()>(0);
        group.go(move || until_closed(&stopped));
        let caught = catch_unwind(|| group.clone().limit(1)).unwrap_err();
        let text = "errgroup: limit of a group that is in use";
        assert_eq!(caught.downcast_ref::<&str>(), Some(&text));
        drop(stop);
        group.wait().unwrap();
    });
    let group = ErrGroup::<String>::new();
    catch_unwind(|| group.go(|| Ok(()))).unwrap_err();
    group.wait().unwrap();
}

/// A limit that comes late forgets nothing, and counts running goroutines, not remaining handles.
#[test]
fn a_late_limit_forgets_nothing() {
    matrix::run(|| {
        let group = ErrGroup::new();
        let ended = WaitGroup::new();
        ended.add(1);
        let end = OnDrop(ended.clone());
        group.go(move || {
            let _end = end;
            Err("before the limit")
        });
        ended.wait();
        // It has failed, or will at once; then no goroutine runs.
        let group = loop {
            match catch_unwind(|| group.clone().limit(2)) {
                Ok(limited) => break limited,
                Err(_) => yield_now(),
            }
        };
        assert_eq!(group.wait(), Err("before the limit"));
        for round in 0..20 {
            group.go(move || if round % 2 == 0 { Ok(()) } else { Err("again") });
            let _ = group.wait();
            let _ = group.clone().limit(round + 1);
        }
        let limited = group.clone().limit(1);
        let (stop, stopped) = chan::bounded::<()>(0);
        assert!(group.try_go(move || until_closed(&stopped)));
        assert!(
            !limited.try_go(|| Ok(())) && !group.try_go(|| Ok(())),
            "clones have the limit too"
        );
        drop(stop);
        group.wait().unwrap();
        group.go(|| panic!("a member"));
        while catch_unwind(|| drop(group.clone().limit(3))).is_err() {
            yield_now();
        }
        catch_unwind(|| group.wait()).expect_err("the panic is not forgotten");
    });
}

fn until_closed<E>(stopped: &Receiver<()>) -> Result<(), E> {
    let _closed = stopped.recv();
    Ok(())
}

struct OnDrop(WaitGroup);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.done();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Broken(u32);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "part {} is broken", self.0)
    }
}

impl std::error::Error for Broken {}

/// The cause is the text of the error, or the error itself if it can be cloned. Without a context
/// an error need not be printable.
#[test]
fn causes_are_errors() {
    matrix::run(|| {
        let (group, ctx) = ErrGroup::with_context_cause(&context::background());
        group.go(|| Err(Broken(7)));
        assert_eq!(group.wait(), Err(Broken(7)));
        assert_eq!(ctx.cause().unwrap().downcast_ref(), Some(&Broken(7)));
        let (group, ctx) = ErrGroup::with_context(&context::background());
        group.go(|| Err(Broken(7)));
        assert_eq!(group.wait(), Err(Broken(7)));
        assert_eq!(ctx.cause().unwrap().to_string(), "part 7 is broken");
        let group = ErrGroup::new().limit(1);
        group.go(|| Err(()));
        assert_eq!(group.wait(), Err(()));
    });
}

/// A group at its limit waits for a place until the context is done; then the closure is dropped
/// and no place is lost.
#[test]
fn a_context_ends_the_wait_for_a_place() {
    matrix::run(|| {
        let (ctx, canceller) = heist::context::background().with_cancel();
        let group = ErrGroup::<String>::new().limit(1);
        let (stop, stopped) = heist::chan::bounded::<()>(0);
        group.go(move || {
            let _ = stopped.recv();
            Ok(())
        });
        let waits = {
            let (group, ctx) = (group.clone(), ctx.clone());
            heist::go(move || group.go_context(&ctx, || panic!("there is no place")))
        };
        matrix::until_parked(1, "semacquire");
        canceller.cancel();
        assert_eq!(waits.join().unwrap(), Err(heist::context::ContextError::Canceled));
        drop(stop);
        group.wait().unwrap();
        let background = heist::context::background();
        assert_eq!(group.go_context(&background, || Ok(())), Ok(()));
        assert!(group.go_context(&ctx, || Err("it began".into())).is_err());
        let unlimited = ErrGroup::<String>::new();
        assert!(unlimited.go_context(&ctx, || Err("it began".into())).is_err());
        assert_eq!((group.wait(), unlimited.wait()), (Ok(()), Ok(())));
    });
}
