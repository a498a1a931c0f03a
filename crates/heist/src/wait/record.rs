//! `Wait`: the record of one wait, on the stack of the goroutine or thread that waits.
//!
//! For a goroutine, claiming a wait means claiming the ticket of its status word; for a thread,
//! there is a word in the record. A wait has an [`Entry`] for each queue it is in.
//!
//! GO: runtime2.go sudog, chan.go waitq.

use super::wakers::Wakers;
use super::{Ended, Terms};
use crate::current::InRuntime;
use crate::gmp::G;
use crate::gmp::g::Woken;
use crate::gmp::m::Seal;
use crate::sampler::waits;
use crate::sched::futures::waker;
use crate::sched::life::park;
use crate::sched::waiter::{ThreadWaiter, Waiter};
use crate::sys::lock::Lock;
use crate::sys::registers::here;
use heist_core::status::Ticket;
use heist_core::timer_heap::NEVER;
use heist_core::wait_queue::{self, Claim};
use std::cell::{Cell, UnsafeCell};
use std::ptr::{NonNull, null};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::Waker;

/// The place of a wait in a queue.
pub(crate) type Entry = wait_queue::Entry<Wait>;
/// A queue of waits, first in, first out. It is inside a lock.
pub(crate) type WaitQueue = wait_queue::WaitQueue<Wait>;
/// A wait that the holder of this has claimed and must wake.
pub(crate) type Claimed = wait_queue::Claimed<Wait>;
/// Waits that the holder of this has claimed and must wake.
pub(crate) type AllClaimed = wait_queue::AllClaimed<Wait>;

/// An entry for later use.
pub(crate) const fn idle_entry() -> Entry {
    Entry::new(null(), std::ptr::null_mut())
}

enum Who {
    Goroutine(NonNull<G>, Ticket),
    Other(Other),
}

/// A level of its own: so the test for a goroutine, the usual waiter, is one comparison.
enum Other {
    Thread(ThreadWaiter, AtomicBool),
    Future(FutureState),
}

/// The state of a future's wait, and its waker; see `future.rs`.
pub(crate) struct FutureState {
    state: AtomicU8,
    waker: UnsafeCell<Option<Waker>>,
}

const OPEN: u8 = 0;
const CLAIMED: u8 = 1;
const WOKEN: u8 = 2;

impl FutureState {
    /// Begins a wait. It is in no queue.
    pub(super) fn open(&self) {
        self.state.store(OPEN, Ordering::Relaxed);
    }

    /// Whether a waker has ended the wait, and does not use it any more.
    pub(super) fn is_woken(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `wake`, for the report of the waker.
        self.state.load(Ordering::Acquire) == WOKEN
    }

    /// # Safety
    /// No other thread uses the waker.
    pub(super) unsafe fn replace_waker(&self, waker: Option<Waker>) -> Option<Waker> {
        // SAFETY: by the caller's promise.
        std::mem::replace(unsafe { &mut *self.waker.get() }, waker)
    }

    /// Ends a wait that was claimed. The report is written. The future may be gone after this.
    #[cold]
    fn wake(&self, rt: Option<&InRuntime>, later: &mut Wakers) {
        // SAFETY: the caller has claimed the wait.
        let waker = unsafe { self.replace_waker(None) };
        // ORDERING: Release pairs with the Acquire in `is_woken`.
        self.state.store(WOKEN, Ordering::Release);
        match (waker, rt) {
            (Some(waker), Some(rt)) => waker::wake_any_within(rt, waker),
            (Some(waker), None) => later.add(waker),
            (None, _) => {}
        }
    }
}

impl Other {
    #[cold]
    #[inline(never)]
    fn claim(&self) -> bool {
        match self {
            // ORDERING: AcqRel pairs with itself, among all that claim: the claimer comes after
            // everything the waiter wrote before it was queued, and a waiter that fails to claim
            // comes after the claimer.
            Self::Thread(_, claimed) => !claimed.swap(true, Ordering::AcqRel),
            // ORDERING: as above.
            Self::Future(future) => future
                .state
                .compare_exchange(OPEN, CLAIMED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok(),
        }
    }

    fn is_open(&self) -> bool {
        match self {
            // ORDERING: Acquire pairs with the swap in `claim`, for everything the claimer did
            // before it.
            Self::Thread(_, claimed) => !claimed.load(Ordering::Acquire),
            // ORDERING: as above.
            Self::Future(future) => future.state.load(Ordering::Acquire) == OPEN,
        }
    }

    /// Wakes it. It was claimed.
    #[cold]
    #[inline(never)]
    fn wake(&self, rt: Option<&InRuntime>, later: &mut Wakers) {
        match self {
            // SAFETY: it sleeps, or is about to, and only the claimer wakes it.
            Self::Thread(thread, _) => unsafe { Waiter::Thread(thread).wake_claimed(rt) },
            Self::Future(future) => future.wake(rt, later),
        }
    }
}

/// One wait of a goroutine or a thread.
pub(crate) struct Wait {
    who: Who,
    /// The entry whose queue ended it; written by the waker.
    fired: Cell<*const Entry>,
    /// How the wait ended, as the waker reports it.
    ended: Cell<Ended>,
}

// SAFETY: only the claimer writes the cells, before it wakes the waiter, which reads them.
unsafe impl Sync for Wait {}

impl Claim for Wait {
    #[inline]
    fn claim(&self) -> bool {
        match &self.who {
            // SAFETY: records are never unmapped.
            Who::Goroutine(gp, ticket) => unsafe { gp.as_ref() }.status.claim(*ticket),
            Who::Other(other) => other.claim(),
        }
    }

    fn is_open(&self) -> bool {
        match &self.who {
            // SAFETY: records are never unmapped.
            Who::Goroutine(gp, ticket) => unsafe { gp.as_ref() }.status.is_waiting(*ticket),
            Who::Other(other) => other.is_open(),
        }
    }
}

impl Wait {
    /// The next wait of the calling goroutine, or of the calling thread.
    #[inline]
    pub(crate) fn new(rt: Option<&InRuntime>) -> Self {
        let who = match rt.map(InRuntime::goroutine) {
            Some(gp) => Who::Goroutine(NonNull::from(gp), gp.status.next_ticket()),
            None => Who::Other(Other::Thread(ThreadWaiter::new(), AtomicBool::new(false))),
        };
        Self { who, fired: Cell::new(null()), ended: Cell::new(Ended::Done) }
    }

    /// The waits of a future.
    pub(super) const fn for_future() -> Self {
        let future = FutureState { state: AtomicU8::new(OPEN), waker: UnsafeCell::new(None) };
        Self {
            who: Who::Other(Other::Future(future)),
            fired: Cell::new(null()),
            ended: Cell::new(Ended::Done),
        }
    }

    /// The state of a future's wait.
    pub(super) fn future(&self) -> &FutureState {
        match &self.who {
            Who::Other(Other::Future(future)) => future,
            _ => heist_core::throw!("Wait::future: it is no future's"),
        }
    }

    /// The entry at which a waker ended the wait; null if no waker did.
    #[inline]
    pub(crate) const fn fired(&self) -> *const Entry {
        self.fired.get()
    }

    /// Sleeps until the wait is claimed, at the latest until the deadline, and releases `locks`
    /// when it can be claimed.
    ///
    /// # Safety
    /// As for [`Self::park`].
    #[inline(always)]
    pub(crate) unsafe fn sleep<L: HeldLocks>(
        &self,
        rt: Option<InRuntime>,
        terms: Terms,
        locks: &L,
    ) -> (Option<InRuntime>, Ended) {
        // SAFETY: passed on.
        let (rt, gave_up) = unsafe { self.park(rt, terms, locks) };
        (rt, gave_up.unwrap_or(self.ended.get()))
    }

    /// How the wait ended, as the waker reported it.
    #[inline(always)]
    pub(super) const fn ended(&self) -> Ended {
        self.ended.get()
    }

    /// As [`Self::sleep`], but returns only how the waiter gave up, if it did. So a caller need not
    /// read the waker's report to know that there was a waker.
    ///
    /// # Safety
    /// The wait was made with this `rt`. This thread holds the locks, has forgotten their guards,
    /// and they outlive the call.
    #[inline(always)]
    pub(super) unsafe fn park<L: HeldLocks>(
        &self,
        rt: Option<InRuntime>,
        terms: Terms,
        locks: &L,
    ) -> (Option<InRuntime>, Option<Ended>) {
        match (&self.who, rt) {
            (Who::Goroutine(..), Some(rt)) => {
                let arg = std::ptr::from_ref(locks).cast_mut().cast();
                let Terms { reason, deadline_ns, .. } = terms;
                let shield = terms.shield(&rt);
                let since_ns = waits::wait_begins();
                // SAFETY: by the caller's promise. A canceller may be faster than the commit: the
                // goroutine takes every lock again before it does anything else.
                let (rt, woken) = unsafe {
                    park::park_until(rt, reason, Seal::Open, release::<L>, arg, deadline_ns)
                };
                drop(shield);
                if since_ns != 0 {
                    waits::wait_ends(&rt, here(), reason, since_ns);
                }
                let gave_up = match woken {
                    Woken::Ready => None,
                    Woken::Cancelled => Some(Ended::Cancelled),
                    Woken::TimedOut => Some(Ended::TimedOut),
                };
                (Some(rt), gave_up)
            }
            (Who::Other(Other::Thread(thread, _)), None) => {
                // SAFETY: by the caller's promise.
                unsafe { L::release(locks) };
                (None, self.sleep_as_thread(thread, terms.deadline_ns))
            }
            _ => heist_core::throw!("Wait::sleep: a goroutine and a thread are mixed up"),
        }
    }

    #[inline(never)]
    fn sleep_as_thread(&self, thread: &ThreadWaiter, deadline_ns: u64) -> Option<Ended> {
        if deadline_ns == NEVER {
            thread.sleep();
        } else if !thread.sleep_until(deadline_ns) {
            if self.claim() {
                return Some(Ended::TimedOut);
            }
            // A waker was faster, and is about to wake this thread.
            thread.sleep();
        }
        None
    }
}

/// Releases the locks: the waiter is off its stack, and wakers may find it.
unsafe fn release<L: HeldLocks>(_: NonNull<G>, locks: *mut ()) -> bool {
    // SAFETY: the goroutine that parks holds the locks on this thread and forgot the guards; it
    // keeps them alive until it is awake.
    unsafe { L::release(locks.cast_const().cast()) };
    true
}

/// The locks that are held while a wait is queued.
///
/// # Safety
/// `release` uses nothing behind its argument once the last lock is released: the waiter may be
/// awake, and its frame gone.
pub(crate) unsafe trait HeldLocks {
    /// Releases the locks.
    ///
    /// # Safety
    /// The calling thread holds the locks and has forgotten the guards; they are not released
    /// twice.
    unsafe fn release(this: *const Self);
}

// SAFETY: a lock is not used by `unlock_forgotten` after it is free.
unsafe impl<T> HeldLocks for Lock<T> {
    #[inline]
    unsafe fn release(this: *const Self) {
        // SAFETY: passed on.
        unsafe { (*this).unlock_forgotten() };
    }
}

/// Nothing is held.
// SAFETY: nothing is used.
unsafe impl HeldLocks for () {
    unsafe fn release(_: *const Self) {}
}

/// The operations of the holder of a [`Claimed`].
pub(crate) trait Wake {
    /// Wakes the waiter and reports how its wait ended. The lock of the queue should be released
    /// before.
    fn wake(self, ended: Ended, rt: Option<&InRuntime>);

    /// As [`Wake::wake`], but the waker of a future that a plain thread would call is kept for
    /// later: for a caller that holds a lock, or has claimed other waits.
    fn wake_or_collect(self, ended: Ended, rt: Option<&InRuntime>, later: &mut Wakers);

    /// Whether it is a goroutine of the caller's runtime: once woken, it runs next on the caller's
    /// P.
    fn runs_next(&self, rt: Option<&InRuntime>) -> bool;
}

/// Tells a waiter how its wait ended, before it is woken.
trait Report {
    fn report(&self, ended: Ended) -> &Wait;
}

impl Report for Claimed {
    #[inline]
    fn report(&self, ended: Ended) -> &Wait {
        // SAFETY: the waiter sleeps until it is woken.
        let wait = unsafe { self.wait().as_ref() };
        wait.fired.set(self.entry());
        wait.ended.set(ended);
        wait
    }
}

impl Wake for Claimed {
    #[inline]
    fn wake(self, ended: Ended, rt: Option<&InRuntime>) {
        match &self.report(ended).who {
            // SAFETY: it was claimed, and has not been queued since.
            Who::Goroutine(gp, _) => unsafe { park::ready_anywhere(rt, *gp) },
            Who::Other(other) => other.wake(rt, &mut Wakers::new()),
        }
    }

    #[inline]
    fn wake_or_collect(self, ended: Ended, rt: Option<&InRuntime>, later: &mut Wakers) {
        match &self.report(ended).who {
            // SAFETY: it was claimed, and has not been queued since.
            Who::Goroutine(gp, _) => unsafe { park::ready_anywhere(rt, *gp) },
            Who::Other(other) => other.wake(rt, later),
        }
    }

    fn runs_next(&self, rt: Option<&InRuntime>) -> bool {
        // SAFETY: the waiter sleeps until it is woken.
        match (&unsafe { self.wait().as_ref() }.who, rt) {
            (Who::Goroutine(gp, _), Some(rt)) => {
                // SAFETY: records are never unmapped.
                std::ptr::eq(unsafe { gp.as_ref() }.sched.get(), rt.sched())
            }
            _ => false,
        }
    }
}
