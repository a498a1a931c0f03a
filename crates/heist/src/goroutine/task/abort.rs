//! Aborting a task without its handle.

use super::super::GoroutineId;
use crate::current;
use crate::gmp::G;
use crate::sched::futures::waker;
use crate::sched::life::cancel;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;

/// The right to abort a task; see [`Task::abort_handle`](super::Task::abort_handle).
///
/// It does not keep the task running, and has no effect on one that has ended.
pub struct AbortHandle {
    /// Holds a reference to the record.
    gp: NonNull<G>,
    id: GoroutineId,
}

// SAFETY: it has a reference to the record, and uses atomics of it only.
unsafe impl Send for AbortHandle {}
// SAFETY: as above.
unsafe impl Sync for AbortHandle {}
impl UnwindSafe for AbortHandle {}
impl RefUnwindSafe for AbortHandle {}

impl AbortHandle {
    /// # Safety
    /// `gp` is a task with this id, and is not recycled during the call.
    pub(super) unsafe fn new(gp: NonNull<G>, id: GoroutineId) -> Self {
        // SAFETY: by the caller's promise.
        unsafe { gp.as_ref().task_word() }.add_reference();
        Self { gp, id }
    }

    /// Asks the task to end, as [`Task::abort`](super::Task::abort).
    pub fn abort(&self) {
        // SAFETY: records are never unmapped, and this one is not recycled while this lives.
        abort(unsafe { self.gp.as_ref() });
    }

    /// Whether the task has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        // SAFETY: it has a reference.
        unsafe { self.gp.as_ref().task_word() }.is_done()
    }

    /// The task's number.
    #[must_use]
    pub const fn id(&self) -> GoroutineId {
        self.id
    }
}

/// Cancels a task whose record is not recycled meanwhile.
pub(super) fn abort(g: &G) {
    let rt = current::enter();
    cancel::cancel(rt.as_ref(), g);
}

impl Clone for AbortHandle {
    fn clone(&self) -> Self {
        // SAFETY: as above.
        unsafe { Self::new(self.gp, self.id) }
    }
}

impl Drop for AbortHandle {
    fn drop(&mut self) {
        // SAFETY: its own reference.
        unsafe { waker::release(self.gp) };
    }
}

impl fmt::Debug for AbortHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AbortHandle").field("id", &self.id.as_u64()).finish()
    }
}
