//! Joining goroutines.

use super::GoroutineId;
use super::abort::{AbortHandle, Pin};
use super::builder::SpawnError;
use super::join_error::{JoinError, take_error};
use super::payload;
use crate::current;
use crate::gmp::G;
use crate::gmp::flags::Flag;
use crate::gmp::g::{Extras, Outcome, Woken};
use crate::sched::futures::waker::recycle;
use crate::sched::life::body;
use crate::sched::life::cancel;
use crate::sched::life::park;
use crate::sched::life::spawn;
use crate::sys::membarrier::heavy_fence;
use crate::wait::{self, Terms, WaitReason};
use heist_core::join::Dropped;
use heist_core::status::Ticket;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// The right to wait for a goroutine and to take its result. Dropping it detaches the goroutine,
/// which continues to run.
pub struct JoinHandle<T> {
    gp: NonNull<G>,
    id: GoroutineId,
    extras: Option<Arc<Extras>>,
    /// The handle's side of the record, if abort handles share it.
    pin: OnceLock<Arc<Pin>>,
    _result: PhantomData<T>,
}

// SAFETY: the handle moves a `T` that another thread made to the thread that joins.
unsafe impl<T: Send> Send for JoinHandle<T> {}
// SAFETY: a shared reference to the handle can only query the goroutine or cancel it.
unsafe impl<T: Send> Sync for JoinHandle<T> {}

// As std's handle: a result that a panic left half changed cannot be seen through it.
impl<T> UnwindSafe for JoinHandle<T> {}
impl<T> RefUnwindSafe for JoinHandle<T> {}

impl<T> JoinHandle<T> {
    /// # Safety
    /// `gp` is a goroutine that returns a `T`, and this is its only handle.
    #[inline]
    pub(super) unsafe fn new(gp: NonNull<G>, extras: Option<Arc<Extras>>) -> Self {
        // SAFETY: records are never unmapped, and this one is not recycled while its handle lives.
        let id = unsafe { gp.as_ref() }.id.get();
        Self { gp, id: GoroutineId(id), extras, pin: OnceLock::new(), _result: PhantomData }
    }

    pub(super) const fn g(&self) -> &G {
        // SAFETY: records are never unmapped, and this one is not recycled while its handle lives.
        unsafe { self.gp.as_ref() }
    }

    /// Its record.
    pub(super) const fn pointer(&self) -> NonNull<G> {
        self.gp
    }

    /// The address of its record.
    #[cfg(test)]
    pub(crate) fn record(&self) -> usize {
        self.gp.addr().get()
    }

    /// Waits for the goroutine to end and returns what its closure returned.
    ///
    /// A goroutine parks meanwhile, a plain thread sleeps.
    ///
    /// # Errors
    /// If it panicked, overflowed its stack, was cancelled, ended itself, or never got a stack.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let bad = heist::go(|| -> u32 { panic!("no luck") }).join().unwrap_err();
    /// assert_eq!(bad.panic_message(), Some("no luck"));
    /// # });
    /// ```
    pub fn join(self) -> Result<T, JoinError> {
        self.wait(Terms::new(WaitReason::Join));
        self.take()
    }

    /// Joins without being a park point: the caller is not unwound before the goroutine has ended,
    /// even if it is cancelled meanwhile.
    pub(crate) fn join_shielded(self) -> Result<T, JoinError> {
        self.wait(Terms::new(WaitReason::Join).shielded());
        self.take()
    }

    /// Ends an unborn goroutine, if it has not begun. `ticket` is the one it was made with.
    pub(crate) fn cancel_unborn(&self, ticket: Ticket) -> bool {
        let g = self.g();
        let rt = current::enter();
        if !g.status.claim(ticket) {
            return false;
        }
        if rt.as_ref().is_some_and(|rt| std::ptr::eq(rt.sched(), g.sched.get())) {
            drop(rt);
            body::end_unborn(g);
            return true;
        }
        // Only the goroutine itself keeps its runtime from closing while this thread uses it.
        g.flags.set(Flag::CANCELLED);
        g.woken.set(Woken::Cancelled);
        // SAFETY: a goroutine's runtime outlives it; it was just claimed.
        unsafe {
            crate::sched::life::count_one_born(&*g.sched.get(), g);
            park::ready_anywhere(rt.as_ref(), self.gp);
        }
        true
    }

    /// Moves an unborn goroutine of the calling goroutine's runtime, if it has not begun, into
    /// another record, which begins at `when_ns`. `ticket` is the one it was made with.
    pub(crate) fn postpone_unborn(
        &self,
        ticket: Ticket,
        when_ns: u64,
    ) -> Result<Option<(Self, Ticket)>, SpawnError> {
        let g = self.g();
        let Some(rt) = current::enter() else { return Err(SpawnError::NoRuntime) };
        if !std::ptr::eq(rt.sched(), g.sched.get()) {
            drop(rt);
            return Err(SpawnError::NoRuntime);
        }
        if !g.status.claim(ticket) {
            return Ok(None);
        }
        let moved = spawn::move_unborn(&rt, g, when_ns);
        // Before the guard `rt` leaves the runtime.
        // SAFETY: the record holds a goroutine that returns the same, and this is its only handle.
        let moved = moved.map(|(gp, ticket)| (unsafe { Self::new(gp, None) }, ticket));
        drop(rt);
        // The old record has no closure any more. If there was no other record, it still has one,
        // which is dropped: the function never runs.
        body::end_unborn(g);
        Ok(Some(moved?))
    }

    /// Takes the outcome of a goroutine that has ended.
    pub(super) fn take(self) -> Result<T, JoinError> {
        let g = self.g();
        if g.outcome.get() == Outcome::Returned {
            // SAFETY: it returned a `T`, which only this handle takes, once.
            let result = unsafe { payload::take::<T>(g) };
            self.release();
            return Ok(result);
        }
        // SAFETY: it has ended, and only this handle takes the outcome, once.
        let error = unsafe { take_error(g, self.id) };
        self.release();
        Err(error)
    }

    /// Waits until the goroutine has an outcome.
    fn wait(&self, terms: Terms) {
        if !self.is_finished() {
            wait::wait_for_end(terms.enter(), self.g(), terms);
        }
    }

    /// Whether the goroutine has ended, so that [`join`](Self::join) returns at once.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.g().join.is_finished()
    }

    /// Asks the goroutine to end: its current park, or else its next, unwinds it, and its
    /// destructors run. A goroutine that has not started is dropped with its closure.
    ///
    /// This does not wait, and does not end a goroutine that never parks; such a goroutine can call
    /// [`is_cancelled`](super::is_cancelled).
    ///
    /// With `panic = "abort"` a goroutine that has begun cannot be unwound. There this only sets a
    /// mark, which the goroutine sees through [`is_cancelled`](super::is_cancelled). To stop work
    /// in such a program, use a [`context`](crate::context).
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let sleeper = heist::go(|| loop { heist::yield_now() });
    /// sleeper.cancel();
    /// assert!(sleeper.join().unwrap_err().is_cancelled());
    /// # });
    /// ```
    pub fn cancel(&self) {
        let rt = current::enter();
        cancel::cancel(rt.as_ref(), self.g());
    }

    /// As [`cancel`](Self::cancel), for many.
    pub(super) fn cancel_all<'a>(handles: impl Iterator<Item = &'a Self> + Clone)
    where
        T: 'a,
    {
        handles.clone().for_each(|handle| cancel::mark(handle.g()));
        heavy_fence();
        let rt = current::enter();
        handles.for_each(|handle| cancel::wake_marked(rt.as_ref(), handle.g(), None));
    }

    /// The goroutine's number.
    #[must_use]
    pub const fn id(&self) -> GoroutineId {
        self.id
    }

    /// The name its builder gave it.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.extras.as_ref().and_then(|extras| extras.name.as_deref())
    }

    /// A handle that cancels the goroutine, also after this one is gone.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let abort = heist::go(|| heist::chan::never::<u8>().recv()).abort_handle();
    /// // The goroutine is detached, and waits.
    /// abort.cancel();
    /// while !abort.is_finished() {
    ///     heist::yield_now();
    /// }
    /// # });
    /// ```
    #[must_use]
    pub fn abort_handle(&self) -> AbortHandle
    where
        T: Send + 'static,
    {
        // SAFETY: this is the only handle, and from now on it leaves the record through the pin.
        let pin = self.pin.get_or_init(|| unsafe { Pin::new::<T>(self.gp) });
        AbortHandle::new(Arc::clone(pin), self.id)
    }

    /// Releases the record without dropping a result: it has been taken, or there is none.
    fn release(mut self) {
        drop(self.extras.take());
        let (gp, pin) = (self.gp, self.pin.take());
        std::mem::forget(self);
        match pin {
            None => leave_record(gp),
            Some(pin) => pin.take_result(),
        }
    }
}

/// Leaves a record whose result was taken.
pub(super) fn leave_record(gp: NonNull<G>) {
    // SAFETY: records are never unmapped.
    if unsafe { gp.as_ref() }.join.release_handle() {
        recycle(gp);
    }
}

/// Leaves a record. If there is a result, it is dropped.
///
/// # Safety
/// The goroutine returns a `T`, and the caller has the handle's side of its record, which it does
/// not use again.
#[inline]
pub(super) unsafe fn leave_with_result<T>(gp: NonNull<G>) {
    // SAFETY: records are never unmapped, and this one is not recycled before the end.
    let g = unsafe { gp.as_ref() };
    if g.join.drop_handle() == Dropped::HasResult {
        // The record is released even if the destructor of the result panics.
        let _release = Release(gp);
        // SAFETY: by the caller's promise; the goroutine has finished.
        unsafe { drop_result::<T>(g) };
    }
}

/// Drops what a goroutine left behind that has finished.
///
/// # Safety
/// It returns a `T`, and nothing has taken or takes the result.
unsafe fn drop_result<T>(g: &G) {
    // SAFETY: the outcome says what the payload holds, and by the caller's promise nothing else
    // takes it.
    unsafe {
        match g.outcome.get() {
            Outcome::Returned => drop(payload::take::<T>(g)),
            Outcome::Panicked => {
                g.payload.as_ptr::<Box<dyn Any + Send>>().drop_in_place();
            }
            _ => {}
        }
    }
}

impl<T> Drop for JoinHandle<T> {
    #[inline]
    fn drop(&mut self) {
        match self.pin.take() {
            // SAFETY: the goroutine returns a `T`, and this handle has its side of the record.
            None => unsafe { leave_with_result::<T>(self.gp) },
            Some(pin) => self.drop_pinned(&pin),
        }
    }
}

impl<T> JoinHandle<T> {
    /// Leaves the record to the abort handles. A result that is there is dropped now.
    #[cold]
    fn drop_pinned(&self, pin: &Pin) {
        if self.is_finished() {
            pin.take_result();
            // SAFETY: only this handle takes the result, which it has not.
            unsafe { drop_result::<T>(self.g()) };
        }
    }
}

/// Releases the record that a handle refers to.
struct Release(NonNull<G>);

impl Drop for Release {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: records are never unmapped, and this one is not recycled before.
        if unsafe { self.0.as_ref() }.join.release_handle() {
            recycle(self.0);
        }
    }
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("id", &self.id.0)
            .field("name", &self.name())
            .field("finished", &self.is_finished())
            .finish()
    }
}
