//! Idle Ms: who sleeps until somebody hands a P over, and who has slept in vain.
//!
//! # The protocol
//! An M puts itself on the list under the scheduler lock and sleeps on its note. Who has a P to give
//! takes it off under the lock, writes the P into its record and wakes it. If there are more Ms than
//! are kept, the sleep has an end; an M that reaches it takes the lock and [gives up](IdleMs::give_up):
//! if it is still listed and still too many, it takes itself off and its thread ends.
//!
//! # Why no P is lost
//! Being on the list is decided under the lock. An M that finds itself off the list has been taken by
//! somebody who is about to wake it, so it sleeps on until that comes, however late; one that takes
//! itself off can be handed nothing any more. The end of the sleep and the wake-up may come at the
//! same moment: the note keeps the wake-up. The model `loom_idle_ms` runs it.
//!
//! GO: proc.go mput, mget, stopm. Go keeps its threads for ever.

use crate::list::{DoubleList, DoublyLinked};
use crate::policy;
use std::ptr::NonNull;

/// The idle Ms, last in first out. Lives inside the scheduler lock.
#[derive(Debug)]
pub struct IdleMs<M: DoublyLinked>(DoubleList<M>);

impl<M: DoublyLinked> IdleMs<M> {
    /// Nobody.
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

    /// Takes the one that has slept least. It is the caller's to wake.
    #[doc(alias = "mget")]
    pub fn pop(&mut self) -> Option<NonNull<M>> {
        self.0.pop()
    }

    /// Whether there are more than a runtime with so many Ps keeps. They are a stack, so those at the
    /// bottom are not needed, and those on top of them are the ones to sleep for a time only.
    #[must_use]
    pub const fn has_surplus(&self, procs: u32) -> bool {
        self.len() > policy::idle_ms_kept(procs)
    }

    /// Takes `m` off, if it is still here and still too many. False: it goes on sleeping.
    ///
    /// # Safety
    /// `m` is in this list or in none.
    #[must_use]
    pub unsafe fn give_up(&mut self, m: NonNull<M>, procs: u32) -> bool {
        // SAFETY: passed on.
        self.has_surplus(procs) && unsafe { self.remove(m) }
    }

    /// Takes `m` off, if it is still here. False: somebody has taken it and is about to wake it.
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
