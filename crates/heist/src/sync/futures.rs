//! Locks and semaphores as futures.
//!
//! A future waits in the same queue as goroutines and threads, and is served in its turn. If it is
//! dropped when it has been given the lock, or permits, these go to the next waiter: all futures
//! here are cancel-safe. A future that is dropped and made anew has lost its place in the queue.

use super::condvar::Condvar;
use super::mutex::{Mutex, MutexGuard};
use super::permit::{OwnedSemaphorePermit, SemaphorePermit};
use super::permits::PermitWait;
use super::raw_mutex::LockWait;
use super::raw_rw_lock::WriteWait;
use super::rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use super::semaphore::Semaphore;
use crate::wait::FutureWait;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

impl<T: ?Sized> Mutex<T> {
    /// Takes the mutex, and waits for it as a future.
    ///
    /// The guard may be held across an await: it can be sent to another thread.
    ///
    /// # Cancel safety
    /// If the future is dropped, the mutex goes to the next waiter.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// use heist::sync::Mutex;
    /// use std::sync::Arc;
    /// let sum = Arc::new(Mutex::new(0));
    /// let tasks: Vec<_> = (1..=10)
    ///     .map(|i| {
    ///         let sum = Arc::clone(&sum);
    ///         heist::spawn(async move {
    ///             let mut sum = sum.lock_async().await;
    ///             heist::task::yield_now().await;
    ///             *sum += i;
    ///         })
    ///     })
    ///     .collect();
    /// tasks.into_iter().for_each(|task| task.join().unwrap());
    /// assert_eq!(*sum.lock(), 55);
    /// # });
    /// ```
    pub const fn lock_async(&self) -> LockFuture<'_, T> {
        LockFuture { mutex: self, waits: LockWait::new() }
    }
}

/// The future of [`Mutex::lock_async`].
#[must_use = "futures do nothing unless polled"]
pub struct LockFuture<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    waits: LockWait,
}

impl<'a, T: ?Sized> Future for LockFuture<'a, T> {
    type Output = MutexGuard<'a, T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: nothing is moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: the future is pinned, and leaves the queue when it is dropped.
        if unsafe { this.mutex.raw.poll_lock(&mut this.waits, cx.waker()) } {
            return Poll::Ready(MutexGuard::new(this.mutex));
        }
        Poll::Pending
    }
}

impl<T: ?Sized> Drop for LockFuture<'_, T> {
    fn drop(&mut self) {
        self.mutex.raw.leave(&mut self.waits);
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes the lock to read, and waits for it as a future.
    ///
    /// # Cancel safety
    /// If the future is dropped, it does not hold the lock.
    ///
    /// # Examples
    /// ```
    /// let lock = heist::sync::RwLock::new(5);
    /// assert_eq!(heist::block_on(async { *lock.read_async().await }), 5);
    /// ```
    pub const fn read_async(&self) -> ReadFuture<'_, T> {
        ReadFuture { lock: self, wait: FutureWait::new() }
    }

    /// Takes the lock to write, and waits for it as a future.
    ///
    /// # Cancel safety
    /// If the future is dropped, the lock goes to the next writer, or to the readers that it held
    /// back.
    ///
    /// # Examples
    /// ```
    /// let lock = heist::sync::RwLock::new(5);
    /// heist::block_on(async { *lock.write_async().await += 1 });
    /// assert_eq!(*lock.read(), 6);
    /// ```
    pub const fn write_async(&self) -> WriteFuture<'_, T> {
        WriteFuture { lock: self, waits: WriteWait::new() }
    }
}

/// The future of [`RwLock::read_async`].
#[must_use = "futures do nothing unless polled"]
pub struct ReadFuture<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    wait: FutureWait,
}

impl<'a, T: ?Sized> Future for ReadFuture<'a, T> {
    type Output = RwLockReadGuard<'a, T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.into_ref().get_ref();
        // SAFETY: the future is pinned, and leaves the queue when it is dropped.
        if unsafe { this.lock.raw.poll_read(&this.wait, cx.waker()) } {
            return Poll::Ready(RwLockReadGuard::new(this.lock));
        }
        Poll::Pending
    }
}

impl<T: ?Sized> Drop for ReadFuture<'_, T> {
    fn drop(&mut self) {
        self.lock.raw.leave_read(&self.wait);
    }
}

/// The future of [`RwLock::write_async`].
#[must_use = "futures do nothing unless polled"]
pub struct WriteFuture<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    waits: WriteWait,
}

impl<'a, T: ?Sized> Future for WriteFuture<'a, T> {
    type Output = RwLockWriteGuard<'a, T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: nothing is moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: the future is pinned, and leaves the queue when it is dropped.
        if unsafe { this.lock.raw.poll_write(&mut this.waits, cx.waker()) } {
            return Poll::Ready(RwLockWriteGuard::new(this.lock));
        }
        Poll::Pending
    }
}

impl<T: ?Sized> Drop for WriteFuture<'_, T> {
    fn drop(&mut self) {
        self.lock.raw.leave_write(&mut self.waits);
    }
}

impl Semaphore {
    /// Waits until `n` permits are free and all earlier requests are served, and takes them, as a
    /// future.
    ///
    /// # Cancel safety
    /// If the future is dropped, the permits that it was given are free again.
    ///
    /// # Examples
    /// ```
    /// let semaphore = heist::sync::Semaphore::new(3);
    /// let permit = heist::block_on(semaphore.acquire_async(2));
    /// assert_eq!(semaphore.available(), 1);
    /// # drop(permit);
    /// ```
    pub const fn acquire_async(&self, n: usize) -> AcquireFuture<'_> {
        AcquireFuture { semaphore: self, waits: PermitWait::new(n) }
    }

    /// As [`acquire_async`](Self::acquire_async), with a permit that can be moved into a task.
    pub async fn acquire_owned_async(self: Arc<Self>, n: usize) -> OwnedSemaphorePermit {
        self.acquire_async(n).await.forget();
        OwnedSemaphorePermit { semaphore: self, n }
    }
}

/// The future of [`Semaphore::acquire_async`].
#[must_use = "futures do nothing unless polled"]
pub struct AcquireFuture<'a> {
    semaphore: &'a Semaphore,
    waits: PermitWait,
}

impl<'a> Future for AcquireFuture<'a> {
    type Output = SemaphorePermit<'a>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.into_ref().get_ref();
        // SAFETY: the future is pinned, and leaves the queue when it is dropped.
        if unsafe { this.semaphore.permits.poll(&this.waits, cx.waker()) } {
            return Poll::Ready(SemaphorePermit {
                semaphore: this.semaphore,
                n: this.waits.n as usize,
            });
        }
        Poll::Pending
    }
}

impl Drop for AcquireFuture<'_> {
    fn drop(&mut self) {
        self.semaphore.permits.leave(&self.waits);
    }
}

impl Condvar {
    /// Releases the mutex, waits until notified, and takes the mutex again, as a future. As with
    /// [`wait`](Self::wait), check the condition again afterwards.
    ///
    /// # Cancel safety
    /// If the future is dropped after it was notified, the next waiter is notified. The mutex is
    /// then not held.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// use heist::sync::{Condvar, Mutex};
    /// use std::sync::Arc;
    /// let shared = Arc::new((Mutex::new(false), Condvar::new()));
    /// let waits = Arc::clone(&shared);
    /// let task = heist::spawn(async move {
    ///     let mut open = waits.0.lock_async().await;
    ///     while !*open {
    ///         open = waits.1.wait_async(open).await;
    ///     }
    /// });
    /// *shared.0.lock() = true;
    /// shared.1.notify_all();
    /// task.join().unwrap();
    /// # });
    /// ```
    pub async fn wait_async<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        let mutex = MutexGuard::mutex(&guard);
        let notified = self.notified(guard).await;
        let guard = mutex.lock_async().await;
        notified.disarm();
        guard
    }
}

macro_rules! print_only_the_name {
    ($($name:ident),+) => { $(
        impl<T: ?Sized> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), " { .. }"))
            }
        }
    )+ };
}

print_only_the_name!(LockFuture, ReadFuture, WriteFuture);

impl fmt::Debug for AcquireFuture<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AcquireFuture").field("n", &self.waits.n).finish_non_exhaustive()
    }
}
