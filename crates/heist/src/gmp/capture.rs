//! The stack of a running thread, asked of its signal handler; and that of a thread whose handler
//! sleeps, from the registers that it left.
//!
//! # The protocol of a capture
//! 1. The asker puts its [`Capture`] into the M, if there is none, and sends the signal.
//! 2. The handler takes it out with a swap, fills it in and marks it as done.
//! 3. The asker waits. When it has waited for long enough it takes the capture out again. Either it
//!    is still there, and then no handler has it; or a handler has it, which is about to be done.
//!
//! A handler that answers neither allocates nor locks: all that it needs is in the capture.

use super::M;
use crate::coro::walk::Position;
use crate::sys::modules;
use crate::sys::walk::{Frames, Registers, Walker};
use std::cell::UnsafeCell;
use std::ptr::{from_ref, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};

/// The answer to a capture.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "a signal handler writes it in place")]
pub(crate) enum Answer {
    /// The frames of the goroutine with this number.
    Frames(u64, Frames),
    /// The goroutine with this number was on a stack that is not heist's.
    ForeignStack(u64),
    /// No goroutine ran.
    NoGoroutine,
}

/// A request for the stack of a thread, with room for the answer.
pub(crate) struct Capture {
    is_done: AtomicBool,
    /// The asker's before the capture is in an M and after it is done; the handler's in between.
    room: UnsafeCell<Room>,
}

struct Room {
    walker: Walker,
    answer: Answer,
}

// SAFETY: see `room`.
unsafe impl Sync for Capture {}

impl Capture {
    pub(crate) fn new() -> Self {
        let room = Room { walker: Walker::new(), answer: Answer::NoGoroutine };
        Self { is_done: AtomicBool::new(false), room: UnsafeCell::new(room) }
    }

    /// The answer, if there is one.
    pub(crate) fn answer(&self) -> Option<&Answer> {
        // ORDERING: Acquire pairs with the Release in `fill`.
        let is_done = self.is_done.load(Ordering::Acquire);
        // SAFETY: the handler is done with it.
        is_done.then(|| &unsafe { &*self.room.get() }.answer)
    }

    fn fill(&self, m: &M, registers: Registers) {
        // SAFETY: the handler has taken the capture, and the asker waits.
        let Room { walker, answer } = unsafe { &mut *self.room.get() };
        if let Some((gp, modules)) = m.current().zip(modules::known()) {
            let id = gp.id.get();
            *answer = match Position::running(&gp.coro, registers) {
                Some(position) => Answer::Frames(id, position.walk(walker, modules)),
                None if m.is_in_user() => Answer::ForeignStack(id),
                // On its way from or to the scheduler's stack.
                None => Answer::NoGoroutine,
            };
        }
        // ORDERING: Release pairs with the Acquire in `answer`.
        self.is_done.store(true, Ordering::Release);
    }
}

/// The part of an M that captures use.
pub(crate) struct Captured {
    asked: AtomicPtr<Capture>,
    /// Odd while the thread is in a handler that sleeps: then the registers are those of the code
    /// that it interrupted.
    version: AtomicU32,
    registers: [AtomicUsize; 4],
}

impl Captured {
    pub(crate) const fn new() -> Self {
        Self {
            asked: AtomicPtr::new(null_mut()),
            version: AtomicU32::new(0),
            registers: [const { AtomicUsize::new(0) }; 4],
        }
    }

    /// Asks for the stack. False if another thread is asking.
    ///
    /// # Safety
    /// The capture is not dropped before it has an answer or `withdraw` has returned true.
    pub(crate) unsafe fn ask(&self, capture: &Capture) -> bool {
        let capture = from_ref(capture).cast_mut();
        // ORDERING: Release pairs with the Acquire in `answer`.
        let asked =
            self.asked.compare_exchange(null_mut(), capture, Ordering::Release, Ordering::Relaxed);
        asked.is_ok()
    }

    /// Takes the capture out again. False if a handler has it.
    pub(crate) fn withdraw(&self, capture: &Capture) -> bool {
        let capture = from_ref(capture).cast_mut();
        let withdrawn =
            self.asked.compare_exchange(capture, null_mut(), Ordering::Relaxed, Ordering::Relaxed);
        withdrawn.is_ok()
    }

    /// Begins a sleep of the thread's handler, which interrupted code with these registers.
    pub(crate) fn begin_sleep(&self, registers: Registers) {
        let Registers { pc, sp, fp, lr } = registers;
        for (place, word) in self.registers.iter().zip([pc, sp, fp, lr]) {
            place.store(word, Ordering::Relaxed);
        }
        // ORDERING: Release pairs with the Acquire in `sleeping`.
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Ends it.
    pub(crate) fn end_sleep(&self) {
        self.version.fetch_add(1, Ordering::Relaxed);
        // ORDERING: pairs with the fence in `is_still`: a reader that has read something which the
        // thread writes from now on sees that the version has changed.
        fence(Ordering::SeqCst);
    }

    /// If the thread's handler sleeps: the version to compare, and the registers.
    pub(crate) fn sleeping(&self) -> Option<(u32, Registers)> {
        // ORDERING: Acquire pairs with the Release in `begin_sleep`.
        let version = self.version.load(Ordering::Acquire);
        let [pc, sp, fp, lr] = self.registers.each_ref().map(|word| word.load(Ordering::Relaxed));
        (!version.is_multiple_of(2)).then_some((version, Registers { pc, sp, fp, lr }))
    }

    /// Whether the handler still sleeps with the registers of this version.
    pub(crate) fn is_still(&self, version: u32) -> bool {
        // ORDERING: the fence makes the reads of the stack come before this one.
        fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == version
    }
}

/// Answers the request for the stack of the calling thread, if there is one. For its handler.
pub(crate) fn answer(m: &M, registers: Registers) {
    if m.captured.asked.load(Ordering::Relaxed).is_null() {
        return;
    }
    // ORDERING: Acquire pairs with the Release in `ask`.
    let asked = m.captured.asked.swap(null_mut(), Ordering::Acquire);
    // SAFETY: the asker keeps it until it is done.
    if let Some(capture) = unsafe { asked.as_ref() } {
        capture.fill(m, registers);
    }
}
