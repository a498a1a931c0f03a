//! A message on the stack of who sends or receives it.
//!
//! Messages may be large, and every function that takes or returns one by value needs room for it
//! of its own, in a debug build several times. So the ends put a message down once, and what is
//! below them moves it by its address: a send from an `Option`, a receive into a [`Parcel`].

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

    /// Where the message goes to, for somebody else.
    #[inline]
    pub(super) const fn place(parcel: &UnsafeCell<Self>) -> *mut () {
        // SAFETY: the address is in bounds, and nothing is read or written.
        unsafe { &raw mut (*parcel.get()).message }.cast()
    }

    /// A message was moved in through the pointer.
    ///
    /// # Safety
    /// It was, and the parcel was empty.
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
        // SAFETY: it is there, and not any more.
        unsafe { (&raw const self.message).cast::<T>().read() }
    }
}

impl<T> Drop for Parcel<T> {
    #[inline]
    fn drop(&mut self) {
        if self.is_full {
            // SAFETY: it is there.
            unsafe { self.message.assume_init_drop() };
        }
    }
}

/// Where the message of a send is.
#[inline]
pub(super) fn message_ptr<T>(message: &mut Option<T>) -> *mut T {
    match message {
        Some(message) => message,
        None => heist_core::throw!("message_ptr: there is no message"),
    }
}

/// The message of a send was moved out through its address.
#[inline]
pub(super) const fn was_sent<T>(message: &mut Option<T>) {
    // SAFETY: valid for a write. What was there is not dropped: it belongs to somebody else.
    unsafe { std::ptr::from_mut(message).write(None) };
}
