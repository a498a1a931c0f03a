//! The hooks: what the scheduler tells the trace.
//!
//! While no runtime records and nothing is measured (`gmp::meter`), a hook is a load and a branch.
//! A hook is called before the effect that it tells of is published, and before the fields of the
//! M change: so the time of a record is not later than that of its consequences, and the
//! description of the M in a new buffer is that before the record.

mod calls;
mod counted;

pub(super) use calls::call_of;
pub(crate) use calls::{
    call_start, call_stop, call_stop_without_p, gave_unshown, give_p_ahead, keep_quiet, show_p,
    take_quiet, take_unshown,
};

use super::recorder::{Lines, Pen, Recorder, is_on};
use super::text;
use crate::current;
use crate::gmp::flags::Flag;
use crate::gmp::g::{Outcome, WaitReason, Woken};
use crate::gmp::{G, M, P, meter};
use crate::sys::ticks;
use counted::Counted;
use heist_core::list::List;
use heist_core::status::Status;
use heist_trace::record::{Context, End, Found, Freeze, Kind, Record, Stop, Take, Wake};
use std::cell::Cell;
use std::ptr::null;
use std::sync::Arc;

/// What a trace needs to know about an M.
pub(crate) struct Traced {
    pen: Pen,
    /// The goroutine that is in an announced or predicted call here, and its number; see `in_call`.
    call: Cell<(*const G, u64)>,
    /// When the P was taken. Under the scheduler lock.
    taken: Cell<u64>,
    /// The M holds a P that it was given without knowing it, and no record shows that. Under the
    /// scheduler lock.
    has_unshown_p: Cell<bool>,
    /// The P that the M gave up without a record, because it stops the world itself.
    quiet_p: Cell<*const P>,
}

impl Traced {
    pub(crate) fn new(recorder: Arc<Recorder>) -> Self {
        Self {
            pen: Pen::new(recorder),
            call: Cell::new((null(), 0)),
            taken: Cell::new(0),
            has_unshown_p: Cell::new(false),
            quiet_p: Cell::new(null()),
        }
    }

    pub(super) const fn pen(&self) -> &Pen {
        &self.pen
    }
}

/// The M of the calling thread, if it is one of this recorder's runtime and in the runtime.
fn own_m(recorder: &Recorder) -> Option<&'static M> {
    // SAFETY: the M of the calling thread is alive as long as the thread is in the runtime.
    let m = unsafe { current::m().as_ref() }?;
    (std::ptr::eq(m.traced.pen.recorder(), recorder) && !m.is_in_user()).then_some(m)
}

/// Describes an M before a record. `running`: the goroutine that it has just left, if it is not
/// its current one any more.
fn context(m: &M, running: Option<&G>) -> Context {
    let traced = &m.traced;
    let p = match m.p_or_null() {
        held if held.is_null() || traced.has_unshown_p.get() => traced.quiet_p.get(),
        held => held,
    };
    // SAFETY: null, or a P, which lives as long as the runtime.
    let p = unsafe { p.as_ref() };
    let running = running.or_else(|| m.current().filter(|gp| gp.status.get() == Status::Running));
    Context {
        writer: m.id + 1,
        ticks: ticks::now(),
        p: p.map_or(0, |pp| pp.id + 1),
        p_number: p.map_or(0, |pp| pp.holder_number()),
        goroutine: running.map_or(0, |gp| gp.id.get()),
        goroutine_number: running.map_or(0, |gp| gp.status.number() as u16),
        in_call: running.is_some_and(|gp| in_call(m, gp)),
        spinning: m.spinning.get(),
        ..Context::default()
    }
}

/// Whether the goroutine is in a call that was announced on this M. It is not if it has run or
/// waited since: a call can be ended by any other call into the runtime.
fn in_call(m: &M, gp: &G) -> bool {
    m.traced.call.get() == (std::ptr::from_ref(gp), gp.status.number())
}

/// Writes a group of at most `n` records of the calling thread's M.
#[inline]
fn write(m: &M, running: Option<&G>, n: usize, fill: impl FnOnce(u64, &mut Lines<'_>)) {
    let ends_call = !m.traced.call.get().0.is_null();
    let n = n + usize::from(ends_call);
    // SAFETY: it is the M of the calling thread, which is in the runtime: so say all callers.
    unsafe {
        m.traced.pen.recorder().write(
            &m.traced.pen,
            n,
            || context(m, running),
            |lines| {
                let now = ticks::now();
                if ends_call {
                    end_call(m, running, now, lines);
                }
                fill(now, lines);
            },
        );
    }
}

/// A goroutine that does something else is no longer in its call.
#[cold]
fn end_call(m: &M, running: Option<&G>, now: u64, lines: &mut Lines<'_>) {
    if running.or(m.current()).is_some_and(|gp| in_call(m, gp)) {
        lines.push(Record::new(now, Kind::CallStop, 0, 0, 0));
    }
    m.traced.call.set((null(), 0));
}

/// Writes one record of the calling thread's M.
#[inline]
fn write_one(m: &M, running: Option<&G>, kind: Kind, detail: u8, subject: u64, number: u16) {
    write(m, running, 1, |now, lines| {
        lines.push(Record::new(now, kind, detail, subject, number));
    });
}

/// Writes a group of at most `n` records of the calling thread, whichever it is.
fn write_here(recorder: &Recorder, n: usize, fill: impl FnOnce(u64, &mut Lines<'_>)) {
    match own_m(recorder) {
        Some(m) => write(m, None, n, fill),
        None => recorder.write_shared(n, |lines| fill(ticks::now(), lines)),
    }
}

fn write_one_here(recorder: &Recorder, kind: Kind, detail: u8, subject: u64, number: u16) {
    write_here(recorder, 1, |now, lines| {
        lines.push(Record::new(now, kind, detail, subject, number));
    });
}

/// Defines hooks that do nothing while nobody listens.
macro_rules! hooks {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) $body:block)+) => {
        $(
            $(#[$doc])*
            #[inline(always)]
            pub(crate) fn $name($($arg: $type),*) {
                #[cold]
                #[inline(never)]
                fn tell($($arg: $type),*) $body
                if is_on() {
                    tell($($arg),*);
                }
            }
        )+
    };
}

hooks! {
    /// The calling thread made a goroutine, which is about to be queued, or to wait for the clock.
    fn go_create(recorder: &Recorder, gp: &G) {
        let unborn = gp.flags.has(Flag::UNBORN);
        let detail = if unborn { 1 } else { 2 * u8::from(gp.flags.has(Flag::TASK)) };
        let number = gp.status.number() + u64::from(unborn);
        let name = gp.name().unwrap_or("");
        let site = gp.spawn_site().map_or(0, |site| std::ptr::from_ref(site).addr() as u64);
        write_here(recorder, 3 + text::lines(name), |now, lines| {
            let id = gp.id.get();
            lines.push(Record::new(now, Kind::GoCreate, detail, id, number as u16));
            lines.push(Record::new(now, Kind::Site, class(gp), site, 0));
            if !name.is_empty() {
                text::push(lines, now, Kind::Name, 0, name);
            }
        });
    }

    /// `m` runs a goroutine, whose status says so already.
    fn go_start(m: &M, gp: &G, found: Found) {
        meter::runs(gp);
        write_one(m, None, Kind::GoStart, found as u8, gp.id.get(), gp.status.number() as u16);
    }

    /// The goroutine that ran on `m` is about to become runnable.
    fn go_stop(m: &M, gp: &G, why: Stop) {
        meter::left(gp, false);
        write_one(m, Some(gp), Kind::GoStop, why as u8, gp.id.get(), gp.status.number() as u16);
    }

    /// The goroutine on `m` is about to wait for a P together with its thread.
    fn go_freeze(m: &M, why: Freeze) {
        if let Some(gp) = m.current() {
            meter::frozen(gp);
            let number = gp.status.number() as u16;
            write_one(m, None, Kind::GoFreeze, why as u8, gp.id.get(), number);
        }
    }

    /// The goroutine that ran on `m` is about to wait.
    fn go_block(m: &M, gp: &G) {
        meter::left(gp, true);
        let (reason, number) = (gp.wait_reason() as u8, gp.status.number() + 1);
        write_one(m, Some(gp), Kind::GoBlock, reason, gp.id.get(), number as u16);
    }

    /// The wait of the goroutine that ran on `m` was refused, and it continues. Its status says so
    /// already.
    fn go_refused(m: &M, gp: &G) {
        meter::runs(gp);
        let number = gp.status.number() as u16;
        write(m, None, 2, |now, lines| {
            let (id, wait) = (gp.id.get(), number.wrapping_sub(1));
            lines.push(Record::new(now, Kind::GoUnblock, Wake::Refused as u8, id, wait));
            lines.push(Record::new(now, Kind::GoStart, Found::Resumed as u8, id, number));
        });
    }

    /// The calling thread has claimed a goroutine that waited, and is about to queue it.
    fn go_unblock(recorder: &Recorder, gp: &G) {
        meter::readied(gp);
        let wake = match gp.woken.get() {
            Woken::Ready => Wake::Ready,
            Woken::TimedOut => Wake::TimedOut,
            Woken::Cancelled => Wake::Cancelled,
        };
        let number = gp.status.number() as u16;
        write_one_here(recorder, Kind::GoUnblock, wake as u8, gp.id.get(), number);
    }

    /// The calling thread has claimed goroutines for the clock, and is about to queue them.
    fn timers_ran(recorder: &Recorder, woken: &List<G>) {
        claimed(recorder, woken, 0, Wake::TimedOut);
        if !woken.is_empty() {
            write_one_here(recorder, Kind::Timers, 0, woken.len().into(), 0);
        }
    }

    /// The calling thread has claimed goroutines for the clock, behind the first `n` of a list, and
    /// is about to queue them.
    fn more_timers_ran(recorder: &Recorder, woken: &List<G>, n: u32) {
        claimed(recorder, woken, n, Wake::TimedOut);
        if woken.len() > n {
            write_one_here(recorder, Kind::Timers, 0, (woken.len() - n).into(), 0);
        }
    }

    /// The calling thread has asked the poller, and is about to queue the goroutines that it
    /// claimed.
    fn polled(recorder: &Recorder, woken: &List<G>, waited: bool) {
        claimed(recorder, woken, 0, Wake::Network);
        if waited || !woken.is_empty() {
            write_one_here(recorder, Kind::Poll, waited.into(), woken.len().into(), 0);
        }
    }

    /// The goroutine that ran on `m` ended.
    fn go_end(m: &M, gp: &G) {
        let end = match gp.outcome.get() {
            Outcome::None | Outcome::Returned => End::Returned,
            Outcome::Panicked => End::Panicked,
            Outcome::Cancelled => End::Cancelled,
            Outcome::Exited => End::Exited,
            Outcome::Overflowed => End::Overflowed,
            Outcome::NoStack => End::NoStack,
        };
        write_one(m, Some(gp), Kind::GoEnd, end as u8, gp.id.get(), gp.status.number() as u16);
    }

    /// The calling thread ends an unborn goroutine that it has claimed.
    fn go_drop(recorder: &Recorder, gp: &G) {
        write_one_here(recorder, Kind::GoDrop, 0, gp.id.get(), gp.status.number() as u16);
    }

    /// The M of the calling thread is about to hold a P.
    fn proc_start(m: &M, pp: &P) {
        let counted = Counted::new(pp);
        write(m, None, 1, |now, lines| {
            lines.push(Record::new(now, Kind::ProcStart, 0, pp.id.into(), counted.number()));
        });
    }

    /// The M of the calling thread is about to give up its P.
    fn proc_stop(m: &M, pp: &P) {
        let counted = Counted::new(pp);
        write(m, None, 1, |now, lines| {
            lines.push(Record::new(now, Kind::ProcStop, 0, pp.id.into(), counted.number()));
        });
    }

    /// The calling thread is about to wake an M with a P.
    fn proc_hand(recorder: &Recorder, pp: &P) {
        write_one_here(recorder, Kind::ProcHand, 0, pp.id.into(), 0);
    }

    /// The calling thread takes a P from `m`, which does not know. Under the scheduler lock.
    fn proc_take(m: &M, pp: &P, why: Take) {
        let counted = Counted::new(pp);
        write_here(m.traced.pen.recorder(), 2, |now, lines| {
            m.traced.taken.set(now);
            let number = counted.number();
            lines.push(Record::new(now, Kind::ProcTake, why as u8, pp.id.into(), number));
            lines.push(Record::new(now, Kind::Victim, 0, m.id.into(), 0));
        });
    }

    /// `m` took goroutines from another P.
    fn steal(m: &M, victim: u32, n: u32, run_next: bool) {
        let n = n.min(u16::MAX.into()) as u16;
        write_one(m, None, Kind::Steal, run_next.into(), victim.into(), n);
    }

    /// `m` goes to sleep.
    fn m_park(m: &M) {
        write_one(m, None, Kind::MPark, 0, 0, 0);
    }

    /// `m` woke up.
    fn m_unpark(m: &M) {
        write_one(m, None, Kind::MUnpark, 0, 0, 0);
    }

    /// `m` begins to search.
    fn spin_start(m: &M) {
        write_one(m, None, Kind::SpinStart, 0, 0, 0);
    }

    /// `m` ends its search.
    fn spin_stop(m: &M) {
        write_one(m, None, Kind::SpinStop, 0, 0, 0);
    }

    /// The goroutine on `m` was asked to yield.
    fn preempt_ask(recorder: &Recorder, m: &M) {
        write_one_here(recorder, Kind::PreemptAsk, 0, m.id.into(), 0);
    }

    /// The thread of `m` is interrupted.
    fn preempt_force(recorder: &Recorder, m: &M) {
        write_one_here(recorder, Kind::PreemptForce, 0, m.id.into(), 0);
    }

    /// The world begins to stop.
    fn world_stop(recorder: &Recorder, cause: u8) {
        write_one_here(recorder, Kind::WorldStop, cause, 0, 0);
    }

    /// The world runs again.
    fn world_start(recorder: &Recorder) {
        write_one_here(recorder, Kind::WorldStart, 0, 0, 0);
    }

    /// The number of Ps is about to change.
    fn procs(recorder: &Recorder, n: u32) {
        write_one_here(recorder, Kind::Procs, 0, n.into(), 0);
    }

    /// The lengths of the queue of the P of `m` and of the global queue.
    fn queues(m: &M, local: u32, global: u32) {
        let global = global.min(u16::MAX.into()) as u16;
        write_one(m, None, Kind::Queues, 0, local.into(), global);
    }

    /// The goroutine on `m` begins a task.
    fn task_start(m: &M, number: u64, kind: &str, parent: u64) {
        write(m, None, 3 + text::lines(kind), |now, lines| {
            lines.push(Record::new(now, Kind::TaskStart, 0, number, 0));
            text::push(lines, now, Kind::Arg, 0, kind);
            lines.push(Record::new(now, Kind::Arg, 0, parent, 0));
        });
    }

    /// The goroutine on `m` ends a task, or enters or leaves a region of one.
    fn annotation(m: &M, kind: Kind, name: &str, task: u64) {
        write(m, None, 2 + text::lines(name), |now, lines| {
            if kind == Kind::TaskStop {
                lines.push(Record::new(now, kind, 0, task, 0));
                return;
            }
            text::push(lines, now, kind, 0, name);
            if kind == Kind::RegionStart {
                lines.push(Record::new(now, Kind::Arg, 0, task, 0));
            }
        });
    }

    /// The goroutine on `m` writes a message.
    fn log(m: &M, category: &str, message: &str, task: u64) {
        write(m, None, 3 + text::lines(category) + text::lines(message), |now, lines| {
            text::push(lines, now, Kind::Log, 0, message);
            text::push(lines, now, Kind::Arg, 0, category);
            lines.push(Record::new(now, Kind::Arg, 0, task, 0));
        });
    }

    /// A goroutine computed (0) or blocked (1) for too long.
    fn stuck(recorder: &Recorder, gp: &G, how: u8, ns: u64) {
        write_here(recorder, 2, |now, lines| {
            lines.push(Record::new(now, Kind::Stuck, how, gp.id.get(), 0));
            lines.push(Record::new(now, Kind::Arg, 0, ns, 0));
        });
    }
}

/// Tells that the goroutines of a list, behind the first `n`, were claimed.
fn claimed(recorder: &Recorder, woken: &List<G>, n: u32, wake: Wake) {
    for gp in woken.iter().skip(n as usize) {
        meter::readied(gp);
        let number = gp.status.number() as u16;
        write_one_here(recorder, Kind::GoUnblock, wake as u8, gp.id.get(), number);
    }
}

/// The class of a goroutine as the trace numbers it.
pub(super) fn class(gp: &G) -> u8 {
    match () {
        () if gp.flags.began_with(Flag::LATENCY) => 1,
        () if gp.flags.began_with(Flag::IDLE) => 2,
        () => 0,
    }
}

/// The reason for a wait as the trace numbers it.
pub(super) fn wait_reasons() -> Vec<String> {
    WaitReason::ALL.iter().map(|reason| reason.text().to_owned()).collect()
}
