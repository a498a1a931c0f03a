//! Auto traits of the types: sharing between threads, and catching a panic across them.

use crate::matrix;

use heist::chan::{Receiver, RecvError, Sender};
use heist::context::{self, CancelOnDrop, Canceller, Cause, Context, ContextFunc};
use heist::sync::{Condvar, ErrGroup, LazyLock, Mutex, Once, OnceLock, Pool, RwLock, Semaphore};
use heist::time::AfterFunc;
use heist::{JoinError, JoinHandle, go};
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::error::Error;
use std::panic::{RefUnwindSafe, UnwindSafe, catch_unwind};

/// Types that hold these may be used across a caught panic, for any content.
#[test]
fn types_are_unwind_safe() {
    fn both<T: UnwindSafe + RefUnwindSafe>() {}
    type Any = RefCell<Box<dyn FnMut()>>;
    both::<JoinHandle<Any>>();
    both::<JoinError>();
    both::<Context>();
    both::<Canceller>();
    both::<CancelOnDrop>();
    both::<Cause>();
    both::<ContextFunc>();
    both::<AfterFunc>();
    both::<ErrGroup<Any>>();
    both::<Mutex<Any>>();
    both::<RwLock<Any>>();
    both::<Pool<Any>>();
    both::<OnceLock<u8>>();
    both::<LazyLock<u8>>();
    both::<Sender<Any>>();
    both::<Receiver<Any>>();
    let lock = Mutex::new(Cell::new(1));
    catch_unwind(|| lock.lock().set(2)).unwrap();
    assert_eq!(lock.into_inner().get(), 2);
}

/// They can be shared, as far as their contents can.
#[test]
fn types_can_be_shared() {
    fn shared<T: Send + Sync>() {}
    shared::<JoinHandle<Cell<u8>>>();
    shared::<JoinError>();
    shared::<Context>();
    shared::<Canceller>();
    shared::<ContextFunc>();
    shared::<ErrGroup<Cell<u8>>>();
    shared::<Mutex<Cell<u8>>>();
    shared::<Pool<Cell<u8>>>();
    shared::<(Condvar, Once, Semaphore)>();
}

/// The error of a join converts to a boxed error like all others, and keeps its payload.
#[test]
fn a_join_error_converts_to_a_boxed_error() {
    fn fails() -> Result<(), Box<dyn Error + Send + Sync>> {
        go(|| panic!("no luck")).join()?;
        Ok(())
    }
    matrix::plain(1).run(|| {
        let error = fails().unwrap_err().downcast::<JoinError>().unwrap();
        assert_eq!(error.panic_message(), Some("no luck"));
        let (ctx, canceller) = context::background().with_cancel();
        canceller.cancel_with(*error);
        let cause = ctx.cause().unwrap();
        assert!(cause.downcast_ref::<JoinError>().unwrap().is_panic());
        let error = go(|| std::panic::panic_any(Cell::new(5))).join().unwrap_err();
        assert_eq!(error.panic_message(), None);
        let payload = error.into_panic().unwrap();
        assert_eq!(payload.downcast_ref(), Some(&Cell::new(5)));
    });
}

/// Errors without a message can be counted by kind.
#[test]
fn errors_are_hashed() {
    assert!(!HashSet::from([RecvError]).insert(RecvError));
}
