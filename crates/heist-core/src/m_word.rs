//! Where an M is: in the runtime, in user code, or in an announced blocking call.
//!
//! Entering and leaving the runtime happens at every call into this library, so both must be a
//! few plain instructions. Taking the P away from an M that blocks is rare, so the taker pays.
//!
//! # The protocol
//! The owner (the M's own thread) enters the runtime:
//! 1. stores `RUNTIME`,
//! 2. light fence,
//! 3. reads `attention`; if `TAKEN` is set, it takes the scheduler lock and checks whether it still
//!    has its P.
//!
//! The taker, with the scheduler lock held:
//! 1. sets `TAKEN`,
//! 2. heavy fence,
//! 3. reads the word; if it is unchanged, the taker has the P; otherwise it clears `TAKEN` and
//!    leaves.
//!
//! # Why both cannot have the P
//! The heavy fence acts as a full fence of both threads. Either the owner's store came before it,
//! and the taker reads a changed word and leaves; or the owner's read comes after it, sees `TAKEN`
//! and waits for the lock, under which the taker has finished. Outside the runtime the word has a
//! sequence number, a new one each time. It distinguishes an M that entered the runtime and left it
//! again from one that did not. Inside there is nothing to distinguish, because no P is taken
//! there. So entering is one store that needs no load.
//!
//! On Linux the light fence is a compiler fence and the heavy one is `membarrier`. Where there is
//! none, both are full fences: then `attention` has the flag `FENCE` from the beginning, and an
//! owner that finds it fences and reads again. So with `membarrier` an entry need not check for it.
//! The model `loom_m_word` runs both ways, with a full fence for the light one of the first.
//!
//! # Ordering
//! Leaving is a Release store and the taker's read is an Acquire load: the taker of the P sees what
//! its owner did with it.

use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// Where an M is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Place {
    /// In the runtime: it cannot be preempted and its P cannot be taken.
    Runtime = 0,
    /// In user code.
    User = 1,
    /// In an announced blocking call: its P may be taken at any time.
    Blocked = 2,
}

const PLACE_MASK: u64 = 3;
const SEQ_ONE: u64 = 4;

/// A value of the word: a place and, outside the runtime, a number that is unique to each stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp(u64);

impl Stamp {
    /// No word has this value.
    pub const NONE: Self = Self(u64::MAX);

    /// The place.
    #[must_use]
    pub const fn place(self) -> Place {
        match self.0 & PLACE_MASK {
            0 => Place::Runtime,
            1 => Place::User,
            _ => Place::Blocked,
        }
    }
}

/// The P was taken, or is being taken.
pub const TAKEN: u32 = 1;
/// The goroutine should yield when it leaves the runtime.
pub const PREEMPT: u32 = 2;
/// The world stops: the goroutine waits where it is until the world runs again.
pub const STOP: u32 = 8;
/// The goroutine most likely blocks: it gives its P away when it leaves the runtime.
pub const GIVE_P: u32 = 32;
/// The goroutine has moved here with addresses of thread-locals, which it reports when it leaves
/// the runtime.
pub const MOVED: u32 = 64;
/// The light fence does nothing: an owner that enters the runtime executes a full one. Never
/// cleared.
const FENCE: u32 = 16;

/// The word and the flags of one M.
#[derive(Debug)]
pub struct MWord {
    word: AtomicU64,
    attention: AtomicU32,
    /// The number of the last stay outside the runtime, as a word in user code. Only the owner uses
    /// it.
    last: AtomicU64,
    /// The stay that was marked, as a word in user code.
    marked: AtomicU64,
}

impl MWord {
    /// An M in the runtime.
    #[must_use]
    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(Place::Runtime as u64),
            attention: AtomicU32::new(0),
            last: AtomicU64::new(Place::User as u64),
            marked: AtomicU64::new(0),
        }
    }

    /// As [`new`](Self::new), where the heavy fence is a fence of the taker only.
    #[must_use]
    pub fn with_full_fences() -> Self {
        Self { attention: AtomicU32::new(FENCE), ..Self::new() }
    }

    /// From now on the heavy fence is a fence of the taker only. The caller takes no P before every
    /// owner has passed a full fence after this call: an owner that reads the flags later sees this
    /// one, and fences itself; the word that an owner stored before it read the flags is visible by
    /// then.
    pub fn use_full_fences(&self) {
        self.call_attention(FENCE);
    }

    /// The word at this moment.
    #[inline]
    #[must_use]
    pub fn stamp(&self) -> Stamp {
        Stamp(self.word.load(Ordering::Acquire))
    }

    /// The owner enters the runtime. True if its P may be gone.
    #[inline]
    #[must_use]
    pub fn enter(&self, light_fence: impl FnOnce()) -> bool {
        self.word.store(Place::Runtime as u64, Ordering::Release);
        light_fence();
        self.attention() & (TAKEN | FENCE) != 0 && self.is_taken()
    }

    /// Whether the P may be gone, after a fence if that is needed.
    #[cold]
    fn is_taken(&self) -> bool {
        if self.attention() & FENCE != 0 {
            // ORDERING: pairs with the heavy fence of the taker: it is between the store of the
            // word and the next read of the flags.
            fence(Ordering::SeqCst);
        }
        self.attention() & TAKEN != 0
    }

    /// The owner leaves the runtime for `place`.
    #[inline]
    pub fn leave(&self, place: Place) {
        let next = self.last.load(Ordering::Relaxed).wrapping_add(SEQ_ONE);
        // A signal handler that leaves as well does not run in between: until the word is stored,
        // this is the runtime.
        self.last.store(next, Ordering::Relaxed);
        self.word.store(next ^ (Place::User as u64 ^ place as u64), Ordering::Release);
    }

    /// The owner marks the stay in user code that will begin when it leaves the runtime.
    pub fn mark_next_stay(&self) {
        let next = self.last.load(Ordering::Relaxed).wrapping_add(SEQ_ONE);
        self.marked.store(next, Ordering::Relaxed);
    }

    /// The word as it is during the stay that was marked last.
    #[must_use]
    pub fn marked(&self) -> Stamp {
        Stamp(self.marked.load(Ordering::Relaxed))
    }

    /// The flags.
    #[inline]
    #[must_use]
    pub fn attention(&self) -> u32 {
        self.attention.load(Ordering::Relaxed)
    }

    /// Sets flags.
    pub fn call_attention(&self, flags: u32) {
        self.attention.fetch_or(flags, Ordering::AcqRel);
    }

    /// Clears flags.
    #[inline]
    pub fn clear_attention(&self, flags: u32) {
        if self.attention() & flags != 0 {
            self.attention.fetch_and(!flags | FENCE, Ordering::AcqRel);
        }
    }

    /// Tries to take the P of an M whose word was `seen`. The caller holds the scheduler lock, and
    /// on success takes the P before it releases it.
    #[must_use]
    pub fn take(&self, seen: Stamp, heavy_fence: impl FnOnce()) -> bool {
        let before = self.attention.fetch_or(TAKEN, Ordering::AcqRel);
        heavy_fence();
        if self.stamp() == seen && seen.place() != Place::Runtime {
            return true;
        }
        // If it was set before, the owner still has to check: its P was taken and returned.
        if before & TAKEN == 0 {
            self.clear_attention(TAKEN);
        }
        false
    }
}

impl Default for MWord {
    fn default() -> Self {
        Self::new()
    }
}
