//! Waiting for a notification in a future.

use super::Condvar;
use crate::current;
use crate::sync::mutex::MutexGuard;
use crate::wait::{Entry, FutureWait};
use std::future::Future;
use std::pin::Pin;
use std::ptr::null_mut;
use std::task::{Context, Poll};

/// A future that waits for a notification. Its first poll releases the mutex.
pub(in crate::sync) struct Notified<'a, 'b, T: ?Sized> {
    condvar: &'b Condvar,
    guard: Option<MutexGuard<'a, T>>,
    wait: FutureWait,
}

impl<'a, 'b, T: ?Sized> Notified<'a, 'b, T> {
    pub(super) const fn new(condvar: &'b Condvar, guard: MutexGuard<'a, T>) -> Self {
        Self { condvar, guard: Some(guard), wait: FutureWait::new() }
    }
}

impl<'b, T: ?Sized> Future for Notified<'_, 'b, T> {
    type Output = PassOn<'b>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<PassOn<'b>> {
        // SAFETY: nothing that is pinned is moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        let Some(guard) = this.guard.take() else {
            return match this.wait.poll(&this.condvar.waiters, cx.waker()) {
                Some(_) => Poll::Ready(PassOn { condvar: Some(this.condvar) }),
                None => Poll::Pending,
            };
        };
        this.wait.prepare(cx.waker());
        let mutex = MutexGuard::into_mutex(guard);
        let rt = current::enter();
        let mut waiters = this.condvar.waiters.lock();
        // As in `wait_on`.
        this.condvar.count(1);
        let push = |entry: &Entry| {
            // SAFETY: the future is pinned, and leaves the queue when it is dropped.
            unsafe { waiters.push(entry) };
            true
        };
        // SAFETY: as above.
        unsafe { this.wait.queue(null_mut(), push) };
        drop(waiters);
        mutex.raw.unlock_within(rt.as_ref());
        drop(rt);
        Poll::Pending
    }
}

impl<T: ?Sized> Drop for Notified<'_, '_, T> {
    fn drop(&mut self) {
        let left = self.wait.leave(&self.condvar.waiters, |waiters, entry| {
            // SAFETY: it was queued here.
            unsafe { waiters.remove(entry) };
            self.condvar.count(-1);
        });
        if left.is_some() {
            self.condvar.notify_one();
        }
    }
}

/// Notifies the next waiter if the one that was notified unwinds before it has the mutex.
pub(in crate::sync) struct PassOn<'a> {
    condvar: Option<&'a Condvar>,
}

impl<'a> PassOn<'a> {
    pub(super) const fn new(condvar: Option<&'a Condvar>) -> Self {
        Self { condvar }
    }

    /// The waiter that was notified has the mutex.
    pub(in crate::sync) fn disarm(mut self) {
        self.condvar = None;
    }
}

impl Drop for PassOn<'_> {
    fn drop(&mut self) {
        if let Some(condvar) = self.condvar {
            condvar.notify_one();
        }
    }
}
