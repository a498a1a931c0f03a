//! The flags of a goroutine.

use heist_core::sync::{AtomicU16, Ordering};
use std::ops::BitOr;

/// A flag of a goroutine, or several of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flag(u16);

impl Flag {
    pub(crate) const NONE: Self = Self(0);
    /// Set by a canceller: the next park unwinds.
    pub(crate) const CANCELLED: Self = Self(1 << 0);
    /// The goroutine is unwinding towards its end on purpose.
    pub(crate) const EXITING: Self = Self(1 << 1);
    /// The goroutine waits in a destructor while it ends, or for what it must not leave. A second
    /// unwinding would end the process, so this wait cannot be cancelled.
    pub(crate) const UNCANCELLABLE: Self = Self(1 << 2);
    /// The goroutine ran out of stack and is frozen where it was; see `sched::stacks::abandon`.
    pub(crate) const ABANDONED: Self = Self(1 << 3);
    /// Its stack is looked at when the goroutine ends: did it come near the end?
    pub(crate) const WATCHED: Self = Self(1 << 4);
    /// The goroutine computed for a whole slice without entering the runtime, and has not entered
    /// it since sysmon saw that: a hint.
    pub(crate) const HOG: Self = Self(1 << 5);
    /// The goroutine was made to begin with a later wake-up, and no thread has seen it yet.
    pub(crate) const UNBORN: Self = Self(1 << 6);
    /// It is of the latency class.
    pub(crate) const LATENCY: Self = Self(1 << 7);
    /// It is of the idle class.
    pub(crate) const IDLE: Self = Self(1 << 8);
    /// The goroutine blocked without announcing it, or is of a kind that does: a hint. Its P is
    /// given away before it goes on, see `sched::stall::blocking`.
    pub(crate) const BLOCKS: Self = Self(1 << 9);
    /// A plain thread does nothing but wait for its end.
    pub(crate) const AWAITED: Self = Self(1 << 10);
    /// User code locked the goroutine to its thread.
    pub(crate) const LOCKED: Self = Self(1 << 11);
    /// The goroutine waited for the memory of a stack in vain: it ends without having run.
    pub(crate) const STACKLESS: Self = Self(1 << 12);
}

impl BitOr for Flag {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The flags that are set. Any thread may read and change them.
pub(crate) struct Flags(AtomicU16);

impl Flags {
    pub(crate) fn new() -> Self {
        Self(AtomicU16::new(0))
    }

    /// The flags with which a new goroutine begins.
    #[inline]
    pub(crate) fn begin(&self, with: Flag) {
        self.0.store(with.0, Ordering::Relaxed);
    }

    /// Whether one of these is set.
    #[inline]
    pub(crate) fn has(&self, any: Flag) -> bool {
        // ORDERING: SeqCst pairs with `set`: a parker that began to wait and then reads the flag,
        // and a canceller that set it and then reads the status, cannot both miss.
        self.0.load(Ordering::SeqCst) & any.0 != 0
    }

    pub(crate) fn set(&self, flag: Flag) {
        // ORDERING: see `has`.
        self.0.fetch_or(flag.0, Ordering::SeqCst);
    }

    pub(crate) fn clear(&self, flag: Flag) {
        // ORDERING: see `has`.
        self.0.fetch_and(!flag.0, Ordering::SeqCst);
    }

    /// Whether one of these is set, of flags that do not change while the goroutine lives.
    #[inline]
    pub(crate) fn began_with(&self, any: Flag) -> bool {
        self.0.load(Ordering::Relaxed) & any.0 != 0
    }
}
