//! The word of the read-write lock: the number of readers, and whether a writer has announced
//! itself.
//!
//! Writers take turns by a mutex of their own; the one that has it announces itself here. From then
//! on new readers queue, and when the last reader has left the writer enters. When it leaves, all
//! queued readers enter at once, before the next writer can announce itself. So neither side
//! starves.
//!
//! # Bits
//! - `PENDING`: a writer has announced itself, or has entered.
//! - `QUEUED`: a reader waits. Changes only under the lock of the queue.
//! - the rest: the number of readers.
//!
//! # Why no waiter is forgotten
//! - A reader queues by setting `QUEUED` under the queue's lock while it sees `PENDING`. The writer
//!   clears `PENDING` by a compare-and-swap that sees no `QUEUED`, or under that lock with the
//!   whole queue counted in.
//! - A writer queues under the same lock if it sees readers there. The last reader sees `PENDING`
//!   in what its subtraction returns, takes the lock and finds the writer, or comes before it: then
//!   the writer sees no reader.
//!
//! # Why no writer is woken too early
//! That last reader may be late: its writer saw no reader, entered and left, other readers entered,
//! and the next writer waits for those. So under the lock it checks whether there are readers. If
//! there are, one of them wakes the writer, which was announced before that reader left; if not, no
//! reader can enter before the writer.
//!
//! The model `loom_rw_word` runs it.
//!
//! # Ordering
//! Entering is Acquire and leaving is Release, for both. A writer that waited reads the word again
//! with Acquire: every reader's subtraction is in the release sequence it reads from.
//!
//! GO: sync/rwmutex.go, where the count goes negative and readers that wait are counted too.

use crate::sync::{AtomicU32, Ordering};

const PENDING: u32 = 1 << 31;
const QUEUED: u32 = 1 << 30;
const READERS: u32 = QUEUED - 1;

/// The next step of a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Entered {
    /// It has entered.
    Yes,
    /// It must queue, before the lock of the queue is released.
    Queue,
    /// There are too many readers to count one more.
    TooMany,
}

/// The state of a read-write lock.
#[derive(Debug)]
pub struct RwWord(AtomicU32);

impl RwWord {
    /// A free lock.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// A free lock.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// A reader enters unless a writer has announced itself.
    #[inline]
    #[doc(alias = "RLock")]
    pub fn read(&self) -> Entered {
        self.enter(0)
    }

    /// As [`read`](Self::read), under the lock of the queue: if the reader cannot enter, the word
    /// records that one waits.
    pub fn read_or_queue(&self) -> Entered {
        self.enter(QUEUED)
    }

    #[inline]
    fn enter(&self, else_set: u32) -> Entered {
        let mut old = self.0.load(Ordering::Relaxed);
        loop {
            let (new, outcome) = if old & PENDING != 0 {
                (old | else_set, Entered::Queue)
            } else if old & READERS == READERS {
                return Entered::TooMany;
            } else {
                (old + 1, Entered::Yes)
            };
            if new == old {
                return outcome;
            }
            match self.0.compare_exchange_weak(old, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return outcome,
                Err(now) => old = now,
            }
        }
    }

    /// A reader leaves. True if it was the last and a writer has announced itself: wake it.
    #[inline]
    #[must_use]
    #[doc(alias = "RUnlock")]
    pub fn read_done(&self) -> bool {
        let before = self.0.fetch_sub(1, Ordering::Release);
        if before & READERS == 0 {
            crate::throw!("RwWord::read_done: there is no reader");
        }
        before & (PENDING | READERS) == PENDING | 1
    }

    /// The writer whose turn it is announces itself. True if it has entered.
    #[inline]
    #[must_use]
    pub fn announce(&self) -> bool {
        let before = self.0.fetch_or(PENDING, Ordering::Acquire);
        if before & PENDING != 0 {
            crate::throw!("RwWord::announce: two writers");
        }
        before & READERS == 0
    }

    /// The writer whose turn it is enters if there is no reader.
    #[inline]
    #[must_use]
    pub fn try_announce(&self) -> bool {
        self.0.compare_exchange(0, PENDING, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Whether the readers have left.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.0.load(Ordering::Acquire) & READERS == 0
    }

    /// The writer leaves, if no reader waits.
    #[inline]
    #[must_use]
    pub fn write_done(&self) -> bool {
        self.0.compare_exchange(PENDING, 0, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// The writer leaves, or gives up, under the lock of the queue; the `n` readers that were in
    /// the queue have entered.
    pub fn admit(&self, n: u32) {
        let mut old = self.0.load(Ordering::Relaxed);
        loop {
            if old & PENDING == 0 || (old & READERS) + n > READERS {
                crate::throw!("RwWord::admit: {old:#x} cannot admit {n}");
            }
            let new = (old & READERS) + n;
            match self.0.compare_exchange_weak(old, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// Under the lock of the queue: the last waiting reader gave up.
    pub fn none_queued(&self) {
        self.0.fetch_and(!QUEUED, Ordering::Relaxed);
    }

    /// The number of readers now. For reports.
    #[must_use]
    pub fn n_readers(&self) -> u32 {
        self.0.load(Ordering::Relaxed) & READERS
    }

    /// Whether a writer has entered or waits. For reports.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        self.0.load(Ordering::Relaxed) & PENDING != 0
    }
}

impl Default for RwWord {
    fn default() -> Self {
        Self::new()
    }
}
