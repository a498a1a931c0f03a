//! `FutureWait`: the wait of a future, inside the future.
//!
//! A future that has to wait is in the same queues as goroutines and threads, with an entry that
//! lies in the future itself. The queue's wakers claim it as they claim every other wait, move what
//! it waits for, and wake it.
//!
//! # The protocol
//! The state of the wait goes from open to claimed, by the waker that removed the entry under the
//! lock of the queue, and from claimed to woken, by the same waker, when it has written its report
//! and has taken the future's waker out. After that it does not touch the future any more. So the
//! owner of the future may free it if the entry is in no queue and the state is not claimed:
//! - It finds the state woken: the wait is over.
//! - It takes the lock and finds the entry queued: it removes it. No waker has seen it.
//! - It takes the lock and finds the entry removed: a waker has claimed the wait and is about to
//!   finish. The owner waits for that. It takes moments, because the waker is inside the runtime,
//!   where it is not preempted, or is a plain thread, and runs no foreign code before.
//!
//! A future that was claimed and is then dropped has been given something: a permit, a lock, a
//! notice. Its `drop` hands that on.
//!
//! # What runs where
//! The waker is cloned and dropped in user code: it may be foreign, and do anything. It is replaced
//! under the lock, while the entry is queued, so no waker of the queue uses it then.

use super::record::{Entry, FutureState, Wait};
use super::{Ended, idle_entry};
use crate::current;
use crate::sys::lock::Lock;
use std::cell::Cell;
use std::marker::PhantomPinned;
use std::ptr::null;
use std::task::{RawWakerVTable, Waker};

/// The wait of a future. It must not be moved while it is queued.
pub(crate) struct FutureWait {
    wait: Wait,
    entry: Entry,
    /// Which waker was stored last: its owner compares it without the lock.
    stored: Cell<(*const (), *const RawWakerVTable)>,
    queued: Cell<bool>,
    _pinned: PhantomPinned,
}

// SAFETY: the entry and the wait are used under the lock of the queue or by the claimer, and by the
// owner when neither is possible; the cells are used by the owner alone.
unsafe impl Send for FutureWait {}
// SAFETY: as above. A shared reference gives access to nothing.
unsafe impl Sync for FutureWait {}

impl FutureWait {
    pub(crate) const fn new() -> Self {
        Self {
            wait: Wait::for_future(),
            entry: idle_entry(),
            stored: Cell::new((null(), null())),
            queued: Cell::new(false),
            _pinned: PhantomPinned,
        }
    }

    /// Whether it was queued and its end was not seen yet.
    pub(crate) fn is_queued(&self) -> bool {
        self.queued.get()
    }

    fn state(&self) -> &FutureState {
        self.wait.future()
    }

    /// Stores the waker of a wait that is about to be queued. In user code.
    pub(crate) fn prepare(&self, waker: &Waker) {
        // SAFETY: it is in no queue, so no other thread uses it.
        drop(unsafe { self.state().replace_waker(Some(waker.clone())) });
        self.stored.set((waker.data(), waker.vtable()));
    }

    /// Queues it. The caller holds the lock of the queue. If `push` refuses, it is not queued.
    ///
    /// # Safety
    /// `push` puts the entry into the queue or returns false. The future is pinned, and is not
    /// freed before [`leave`](Self::leave). `place` is valid as long.
    pub(crate) unsafe fn queue(&self, place: *mut (), push: impl FnOnce(&Entry) -> bool) -> bool {
        self.state().open();
        self.entry.assign(&raw const self.wait, place);
        self.queued.set(true);
        let pushed = push(&self.entry);
        self.queued.set(pushed);
        pushed
    }

    /// How the wait ended, if it has. If not, `waker` is woken when it does. In user code.
    pub(crate) fn poll<T>(&self, lock: &Lock<T>, waker: &Waker) -> Option<Ended> {
        if self.state().is_woken() {
            return Some(self.take_end());
        }
        if self.stored.get() == (waker.data(), std::ptr::from_ref(waker.vtable())) {
            return None;
        }
        let mut other = Some(waker.clone());
        let rt = current::enter();
        let data = lock.lock();
        let is_listed = self.entry.is_listed();
        if is_listed {
            // SAFETY: the entry is queued and the lock is held, so no other thread uses the waker.
            other = unsafe { self.state().replace_waker(other) };
            self.stored.set((waker.data(), waker.vtable()));
        }
        drop(data);
        drop(rt);
        drop(other);
        if is_listed {
            return None;
        }
        self.settle();
        Some(self.take_end())
    }

    /// Gives the wait up: the future is dropped, or wants something else. Returns how a waker ended
    /// it, if one did. In user code.
    pub(crate) fn leave<T>(
        &self,
        lock: &Lock<T>,
        leave: impl FnOnce(&mut T, &Entry),
    ) -> Option<Ended> {
        if !self.queued.get() {
            return None;
        }
        if !self.state().is_woken() {
            let rt = current::enter();
            let mut data = lock.lock();
            let is_listed = self.entry.is_listed();
            if is_listed {
                leave(&mut data, &self.entry);
            }
            drop(data);
            drop(rt);
            if is_listed {
                self.queued.set(false);
                return None;
            }
            self.settle();
        }
        Some(self.take_end())
    }

    /// Waits for a waker that has claimed the wait.
    #[cold]
    fn settle(&self) {
        while !self.state().is_woken() {
            std::thread::yield_now();
        }
    }

    fn take_end(&self) -> Ended {
        self.queued.set(false);
        self.wait.ended()
    }
}
