//! Who waits for an object of this module: goroutines and plain threads, in the order they came.
//!
//! A waiter's entry lives on its own stack. It is put into the list, and taken out, under the
//! object's lock.
//!
//! # Being chosen
//! Whoever has something to give takes an entry out of the list and claims the waiter, both under
//! the lock. Once claimed the waiter sleeps until it is woken, so the chooser may write what it
//! gives into the entry, release the lock, and wake it. After that the entry may be gone.
//!
//! A claim fails if a canceller or a deadline was faster. That waiter gets nothing; the chooser
//! takes the next. So what is given is never lost on the way: who was claimed has it, and who was
//! not claimed has none of it.
//!
//! # Giving up
//! A waiter that was cancelled, or whose time is over, takes the lock. If its entry is still in the
//! list, it takes it out and corrects what the object had counted; if not, somebody tried to choose
//! it and has moved on.
//!
//! A goroutine enters the list with the lock held, and the lock is released only when it is off
//! its stack and can be claimed. So whoever finds it in the list can wake it.

use crate::current::{self, InRuntime};
use crate::gmp::G;
use crate::gmp::g::{self, WaitReason, Woken};
use crate::gmp::m::Seal;
use crate::sched::life::cancel::{self, Why};
use crate::sched::life::park;
use crate::sched::waiter::{ThreadWaiter, Waiter};
use crate::sys::lock::{Guard, Lock};
use heist_core::list::{DoubleLink, DoubleList, DoublyLinked};
use heist_core::timer_heap::NEVER;
use std::cell::Cell;
use std::ptr::NonNull;

/// One waiter.
pub(super) struct Entry {
    link: DoubleLink<Entry>,
    /// None until it waits: then being taken out of the list is all the notice it needs.
    waiter: Cell<Option<Waiter>>,
    /// What it waits for, in the object's terms; then what it was given.
    note: Cell<u64>,
    /// Whether it was taken out of the list to be woken.
    chosen: Cell<bool>,
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
    /// An entry that is in no list.
    pub(super) const fn new(note: u64) -> Self {
        Self {
            link: DoubleLink::new(),
            waiter: Cell::new(None),
            note: Cell::new(note),
            chosen: Cell::new(false),
        }
    }

    /// What the chooser gave. For the waiter, when it was served.
    pub(super) fn given(&self) -> u64 {
        self.note.get()
    }

    /// Takes it out of `list`, which it is in.
    pub(super) fn leave(&self, list: &mut WaitList) {
        // SAFETY: an object has one list for each kind of waiter, and the caller names the right
        // one; `remove` throws if the entry is in none.
        unsafe { list.remove(NonNull::from(self)) };
    }

    /// Whether nobody has chosen it. Asked under the lock.
    pub(super) fn is_waiting(&self) -> bool {
        !self.chosen.get()
    }
}

/// Waiters, the one that came first in front.
pub(super) type WaitList = DoubleList<Entry>;

/// A waiter that was claimed and will not run before it is woken. If it did not wait yet, it may run
/// when the lock is released.
#[must_use = "a waiter that was chosen must be woken"]
pub(super) struct Chosen {
    entry: NonNull<Entry>,
    waiter: Option<Waiter>,
}

impl Chosen {
    /// What it waits for.
    pub(super) fn note(&self) -> u64 {
        // SAFETY: claimed and not woken, so its frame is there.
        unsafe { self.entry.as_ref() }.note.get()
    }

    /// Says what it gets.
    pub(super) fn give(&self, note: u64) {
        // SAFETY: as above.
        unsafe { self.entry.as_ref() }.note.set(note);
    }

    /// Whether it will run next on this P.
    pub(super) fn runs_next(&self, rt: Option<&InRuntime>) -> bool {
        match (&self.waiter, rt) {
            (Some(Waiter::Goroutine(gp, _)), Some(rt)) => {
                // SAFETY: records are never unmapped.
                std::ptr::eq(unsafe { gp.as_ref() }.sched.get(), rt.sched())
            }
            _ => false,
        }
    }

    /// Wakes it. The lock should be released before.
    pub(super) fn wake(self, rt: Option<&InRuntime>) {
        if let Some(waiter) = self.waiter {
            // SAFETY: it was claimed, and is woken once.
            unsafe { waiter.wake_claimed(rt) };
        }
    }
}

/// What the first waiter waits for.
pub(super) fn first_note(list: &WaitList) -> Option<u64> {
    // SAFETY: listed entries are valid while the lock is held.
    list.front().map(|first| unsafe { first.as_ref() }.note.get())
}

/// Takes out the first waiter and claims it. The outer None: nobody is there. The inner one: that
/// waiter is giving up by itself.
pub(super) fn choose(list: &mut WaitList) -> Option<Option<Chosen>> {
    let entry = list.pop()?;
    // SAFETY: listed entries are valid, and this one cannot go before it is woken or sees itself
    // chosen under the lock, which is held.
    let waiter = unsafe {
        entry.as_ref().chosen.set(true);
        entry.as_ref().waiter.take()
    };
    let claimed = waiter.as_ref().is_none_or(Waiter::claim);
    Some(claimed.then_some(Chosen { entry, waiter }))
}

/// Chosen waiters that are still to be woken, in order.
pub(super) struct ChosenList(WaitList);

impl ChosenList {
    pub(super) const fn new() -> Self {
        Self(DoubleList::new())
    }

    pub(super) fn push(&mut self, chosen: Chosen) {
        // One that does not wait yet need not be woken, and may go when the lock is released.
        if chosen.waiter.is_some() {
            // SAFETY: claimed and not woken, so its frame is there; it is in no list.
            unsafe {
                chosen.entry.as_ref().waiter.set(chosen.waiter);
                self.0.push_back(chosen.entry);
            }
        }
    }

    /// Claims everybody.
    pub(super) fn take(list: &mut WaitList) -> Self {
        let mut all = Self::new();
        while let Some(first) = choose(list) {
            if let Some(chosen) = first {
                all.push(chosen);
            }
        }
        all
    }

    /// How many there are.
    pub(super) const fn len(&self) -> u32 {
        self.0.len()
    }

    /// Wakes them all. The lock should be released before.
    pub(super) fn wake(mut self, rt: Option<&InRuntime>) {
        while let Some(entry) = self.0.pop() {
            // SAFETY: claimed and not woken, so its frame is there.
            let waiter = unsafe { entry.as_ref() }.waiter.take();
            Chosen { entry, waiter }.wake(rt);
        }
    }
}

/// Whether a wait may be ended by cancellation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shield {
    Down,
    /// The caller cannot be unwound here.
    Up,
}

/// A wait: what for, as reports name it, and until when.
#[derive(Clone, Copy)]
pub(super) struct Wait {
    pub(super) reason: WaitReason,
    /// In the time of `sys::clock`; None: as long as it takes.
    pub(super) deadline_ns: Option<u64>,
    pub(super) shield: Shield,
}

impl Wait {
    pub(super) const fn new(reason: WaitReason) -> Self {
        Self { reason, deadline_ns: None, shield: Shield::Down }
    }

    pub(super) const fn until(self, deadline_ns: u64) -> Self {
        Self { deadline_ns: Some(deadline_ns), ..self }
    }

    pub(super) const fn shielded(self) -> Self {
        Self { shield: Shield::Up, ..self }
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Ended {
    /// It was chosen.
    Served,
    /// Its time was over. It has left the list.
    TimedOut,
    /// The goroutine was cancelled and has left the list: put things right, then
    /// [`Caller::unwind`].
    Cancelled,
}

/// Whoever calls: a goroutine, which is in the runtime until this is dropped, or a plain thread.
pub(super) struct Caller {
    rt: Option<InRuntime>,
}

impl Caller {
    /// Enters. A cancelled goroutine unwinds here, unless it is shielded.
    pub(super) fn enter(shield: Shield) -> Self {
        let rt = current::enter().map(|rt| match shield {
            Shield::Down => cancel::check(park::chaos_point(rt)),
            Shield::Up => rt,
        });
        Self { rt }
    }

    /// The evidence, if it is a goroutine.
    pub(super) const fn rt(&self) -> Option<&InRuntime> {
        self.rt.as_ref()
    }

    /// Whether it is a goroutine that was cancelled and can be unwound.
    pub(super) fn is_cancelled(&self) -> bool {
        let goroutine = self.rt().map(InRuntime::goroutine);
        goroutine.is_some_and(|gp| gp.is_cancelled() && !cancel::is_spared(gp))
    }

    /// Waits until `entry`, which is in a list that `guard` protects, is chosen. The lock is
    /// released meanwhile and afterwards. If the waiter gives up and nobody has taken the entry out
    /// of its list, `leave` has to, under the lock.
    pub(super) fn wait<T>(
        &mut self,
        guard: Guard<'_, T>,
        entry: &Entry,
        wait: Wait,
        leave: impl FnOnce(&mut T),
    ) -> Ended {
        let lock = guard.into_lock();
        let ended = match self.rt.take() {
            Some(rt) => {
                let (rt, woken) = park_in(rt, lock, entry, wait);
                self.rt = Some(rt);
                match woken {
                    Woken::Ready => return Ended::Served,
                    Woken::Cancelled => Ended::Cancelled,
                    Woken::TimedOut => Ended::TimedOut,
                }
            }
            None => return sleep_in(lock, entry, wait, leave),
        };
        let mut locked = lock.lock();
        if entry.is_waiting() {
            leave(&mut locked);
        }
        ended
    }

    /// Leaves with something in hand. A goroutine whose stack ran out inside the runtime unwinds
    /// here; then `give_back` is called.
    pub(super) fn leave_holding(self, give_back: impl FnMut()) {
        struct Held<F: FnMut()>(F);
        impl<F: FnMut()> Drop for Held<F> {
            fn drop(&mut self) {
                (self.0)();
            }
        }
        let held = Held(give_back);
        drop(self);
        std::mem::forget(held);
    }

    /// Leaves, and unwinds the goroutine, whose wait was cancelled.
    pub(super) fn unwind(self) -> ! {
        drop(self);
        cancel::unwind(Why::Cancelled)
    }
}

fn park_in<T>(rt: InRuntime, lock: &Lock<T>, entry: &Entry, wait: Wait) -> (InRuntime, Woken) {
    /// The goroutine is off its stack: others may find it.
    unsafe fn release<T>(_: NonNull<G>, lock: *mut ()) -> bool {
        // SAFETY: the goroutine that parks holds the lock on this thread and forgot the guard; it,
        // or whoever wakes it, keeps the object alive until it is released.
        unsafe { (*lock.cast::<Lock<T>>()).unlock_forgotten() };
        true
    }
    let gp = rt.goroutine();
    entry.waiter.set(Some(Waiter::Goroutine(NonNull::from(gp), gp.status.next_ticket())));
    let shield = wait.shield == Shield::Up && !gp.has_flag(g::UNCANCELLABLE);
    if shield {
        gp.set_flag(g::UNCANCELLABLE);
    }
    let arg = std::ptr::from_ref(lock).cast_mut().cast();
    let until = wait.deadline_ns.unwrap_or(NEVER);
    // SAFETY: the lock is held by this thread and its guard forgotten; a canceller that is faster
    // makes the goroutine wait for the lock when it wakes.
    let parked = unsafe { park::park_until(rt, wait.reason, Seal::Open, release::<T>, arg, until) };
    if shield {
        gp.clear_flag(g::UNCANCELLABLE);
    }
    parked
}

/// The same for a plain thread. Whoever has taken its entry out of the list wakes it, so it waits
/// for that even if its time is over.
fn sleep_in<T>(lock: &Lock<T>, entry: &Entry, wait: Wait, leave: impl FnOnce(&mut T)) -> Ended {
    let thread = ThreadWaiter::new();
    entry.waiter.set(Some(Waiter::Thread(&raw const thread)));
    // SAFETY: this thread holds it, and the guard was given up.
    unsafe { lock.unlock_forgotten() };
    if let Some(deadline_ns) = wait.deadline_ns {
        if thread.sleep_until(deadline_ns) {
            return Ended::Served;
        }
        let mut locked = lock.lock();
        if entry.is_waiting() {
            leave(&mut locked);
            return Ended::TimedOut;
        }
    }
    thread.sleep();
    Ended::Served
}

/// Waits until woken, unless `ready` answers true under the lock.
pub(super) fn wait_until(lock: &Lock<WaitList>, wait: Wait, ready: impl Fn() -> bool) {
    if ready() {
        return;
    }
    let mut caller = Caller::enter(wait.shield);
    let entry = Entry::new(0);
    let mut waiters = lock.lock();
    if ready() {
        return;
    }
    // SAFETY: the entry stays on this stack until it is taken out.
    unsafe { waiters.push_back(NonNull::from(&entry)) };
    if caller.wait(waiters, &entry, wait, |list| entry.leave(list)) == Ended::Cancelled {
        caller.unwind();
    }
}

/// Wakes everybody.
pub(super) fn wake_all(lock: &Lock<WaitList>) {
    let rt = current::enter();
    let mut waiters = lock.lock();
    let all = ChosenList::take(&mut waiters);
    drop(waiters);
    all.wake(rt.as_ref());
}
