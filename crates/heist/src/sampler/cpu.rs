//! The hook of the CPU profile: the handler of a timer that counts the CPU time of one thread.

use super::table::{DEPTH, PARTS, Tag};
use super::{Current, with_walker};
use crate::coro::walk::Position;
use crate::current;
use crate::gmp::flags::Flag;
use crate::gmp::{G, M};
use crate::sys::modules;
use crate::sys::registers::racy_word;
use crate::sys::walk::{Frames, Registers, Walker};
use std::ops::Range;

/// The CPU profile that is being made.
pub(crate) static CURRENT: Current = Current::none();

/// A tick of the timer, after `n` periods of `period_ns`, which interrupted code with these
/// registers.
pub(crate) fn on_tick(registers: Registers, n: u64, period_ns: u64) {
    CURRENT.with(|table| {
        // SAFETY: the M of the calling thread is alive.
        let Some(m) = (unsafe { current::m().as_ref() }) else { return };
        let walked = with_walker(m.id, |walker| walk(m, registers, walker));
        match walked.flatten() {
            Some((tag, frames)) => table.add(&tag, &frames, n * PARTS, n * period_ns),
            None => table.lose(),
        }
    });
}

/// The stack of the calling thread: its goroutine's, or the scheduler's.
fn walk(m: &M, registers: Registers, walker: &mut Walker) -> Option<(Tag, Frames)> {
    let modules = modules::known()?;
    let gp = m.current();
    let tag = gp.map(tag_of).unwrap_or_default();
    if let Some(position) = gp.and_then(|gp| Position::running(&gp.coro, registers)) {
        return Some((tag, position.walk_innermost(DEPTH, walker, modules)));
    }
    let base = m.stack_base.get();
    let is_on_own = stack_of(m).contains(&registers.sp);
    let own = if is_on_own { registers.sp..base } else { 0..0 };
    let mut read = |address: usize| {
        let is_own = own.contains(&address) && address.is_multiple_of(size_of::<usize>());
        // SAFETY: between the stack pointer of this thread and a frame that has not returned, both
        // on the thread's own stack.
        is_own.then(|| unsafe { racy_word(address) })
    };
    Some((tag, walker.walk(modules, registers, DEPTH, &mut read, |sp| sp >= base)))
}

/// The part of the calling thread's own stack that the scheduler uses. Between it and a stack that
/// user code made, or that of a signal, there may be anything.
fn stack_of(m: &M) -> Range<usize> {
    /// The scheduler of a guest is not deeper in a stack whose end is not known.
    const GUEST_BYTES: usize = 64 << 10;
    let base = m.stack_base.get();
    match m.stack_end.get() {
        0 => base.saturating_sub(GUEST_BYTES)..base,
        end => end..base,
    }
}

/// What a profile says about a goroutine that runs on the calling thread.
fn tag_of(gp: &G) -> Tag {
    let site = gp.spawn_site().map_or(0, |site| std::ptr::from_ref(site).addr());
    let class = match () {
        () if gp.flags.has(Flag::LATENCY) => 1,
        () if gp.flags.has(Flag::IDLE) => 2,
        () => 0,
    };
    let tag = Tag::new(site, class);
    gp.name().map_or(tag, |name| tag.named(name))
}
