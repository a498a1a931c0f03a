//! `M`: a thread that runs goroutines.
//!
//! An M has its thread's own stack, on which the scheduler runs (Go's g0), and switches from
//! there into goroutines and back.
//!
//! # Access to the fields
//! - `note`, `tid`, `word`, `captured`: anyone.
//! - `next_p`, `wake_spinning`: the waker of the M, before it wakes the note; then the M.
//! - the `Shown` fields: the M writes, anyone reads.
//! - `stopped_p`: under the scheduler lock, and by the M when it continues after a stop of the
//!   world.
//! - every other `Cell`: the M itself, in the scheduler or in a goroutine that it runs.
//!
//! A record outlives its thread: sysmon and other threads may read it at any time. Another thread
//! reuses it later, and all records are freed with their runtime.

use super::capture::Captured;
use super::fork::Deque;
use super::shown::{ShownAddress, ShownFlag, ShownPointer};
use super::{G, P};
use crate::sched::Sched;
use crate::sys::doorbell::Doorbell;
use crate::sys::signal::Blocked;
use crate::trace::emit::{self, Traced};
use crate::trace::recorder::Recorder;
use heist_core::list::{DoubleLink, DoublyLinked};
use heist_core::m_word::{MWord, Place, Stamp};
use heist_core::note::Note;
use heist_core::rng::Rng;
use heist_core::sync::{AtomicPtr, AtomicU32, Ordering};
use heist_core::timer_heap::NEVER;
use heist_trace::record::Take;
use std::cell::{Cell, UnsafeCell};
use std::ptr::{NonNull, null, null_mut};
use std::sync::Arc;

/// The request of a goroutine that switched back to the scheduler.
#[derive(Clone, Copy)]
pub(crate) enum Request {
    /// No request: the goroutine returned from its main function.
    Exit,
    /// No request: the task returned from its main function because its future is pending.
    Pend,
    /// Run others first.
    Yield,
    /// Run others first, because that was asked for.
    Preempted,
    /// First run the goroutine that it has just made runnable.
    GiveWay,
    /// Park until a waker claims it, if `commit` agrees, at the latest until `deadline_ns`.
    Park { commit: Commit, arg: *mut (), seal: Seal, deadline_ns: u64 },
}

/// Whether a canceller may wake a goroutine while its commit function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seal {
    /// Yes: the commit function only releases a lock that the goroutine takes before anything else
    /// when it wakes.
    Open,
    /// No.
    Sealed,
}

/// Runs on the scheduler's stack when the goroutine is `Waiting` and off its M: releases the lock
/// or publishes the waiter. False: do not wait after all.
pub(crate) type Commit = unsafe fn(gp: NonNull<G>, arg: *mut ()) -> bool;

/// The maximum number of addresses of thread-locals that are recorded for one move.
pub(crate) const MOVED_MAX: usize = 8;

/// A thread.
#[repr(C, align(128))]
pub(crate) struct M {
    /// Where the thread is, and whether another thread has a request for it.
    pub(crate) word: MWord,
    /// Changed by the M itself in the runtime, or under the scheduler lock by the thread that takes
    /// the P.
    p: AtomicPtr<P>,
    pub(crate) cur: AtomicPtr<G>,
    pub(crate) request: Cell<Request>,
    /// The deque of the goroutine that runs here, if it has forked since it began to run and may
    /// push jobs without entering the runtime. Null otherwise.
    pub(crate) forking: Cell<*const Deque>,
    /// The thread pointer of its thread.
    pub(crate) thread: ShownAddress,
    /// The word and the CPU time when sysmon last asked whether the thread runs without a P.
    pub(crate) ran_without_p: Cell<(Stamp, u64)>,
    /// The end of its thread's stack, below which is the guard. Zero if the thread does not belong
    /// to the runtime.
    pub(crate) stack_end: Cell<usize>,
    /// An address of its thread's stack above all frames of the scheduler.
    pub(crate) stack_base: Cell<usize>,
    /// Where the goroutine that it resumed last had addresses of thread-locals; see `tls_report`.
    pub(crate) moved: [Cell<usize>; MOVED_MAX],
    pub(crate) spinning: ShownFlag,
    /// Since when it spins.
    pub(crate) spins_since_ns: Cell<u64>,
    /// How many goroutines had become runnable by then, or when its watch ended.
    pub(crate) readied_before: Cell<u64>,
    /// When a timer is due that this M added since it last looked for work; see
    /// `sched::outside::timers`.
    pub(crate) new_timer_ns: Cell<u64>,
    pub(crate) sched: NonNull<Sched>,
    pub(crate) id: u32,
    /// The goroutine that is bound to this M: only this M may run it, and it runs no other.
    pub(crate) bound_g: ShownPointer<G>,
    /// How many reasons there are for the binding; see `sched::threads::bound`.
    pub(crate) n_bindings: Cell<u32>,
    /// How many of them are locks by user code.
    pub(crate) n_locks: Cell<u32>,
    /// The number of the current lock.
    pub(crate) lock_number: Cell<u64>,
    /// Its goroutine ended bound to it: the thread ends too.
    pub(crate) ends: Cell<bool>,
    /// Its goroutine was abandoned: the thread sleeps forever.
    pub(crate) abandoned: ShownFlag,
    /// The P that the waker hands over.
    pub(crate) next_p: Cell<*const P>,
    pub(crate) wake_spinning: Cell<bool>,
    /// The P that stopped for a stop of the world while this M held it.
    pub(crate) stopped_p: Cell<*const P>,
    pub(crate) note: Note,
    /// The object it sleeps on.
    pub(crate) doorbell: Doorbell,
    /// Random numbers for the goroutine that runs here, which need no P.
    rng: UnsafeCell<Rng>,
    idle_link: DoubleLink<M>,
    /// For threads that want to see the stack of this one.
    pub(crate) captured: Captured,
    /// Used by sysmon alone, for a thread in user code without a P: the word, and the CPU time at
    /// that moment.
    pub(crate) seen_without_p: Cell<(Stamp, u64)>,
    /// Set if its goroutine was expected to block and gave its P away: how often the thread had
    /// blocked before.
    pub(crate) gave_p_ahead: Cell<Option<u64>>,
    /// Whether the kernel was asked for short turns of its thread; see `suit_turns` in
    /// `sched::run::lanes`.
    pub(crate) short_turns: Cell<bool>,
    /// Signals that are blocked in its thread even when no handler runs. Only the thread itself
    /// uses it.
    pub(crate) blocked: Cell<Blocked>,
    /// The record made before this one, in the list of all records.
    pub(super) made_before: Cell<*const M>,
    /// What a trace needs to know.
    pub(crate) traced: Traced,
    pub(super) is_first_of_chunk: Cell<bool>,
    tid: AtomicU32,
}

// SAFETY: see "Access to the fields" above.
unsafe impl Sync for M {}
// SAFETY: as above.
unsafe impl Send for M {}

// SAFETY: `idle_link` is used by the idle list and by that of Ms whose threads have ended; no M is
// in both.
unsafe impl DoublyLinked for M {
    fn double_link(&self) -> &DoubleLink<Self> {
        &self.idle_link
    }
}

impl M {
    pub(crate) fn new(sched: NonNull<Sched>, recorder: Arc<Recorder>, id: u32) -> Self {
        Self {
            word: MWord::new(),
            p: AtomicPtr::new(null_mut()),
            cur: AtomicPtr::new(null_mut()),
            request: Cell::new(Request::Exit),
            forking: Cell::new(null()),
            thread: ShownAddress::new(0),
            ran_without_p: Cell::new((Stamp::NONE, 0)),
            stack_end: Cell::new(0),
            stack_base: Cell::new(0),
            moved: [const { Cell::new(0) }; MOVED_MAX],
            spinning: ShownFlag::new(false),
            spins_since_ns: Cell::new(0),
            readied_before: Cell::new(0),
            new_timer_ns: Cell::new(NEVER),
            sched,
            id,
            bound_g: ShownPointer::null(),
            n_bindings: Cell::new(0),
            n_locks: Cell::new(0),
            lock_number: Cell::new(0),
            ends: Cell::new(false),
            abandoned: ShownFlag::new(false),
            next_p: Cell::new(null()),
            wake_spinning: Cell::new(false),
            stopped_p: Cell::new(null()),
            note: Note::new(),
            doorbell: Doorbell::new(),
            rng: UnsafeCell::new(Rng::new(id.into())),
            idle_link: DoubleLink::new(),
            captured: Captured::new(),
            seen_without_p: Cell::new((Stamp::NONE, 0)),
            gave_p_ahead: Cell::new(None),
            short_turns: Cell::new(false),
            blocked: Cell::new(Blocked::NONE),
            made_before: Cell::new(null()),
            traced: Traced::new(recorder),
            is_first_of_chunk: Cell::new(false),
            tid: AtomicU32::new(0),
        }
    }

    /// Turns the record of a thread that has ended into that of a thread that has not begun. The
    /// word's sequence number continues, so that a thread that read the word earlier does not take
    /// it for unchanged.
    pub(crate) fn reset(&self) {
        if self.has_p() || self.current().is_some() || self.spinning.get() {
            heist_core::throw!("M::reset: M{} is in use", self.id);
        }
        self.word.clear_attention(u32::MAX);
        self.bound_g.set(null());
        self.n_bindings.set(0);
        self.n_locks.set(0);
        self.ends.set(false);
        self.new_timer_ns.set(NEVER);
        self.stopped_p.set(null());
        self.gave_p_ahead.set(None);
        self.short_turns.set(false);
        self.thread.set(0);
        self.note.clear();
    }

    /// Draws random numbers.
    ///
    /// # Safety
    /// This is the M of the calling thread, and `draw` does not call this function.
    #[inline]
    pub(crate) unsafe fn draw<R>(&self, draw: impl FnOnce(&mut Rng) -> R) -> R {
        // SAFETY: only the thread itself uses it, and not recursively.
        draw(unsafe { &mut *self.rng.get() })
    }

    /// The runtime this thread belongs to.
    #[inline]
    pub(crate) fn sched(&self) -> &Sched {
        // SAFETY: every M thread keeps its runtime alive.
        unsafe { self.sched.as_ref() }
    }

    /// The P this thread holds.
    #[inline]
    pub(crate) fn p(&self) -> &P {
        debug_assert!(!self.p.load(Ordering::Relaxed).is_null(), "M::p: no P");
        // SAFETY: non-null whenever the scheduler or a goroutine runs with a P; Ps live as long as
        // the runtime.
        unsafe { &*self.p.load(Ordering::Relaxed) }
    }

    /// That P, or null.
    pub(crate) fn p_or_null(&self) -> *const P {
        self.p.load(Ordering::Relaxed)
    }

    /// The number of that P, if there is one.
    pub(crate) fn p_id(&self) -> Option<u32> {
        // SAFETY: null, or a P, which lives as long as the runtime.
        unsafe { self.p.load(Ordering::Relaxed).as_ref() }.map(|pp| pp.id)
    }

    /// Whether this thread holds a P.
    pub(crate) fn has_p(&self) -> bool {
        !self.p.load(Ordering::Relaxed).is_null()
    }

    /// Takes the P, for the M of the calling thread.
    #[doc(alias = "acquirep")]
    pub(crate) fn acquire_p(&self, pp: &P) {
        emit::proc_start(self, pp);
        self.hold(pp);
    }

    /// Gives a P to an M that is in user code. It finds it when it enters the runtime. Under the
    /// scheduler lock.
    pub(crate) fn receive_p(&self, pp: &P) {
        emit::gave_unshown(self);
        self.hold(pp);
    }

    /// Takes back the P that it [set aside](Self::set_aside_p), or another one in its place.
    pub(crate) fn take_back_p(&self, pp: &P) {
        if std::ptr::eq(emit::take_quiet(self), pp) {
            return self.hold(pp);
        }
        self.acquire_p(pp);
    }

    fn hold(&self, pp: &P) {
        if self.has_p() {
            heist_core::throw!("M::acquire_p: M{} holds a P already", self.id);
        }
        if pp.has_m() {
            heist_core::throw!("M::acquire_p: P{} is held already", pp.id);
        }
        pp.set_m(self);
        self.p.store(std::ptr::from_ref(pp).cast_mut(), Ordering::Relaxed);
    }

    /// Releases the P, for the M of the calling thread.
    #[doc(alias = "releasep")]
    pub(crate) fn release_p(&self) -> &P {
        // SAFETY: null, or a P, which lives as long as the runtime.
        if let Some(pp) = unsafe { self.p_or_null().as_ref() } {
            emit::proc_stop(self, pp);
        }
        self.let_go()
    }

    /// Releases the P because the goroutine is about to leave the runtime, and most likely blocks.
    pub(crate) fn release_p_ahead(&self) -> &P {
        emit::give_p_ahead(self, self.p());
        self.let_go()
    }

    /// Loses the P, which the calling thread takes. Under the scheduler lock.
    pub(crate) fn lose_p(&self, why: Take) -> &P {
        // SAFETY: as above.
        if let Some(pp) = unsafe { self.p_or_null().as_ref() }
            && !emit::take_unshown(self)
        {
            emit::proc_take(self, pp, why);
        }
        self.let_go()
    }

    /// Releases the P of the M that stops the world, for that time.
    pub(crate) fn set_aside_p(&self) -> &P {
        let pp = self.let_go();
        emit::keep_quiet(self, pp);
        pp
    }

    fn let_go(&self) -> &P {
        if !self.has_p() {
            heist_core::throw!("M::release_p: M{} holds no P", self.id);
        }
        // SAFETY: Ps live as long as the runtime.
        let pp = unsafe { &*self.p.swap(null_mut(), Ordering::Relaxed) };
        pp.set_m(null());
        pp
    }

    /// The goroutine that runs here.
    #[inline]
    pub(crate) fn current(&self) -> Option<&G> {
        // SAFETY: goroutine records are never unmapped.
        // ORDERING: Acquire pairs with the Release of `execute`: the record is initialised.
        unsafe { self.cur.load(Ordering::Acquire).as_ref() }
    }

    /// Whether user code runs here.
    pub(crate) fn is_in_user(&self) -> bool {
        self.word.stamp().place() != Place::Runtime
    }

    /// The kernel's id of the thread.
    pub(crate) fn tid(&self) -> u32 {
        self.tid.load(Ordering::Relaxed)
    }

    pub(crate) fn set_tid(&self, tid: u32) {
        self.tid.store(tid, Ordering::Relaxed);
    }
}
