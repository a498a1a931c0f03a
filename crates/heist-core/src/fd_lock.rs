//! The lock of a descriptor: its users, one reader and one writer at a time, and its end.
//!
//! The number of a descriptor is reused as soon as it is closed. So it is closed only when no call
//! uses it: every use holds a reference, closing refuses new ones, and the user that returns the
//! last reference after that closes. Reads happen one at a time, and so do writes, so that at most
//! one goroutine waits in a direction and a message is not interleaved with another.
//!
//! The word holds the references, the two locks, and for each lock whether a user queues for it.
//! The queues themselves, and how a user sleeps in them, belong to the caller, which has a lock for
//! them:
//! 1. a user that finds a direction busy takes the queue's lock and calls [`FdLock::queue`], which
//!    locks after all or records that the queue is not empty;
//! 2. a user that unlocks and gets [`Unlocked::Queued`] still holds direction and reference. It
//!    takes the queue's lock and either gives both to the first of the queue, with
//!    [`FdLock::passed_on`], or finds the queue empty and calls [`FdLock::unlock_empty`].
//!
//! The model `loom_fd_lock` runs it.
//!
//! # Ordering
//! Taking is Acquire and returning is Release: a user sees what the previous one did.
//!
//! GO: internal/poll/fd_mutex.go.

use crate::sync::{AtomicU64, Ordering};

const CLOSED: u64 = 1;
const REF_ONE: u64 = 1 << 8;
/// The maximum number of uses at a time.
pub const REFS_MAX: u64 = (1 << 20) - 1;

/// A direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Data comes in.
    Read,
    /// Data goes out.
    Write,
}

impl Way {
    const fn locked(self) -> u64 {
        match self {
            Self::Read => 2,
            Self::Write => 4,
        }
    }

    const fn queued(self) -> u64 {
        self.locked() << 2
    }
}

/// The result of an attempt to use a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Taken {
    /// It may be used.
    Yes,
    /// Another user holds this direction.
    Busy,
    /// It is closed.
    Closed,
    /// It has [`REFS_MAX`] users.
    TooMany,
}

/// The next step after a use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Unlocked {
    /// Nothing.
    Done,
    /// A user queues: the caller still holds direction and reference, and passes them on.
    Queued,
    /// It was the last use of a closed descriptor: the caller destroys it.
    Last,
}

/// The lock of a descriptor.
#[derive(Debug, Default)]
#[doc(alias = "fdMutex")]
pub struct FdLock(AtomicU64);

impl FdLock {
    /// An open descriptor without users.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Whether it is closed.
    #[inline]
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Begins a use that needs no direction.
    #[doc(alias = "incref")]
    pub fn acquire(&self) -> Taken {
        self.take(0)
    }

    /// Ends such a use.
    #[doc(alias = "decref")]
    pub fn release(&self) -> Unlocked {
        self.give(0)
    }

    /// Begins a use in one direction.
    #[inline]
    #[doc(alias = "rwlock")]
    pub fn lock(&self, way: Way) -> Taken {
        self.take(way.locked())
    }

    /// Ends a use in one direction, unless a user queues for it.
    #[inline]
    #[doc(alias = "rwunlock")]
    pub fn unlock(&self, way: Way) -> Unlocked {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            self.check(word, way);
            if word & way.queued() != 0 {
                return Unlocked::Queued;
            }
            let left = (word & !way.locked()) - REF_ONE;
            match self.0.compare_exchange_weak(word, left, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return last(left),
                Err(now) => word = now,
            }
        }
    }

    /// As [`FdLock::lock`], with the queue's lock held: if the direction is busy, the user that
    /// unlocks it will check the queue.
    pub fn queue(&self, way: Way) -> Taken {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let (to, taken) = if word & CLOSED != 0 {
                return Taken::Closed;
            } else if word & way.locked() != 0 {
                (word | way.queued(), Taken::Busy)
            } else if word / REF_ONE == REFS_MAX {
                return Taken::TooMany;
            } else {
                ((word | way.locked()) + REF_ONE, Taken::Yes)
            };
            match self.0.compare_exchange(word, to, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return taken,
                Err(now) => word = now,
            }
        }
    }

    /// Notes that direction and reference went to the first of the queue. The caller holds the
    /// queue's lock and passes whether there are others in the queue.
    pub fn passed_on(&self, way: Way, others: bool) {
        if !others {
            self.0.fetch_and(!way.queued(), Ordering::AcqRel);
        }
    }

    /// Unlocks after the queue was found empty. The caller holds the queue's lock.
    pub fn unlock_empty(&self, way: Way) -> Unlocked {
        let word = self.0.load(Ordering::Relaxed);
        self.check(word, way);
        self.0.fetch_and(!way.queued(), Ordering::AcqRel);
        self.give(way.locked())
    }

    /// Closes it and begins a last use. False if it was closed already. The caller then wakes all
    /// users that queue or wait for the descriptor, and ends its use with [`FdLock::release`].
    #[must_use]
    #[doc(alias = "increfAndClose")]
    pub fn close(&self) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & CLOSED != 0 {
                return false;
            }
            // One more than REFS_MAX is possible here, and fits.
            let to = (word | CLOSED) + REF_ONE;
            match self.0.compare_exchange(word, to, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => word = now,
            }
        }
    }

    #[inline]
    fn take(&self, lock: u64) -> Taken {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word & (CLOSED | lock) != 0 {
                return if word & CLOSED != 0 { Taken::Closed } else { Taken::Busy };
            }
            if word / REF_ONE == REFS_MAX {
                return Taken::TooMany;
            }
            let to = (word | lock) + REF_ONE;
            match self.0.compare_exchange_weak(word, to, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Taken::Yes,
                Err(now) => word = now,
            }
        }
    }

    fn give(&self, lock: u64) -> Unlocked {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if word < REF_ONE {
                crate::throw!("FdLock: returned more often than taken");
            }
            let left = (word & !lock) - REF_ONE;
            match self.0.compare_exchange(word, left, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return last(left),
                Err(now) => word = now,
            }
        }
    }

    fn check(&self, word: u64, way: Way) {
        if word & way.locked() == 0 || word < REF_ONE {
            crate::throw!("FdLock: unlocked without being locked");
        }
    }
}

const fn last(word: u64) -> Unlocked {
    if word & CLOSED != 0 && word < REF_ONE { Unlocked::Last } else { Unlocked::Done }
}
