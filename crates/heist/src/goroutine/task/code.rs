//! The code for one type of future, reached through the table of its record.

use super::super::payload::{Staged, fits, take_from};
use crate::gmp::G;
use crate::gmp::g::{Outcome, TASK_INLINE_BYTES, Vtable};
use crate::sched::futures::waker;
use heist_core::task_word::TaskWord;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A future, or a result, ready to be written into the record of a task.
pub(super) type StagedValue<T> = Staged<T, TASK_INLINE_BYTES>;

/// Moves a result out of the record of a task.
///
/// # Safety
/// The record holds a `T`, written by [`Staged::write`], and it is not read again.
pub(super) unsafe fn take<T>(g: &G) -> T {
    // SAFETY: passed on.
    unsafe { take_from::<T, TASK_INLINE_BYTES>(g) }
}

/// Writes the word of a new task, which is about to be queued, into its payload.
///
/// # Safety
/// `place` is the payload of a record that no other thread uses.
pub(super) unsafe fn write_word(place: *mut u8) {
    // SAFETY: by the caller's promise; the word is behind the room for the future.
    unsafe { place.add(TASK_INLINE_BYTES).cast::<TaskWord>().write(TaskWord::scheduled()) };
}

/// The code for futures of type `F`.
pub(super) struct Code<F, T>(PhantomData<(F, T)>);

impl<F: Future<Output = T>, T> Code<F, T> {
    pub(super) const VTABLE: Vtable = Vtable {
        is_half: false,
        run: Self::poll,
        drop_closure: Self::drop_future,
        drop_result: Self::drop_result,
    };

    fn future(g: &G) -> *mut F {
        if fits::<F, TASK_INLINE_BYTES>() {
            g.payload.as_ptr::<F>()
        } else {
            // SAFETY: called while the payload holds the box of the future.
            unsafe { g.payload.as_ptr::<*mut F>().read() }
        }
    }

    /// Polls the future. If it is ready, drops it and stores the result; the outcome is set before,
    /// so that a panic of the destructor does not drop it again.
    unsafe fn poll(g: &G) {
        let waker = waker::borrowed(g);
        // SAFETY: the future is there. It is not moved before it is dropped: records do not move,
        // and neither does what a box points to.
        let future = unsafe { Pin::new_unchecked(&mut *Self::future(g)) };
        if let Poll::Ready(result) = future.poll(&mut Context::from_waker(&waker)) {
            g.outcome.set(Outcome::Returned);
            // SAFETY: it is there, and not used again.
            unsafe { Self::drop_future(g) };
            let result = StagedValue::new(result);
            // SAFETY: the future is gone, so the payload holds nothing.
            unsafe { result.write(g.payload.as_ptr()) };
        }
    }

    unsafe fn drop_future(g: &G) {
        let future = Self::future(g);
        // SAFETY: called once. A pinned value is dropped in its place.
        unsafe {
            if fits::<F, TASK_INLINE_BYTES>() {
                future.drop_in_place();
            } else {
                drop(Box::from_raw(future));
            }
        }
    }

    unsafe fn drop_result(g: &G) {
        // SAFETY: called once, after the future returned, if the result is not taken.
        drop(unsafe { take::<T>(g) });
    }
}
