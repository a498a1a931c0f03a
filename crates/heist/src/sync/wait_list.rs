//! Who waits for an object of this module: goroutines and plain threads.
//!
//! A waiter's entry lives on its own stack. It is put into the list, and taken out, under the
//! object's lock. Whoever takes it out wakes the waiter and does not touch the entry again: the
//! waiter's frame may be gone.

use crate::current;
use crate::gmp::G;
use crate::gmp::g::{WaitReason, Woken};
use crate::sched::cancel::{self, Why};
use crate::sched::park;
use crate::sys::lock::Lock;
use crate::waiter::{ThreadWaiter, Waiter};
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
    const fn new() -> Self {
        Self {
            link: DoubleLink::new(),
            waiter: Cell::new(None),
        }
    }
}

/// The waiters of an object. Lives inside its lock.
pub(super) type WaitList = DoubleList<Entry>;

/// Waits until woken, unless `ready` answers true under the lock.
pub(super) fn wait_until(
    lock: &Lock<WaitList>,
    reason: WaitReason,
    ready: impl Fn() -> bool + Sync,
) {
    if ready() {
        return;
    }
    match current::enter() {
        Some(rt) => {
            let rt = cancel::check(park::chaos_point(rt));
            let mut asking = Asking {
                lock,
                ready: &ready,
                entry: Entry::new(),
            };
            let arg = (&raw mut asking).cast();
            // SAFETY: `asking` stays on this goroutine's stack until the wait is over.
            let (rt, woken) = unsafe { park::park(rt, reason, commit, arg) };
            if woken == Woken::Cancelled {
                let mut waiters = lock.lock();
                if asking.entry.link.is_listed() {
                    // SAFETY: listed, and in this list.
                    unsafe { waiters.remove(NonNull::from(&asking.entry)) };
                }
                drop(waiters);
                drop(rt);
                cancel::unwind(Why::Cancelled);
            }
        }
        None => {
            let entry = Entry::new();
            let thread = ThreadWaiter::new();
            entry.waiter.set(Some(Waiter::Thread(&raw const thread)));
            {
                let mut waiters = lock.lock();
                if ready() {
                    return;
                }
                // SAFETY: the entry stays on this thread's stack until it is woken, and whoever
                // wakes it takes it out first.
                unsafe { waiters.push(NonNull::from(&entry)) };
            }
            thread.sleep();
        }
    }
}

struct Asking<'a> {
    lock: &'a Lock<WaitList>,
    ready: &'a dyn Fn() -> bool,
    entry: Entry,
}

/// Puts the goroutine into the list, off its stack.
unsafe fn commit(gp: NonNull<G>, arg: *mut ()) -> bool {
    // SAFETY: `arg` is an `Asking` on the goroutine's stack, which stays while it waits.
    let (g, asking) = unsafe { (gp.as_ref(), &*arg.cast::<Asking<'_>>()) };
    let mut waiters = asking.lock.lock();
    if (asking.ready)() {
        return false;
    }
    asking.entry.waiter.set(
        g.status
            .waiting()
            .map(|ticket| Waiter::Goroutine(gp, ticket)),
    );
    // SAFETY: the entry stays on the goroutine's stack until it is woken, and whoever wakes it
    // takes it out first.
    unsafe { waiters.push(NonNull::from(&asking.entry)) };
    true
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
