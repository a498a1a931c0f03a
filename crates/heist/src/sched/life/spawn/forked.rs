//! Makes a goroutine of a latent job.
//!
//! The thief first takes a record from its P's free list, then the job: a job that was taken cannot
//! be put back. If there is no record, or no memory for stacks, or the runtime shuts down, the job
//! stays where it is, and its forker runs it.

use super::{DEAD, RUNNABLE, Recipe, after_spawn, fill, may_spawn, take_record};
use crate::gmp::flags::Flag;
use crate::gmp::fork::{Deque, Taken};
use crate::gmp::g::Extras;
use crate::gmp::{G, Holder};
use crate::sched::{Phase, Sched};
use crate::trace::emit;
use heist_core::fork_deque::Seen;
use std::num::NonZeroUsize;
use std::ptr::{NonNull, null};
use std::sync::Arc;

/// Whether latent jobs may become goroutines now.
#[inline]
pub(crate) fn may_take_jobs(sched: &Sched) -> bool {
    sched.phase() == Phase::Running && sched.stacks.n_waiting() == 0
}

/// Takes the job that was seen in `deque`, and makes a goroutine of it, which is runnable and the
/// caller's. None if another side was faster, or if no goroutine can be made.
///
/// The goroutine is what the forker is: its class, its name and its size of stack. Its handle
/// belongs to the forker.
pub(crate) fn take_job(
    sched: &Sched,
    m: Holder<'_>,
    deque: &'static Deque,
    seen: Seen,
) -> Option<NonNull<G>> {
    let flags = may_spawn(sched).ok()?;
    let pp = m.p();
    let (gp, id, job) = pp.with_local(|local| {
        let (gp, id) = take_record(sched, local).ok()?;
        let job = deque.take(seen);
        if job.is_none() {
            // SAFETY: the record was just taken off this list.
            unsafe { local.free_gs.push_front(gp) };
            local.next_id = id;
        }
        Some((gp, id, job?))
    })?;
    let forker = deque.owner();
    let (extras, class) = inherited(forker);
    // SAFETY: a job that was taken stays where it is until it has ended.
    let head = unsafe { job.as_ref() };
    let flags = flags | class;
    let recipe = Recipe { vtable: head.vtable, site: head.site, extras, flags };
    // SAFETY: the payload is large enough and aligned.
    let write = |place: *mut u8| unsafe { place.cast::<Taken>().write(Taken { job, deque }) };
    // SAFETY: the record is free, so no other thread uses it.
    unsafe { fill(gp, sched, recipe, id, forker.id.get(), write) }.transition(DEAD, RUNNABLE);
    pp.stats.created.bump();
    pp.stats.forks_taken.bump();
    // SAFETY: records are never unmapped, and this one is still this M's.
    let g = unsafe { gp.as_ref() };
    let address = NonZeroUsize::MIN.saturating_add(gp.addr().get() - 1);
    // From here on the forker may cancel the goroutine.
    if head.word.taken_by(address) {
        g.flags.set(Flag::CANCELLED);
    }
    emit::go_create(&sched.recorder, g);
    after_spawn(sched, gp);
    Some(gp)
}

/// What a goroutine inherits from its forker: a share of its extras, and the flag of its class.
fn inherited(forker: &G) -> (*const Extras, Flag) {
    let extras = forker.extras.get();
    // SAFETY: null, or the extras of a goroutine that waits for the job and so has not ended.
    let Some(of_forker) = (unsafe { extras.as_ref() }) else { return (null(), Flag::NONE) };
    if of_forker.os_thread {
        // The half may run anywhere.
        return (null(), of_forker.class);
    }
    // SAFETY: as above; the pointer is from an `Arc`. The record drops the share in user code.
    unsafe { Arc::increment_strong_count(extras) };
    (extras, Flag::NONE)
}

const _: () = assert!(size_of::<Taken>() <= crate::gmp::g::INLINE_BYTES);
const _: () = assert!(align_of::<Taken>() <= crate::gmp::g::INLINE_ALIGN);
