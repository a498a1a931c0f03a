//! The first and the last steps of a thread that runs goroutines.
//!
//! GO: proc.go mstart, mexit.

use crate::gmp::{G, M, P};
use crate::sched::rest::Start;
use crate::sched::run;
use crate::sched::run::Found;
use crate::sched::{Locked, Sched, rest};
use crate::sys::alt_stack::AltStack;
use crate::sys::degraded::{Lack, Plain};
use crate::sys::signal::Blocked;
use crate::sys::{registers, thread};
use std::ptr::NonNull;
use std::sync::Arc;

/// Orphans: Ps that wait for an M to be made.
pub(crate) struct Orphans {
    // The capacity for all Ps is reserved at the start, because pushing must not allocate.
    waiting: Vec<(u32, Start)>,
    /// How many were taken so far.
    n_taken: u64,
}

impl Orphans {
    pub(crate) fn new(capacity: u32) -> Self {
        // ALLOC: when the runtime is built.
        Self { waiting: Vec::with_capacity(capacity as usize), n_taken: 0 }
    }

    pub(crate) fn push(&mut self, p: u32, start: Start) {
        self.waiting.push((p, start));
    }

    pub(super) fn len(&self) -> u32 {
        self.waiting.len() as u32
    }

    /// How many were taken so far. As long as that does not change, the same orphans wait.
    pub(super) const fn n_taken(&self) -> u64 {
        self.n_taken
    }

    /// The P that is taken next.
    fn last(&self) -> Option<u32> {
        self.waiting.last().map(|&(id, _)| id)
    }

    pub(crate) fn pop(&mut self) -> Option<(u32, Start)> {
        let taken = self.waiting.pop();
        self.n_taken += u64::from(taken.is_some());
        taken
    }
}

/// An M on its way to its thread.
pub(super) struct Owned(pub(super) NonNull<M>);

impl Owned {
    const fn get(&self) -> NonNull<M> {
        self.0
    }
}

// SAFETY: only the thread that receives the M uses it.
unsafe impl Send for Owned {}

/// Ends the process if the scheduler itself panics. Otherwise just the thread would end, while it
/// holds a P.
pub(super) struct NoUnwinding;

impl Drop for NoUnwinding {
    fn drop(&mut self) {
        heist_core::throw!("m_main: the scheduler panicked");
    }
}

/// Handles a thread that was made, but has no memory for its signal stack. It is treated as if the
/// system had refused the thread.
#[cold]
fn cannot_begin(sched: &Sched, m: &M, error: &std::io::Error) {
    Lack::Thread.missed(format_args!(
        "the system refuses a thread the memory for its signals ({}); continuing without it",
        Plain(error)
    ));
    sched.lock.lock().roster.n_starting -= 1;
    sched.threads.mailbox.refuse();
    give_back(sched, m);
}

/// Gives the record of `m` back, which its thread has left and does not use again.
#[doc(alias = "mexit")]
fn give_back(sched: &Sched, m: &M) {
    let mut locked = sched.lock.lock();
    // SAFETY: the record lives as long as the runtime, and it is in no other list: an idle M was
    // taken out by the thread that woke it, or took itself out.
    unsafe { locked.roster.gone_ms.push(NonNull::from(m)) };
    locked.roster.n_ms -= 1;
    drop(locked);
    sched.threads.mailbox.ask();
}

/// Lets a new M begin: with a P that waits for one, or by going to sleep.
pub(crate) fn first_p(sched: &Sched, m: &M) -> Found {
    let mut locked = sched.lock.lock();
    locked.roster.n_starting -= 1;
    if take_orphan(sched, m, &mut locked) {
        return Found::Retry;
    }
    drop(locked);
    rest::stop_m(sched, m)
}

/// Gives `m`, which has no P, one that waits for a thread. False if there is none.
pub(crate) fn take_orphan(sched: &Sched, m: &M, locked: &mut Locked) -> bool {
    let Some((id, start)) = locked.roster.orphans.pop() else { return false };
    m.acquire_p(sched.p(id));
    if start == Start::Spinning {
        rest::begin_spin(sched, m);
    }
    true
}

/// Gives up a P for which no thread could be made: its work goes where other Ms find it. All Ms may
/// be in use, by goroutines that block or that are bound to them. If a bound goroutine could run,
/// its M gets the P, because that M does nothing else.
pub(super) fn give_up_orphan(sched: &Sched) {
    let mut locked = sched.lock.lock();
    let Some((id, start)) = locked.roster.orphans.pop() else { return };
    let pp = sched.p(id);
    // SAFETY: no M holds an orphan, and this thread has just taken it off the list.
    let taker = unsafe { take_bound(sched, &mut locked, pp) };
    if taker.is_none() {
        rest::put_idle(sched, &mut locked, pp);
    }
    drop(locked);
    settle_orphan(sched, pp, start, taker);
}

/// Gives a P for which there may be no more threads to the M of a bound goroutine that could run.
/// If there is none, the P keeps waiting for an M, and the result is false.
pub(super) fn give_orphan_to_bound(sched: &Sched) -> bool {
    let mut locked = sched.lock.lock();
    let Some(id) = locked.roster.orphans.last() else { return false };
    let pp = sched.p(id);
    // SAFETY: no M holds an orphan, and it stays one while the lock is held.
    let taker = unsafe { take_bound(sched, &mut locked, pp) };
    if taker.is_none() {
        return false;
    }
    let Some((_, start)) = locked.roster.orphans.pop() else {
        heist_core::throw!("give_orphan_to_bound: the orphan is gone");
    };
    drop(locked);
    settle_orphan(sched, pp, start, taker);
    true
}

/// Moves the work of an orphan to the global queue and takes a bound goroutine out of that. Returns
/// the M of this goroutine.
///
/// # Safety
/// No M holds `pp`, and none takes it while the lock is held.
unsafe fn take_bound(sched: &Sched, locked: &mut Locked, pp: &P) -> Option<NonNull<M>> {
    // SAFETY: by the caller's promise.
    let mut work = unsafe { pp.owner() }.drain();
    work.append(&mut pp.yielded.take(u32::MAX));
    locked.global.prepend(sched.global_len(), &mut work);
    if sched.world.is_stopping() || pp.is_reserved {
        return None;
    }
    let is_bound = |gp: &G| !gp.bound_m.get().is_null();
    let gp = locked.global.take_wanted(sched.global_len(), is_bound)?;
    // SAFETY: goroutines in a queue are valid.
    NonNull::new(unsafe { gp.as_ref() }.bound_m.get().cast_mut())
}

/// The last steps for a P that is no orphan any more: `taker` runs the bound goroutine that was
/// taken for it.
fn settle_orphan(sched: &Sched, pp: &P, start: Start, taker: Option<NonNull<M>>) {
    if start == Start::Spinning {
        sched.rest.discount_spinner();
    }
    if let Some(m) = taker {
        // SAFETY: a bound M sleeps, or is about to, while its goroutine is in a queue, and this
        // thread has taken the goroutine out.
        unsafe { rest::hand_over(sched, m, pp, Start::Working) };
    }
}

pub(super) fn m_main(sched: Arc<Sched>, m: Owned, stack_end: usize) {
    // SAFETY: records live as long as the runtime, of which this thread has a share.
    let m = unsafe { m.get().as_ref() };
    m.set_tid(thread::id());
    m.thread.set(registers::thread_pointer());
    m.stack_end.set(stack_end);
    m.blocked.set(Blocked::all_but_ours());
    let alt_stack = match AltStack::install() {
        Ok(alt_stack) => alt_stack,
        Err(error) => return cannot_begin(&sched, m, &error),
    };
    if sched.config.short_turns {
        m.short_turns.set(true);
        thread::short_turns();
    }
    let unwinding = NoUnwinding;
    run::run(m);
    std::mem::forget(unwinding);
    drop(alt_stack);
    give_back(&sched, m);
}
