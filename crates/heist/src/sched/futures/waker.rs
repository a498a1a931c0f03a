//! Wakers: of tasks, of goroutines and threads that block on a future, and of others.
//!
//! The waker of a task is one word, the address of its record, and counts one reference there. So a
//! clone is one atomic addition, and nothing is allocated. It may be used on any thread, at any
//! time: records are never unmapped, and this one is not recycled as long as the waker lives. A
//! task that has ended, with its runtime or before it, says so in its word, and then nothing else
//! of it is used. If a wake-up makes an idle task `Scheduled`, the task is alive, so its runtime
//! is.
//!
//! # Other wakers
//! A future of this library may be polled with the waker of another executor, or of a combinator.
//! Such a waker may do anything: allocate, free, take locks, wait. So it is called in user code
//! only. Where it must be woken from inside the runtime, a new goroutine calls it ([`Foreign`]).

use super::parker;
use crate::current::{self, InRuntime};
use crate::gmp::flags::Flag;
use crate::gmp::g::Vtable;
use crate::gmp::{G, pool};
use crate::sched::life::park;
use crate::sched::life::spawn::{self, Recipe};
use crate::sched::run;
use heist_core::join::Dropped;
use heist_core::status::Ticket;
use heist_core::task_word::Wakeup;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::panic::Location;
use std::ptr::{NonNull, null};
use std::task::{RawWaker, RawWakerVTable, Waker};

/// Not a constant: its address tells our wakers from others.
static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

/// The waker of a task that is being polled. It has no reference of its own.
pub(crate) fn borrowed(g: &G) -> ManuallyDrop<Waker> {
    // SAFETY: the functions of the table keep a waker's contract. The caller polls the task, so the
    // record is kept meanwhile; the waker is not dropped.
    ManuallyDrop::new(unsafe { Waker::new(std::ptr::from_ref(g).cast(), &VTABLE) })
}

/// The record behind a waker, if it is one of ours.
#[inline]
pub(crate) fn record_of(waker: &Waker) -> Option<NonNull<G>> {
    std::ptr::eq(waker.vtable(), &raw const VTABLE)
        .then(|| NonNull::new(waker.data().cast_mut().cast()))
        .flatten()
}

/// # Safety
/// `data` is of a waker with this table, which lives until the call returns.
unsafe fn record<'a>(data: *const ()) -> &'a G {
    // SAFETY: the address of a record; records are never unmapped.
    unsafe { &*data.cast::<G>() }
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the waker has a reference.
    unsafe { record(data).task_word() }.add_reference();
    RawWaker::new(data, &VTABLE)
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the waker has a reference.
    let g = unsafe { record(data) };
    // SAFETY: as above.
    if unsafe { g.task_word() }.wake() == Wakeup::Queue {
        let rt = current::enter();
        // SAFETY: as above, and this call made it scheduled.
        unsafe { queue(rt.as_ref(), g) };
    }
}

unsafe fn wake(data: *const ()) {
    // SAFETY: passed on; the waker is not used again.
    unsafe {
        wake_by_ref(data);
        drop_waker(data);
    }
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the waker has a reference, which it gives up here.
    unsafe { release(NonNull::from(record(data))) };
}

/// Wakes a task from inside the runtime.
///
/// # Safety
/// The caller has a reference.
#[inline]
pub(crate) unsafe fn wake_within(rt: &InRuntime, gp: NonNull<G>) {
    // SAFETY: by the caller's promise.
    let g = unsafe { gp.as_ref() };
    // SAFETY: as above.
    if unsafe { g.task_word() }.wake() == Wakeup::Queue {
        // SAFETY: as above, and this call made it scheduled.
        unsafe { queue(Some(rt), g) };
    }
}

/// Queues a task, or wakes what blocks on a future.
///
/// # Safety
/// The caller has a reference, and has just made the task scheduled.
#[inline]
unsafe fn queue(rt: Option<&InRuntime>, g: &G) {
    if !g.flags.has(Flag::TASK) {
        // SAFETY: passed on; a record with this word that is not a task's is a parker's.
        return unsafe { parker::wake(rt, g) };
    }
    // If this fails, a canceller has claimed the task and queues it. A wait with a stack is one of
    // the future's destructor, after that.
    if g.status.claim_idle(|| !g.has_started()) {
        // SAFETY: just claimed.
        unsafe { park::ready_anywhere(rt, NonNull::from(g)) };
    }
}

/// Gives up a reference to a record, in user code.
///
/// # Safety
/// The caller has one, and does not use the record again.
pub(crate) unsafe fn release(gp: NonNull<G>) {
    // SAFETY: by the caller's promise.
    if unsafe { gp.as_ref().task_word() }.drop_reference() {
        recycle(gp);
    }
}

/// As [`release`], inside the runtime.
///
/// # Safety
/// As for [`release`].
unsafe fn release_within(rt: &InRuntime, gp: NonNull<G>) {
    // SAFETY: by the caller's promise.
    if unsafe { gp.as_ref().task_word() }.drop_reference() {
        recycle_within(Some(rt), gp);
    }
}

/// Gives up the reference that the runtime and the handle of a task have together. True if it has
/// no wakers: the caller recycles the record.
///
/// # Safety
/// The caller was told to recycle it by its join word.
#[cold]
pub(crate) unsafe fn is_unused(g: &G) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { g.task_word() }.drop_reference()
}

/// Frees the record of a goroutine that has ended and is no longer used.
#[inline]
pub(crate) fn recycle(gp: NonNull<G>) {
    let rt = current::enter();
    recycle_within(rt.as_ref(), gp);
}

#[inline]
fn recycle_within(rt: Option<&InRuntime>, gp: NonNull<G>) {
    // SAFETY: records are never unmapped.
    let home = unsafe { gp.as_ref() }.sched.get();
    match rt {
        Some(rt) if std::ptr::eq(rt.sched(), home) => run::recycle(rt.holder(), gp),
        // Records change their runtime in the shared pool only; see `pool::hold`.
        _ => pool::give_one(gp),
    }
}

/// Wakes any waker from inside the runtime.
pub(crate) fn wake_any_within(rt: &InRuntime, waker: Waker) {
    match record_of(&waker) {
        Some(gp) => {
            std::mem::forget(waker);
            // SAFETY: the waker had a reference, which is given up here.
            unsafe {
                wake_within(rt, gp);
                release_within(rt, gp);
            }
        }
        None => Foreign::wake(rt, waker),
    }
}

/// A waker of another executor that is called by a goroutine of its own.
struct Foreign;

impl Foreign {
    const VTABLE: Vtable =
        Vtable { is_half: false, run: Self::run, drop_closure: Self::run, drop_result: |_| {} };

    /// The goroutine's closure, and also its end if it is cancelled before it began: the waker is
    /// called in any case.
    unsafe fn run(g: &G) {
        // SAFETY: written by `wake`, and read once.
        unsafe { g.payload.as_ptr::<Waker>().read() }.wake();
    }

    #[track_caller]
    #[cold]
    fn wake(rt: &InRuntime, waker: Waker) {
        let recipe = Recipe {
            vtable: &Self::VTABLE,
            site: Location::caller(),
            extras: null(),
            flags: Flag::NONE,
        };
        let waker = ManuallyDrop::new(waker);
        // SAFETY: the record is new, and a waker is two words; it is read once, by `run`.
        let write = |place: *mut u8| unsafe {
            place.cast::<Waker>().write(std::ptr::from_ref(&*waker).read());
        };
        match spawn::spawn_internal(rt, recipe, write) {
            Ok(gp) => {
                // SAFETY: records are never unmapped, and this is its handle.
                let join = &unsafe { gp.as_ref() }.join;
                if join.drop_handle() == Dropped::HasResult && join.release_handle() {
                    recycle_within(Some(rt), gp);
                }
            }
            Err(_) => heist_core::throw!("Foreign::wake: no memory for a goroutine"),
        }
    }
}

/// In place of the address of a waiter in a join word: a waker joins, which is in `joiner`. No
/// record and no thread has this address.
pub(crate) const JOINS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);

/// A waker in one word: the record of ours, or the address of a box, with a mark, for others.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Packed(u64);

const BOXED: u64 = 1;

impl Packed {
    /// Packs a clone of a waker, in user code.
    pub(crate) fn new(waker: &Waker) -> Self {
        let clone = ManuallyDrop::new(waker.clone());
        match record_of(&clone) {
            Some(gp) => Self(gp.addr().get() as u64),
            None => {
                // ALLOC: in user code.
                let boxed = Box::into_raw(Box::new(ManuallyDrop::into_inner(clone)));
                Self(boxed.expose_provenance() as u64 | BOXED)
            }
        }
    }

    /// Whether it wakes the same task as `waker`. False for wakers that are not ours.
    pub(crate) fn is_of(self, waker: &Waker) -> bool {
        record_of(waker).is_some_and(|gp| gp.addr().get() as u64 == self.0)
    }

    pub(crate) const fn to_ticket(self) -> Ticket {
        Ticket::from_bits(self.0)
    }

    pub(crate) const fn from_ticket(ticket: Ticket) -> Self {
        Self(ticket.to_bits())
    }

    /// Unpacks the waker, in user code.
    ///
    /// # Safety
    /// It is unpacked once.
    pub(crate) unsafe fn into_waker(self) -> Waker {
        if self.0 & BOXED == 0 {
            let record = std::ptr::with_exposed_provenance::<()>(self.0 as usize);
            // SAFETY: it has the reference of the waker that was packed.
            return unsafe { Waker::new(record, &VTABLE) };
        }
        let boxed = std::ptr::with_exposed_provenance_mut((self.0 & !BOXED) as usize);
        // SAFETY: from `Box::into_raw`, by the caller's promise not unpacked before.
        *unsafe { Box::from_raw(boxed) }
    }
}

/// Wakes the future that joins `g`, whose outcome is there. In user code.
#[cold]
pub(crate) fn wake_joiner(g: &G) {
    // SAFETY: the join word said that a waker is there, and that it is this side's.
    unsafe { Packed::from_ticket(g.joiner.get()).into_waker() }.wake();
}

/// As [`wake_joiner`], inside the runtime.
#[cold]
pub(crate) fn wake_joiner_within(rt: &InRuntime, g: &G) {
    let packed = Packed::from_ticket(g.joiner.get());
    if packed.0 & BOXED != 0 {
        let boxed = std::ptr::with_exposed_provenance::<Waker>((packed.0 & !BOXED) as usize);
        // SAFETY: as in `wake_joiner`. The box is leaked: nothing is freed inside the runtime, and
        // a goroutine that overflows its stack leaks more.
        return Foreign::wake(rt, unsafe { boxed.read() });
    }
    // SAFETY: as in `wake_joiner`.
    wake_any_within(rt, unsafe { packed.into_waker() });
}
