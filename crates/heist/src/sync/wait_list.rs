//! Who waits for an object of this module: goroutines and plain threads.
//!
//! A waiter's entry lives on its own stack. It is put into the list, and taken out, under the
//! object's lock. Whoever takes it out wakes the waiter and does not touch the entry again: the
//! waiter's frame may be gone.
//!
//! A goroutine enters the list with the lock held, and the lock is released only when it is off
//! its stack and can be claimed. So whoever finds it in the list can wake it.

use crate::current;
use crate::gmp::G;
use crate::gmp::g::{WaitReason, Woken};
use crate::gmp::m::Seal;
use crate::sched::cancel::{self, Why};
use crate::sched::park;
use crate::sched::waiter::{ThreadWaiter, Waiter};
use crate::sys::lock::Lock;
use heist_core::list::{DoubleLink, DoubleList, DoublyLinked};
use std::cell::Cell;
use std::ptr::NonNull;

/// One waiter.
pub(super) struct Entry {
    link: DoubleLink<Entry>,
    waiter: Cell<Option<Waiter>>,
}

// SAFETY: `link` is used by the list alone.
unsafe impl DoublyLinked for Entry {
    fn double_link(&self) -> &DoubleLink<Self> {
        &self.link
    }
}

// SAFETY: an entry is used under the lock of its object.
unsafe impl Send for Entry {}

impl Entry {
    const fn new(waiter: Waiter) -> Self {
        Self { link: DoubleLink::new(), waiter: Cell::new(Some(waiter)) }
    }
}

/// The waiters of an object. Lives inside its lock.
pub(super) type WaitList = DoubleList<Entry>;

/// Waits until woken, unless `ready` answers true under the lock.
pub(super) fn wait_until(lock: &Lock<WaitList>, reason: WaitReason, ready: impl Fn() -> bool) {
    if ready() {
        return;
    }
    let Some(rt) = current::enter() else {
        return sleep_until(lock, ready);
    };
    let rt = cancel::check(park::chaos_point(rt));
    let gp = rt.goroutine();
    let entry = Entry::new(Waiter::Goroutine(NonNull::from(gp), gp.status.next_ticket()));
    let mut waiters = lock.lock();
    if ready() {
        return;
    }
    // SAFETY: the entry stays on this goroutine's stack until it is taken out.
    unsafe { waiters.push(NonNull::from(&entry)) };
    std::mem::forget(waiters);
    let arg = std::ptr::from_ref(lock).cast_mut().cast();
    // SAFETY: the lock is held by this thread and its guard forgotten; a canceller that is faster
    // makes the goroutine wait for the lock below.
    let (rt, woken) = unsafe { park::park(rt, reason, Seal::Open, release, arg) };
    if woken == Woken::Cancelled {
        let mut waiters = lock.lock();
        if entry.link.is_listed() {
            // SAFETY: listed, and in this list.
            unsafe { waiters.remove(NonNull::from(&entry)) };
        }
        drop(waiters);
        drop(rt);
        cancel::unwind(Why::Cancelled);
    }
}

/// The goroutine is off its stack: others may find it.
unsafe fn release(_: NonNull<G>, lock: *mut ()) -> bool {
    // SAFETY: the goroutine that parks holds the lock on this thread and forgot the guard; it, or
    // whoever wakes it, keeps the object alive until it is released.
    unsafe { (*lock.cast::<Lock<WaitList>>()).unlock_forgotten() };
    true
}

/// The same for a plain thread.
fn sleep_until(lock: &Lock<WaitList>, ready: impl Fn() -> bool) {
    let thread = ThreadWaiter::new();
    let entry = Entry::new(Waiter::Thread(&raw const thread));
    let mut waiters = lock.lock();
    if ready() {
        return;
    }
    // SAFETY: the entry stays on this thread's stack until it is woken, and whoever wakes it takes
    // it out first.
    unsafe { waiters.push(NonNull::from(&entry)) };
    drop(waiters);
    thread.sleep();
}

/// Wakes everybody.
pub(super) fn wake_all(lock: &Lock<WaitList>) {
    let rt = current::enter();
    loop {
        let mut waiters = lock.lock();
        let Some(entry) = waiters.pop() else { break };
        // SAFETY: listed entries are valid, and this one cannot go before it is woken or sees
        // itself unlisted under the lock, which is held.
        let waiter = unsafe { entry.as_ref() }.waiter.take();
        drop(waiters);
        if let Some(waiter) = waiter {
            // SAFETY: it was in the list, so it waits, and nobody else has seen it there.
            unsafe { waiter.wake(rt.as_ref()) };
        }
    }
}
