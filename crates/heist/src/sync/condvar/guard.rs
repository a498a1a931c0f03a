//! The guards with which a condition variable waits.

use super::WaitTimeoutResult;
use crate::sync::mutex::MutexGuard;
use crate::sync::raw_mutex::RawMutex;

/// A guard of a [`Mutex`](crate::sync::Mutex) with which its owner waits at a
/// [`Condvar`](super::Condvar): a [`MutexGuard`], or a mutable reference to one.
#[diagnostic::on_unimplemented(
    message = "a `Condvar` waits with a `MutexGuard` or a `&mut MutexGuard`, not with `{Self}`",
    note = "a guard of a part of the value (`MutexGuard::map`) cannot be used to wait"
)]
pub trait CondvarGuard: Guard {
    /// What a wait returns: the guard, if it was passed by value.
    type Waited;
    /// What a wait with a time limit returns: with the guard, if it was passed by value.
    type TimedWaited;
    /// The value that the mutex protects.
    type Value: ?Sized;

    #[doc(hidden)]
    fn value(&mut self) -> &mut Self::Value;

    #[doc(hidden)]
    fn waited(self) -> Self::Waited;

    #[doc(hidden)]
    fn timed_waited(self, result: WaitTimeoutResult) -> Self::TimedWaited;
}

/// The part of [`CondvarGuard`] that only this module uses. Nothing else implements it.
pub trait Guard: Sized {
    /// Whether the guard stays with its owner while it waits.
    const STAYS: bool;

    /// The mutex that it holds.
    fn raw(&self) -> &RawMutex;
}

impl<T: ?Sized> Guard for MutexGuard<'_, T> {
    const STAYS: bool = false;

    fn raw(&self) -> &RawMutex {
        &MutexGuard::mutex(self).raw
    }
}

impl<T: ?Sized> CondvarGuard for MutexGuard<'_, T> {
    type Waited = Self;
    type TimedWaited = (Self, WaitTimeoutResult);
    type Value = T;

    fn value(&mut self) -> &mut T {
        self
    }

    fn waited(self) -> Self {
        self
    }

    fn timed_waited(self, result: WaitTimeoutResult) -> (Self, WaitTimeoutResult) {
        (self, result)
    }
}

impl<T: ?Sized> Guard for &mut MutexGuard<'_, T> {
    const STAYS: bool = true;

    fn raw(&self) -> &RawMutex {
        &MutexGuard::mutex(self).raw
    }
}

impl<T: ?Sized> CondvarGuard for &mut MutexGuard<'_, T> {
    type Waited = ();
    type TimedWaited = WaitTimeoutResult;
    type Value = T;

    fn value(&mut self) -> &mut T {
        self
    }

    fn waited(self) {}

    fn timed_waited(self, result: WaitTimeoutResult) -> WaitTimeoutResult {
        result
    }
}
