//! Panics in either half, of halves that were taken and of others.

use crate::join_taken;
use crate::matrix;
use crate::unwinding::Counted;
use heist::{exit_current, go, join};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The text of the panic of `f`.
fn text_of<R>(f: impl FnOnce() -> R) -> String {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(_) => "no panic".into(),
        Err(payload) => (*payload.downcast::<&str>().unwrap()).into(),
    }
}

fn counted() -> (Counted, Arc<AtomicUsize>) {
    let drops = Arc::default();
    (Counted(Arc::clone(&drops)), drops)
}

#[test]
fn the_first_half_panics_and_the_second_is_dropped_unrun() {
    matrix::whole_slices(1).run(|| {
        let (owned, drops) = counted();
        let text = text_of(|| {
            join(
                || panic!("a"),
                move || {
                    let _owned = owned;
                    unreachable!("the first half panicked");
                },
            )
        });
        assert_eq!((text.as_str(), drops.load(Ordering::SeqCst)), ("a", 1));
    });
}

#[test]
fn the_first_half_panics_and_the_second_is_awaited() {
    matrix::run(|| {
        let (owned, drops) = counted();
        let ended = AtomicUsize::new(0);
        let text = text_of(|| {
            join_taken(
                || panic!("a"),
                || {
                    (0..10).for_each(|_| heist::yield_now());
                    ended.fetch_add(1, Ordering::SeqCst);
                    owned
                },
            )
        });
        assert_eq!((text.as_str(), drops.load(Ordering::SeqCst)), ("a", 1));
        assert_eq!(ended.into_inner(), 1);
    });
}

#[test]
fn the_second_half_panics() {
    matrix::run(|| {
        let (owned, drops) = counted();
        assert_eq!(text_of(|| join(|| owned, || panic!("b"))), "b");
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        let (owned, drops) = counted();
        assert_eq!(text_of(|| join_taken(|| owned, || panic!("b"))), "b");
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    });
}

#[test]
fn the_panic_of_the_first_half_wins() {
    matrix::run(|| {
        let text = text_of(|| join_taken(|| panic!("a"), || panic!("b")));
        assert_eq!(text, "a");
    });
}

/// A panic unwinds through nested joins, and every goroutine that was made ends.
#[test]
fn a_panic_unwinds_a_tree() {
    fn tree(depth: u32, count: &AtomicUsize) {
        struct Node<'a>(&'a AtomicUsize);
        impl Drop for Node<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        count.fetch_add(1, Ordering::SeqCst);
        let _node = Node(count);
        if depth == 0 {
            heist::yield_now();
            panic!("leaf");
        }
        join(|| tree(depth - 1, count), || tree(depth - 1, count));
    }
    matrix::run(|| {
        let count = AtomicUsize::new(0);
        assert_eq!(text_of(|| tree(7, &count)), "leaf");
        assert_eq!(count.into_inner(), 0);
    });
}

/// A join in a destructor that runs because of a panic.
#[test]
fn destructors_join_while_a_goroutine_panics() {
    struct Joins(Arc<AtomicUsize>);
    impl Drop for Joins {
        fn drop(&mut self) {
            let (a, b) = join_taken(|| 1, || 2);
            self.0.fetch_add(a + b, Ordering::SeqCst);
        }
    }
    matrix::run(|| {
        let sum = Arc::new(AtomicUsize::new(0));
        let joins = Joins(Arc::clone(&sum));
        let error = go(move || {
            let _joins = joins;
            panic!("no luck");
        });
        assert_eq!(error.join().unwrap_err().panic_message(), Some("no luck"));
        assert_eq!(sum.load(Ordering::SeqCst), 3);
    });
}

/// A half that ends its goroutine ends the forker, too, taken or not.
#[test]
fn a_half_that_exits_ends_the_forker() {
    matrix::run(|| {
        let (owned, drops) = counted();
        let taken = go(|| drop(join_taken(|| owned, || exit_current())));
        assert!(taken.join().unwrap_err().is_exited());
        assert_eq!(drops.load(Ordering::SeqCst), 1);
        let plain = go(|| join(|| (), || exit_current()));
        assert!(plain.join().unwrap_err().is_exited());
        let first = go(|| join_taken(|| exit_current(), || heist::chan::never::<()>().recv()));
        assert!(first.join().unwrap_err().is_exited());
    });
}
