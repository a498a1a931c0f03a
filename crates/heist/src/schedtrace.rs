//! A line about the scheduler at intervals, in the format of Go's `GODEBUG=schedtrace`.
//!
//! sysmon prints it without a lock that others need, without allocating and without stopping the
//! goroutines: the numbers of a line are of slightly different moments. docs/OPERATING.md explains
//! each of them.
//!
//! GO: proc.go schedtrace.

use crate::gmp::{G, M, P, pool};
use crate::sched::{Detail, Sched};
use crate::sys::clock;
use crate::sys::stderr::{self, Stderr};
use heist_core::m_word::Place;
use heist_core::status::Status;
use std::fmt::{self, Display, Write};

/// Prints the line, and with `Detail::All` one for each P, M and goroutine.
pub(crate) fn print(sched: &Sched, detail: Detail) {
    print_summary(sched, detail);
    if detail == Detail::All {
        for pp in sched.all_ps() {
            print_p(sched, pp);
        }
        for m in sched.threads.all_ms().iter().filter(|m| m.tid() != 0) {
            print_m(m);
        }
        pool::for_each(|gp| {
            if sched.is_mine(gp) {
                print_g(sched, gp);
            }
        });
    }
}

fn print_summary(sched: &Sched, detail: Detail) {
    let (threads, idle) = {
        let locked = sched.lock.lock();
        (locked.roster.n_ms(), locked.idle_ms.len())
    };
    let yielded: u32 = sched.all_ps().map(|pp| pp.yielded.len()).sum();
    let mut out = Stderr::new();
    // An error here is one of standard error itself, which cannot be reported.
    let _ = write!(
        out,
        "SCHED {}ms: gomaxprocs={} idleprocs={} threads={threads} spinningthreads={} \
         needspinning={} idlethreads={idle} runqueue={}",
        sched.life.age_ns(clock::now_ns()) / 1_000_000,
        sched.procs(),
        sched.rest.idle().count_all(),
        sched.rest.n_spinning(),
        u32::from(sched.rest.wants_spinner()),
        sched.global_len().get() + yielded + sched.threads.n_held_back(),
    );
    let _ = if detail == Detail::All {
        let locked = sched.threads.all_ms().iter().filter(|m| is_idle_locked(m)).count();
        writeln!(
            out,
            " gcwaiting={} nmidlelocked={locked} stopwait={} sysmonwait=false",
            sched.world.is_stopping(),
            sched.world.n_left_to_stop(),
        )
    } else {
        write_lists(&mut out, sched)
    };
}

fn write_lists(out: &mut Stderr, sched: &Sched) -> fmt::Result {
    out.write_str(" [ ")?;
    for pp in sched.all_ps() {
        write!(out, "{} ", pp.queue.len())?;
    }
    out.write_str("] schedticks=[ ")?;
    for pp in sched.all_ps() {
        write!(out, "{} ", pp.tick())?;
    }
    out.write_str("]\n")
}

/// Whether a thread sleeps until the goroutine that is bound to it can run.
fn is_idle_locked(m: &M) -> bool {
    !m.bound_g.get().is_null() && m.current().is_none() && !m.has_p() && m.note.is_asleep()
}

fn print_p(sched: &Sched, pp: &P) {
    // SAFETY: Ms live as long as the runtime.
    let m = unsafe { pp.m().as_ref() };
    let (status, free) = {
        let locked = sched.lock.lock();
        if sched.rest.idle().idle.contains(pp.id) {
            // SAFETY: an idle P has no holder, and gets one only under this lock.
            (0, Some(unsafe { pp.local() }.free_gs.len()))
        } else {
            drop(locked);
            (if sched.world.is_stopping() && m.is_none() { 3 } else { 1 }, None)
        }
    };
    stderr::report(format_args!(
        "  P{}: status={status} schedtick={} syscalltick={} m={} runqsize={} gfreecnt={} \
         timerslen={}\n",
        pp.id,
        pp.tick(),
        pp.stats.announced.get(),
        OrNil(m.map(|m| m.id)),
        pp.queue.len() + pp.yielded.len(),
        OrNil(free),
        pp.timers.len(),
    ));
}

fn print_m(m: &M) {
    let curg = m.current();
    let guarded = curg.is_some_and(|gp| !gp.may_be_forced());
    // SAFETY: goroutine records are never unmapped.
    let locked_g = unsafe { m.bound_g.get().as_ref() };
    stderr::report(format_args!(
        "  M{}: p={} curg={} mallocing=0 throwing=0 preemptoff={} locks={} dying=0 spinning={} \
         blocked={} lockedg={}\n",
        m.id,
        OrNil(m.p_id()),
        OrNil(curg.map(|gp| gp.id.get())),
        if guarded { "guarded" } else { "" },
        u32::from(!m.is_in_user()),
        m.spinning.get(),
        m.note.is_asleep(),
        OrNil(locked_g.map(|gp| gp.id.get())),
    ));
}

fn print_g(sched: &Sched, gp: &G) {
    let status = gp.status.get();
    let m = match status {
        Status::Running => sched
            .threads
            .all_ms()
            .iter()
            .find(|m| m.current().is_some_and(|running| std::ptr::eq(running, gp))),
        _ => None,
    };
    let reason = if status == Status::Waiting { gp.wait_reason().text() } else { "" };
    // The pointer is only compared: in a record that is free by now, the field has another meaning.
    let locked_m = sched.threads.all_ms().iter().find(|m| std::ptr::eq(*m, gp.bound_m.get()));
    stderr::report(format_args!(
        "  G{}: status={}({reason}) m={} lockedm={}\n",
        gp.id.get(),
        number_of(status, m),
        OrNil(m.map(|m| m.id)),
        OrNil(locked_m.map(|m| m.id)),
    ));
}

/// Go's number for a status.
fn number_of(status: Status, m: Option<&M>) -> u32 {
    match status {
        Status::Runnable => 1,
        Status::Running if m.is_some_and(|m| m.word.stamp().place() == Place::Blocked) => 3,
        Status::Running => 2,
        Status::Waiting => 4,
        Status::Dead => 6,
    }
}

/// A number, or `nil` as Go writes it.
struct OrNil<T>(Option<T>);

impl<T: Display> Display for OrNil<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(value) => value.fmt(f),
            None => f.write_str("nil"),
        }
    }
}
