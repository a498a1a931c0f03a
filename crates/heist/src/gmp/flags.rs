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
    /// The goroutine unwinds in order to end, not because of a panic.
    pub(crate) const EXITING: Self = Self(1 << 1);
    /// The goroutine waits in a destructor while it ends, or for something that it must not
    /// abandon. A second unwinding would end the process, so this wait cannot be cancelled.
    pub(crate) const UNCANCELLABLE: Self = Self(1 << 2);
    /// The goroutine overflowed its stack and never runs again; see `sched::stacks::abandon`.
    pub(crate) const ABANDONED: Self = Self(1 << 3);
    /// When the goroutine ends, it is checked whether it came near the end of its stack.
    pub(crate) const WATCHED: Self = Self(1 << 4);
    /// The goroutine computed for a whole slice without entering the runtime, and has not entered
    /// it since sysmon saw that: a hint.
    pub(crate) const HOG: Self = Self(1 << 5);
    /// The goroutine is unborn: it begins with a later wake-up, and is not listed or counted yet.
    pub(crate) const UNBORN: Self = Self(1 << 6);
    /// It is of the latency class.
    pub(crate) const LATENCY: Self = Self(1 << 7);
    /// It is of the idle class.
    pub(crate) const IDLE: Self = Self(1 << 8);
    /// The goroutine blocked without announcing it, or is of a kind that does: a hint. Its P is
    /// given away before it continues; see `sched::stall::blocking`.
    pub(crate) const BLOCKS: Self = Self(1 << 9);
    /// A plain thread does nothing but wait for the end of this goroutine.
    pub(crate) const AWAITED: Self = Self(1 << 10);
    /// User code locked the goroutine to its thread.
    pub(crate) const LOCKED: Self = Self(1 << 11);
    /// There was no memory for its stack, although it waited: it ends without having run.
    pub(crate) const STACKLESS: Self = Self(1 << 12);
    /// The goroutine is panicking and waits for the network in a destructor. A canceller ends the
    /// wait, which then fails and unwinds nothing.
    pub(crate) const GIVES_UP: Self = Self(1 << 13);
    /// It polls a future, and has no stack between two polls; see `heist_core::task_word`.
    pub(crate) const TASK: Self = Self(1 << 14);
    /// It stays on the thread on which it begins, and so does each poll of a task: nobody has
    /// promised that what is on its stack may move.
    pub(crate) const PINNED: Self = Self(1 << 15);

    /// As a number, for debuggers.
    pub(crate) const fn bits(self) -> usize {
        self.0 as usize
    }

    /// Both, in a constant.
    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
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
