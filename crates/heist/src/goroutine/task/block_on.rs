//! Running a future to its end on the caller's own stack.

use crate::wait::{self, Parker, Terms, WaitReason};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll};

/// Polls `future` until it is ready. A goroutine parks meanwhile, a plain thread sleeps.
///
/// The future runs on the caller's stack, so it may borrow, and need not be `Send`. A goroutine
/// that is cancelled while it waits here is unwound, and drops the future.
///
/// # Panics
/// If the future panics, or if there is no memory.
///
/// # Examples
/// On a plain thread, with channels to a runtime:
/// ```
/// let rt = unsafe { heist::Runtime::builder().build() }?;
/// let (tx, rx) = heist::chan::unbounded();
/// rt.handle().spawn(move || tx.send(5).unwrap());
/// assert_eq!(heist::block_on(rx.recv_async()), Ok(5));
/// # Ok::<(), heist::BuildError>(())
/// ```
pub fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let Some(parker) = Parker::new() else {
        panic!("heist::block_on: the system has no memory for a waker");
    };
    let waker = parker.waker();
    let mut cx = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
            return output;
        }
        if parker.was_woken() {
            // A future that wakes itself lets others run.
            super::super::yield_now();
            continue;
        }
        wait::wait_for_wake(Terms::new(WaitReason::BlockOn).enter(), &parker);
    }
}
