//! The stacks of all goroutines that have a thread, asked of those threads.

use super::{Absent, Stack, asleep};
use crate::current;
use crate::gmp::M;
use crate::gmp::capture::{Answer, Capture};
use crate::sched::Sched;
use crate::sys::modules::Modules;
use crate::sys::thread;
use crate::sys::walk::Walker;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant};

/// How many threads are asked at once: each needs memory for the answer.
const ASKED_AT_ONCE: usize = 32;
/// How long they have for the answer. A thread that computes answers in microseconds, one that has
/// to wait for a CPU in milliseconds.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long a handler may take that has begun to answer.
const PATIENCE_WITH_HANDLER: Duration = Duration::from_secs(2);
/// How often the answers are looked for at first without a pause.
const EAGER_LOOKS: u32 = 20;
const LOOK_PERIOD: Duration = Duration::from_micros(100);

/// The stacks of the goroutines that have a thread, by their numbers. The caller's is not there.
pub(super) fn stacks(sched: &Sched, walker: &mut Walker, modules: &Modules) -> HashMap<u64, Stack> {
    let _turn = await_turn();
    let mut found = HashMap::new();
    let mut asked: Vec<Asked<'_>> = Vec::new();
    for m in sched.threads.all_ms().iter() {
        if std::ptr::eq(m, current::m()) {
            continue;
        }
        if let Some((id, stack)) = asleep(m, walker, modules) {
            found.insert(id, stack);
        } else if let Some(gp) = m.current() {
            // The signal would end a blocking call early, which is what the guard is for.
            if gp.may_be_forced() {
                asked.extend(Asked::new(m, gp.id.get()));
            } else {
                found.insert(gp.id.get(), Err(Absent::NoPreempt));
            }
        }
        if asked.len() == ASKED_AT_ONCE {
            collect(&mut asked, walker, modules, &mut found);
        }
    }
    collect(&mut asked, walker, modules, &mut found);
    found
}

/// Waits until no other thread asks: a thread answers one at a time. Not for ever, because the one
/// that asks may have been interrupted by this very report.
fn await_turn() -> Option<MutexGuard<'static, ()>> {
    static TURN: Mutex<()> = Mutex::new(());
    let mut turn = None;
    wait(PATIENCE_WITH_HANDLER, || {
        turn = match TURN.try_lock() {
            Ok(turn) => Some(turn),
            Err(TryLockError::Poisoned(turn)) => Some(turn.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        };
        turn.is_some()
    });
    turn
}

/// A thread that was asked.
struct Asked<'a> {
    m: &'a M,
    /// The goroutine that it ran.
    id: u64,
    capture: Box<Capture>,
}

impl<'a> Asked<'a> {
    /// Asks the thread of `m`. None if another thread is asking it.
    fn new(m: &'a M, id: u64) -> Option<Self> {
        let asked = Self { m, id, capture: Box::new(Capture::new()) };
        // SAFETY: see `finish`.
        if !unsafe { m.captured.ask(&asked.capture) } {
            return None;
        }
        thread::interrupt(m.tid());
        Some(asked)
    }

    /// The answer, if there is one by now. Otherwise the request is withdrawn.
    fn finish(self) -> Option<Answer> {
        let Self { m, capture, .. } = self;
        let withdrawn = capture.answer().is_none() && m.captured.withdraw(&capture);
        if withdrawn || wait(PATIENCE_WITH_HANDLER, || capture.answer().is_some()) {
            return capture.answer().cloned();
        }
        // A handler has it and gets no CPU.
        Box::leak(capture);
        None
    }
}

/// Waits for the answers of all that were asked.
fn collect(
    asked: &mut Vec<Asked<'_>>,
    walker: &mut Walker,
    modules: &Modules,
    found: &mut HashMap<u64, Stack>,
) {
    wait(PATIENCE, || asked.iter().all(|asked| asked.capture.answer().is_some()));
    for asked in asked.drain(..) {
        let (m, id) = (asked.m, asked.id);
        match asked.finish() {
            Some(Answer::Frames(id, frames)) => drop(found.insert(id, Ok(frames))),
            Some(Answer::ForeignStack(id)) => drop(found.insert(id, Err(Absent::ForeignStack))),
            Some(Answer::NoGoroutine) => {}
            // It may have been preempted when it was asked, and its handler sleeps.
            None => match asleep(m, walker, modules) {
                Some((id, stack)) => drop(found.insert(id, stack)),
                None => drop(found.insert(id, Err(Absent::NoAnswer))),
            },
        }
    }
}

/// Waits until `is_done`, but not longer than `limit`.
fn wait(limit: Duration, mut is_done: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    let mut looks = 0;
    loop {
        if is_done() {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        looks += 1;
        if looks <= EAGER_LOOKS { std::thread::yield_now() } else { thread::nap(LOOK_PERIOD) }
    }
}
