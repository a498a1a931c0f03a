//! Idle Ms: threads that sleep until they are handed a P, and that end if they are not needed.
//!
//! # The protocol
//! An M puts itself on the list under the scheduler lock and sleeps on its note. A thread that has
//! a P to give takes the M off the list under the lock, writes the P into its record and wakes it.
//! If there are more Ms than are kept, the sleep has a timeout. An M that reaches it takes the lock
//! and [gives up](IdleMs::give_up): if it is still on the list and there are still too many, it
//! takes itself off and its thread ends.
//!
//! # Why no P is lost
//! Being on the list is decided under the lock. An M that finds itself off the list has been taken
//! by a thread that is about to wake it, so it continues to sleep until the wake-up comes, however
//! late. An M that takes itself off cannot be handed a P any more. The timeout and the wake-up may
//! come at the same moment: the note keeps the wake-up. The model `loom_idle_ms` runs it.
//!
//! GO: proc.go mput, mget, stopm. Go keeps its threads forever.

use crate::list::{DoubleList, DoublyLinked};
use crate::policy;
use std::ptr::NonNull;

/// The idle Ms, last in first out. Lives inside the scheduler lock.
#[derive(Debug)]
pub struct IdleMs<M: DoublyLinked>(DoubleList<M>);

impl<M: DoublyLinked> IdleMs<M> {
    /// An empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self(DoubleList::new())
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds one.
    ///
    /// # Safety
    /// `m` is valid as long as it is here, and in no list.
    #[doc(alias = "mput")]
    pub unsafe fn push(&mut self, m: NonNull<M>) {
        // SAFETY: passed on.
        unsafe { self.0.push(m) };
    }

    /// Takes the M that was added last. The caller must wake it.
    #[doc(alias = "mget")]
    pub fn pop(&mut self) -> Option<NonNull<M>> {
        self.0.pop()
    }

    /// Whether there are more than a runtime with `procs` Ps keeps. The list is a stack, so the Ms
    /// at the bottom are not needed; the Ms on top of them sleep with a timeout.
    #[must_use]
    pub const fn has_surplus(&self, procs: u32) -> bool {
        self.len() > policy::idle_ms_kept(procs)
    }

    /// Removes `m`, if it is still here and there are still too many. If false, the M continues to
    /// sleep.
    ///
    /// # Safety
    /// `m` is in this list or in none.
    #[must_use]
    pub unsafe fn give_up(&mut self, m: NonNull<M>, procs: u32) -> bool {
        // SAFETY: passed on.
        self.has_surplus(procs) && unsafe { self.remove(m) }
    }

    /// Removes `m`, if it is still here. If false, another thread has taken it and is about to wake
    /// it.
    ///
    /// # Safety
    /// `m` is in this list or in none.
    #[must_use]
    pub unsafe fn remove(&mut self, m: NonNull<M>) -> bool {
        // SAFETY: valid, by the caller's promise.
        let listed = unsafe { m.as_ref() }.double_link().is_listed();
        if listed {
            // SAFETY: it is in a list, so in this one.
            unsafe { self.0.remove(m) };
        }
        listed
    }
}

impl<M: DoublyLinked> Default for IdleMs<M> {
    fn default() -> Self {
        Self::new()
    }
}
