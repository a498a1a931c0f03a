//! A message on the stack of its sender or receiver.
//!
//! Messages may be large, and every function that takes or returns one by value needs its own room
//! for it, in a debug build several times. So `Sender` and `Receiver` store a message once, and the
//! functions below them move it by its address: a send from an `Option`, a receive into a
//! [`Parcel`].

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

/// Room for a message that is received.
pub(super) struct Parcel<T> {
    message: MaybeUninit<T>,
    is_full: bool,
}

impl<T> Parcel<T> {
    #[inline]
    pub(super) const fn empty() -> Self {
        Self { message: MaybeUninit::uninit(), is_full: false }
    }

    #[inline]
    pub(super) const fn as_mut_ptr(&mut self) -> *mut T {
        self.message.as_mut_ptr()
    }

    /// The address to which another thread may move the message.
    #[inline]
    pub(super) const fn place(parcel: &UnsafeCell<Self>) -> *mut () {
        // SAFETY: the address is in bounds, and nothing is read or written.
        unsafe { &raw mut (*parcel.get()).message }.cast()
    }

    /// Notes that a message was moved in through the pointer.
    ///
    /// # Safety
    /// A message was moved in, and the parcel was empty before.
    #[inline]
    pub(super) const unsafe fn was_filled(&mut self) {
        self.is_full = true;
    }

    /// Gives the message up without dropping it.
    pub(super) const fn leak(&mut self) {
        self.is_full = false;
    }

    /// Takes the message out.
    #[inline]
    pub(super) fn take(&mut self) -> T {
        if !self.is_full {
            heist_core::throw!("Parcel::take: there is no message");
        }
        self.is_full = false;
        // SAFETY: the message is there, and the parcel no longer owns it.
        unsafe { (&raw const self.message).cast::<T>().read() }
    }
}

impl<T> Drop for Parcel<T> {
    #[inline]
    fn drop(&mut self) {
        if self.is_full {
            // SAFETY: the message is there.
            unsafe { self.message.assume_init_drop() };
        }
    }
}

/// The address of the message of a send.
#[inline]
pub(super) fn message_ptr<T>(message: &mut Option<T>) -> *mut T {
    match message {
        Some(message) => message,
        None => heist_core::throw!("message_ptr: there is no message"),
    }
}

/// Notes that the message of a send was moved out through its address.
#[inline]
pub(super) const fn was_sent<T>(message: &mut Option<T>) {
    // SAFETY: valid for a write. The old value is not dropped: the message has another owner now.
    unsafe { std::ptr::from_mut(message).write(None) };
}
