//! Cancelling a tree of contexts from several places at once: when each call returns.

use crate::matrix;

use heist::context::{self, Canceller, Context, ContextError};
use heist::go;
use heist::sync::WaitGroup;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

const CHILDREN: usize = 3000;

/// A tree: a root with many children, each with one of its own.
fn tree(root: &Context) -> Vec<(Context, Canceller)> {
    let children = (0..CHILDREN).map(|_| root.with_cancel());
    children.flat_map(|child| [child.0.with_cancel(), child]).collect()
}

fn all_ended(tree: &[(Context, Canceller)]) -> bool {
    tree.iter().all(|(context, _)| context.err().is_some())
}

/// When `cancel` returns everything below has ended, though another call had begun to cancel.
#[test]
fn cancel_returns_when_everything_below_has_ended() {
    for procs in [2, 4] {
        matrix::each_of(&matrix::cases_with(&[procs])[..2], |_, rt| {
            rt.run(|| {
                for _ in 0..10 {
                    let (root, canceller) = context::background().with_cancel();
                    let below = Arc::new(tree(&root));
                    let start = WaitGroup::new();
                    start.add(1);
                    let cancellers: Vec<_> = (0..4)
                        .map(|_| {
                            let (canceller, below) = (canceller.clone(), Arc::clone(&below));
                            let start = start.clone();
                            go(move || {
                                start.wait();
                                canceller.cancel();
                                all_ended(&below)
                            })
                        })
                        .collect();
                    start.done();
                    let ended: Vec<_> = cancellers.into_iter().map(|c| c.join().unwrap()).collect();
                    assert_eq!(ended, [true; 4]);
                }
            });
        });
    }
}

/// The same if it is a deadline that has begun, or a call that cancels a part of the tree.
#[test]
fn cancel_waits_for_a_deadline_and_for_those_below() {
    matrix::each_of(&matrix::cases_with(&[2])[..2], |_, rt| {
        rt.run(|| {
            for _ in 0..10 {
                let timeout = Duration::from_millis(2);
                let (root, canceller) = context::background().with_timeout(timeout);
                let (middle, part) = root.with_cancel();
                let below = Arc::new(tree(&middle));
                let parts = go(move || part.cancel());
                root.wait();
                canceller.cancel();
                assert!(all_ended(&below));
                assert!(matches!(
                    root.err(),
                    Some(ContextError::DeadlineExceeded | ContextError::Canceled)
                ));
                parts.join().unwrap();
            }
        });
    });
}

/// Functions that cancel the tree that started them, and destructors that do, do not wait for
/// themselves.
#[test]
fn functions_and_destructors_may_cancel_the_same_tree() {
    struct CancelOnDrop(Canceller, Arc<AtomicUsize>);
    impl Drop for CancelOnDrop {
        fn drop(&mut self) {
            self.0.cancel();
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    matrix::each(|_, rt| {
        let n = Arc::new(AtomicUsize::new(0));
        let (root, canceller) = context::background().with_cancel();
        // Its runtime has ended when it is due: the function is dropped where the walk is.
        let gone = matrix::plain(1);
        gone.run(|| {
            let dropped = CancelOnDrop(canceller.clone(), Arc::clone(&n));
            root.after_func(move || drop(dropped));
        });
        drop(gone);
        rt.run(|| {
            let called = WaitGroup::new();
            for _ in 0..10 {
                called.add(1);
                let (canceller, called) = (canceller.clone(), called.clone());
                root.after_func(move || {
                    canceller.cancel();
                    called.done();
                });
            }
            canceller.cancel();
            called.wait();
        });
        assert_eq!(n.load(Ordering::SeqCst), 1, "it was dropped");
    });
}

/// A function cannot be stopped any more once `cancel` has returned, whichever call began to
/// cancel.
#[test]
fn functions_cannot_be_stopped_after_cancel() {
    matrix::each_of(&matrix::cases_with(&[4])[..2], |_, rt| {
        rt.run(|| {
            for _ in 0..20 {
                let (root, canceller) = context::background().with_cancel();
                let funcs: Vec<_> = (0..500).map(|_| root.after_func(|| ())).collect();
                let other = {
                    let canceller = canceller.clone();
                    go(move || canceller.cancel())
                };
                canceller.cancel();
                assert!(!funcs.iter().any(|func| func.stop()));
                other.join().unwrap();
            }
        });
    });
}
