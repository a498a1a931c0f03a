//! The queue of waits. Any of them can be removed, and one wait can be in several queues at once.
//!
//! A wait has one [`Entry`] for each queue it waits in, all on the waiter's own stack. Entries are
//! queued and removed with the lock of their queue held.
//!
//! # The claim
//! Several parties may want to end a wait at the same time: two channels of a select, a deadline, a
//! canceller. The one that claims the wait owns the outcome. Claiming comes first, moving a message
//! after it, waking last: until it is woken the waiter cannot run, so the claimer may write to its
//! stack. A party that fails to claim has moved nothing.
//!
//! # How long an entry lives
//! An entry that is found in a queue, with the lock held, is valid: its owner takes the same lock
//! before it leaves, to remove the entry or to see that it was removed. Without the lock it is
//! valid only for the claimer, until it wakes the waiter. The owner does not read the entry at
//! which its wait was claimed again.
//!
//! The model `loom_select_claim` runs a wait in two queues against the parties that want to end it.
//!
//! GO: runtime2.go sudog, chan.go waitq, select.go selectgo.

use crate::sync::UnsafeCell;
use std::fmt;
use std::ptr::{NonNull, null};

/// A wait that one of several parties can end.
pub trait Claim {
    /// True for one caller only, which must then wake the waiter.
    fn claim(&self) -> bool;

    /// Whether it could be claimed now.
    fn is_open(&self) -> bool;
}

struct Fields<W> {
    next: *const Entry<W>,
    prev: *const Entry<W>,
    listed: bool,
    wait: *const W,
    place: *mut (),
}

/// The place of a wait in a queue.
pub struct Entry<W>(UnsafeCell<Fields<W>>);

impl<W> Entry<W> {
    /// An entry in no queue. `place` is where the message is or goes to; null if there is none to
    /// move.
    #[inline]
    #[must_use]
    #[cfg(not(loom))]
    pub const fn new(wait: *const W, place: *mut ()) -> Self {
        Self(UnsafeCell::new(Fields { next: null(), prev: null(), listed: false, wait, place }))
    }

    /// An entry in no queue. `place` is where the message is or goes to; null if there is none to
    /// move.
    #[must_use]
    #[cfg(loom)]
    pub fn new(wait: *const W, place: *mut ()) -> Self {
        Self(UnsafeCell::new(Fields { next: null(), prev: null(), listed: false, wait, place }))
    }

    /// Assigns an entry that is in no queue to another wait.
    pub fn assign(&self, wait: *const W, place: *mut ()) {
        self.change(|fields| {
            fields.wait = wait;
            fields.place = place;
        });
    }

    /// Whether it is in a queue. The caller holds the lock.
    #[inline]
    #[must_use]
    pub fn is_listed(&self) -> bool {
        self.look(|fields| fields.listed)
    }

    #[inline]
    fn look<R>(&self, look: impl FnOnce(&Fields<W>) -> R) -> R {
        // SAFETY: used under the lock of the queue, or by the claimer of the wait, or by the owner
        // while it is in no queue. The reference ends with the call.
        self.0.with(|fields| look(unsafe { &*fields }))
    }

    #[inline]
    fn change<R>(&self, change: impl FnOnce(&mut Fields<W>) -> R) -> R {
        // SAFETY: as above.
        self.0.with_mut(|fields| change(unsafe { &mut *fields }))
    }
}

impl<W> fmt::Debug for Entry<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Entry { .. }")
    }
}

/// A wait that the holder of this has claimed and must wake.
#[must_use]
#[derive(Debug)]
pub struct Claimed<W> {
    entry: NonNull<Entry<W>>,
}

impl<W> Claimed<W> {
    /// The entry at which it was claimed.
    #[inline]
    #[must_use]
    pub const fn entry(&self) -> *const Entry<W> {
        self.entry.as_ptr()
    }

    /// Where its message is or goes to.
    #[inline]
    #[must_use]
    pub fn place(&self) -> *mut () {
        // SAFETY: the waiter sleeps until the holder of this wakes it.
        unsafe { self.entry.as_ref() }.look(|fields| fields.place)
    }

    /// The wait. It may not be used any more once it is woken.
    #[inline]
    #[must_use]
    pub fn wait(&self) -> NonNull<W> {
        // SAFETY: as above; the wait of an entry that is queued is not null.
        unsafe { NonNull::new_unchecked(self.entry.as_ref().look(|fields| fields.wait).cast_mut()) }
    }
}

/// A queue of entries, first in, first out. It is inside the lock of its channel.
#[doc(alias = "waitq")]
pub struct WaitQueue<W> {
    first: *const Entry<W>,
    last: *const Entry<W>,
}

// SAFETY: the entries are used under the lock of the queue, or by the claimers of their waits.
unsafe impl<W: Sync> Send for WaitQueue<W> {}

impl<W> WaitQueue<W> {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { first: null(), last: null() }
    }

    /// Whether it is empty.
    #[inline]
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Appends an entry.
    ///
    /// # Safety
    /// It is in no queue, and is not moved until it is removed.
    #[inline]
    pub unsafe fn push(&mut self, entry: &Entry<W>) {
        let last = self.last;
        entry.change(|fields| {
            if fields.listed {
                crate::throw!("WaitQueue::push: the entry is queued already");
            }
            fields.listed = true;
            fields.next = null();
            fields.prev = last;
        });
        // SAFETY: queued entries are valid.
        match unsafe { last.as_ref() } {
            Some(last) => last.change(|fields| fields.next = entry),
            None => self.first = entry,
        }
        self.last = entry;
    }

    /// Puts an entry in front.
    ///
    /// # Safety
    /// As for [`WaitQueue::push`].
    pub unsafe fn push_front(&mut self, entry: &Entry<W>) {
        let first = self.first;
        entry.change(|fields| {
            if fields.listed {
                crate::throw!("WaitQueue::push_front: the entry is queued already");
            }
            fields.listed = true;
            fields.next = first;
            fields.prev = null();
        });
        // SAFETY: queued entries are valid.
        match unsafe { first.as_ref() } {
            Some(first) => first.change(|fields| fields.prev = entry),
            None => self.last = entry,
        }
        self.first = entry;
    }

    /// The place of the first entry, whether its wait can be claimed or not.
    #[must_use]
    pub fn first_place(&self) -> Option<*mut ()> {
        // SAFETY: queued entries are valid.
        unsafe { self.first.as_ref() }.map(|first| first.look(|fields| fields.place))
    }

    /// Calls `look` with the place of every entry, the first one first.
    pub fn for_each_place(&self, mut look: impl FnMut(*mut ())) {
        let mut at = self.first;
        // SAFETY: queued entries are valid.
        while let Some(entry) = unsafe { at.as_ref() } {
            look(entry.look(|fields| fields.place));
            at = entry.look(|fields| fields.next);
        }
    }

    /// Removes `entry`, wherever it is.
    ///
    /// # Safety
    /// It is in this queue.
    #[inline]
    pub unsafe fn remove(&mut self, entry: &Entry<W>) {
        let (prev, next) = entry.change(|fields| {
            if !fields.listed {
                crate::throw!("WaitQueue::remove: the entry is not queued");
            }
            fields.listed = false;
            (fields.prev, fields.next)
        });
        // SAFETY: neighbours of a queued entry are queued, and queued entries are valid.
        match unsafe { prev.as_ref() } {
            Some(prev) => prev.change(|fields| fields.next = next),
            None => self.first = next,
        }
        // SAFETY: as above.
        match unsafe { next.as_ref() } {
            Some(next) => next.change(|fields| fields.prev = prev),
            None => self.last = prev,
        }
    }

    fn pop(&mut self) -> Option<NonNull<Entry<W>>> {
        let first = NonNull::new(self.first.cast_mut())?;
        // SAFETY: it is the first of this queue.
        unsafe { self.remove(first.as_ref()) };
        Some(first)
    }
}

impl<W: Claim> WaitQueue<W> {
    /// Whether there is a waiter whose wait has not ended.
    #[must_use]
    pub fn has_open(&self) -> bool {
        let mut at = self.first;
        // SAFETY: queued entries are valid, and the wait lives as long as its entries.
        while let Some(entry) = unsafe { at.as_ref() } {
            // SAFETY: as above.
            if unsafe { &*entry.look(|fields| fields.wait) }.is_open() {
                return true;
            }
            at = entry.look(|fields| fields.next);
        }
        false
    }

    /// Removes the first entry. `Some(None)` if its wait was claimed elsewhere.
    pub fn take_first(&mut self) -> Option<Option<Claimed<W>>> {
        self.pop().map(claim)
    }

    /// Removes the first entry whose wait can be claimed. Those before it are removed too: their
    /// waits were claimed elsewhere.
    #[inline]
    pub fn claim_first(&mut self) -> Option<Claimed<W>> {
        while let Some(entry) = self.pop() {
            if let Some(claimed) = claim(entry) {
                return Some(claimed);
            }
        }
        None
    }

    /// Removes all entries and claims their waits, to be woken once the lock is released.
    pub fn claim_all(&mut self) -> AllClaimed<W> {
        let mut all = AllClaimed::new();
        while let Some(claimed) = self.claim_first() {
            all.push(claimed);
        }
        all
    }
}

/// Claims the wait of an entry that was just removed, with the lock held.
#[inline]
fn claim<W: Claim>(entry: NonNull<Entry<W>>) -> Option<Claimed<W>> {
    // SAFETY: it was queued until now and the lock is held; the wait lives as long as its entries.
    let is_claimed = unsafe { &*entry.as_ref().look(|fields| fields.wait) }.claim();
    is_claimed.then_some(Claimed { entry })
}

impl<W> Default for WaitQueue<W> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W> fmt::Debug for WaitQueue<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitQueue").field("is_empty", &self.is_empty()).finish()
    }
}

/// Waits that the holder of this has claimed and must wake, in the order in which they were
/// claimed.
#[must_use]
#[derive(Debug)]
pub struct AllClaimed<W> {
    first: *const Entry<W>,
    last: *const Entry<W>,
    len: u32,
}

impl<W> AllClaimed<W> {
    /// None yet.
    pub const fn new() -> Self {
        Self { first: null(), last: null(), len: 0 }
    }

    /// Appends one.
    pub fn push(&mut self, claimed: Claimed<W>) {
        // SAFETY: the waiters sleep until they are woken, here and below.
        unsafe { claimed.entry.as_ref() }.change(|fields| {
            fields.next = null();
            fields.prev = self.last;
        });
        // SAFETY: as above.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.change(|fields| fields.next = claimed.entry()),
            None => self.first = claimed.entry(),
        }
        self.last = claimed.entry();
        self.len += 1;
    }

    /// How many were claimed.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.len
    }

    /// Whether none was claimed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Passes each to `wake`, the first one first.
    pub fn wake_in_order(self, mut wake: impl FnMut(Claimed<W>)) {
        let mut at = self.first;
        while let Some(entry) = NonNull::new(at.cast_mut()) {
            // SAFETY: claimed, and not woken yet.
            at = unsafe { entry.as_ref() }.look(|fields| fields.next);
            wake(Claimed { entry });
        }
    }

    /// Passes each to `wake`, the last one first. So the first is the one that runs next, and the
    /// others follow from the last to the second, as in Go.
    pub fn wake_last_first(self, mut wake: impl FnMut(Claimed<W>)) {
        let mut at = self.last;
        while let Some(entry) = NonNull::new(at.cast_mut()) {
            // SAFETY: claimed, and not woken yet.
            at = unsafe { entry.as_ref() }.look(|fields| fields.prev);
            wake(Claimed { entry });
        }
    }
}

impl<W> Default for AllClaimed<W> {
    fn default() -> Self {
        Self::new()
    }
}
