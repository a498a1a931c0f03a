//! `Note`: one thread sleeps until another wakes it, once.
//!
//! The kernel is reached only if it must be: a wake-up that comes before the sleeper sleeps is a
//! store, and a sleeper that is already noted does not sleep.
//!
//! # States
//! `CLEAR` (no sleeper, no wake-up), `NOTED` (woken), `ASLEEP` (the sleeper is, or is about to be,
//! in the kernel). The sleeper moves CLEAR -> ASLEEP by CAS; the waker swaps in NOTED and calls the
//! kernel only if it saw ASLEEP. The kernel's check of the word closes the window between the CAS
//! and the sleep. The model `loom_note` runs it.
//!
//! # Ordering
//! The waker's swap is Release and the sleeper's loads are Acquire: what the waker wrote before
//! (the P that is handed over) is visible to the sleeper.
//!
//! GO: lock_futex.go notesleep, notewakeup, noteclear.

use crate::sync::{AtomicU32, Ordering};
use std::time::Duration;

const CLEAR: u32 = 0;
const NOTED: u32 = 1;
const ASLEEP: u32 = 2;

/// How threads sleep on a word. The runtime uses the kernel's futex, a model uses its own.
pub trait Futex {
    /// Sleeps while `word` is `expected`, at most for `timeout`. May return early.
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>);
    /// Wakes one sleeper of `word`.
    fn wake(&self, word: &AtomicU32);
}

/// Whether the sleeper was woken or gave up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Woken {
    /// By [`Note::wake`].
    Noted,
    /// The timeout came first.
    TimedOut,
}

/// A one-shot event between two threads; [`Note::clear`] arms it again.
#[derive(Debug)]
pub struct Note(AtomicU32);

impl Note {
    /// A note that is clear.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(CLEAR))
    }

    /// Arms the note again. Only the sleeper may call it, and only while no thread can wake it.
    pub fn clear(&self) {
        self.0.store(CLEAR, Ordering::Relaxed);
    }

    /// Wakes the sleeper, now or as soon as it tries to sleep.
    #[doc(alias = "notewakeup")]
    pub fn wake(&self, futex: &impl Futex) {
        match self.0.swap(NOTED, Ordering::AcqRel) {
            CLEAR => {}
            ASLEEP => futex.wake(&self.0),
            _ => crate::throw!("Note::wake: woken twice"),
        }
    }

    /// Whether it has been woken, without sleeping.
    #[inline]
    #[must_use]
    pub fn is_noted(&self) -> bool {
        self.0.load(Ordering::Acquire) == NOTED
    }

    /// Whether the sleeper sleeps, or is about to. For reports.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.0.load(Ordering::Relaxed) == ASLEEP
    }

    /// Sleeps until woken.
    #[doc(alias = "notesleep")]
    pub fn sleep(&self, futex: &impl Futex) {
        if !self.fall_asleep() {
            return;
        }
        while !self.is_noted() {
            futex.wait(&self.0, ASLEEP, None);
        }
    }

    /// Sleeps until woken or until `remaining` returns None. It is called before each wait, because
    /// a wait may end early.
    ///
    /// After [`Woken::TimedOut`] the note is clear and a later wake-up is remembered.
    #[doc(alias = "notetsleep")]
    pub fn sleep_while(
        &self,
        futex: &impl Futex,
        mut remaining: impl FnMut() -> Option<Duration>,
    ) -> Woken {
        if !self.fall_asleep() {
            return Woken::Noted;
        }
        loop {
            if self.is_noted() {
                return Woken::Noted;
            }
            let Some(left) = remaining() else {
                let up =
                    self.0.compare_exchange(ASLEEP, CLEAR, Ordering::Acquire, Ordering::Acquire);
                return if up.is_ok() { Woken::TimedOut } else { Woken::Noted };
            };
            futex.wait(&self.0, ASLEEP, Some(left));
        }
    }

    /// False if the wake-up has come already.
    fn fall_asleep(&self) -> bool {
        match self.0.compare_exchange(CLEAR, ASLEEP, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => true,
            Err(NOTED) => false,
            Err(_) => crate::throw!("Note::sleep: two sleepers"),
        }
    }
}

impl Default for Note {
    fn default() -> Self {
        Self::new()
    }
}
