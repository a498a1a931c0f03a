//! The closure and the result of a goroutine, inside its record if they fit.

use crate::gmp::G;
use crate::gmp::g::{INLINE_ALIGN, INLINE_BYTES, Vtable};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;

/// Whether a value of this type fits into `ROOM` bytes of the record.
pub(super) const fn fits<T, const ROOM: usize>() -> bool {
    size_of::<T>() <= ROOM && align_of::<T>() <= INLINE_ALIGN
}

/// A value ready to be written into a record: the value itself, or a box that holds it. It is made
/// in user code, because boxing allocates, and written in the runtime.
pub(super) enum Staged<T, const ROOM: usize = INLINE_BYTES> {
    Inline(ManuallyDrop<T>),
    Boxed(*mut T),
}

impl<T, const ROOM: usize> Staged<T, ROOM> {
    #[inline]
    pub(super) fn new(value: T) -> Self {
        if fits::<T, ROOM>() {
            Self::Inline(ManuallyDrop::new(value))
        } else {
            Self::Boxed(Box::into_raw(Box::new(value)))
        }
    }

    /// Moves it into a record.
    ///
    /// # Safety
    /// `place` is a record's payload that holds nothing, and `self` is not used again.
    #[inline]
    pub(super) unsafe fn write(&self, place: *mut u8) {
        // SAFETY: by the caller's promise; it fits, and so does a pointer.
        unsafe {
            match self {
                Self::Inline(value) => place.cast::<T>().write(std::ptr::from_ref(&**value).read()),
                Self::Boxed(boxed) => place.cast::<*mut T>().write(*boxed),
            }
        }
    }

    /// Drops the value that was not written.
    pub(super) fn discard(self) {
        match self {
            Self::Inline(value) => drop(ManuallyDrop::into_inner(value)),
            // SAFETY: from `Box::into_raw`, not written anywhere.
            Self::Boxed(boxed) => drop(unsafe { Box::from_raw(boxed) }),
        }
    }
}

/// Moves a value out of a record.
///
/// # Safety
/// The record holds a `T`, written by [`Staged::write`], and it is not read again.
#[inline]
pub(super) unsafe fn take<T>(gp: &G) -> T {
    // SAFETY: passed on.
    unsafe { take_from::<T, INLINE_BYTES>(gp) }
}

/// As [`take`], where the value had `ROOM` bytes.
///
/// # Safety
/// As for [`take`].
#[inline]
pub(super) unsafe fn take_from<T, const ROOM: usize>(gp: &G) -> T {
    // SAFETY: by the caller's promise.
    unsafe {
        if fits::<T, ROOM>() {
            gp.payload.as_ptr::<T>().read()
        } else {
            *Box::from_raw(gp.payload.as_ptr::<*mut T>().read())
        }
    }
}

/// The code for closures of type `F`.
pub(super) struct Code<F, T>(PhantomData<(F, T)>);

impl<F: FnOnce() -> T, T> Code<F, T> {
    pub(super) const VTABLE: Vtable = Vtable {
        is_half: false,
        run: Self::run,
        drop_closure: Self::drop_closure,
        drop_result: Self::drop_result,
    };

    unsafe fn run(gp: &G) {
        // SAFETY: called once, on a record that holds the closure.
        let f = unsafe { take::<F>(gp) };
        let result = Staged::<T>::new(f());
        // SAFETY: the closure was moved out, so the payload holds nothing.
        unsafe { result.write(gp.payload.as_ptr()) };
    }

    unsafe fn drop_closure(gp: &G) {
        // SAFETY: called once instead of `run`.
        drop(unsafe { take::<F>(gp) });
    }

    unsafe fn drop_result(gp: &G) {
        // SAFETY: called once, after `run`, if the result is not taken.
        drop(unsafe { take::<T>(gp) });
    }
}
