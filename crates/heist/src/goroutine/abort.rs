//! Cancelling a goroutine without the right to join it.
//!
//! # Who keeps the record
//! A record is recycled when the runtime and the handle have left it (`heist_core::join`). An abort
//! handle may outlive the join handle, so the first one moves the handle's side of the record into
//! a [`Pin`], which the join handle and the abort handles share. The last of them leaves the
//! record, by the same steps as a join handle without a pin.

use super::GoroutineId;
use super::join::{leave_record, leave_with_result};
use crate::current;
use crate::gmp::G;
use crate::sched::life::cancel;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The handle's side of a record, with several owners.
pub(super) struct Pin {
    gp: NonNull<G>,
    /// The result has been taken.
    is_taken: AtomicBool,
    /// Leaves a record whose result was not taken.
    leave: unsafe fn(NonNull<G>),
}

// SAFETY: the owners use the parts of the record that any thread may use; the last one drops the
// result, which is `Send`.
unsafe impl Send for Pin {}
// SAFETY: as above.
unsafe impl Sync for Pin {}

impl Pin {
    /// # Safety
    /// `gp` is a goroutine that returns a `T`, and its only handle gives its side of the record to
    /// this value.
    pub(super) unsafe fn new<T: Send + 'static>(gp: NonNull<G>) -> Arc<Self> {
        let leave = leave_with_result::<T>;
        Arc::new(Self { gp, is_taken: AtomicBool::new(false), leave })
    }

    /// Notes that the join handle has taken the result, or takes it now.
    pub(super) fn take_result(&self) {
        // Relaxed: the last owner drops its `Arc` after all others, and that orders memory.
        self.is_taken.store(true, Ordering::Relaxed);
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        if *self.is_taken.get_mut() {
            leave_record(self.gp);
        } else {
            // SAFETY: it is the one for the type of the goroutine's result, called once.
            unsafe { (self.leave)(self.gp) };
        }
    }
}

/// Cancels a goroutine. Made by [`JoinHandle::abort_handle`](super::JoinHandle::abort_handle).
///
/// Clones cancel the same goroutine. It works after the join handle is gone, and does nothing to a
/// goroutine that has ended. As long as there is one, the record of the goroutine (three cache
/// lines) is not reused. If the join handle was dropped before the goroutine ended, its result is
/// dropped with the last abort handle.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let waits = heist::go(|| heist::chan::never::<u8>().recv());
/// let abort = waits.abort_handle();
/// heist::go(move || abort.cancel());
/// assert!(waits.join().unwrap_err().is_cancelled());
/// # });
/// ```
#[derive(Clone)]
pub struct AbortHandle {
    pin: Arc<Pin>,
    id: GoroutineId,
}

// As for `JoinHandle`.
impl UnwindSafe for AbortHandle {}
impl RefUnwindSafe for AbortHandle {}

impl AbortHandle {
    pub(super) const fn new(pin: Arc<Pin>, id: GoroutineId) -> Self {
        Self { pin, id }
    }

    fn g(&self) -> &G {
        // SAFETY: records are never unmapped, and this one is not recycled while the pin lives.
        unsafe { self.pin.gp.as_ref() }
    }

    /// Asks the goroutine to end, as [`JoinHandle::cancel`](super::JoinHandle::cancel).
    #[doc(alias = "abort")]
    pub fn cancel(&self) {
        let rt = current::enter();
        cancel::cancel(rt.as_ref(), self.g());
    }

    /// Whether the goroutine has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.g().join.is_finished()
    }

    /// The goroutine's number.
    #[must_use]
    pub const fn id(&self) -> GoroutineId {
        self.id
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle")
            .field("id", &self.id.as_u64())
            .field("finished", &self.is_finished())
            .finish()
    }
}
