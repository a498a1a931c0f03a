//! The hooks of blocking calls, and of Ps that change hands while their M does not know.

use super::{Counted, context, in_call, proc_start, write, write_one};
use crate::gmp::{M, P};
use crate::sys::ticks;
use crate::trace::recorder::is_on;
use heist_trace::record::{Call, Kind, Record};
use std::ptr::null;

/// The goroutine on `m` begins a call that blocks, or is expected to. A later trace has to know it
/// too, so the goroutine is noted in any case.
#[inline]
pub(crate) fn call_start(m: &M, call: Call) {
    let Some(gp) = m.current() else { return };
    if is_on() {
        tell_call_start(m, call);
    }
    m.traced.call.set((gp, gp.status.number()));
}

/// The goroutine on `m` is expected to block, and is about to give its P away.
pub(crate) fn give_p_ahead(m: &M, pp: &P) {
    let Some(gp) = m.current() else { return };
    if is_on() {
        let counted = Counted::new(pp);
        write(m, None, 2, |now, lines| {
            lines.push(Record::new(now, Kind::CallStart, Call::Predicted as u8, 0, 0));
            lines.push(Record::new(now, Kind::ProcStop, 0, pp.id.into(), counted.number()));
        });
    }
    m.traced.call.set((gp, gp.status.number()));
}

/// The goroutine on `m` is back from a call that it announced, and kept its P, or has told already
/// that it lost it.
#[inline]
pub(crate) fn call_stop(m: &M) {
    if is_on() {
        tell_call_stop(m);
    }
    m.traced.call.set((null(), 0));
}

#[cold]
#[inline(never)]
fn tell_call_start(m: &M, call: Call) {
    write_one(m, None, Kind::CallStart, call as u8, 0, 0);
}

#[cold]
#[inline(never)]
fn tell_call_stop(m: &M) {
    if !m.traced.call.get().0.is_null() {
        // The end of the call is written with any other record.
        write(m, None, 0, |_, _| {});
    }
}

/// The goroutine on `m` is back, without its P. Under the scheduler lock.
pub(crate) fn call_stop_without_p(m: &M) {
    let since = m.traced.taken.take();
    let announced = m.current().is_some_and(|gp| in_call(m, gp));
    if is_on() {
        let pen = &m.traced.pen;
        // SAFETY: it is the M of the calling thread, which is in the runtime.
        unsafe {
            pen.recorder().write(
                pen,
                2,
                || context(m, None),
                |lines| {
                    let now = ticks::now();
                    if !announced {
                        let since = if since == 0 || lines.is_first() { now } else { since };
                        let unannounced = Call::Unannounced as u8;
                        lines.push(Record::new(since, Kind::CallStart, unannounced, 0, 0));
                    }
                    lines.push(Record::new(now, Kind::CallStop, 1, 0, 0));
                },
            );
        }
    }
    m.traced.call.set((null(), 0));
}

/// `m`, which is in user code, was given a P and does not know it. Under the scheduler lock.
pub(crate) fn gave_unshown(m: &M) {
    m.traced.has_unshown_p.set(true);
}

/// `m`, which was in user code, finds that it holds a P that no record shows. Under the scheduler
/// lock.
pub(crate) fn show_p(m: &M) {
    if m.traced.has_unshown_p.get() {
        call_stop_without_p(m);
        proc_start(m, m.p());
        m.traced.has_unshown_p.set(false);
    }
}

/// Whether `m` held a P that no record shows, which is taken now. Under the scheduler lock.
pub(crate) fn take_unshown(m: &M) -> bool {
    m.traced.has_unshown_p.replace(false)
}

/// `m` gives its P up for as long as it stops the world, which no record shows.
pub(crate) fn keep_quiet(m: &M, pp: &P) {
    m.traced.quiet_p.set(pp);
}

/// The P that `m` gave up without a record.
pub(crate) fn take_quiet(m: &M) -> *const P {
    m.traced.quiet_p.replace(null())
}

/// The address of the goroutine that is in a call on `m`, and its number in that call.
pub(crate) fn call_of(m: &M) -> Option<(usize, u64)> {
    let (gp, number) = m.traced.call.get();
    (!gp.is_null()).then(|| (gp.addr(), number))
}
