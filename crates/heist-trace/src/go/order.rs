//! What Go's reader believes, and how it is told something without being offended.
//!
//! Go's reader emulates Go's scheduler and refuses a trace that this scheduler could not have
//! produced. Each method here first writes the events that make its own event legal. If the trace
//! is complete, few of them write more than one event:
//! - an M that loses its P while a goroutine runs on it gets a `GoSyscallBegin`, because Go knows a
//!   goroutine without a P only in a system call;
//! - a goroutine that is frozen becomes runnable (`GoStop`, or `GoSyscallEndBlocked`);
//! - what threads outside the runtime do, and goroutines inside of blocking calls, is attributed to
//!   one pseudo thread with a pseudo P, because Go makes goroutines only with a P.
//!
//! GO: internal/trace/order.go.

mod generations;

use super::wire::{Ev, Wire};
use crate::model::Map;
use std::io::{self, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(super) enum Status {
    Runnable = 1,
    Running = 2,
    Syscall = 3,
    Waiting = 4,
}

#[derive(Clone, Copy, Debug)]
struct Goroutine {
    status: Status,
    seq: u64,
    /// The writer it runs on, or 0.
    writer: u32,
    stack: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcStatus {
    Running = 1,
    Idle = 2,
    Syscall = 3,
}

#[derive(Clone, Copy, Debug)]
struct Proc {
    status: ProcStatus,
    seq: u64,
    writer: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Thread {
    p: Option<u64>,
    g: u64,
}

/// The number of the pseudo P of threads outside the runtime, and of Ps that an M seems to hold
/// because events are missing.
const PSEUDO: u64 = 1_000_000;
const NO_THREAD: u64 = u64::MAX;

/// Reasons of a `GoStop`.
pub(super) const PREEMPTED: &str = "preempted";
pub(super) const YIELDED: &str = "runtime.Gosched";

/// The number of the thread of a writer.
fn thread(writer: u32) -> u64 {
    writer.checked_sub(1).map_or(PSEUDO, u64::from)
}

#[derive(Debug)]
pub(super) struct Order<W: Write> {
    pub(super) wire: Wire<W>,
    gs: Map<u64, Goroutine>,
    ps: Map<u64, Proc>,
    ms: Map<u32, Thread>,
}

impl<W: Write> Order<W> {
    pub(super) fn new(wire: Wire<W>) -> Self {
        Self { wire, gs: Map::default(), ps: Map::default(), ms: Map::default() }
    }

    fn emit(&mut self, writer: u32, event: Ev, args: &[u64]) -> io::Result<()> {
        self.wire.event(thread(writer), event, args)
    }

    fn m(&self, writer: u32) -> Thread {
        self.ms.get(&writer).copied().unwrap_or_default()
    }

    fn set_m(&mut self, writer: u32, p: Option<u64>, g: u64) {
        self.ms.insert(writer, Thread { p, g });
    }

    pub(super) fn knows(&self, g: u64) -> bool {
        self.gs.contains_key(&g)
    }

    /// The stack that stands for the site of a goroutine.
    pub(super) fn stack_of(&self, g: u64) -> u64 {
        self.gs.get(&g).map_or(0, |g| g.stack)
    }

    /// The goroutine that runs on an M that has a P, or 0: only such a goroutine does things.
    pub(super) fn running(&self, writer: u32) -> u64 {
        let m = self.m(writer);
        let runs = self.gs.get(&m.g).is_some_and(|g| g.status == Status::Running);
        if m.p.is_some() && runs { m.g } else { 0 }
    }

    /// Introduces a goroutine from before the trace.
    pub(super) fn status(
        &mut self,
        writer: u32,
        g: u64,
        status: Status,
        stack: u64,
    ) -> io::Result<()> {
        if self.wire.is_first_over() {
            return self.introduce_late(g, status, stack);
        }
        let here = matches!(status, Status::Running | Status::Syscall);
        let on = if here { thread(writer) } else { NO_THREAD };
        self.emit(writer, Ev::GoStatusStack, &[g, on, status as u64, stack])?;
        let its = if here { writer } else { 0 };
        self.gs.insert(g, Goroutine { status, seq: 0, writer: its, stack });
        if here {
            let p = self.m(writer).p;
            self.set_m(writer, p, g);
        }
        Ok(())
    }

    /// Introduces a P that an M holds since before the trace.
    fn proc_status(&mut self, writer: u32, p: u64, status: ProcStatus) -> io::Result<()> {
        self.emit(writer, Ev::ProcStatus, &[p, status as u64])?;
        let held = status != ProcStatus::Idle;
        self.ps.insert(p, Proc { status, seq: 0, writer: if held { writer } else { 0 } });
        if held {
            let g = self.m(writer).g;
            self.set_m(writer, Some(p), g);
        }
        Ok(())
    }

    /// The M has this P and this goroutine when its first buffer begins.
    pub(super) fn begin(
        &mut self,
        writer: u32,
        p: Option<u32>,
        g: u64,
        in_call: bool,
        stack: u64,
    ) -> io::Result<()> {
        if let Some(p) = p.map(u64::from).filter(|&p| self.m(writer).p != Some(p)) {
            if self.ps.contains_key(&p) || self.m(writer).p.is_some() {
                self.proc_start(writer, p)?;
            } else {
                let in_call = in_call && g != 0 && !self.knows(g);
                let status = if in_call { ProcStatus::Syscall } else { ProcStatus::Running };
                self.proc_status(writer, p, status)?;
            }
        }
        if g == 0 || self.m(writer).g == g {
            return Ok(());
        }
        if self.wire.is_first_over() && !self.knows(g) {
            self.introduce_late(g, Status::Runnable, stack)?;
        }
        if self.knows(g) || self.m(writer).g != 0 {
            self.go_start(writer, g)?;
            return if in_call { self.call_start(writer, 0) } else { Ok(()) };
        }
        if !in_call {
            self.ensure_p(writer)?;
        }
        self.status(writer, g, if in_call { Status::Syscall } else { Status::Running }, stack)
    }

    /// An M takes an idle P.
    pub(super) fn proc_start(&mut self, writer: u32, p: u64) -> io::Result<()> {
        match self.ps.get(&p) {
            None => self.proc_status(writer, p, ProcStatus::Idle)?,
            Some(proc) if proc.status != ProcStatus::Idle => self.proc_stop(proc.writer)?,
            Some(_) => {}
        }
        if self.m(writer).p.is_some() {
            self.proc_stop(writer)?;
        }
        let proc = self.ps.entry(p).or_insert(Proc { status: ProcStatus::Idle, seq: 0, writer });
        proc.seq += 1;
        (proc.status, proc.writer) = (ProcStatus::Running, writer);
        let seq = proc.seq;
        self.emit(writer, Ev::ProcStart, &[p, seq])?;
        let g = self.m(writer).g;
        self.set_m(writer, Some(p), g);
        Ok(())
    }

    /// An M gives up its P.
    pub(super) fn proc_stop(&mut self, writer: u32) -> io::Result<()> {
        let Some(p) = self.m(writer).p else {
            return Ok(());
        };
        self.call_start(writer, 0)?;
        self.emit(writer, Ev::ProcStop, &[])?;
        let g = self.m(writer).g;
        self.set_m(writer, None, g);
        if let Some(proc) = self.ps.get_mut(&p) {
            (proc.status, proc.writer) = (ProcStatus::Idle, 0);
        }
        Ok(())
    }

    /// A thread takes the P of an M.
    pub(super) fn proc_take(&mut self, writer: u32, p: u64) -> io::Result<()> {
        let Some(&Proc { writer: victim, .. }) = self.ps.get(&p).filter(|p| p.writer != 0) else {
            return Ok(());
        };
        self.call_start(victim, 0)?;
        let Some(proc) = self.ps.get_mut(&p) else {
            return Ok(());
        };
        // Go takes Ps only from system calls.
        if proc.status != ProcStatus::Syscall || victim == writer {
            return self.proc_stop(victim);
        }
        proc.seq += 1;
        (proc.status, proc.writer) = (ProcStatus::Idle, 0);
        let seq = proc.seq;
        let g = self.m(victim).g;
        self.set_m(victim, None, g);
        self.emit(writer, Ev::ProcSteal, &[p, seq, thread(victim)])
    }

    /// The goroutine of an M begins a system call.
    pub(super) fn call_start(&mut self, writer: u32, stack: u64) -> io::Result<()> {
        let g = self.running(writer);
        let (Some(p), true) = (self.m(writer).p, g != 0) else {
            return Ok(());
        };
        let Some(proc) = self.ps.get_mut(&p) else {
            return Ok(());
        };
        proc.seq += 1;
        proc.status = ProcStatus::Syscall;
        let seq = proc.seq;
        self.gs.entry(g).and_modify(|g| g.status = Status::Syscall);
        self.emit(writer, Ev::GoSyscallBegin, &[seq, stack])
    }

    /// The system call is over. A goroutine that has no P any more becomes runnable.
    pub(super) fn call_stop(&mut self, writer: u32, lost_p: bool) -> io::Result<()> {
        let m = self.m(writer);
        if self.gs.get(&m.g).is_none_or(|g| g.status != Status::Syscall) {
            return Ok(());
        }
        let in_syscall = |p: &u64| self.ps.get(p).is_some_and(|p| p.status == ProcStatus::Syscall);
        if let Some(p) = m.p.filter(in_syscall) {
            if !lost_p {
                self.ps.entry(p).and_modify(|p| p.status = ProcStatus::Running);
                self.gs.entry(m.g).and_modify(|g| g.status = Status::Running);
                return self.emit(writer, Ev::GoSyscallEnd, &[]);
            }
            self.proc_stop(writer)?;
        }
        self.emit(writer, Ev::GoSyscallEndBlocked, &[])?;
        self.gs.entry(m.g).and_modify(|g| (g.status, g.writer) = (Status::Runnable, 0));
        let p = self.m(writer).p;
        self.set_m(writer, p, 0);
        Ok(())
    }

    /// The M has a P, if need be a pseudo P.
    fn ensure_p(&mut self, writer: u32) -> io::Result<()> {
        if self.m(writer).p.is_none() {
            self.proc_start(writer, PSEUDO + u64::from(writer))?;
        }
        Ok(())
    }

    /// The goroutine leaves its M and can run.
    fn make_runnable(&mut self, writer: u32, g: u64) -> io::Result<()> {
        let Some(&Goroutine { status, writer: its, .. }) = self.gs.get(&g) else {
            return self.status(writer, g, Status::Runnable, 0);
        };
        match status {
            Status::Runnable => Ok(()),
            Status::Waiting => self.go_unblock(writer, g, 0),
            Status::Running => self.preempt(its, g, 0),
            Status::Syscall => {
                self.call_stop(its, false)?;
                if self.running(its) == g {
                    self.preempt(its, g, 0)?;
                }
                Ok(())
            }
        }
    }

    pub(super) fn go_start(&mut self, writer: u32, g: u64) -> io::Result<()> {
        if self.m(writer).g != 0 {
            self.make_runnable(writer, self.m(writer).g)?;
        }
        self.make_runnable(writer, g)?;
        self.ensure_p(writer)?;
        let entry = self.gs.entry(g);
        let mut seq = 0;
        entry.and_modify(|g| {
            g.seq += 1;
            (g.status, g.writer) = (Status::Running, writer);
            seq = g.seq;
        });
        self.emit(writer, Ev::GoStart, &[g, seq])?;
        let p = self.m(writer).p;
        self.set_m(writer, p, g);
        Ok(())
    }

    /// The goroutine runs on this M.
    fn ensure_running(&mut self, writer: u32, g: u64) -> io::Result<()> {
        if self.m(writer).g == g {
            self.call_stop(writer, false)?;
        }
        if self.running(writer) == g { Ok(()) } else { self.go_start(writer, g) }
    }

    /// The goroutine stops (`GoStop`) or waits (`GoBlock`). The reason is the number of a string.
    pub(super) fn leave(
        &mut self,
        writer: u32,
        g: u64,
        event: Ev,
        reason: u64,
        stack: u64,
    ) -> io::Result<()> {
        self.ensure_running(writer, g)?;
        self.emit(writer, event, &[reason, stack])?;
        let status = if event == Ev::GoBlock { Status::Waiting } else { Status::Runnable };
        self.gs.entry(g).and_modify(|g| (g.status, g.writer) = (status, 0));
        let p = self.m(writer).p;
        self.set_m(writer, p, 0);
        Ok(())
    }

    fn preempt(&mut self, writer: u32, g: u64, stack: u64) -> io::Result<()> {
        let reason = self.wire.string(PREEMPTED);
        self.leave(writer, g, Ev::GoStop, reason, stack)
    }

    /// The goroutine waits for a P together with its thread.
    pub(super) fn freeze(&mut self, writer: u32, g: u64, stack: u64) -> io::Result<()> {
        if self.m(writer).g != g {
            return Ok(());
        }
        self.call_stop(writer, false)?;
        if self.running(writer) == g {
            self.preempt(writer, g, stack)?;
        }
        Ok(())
    }

    pub(super) fn go_end(&mut self, writer: u32, g: u64) -> io::Result<()> {
        self.ensure_running(writer, g)?;
        self.emit(writer, Ev::GoDestroy, &[])?;
        self.gs.remove(&g);
        let p = self.m(writer).p;
        self.set_m(writer, p, 0);
        Ok(())
    }

    pub(super) fn go_unblock(&mut self, writer: u32, g: u64, stack: u64) -> io::Result<()> {
        if !self.knows(g) {
            self.status(writer, g, Status::Waiting, 0)?;
        }
        let Some(goroutine) = self.gs.get_mut(&g).filter(|g| g.status == Status::Waiting) else {
            return Ok(());
        };
        goroutine.seq += 1;
        goroutine.status = Status::Runnable;
        let seq = goroutine.seq;
        self.emit(writer, Ev::GoUnblock, &[g, seq, stack])
    }

    /// A new goroutine, whose stack is its site.
    pub(super) fn go_create(
        &mut self,
        writer: u32,
        g: u64,
        unborn: bool,
        stack: u64,
    ) -> io::Result<()> {
        if self.knows(g) {
            return Ok(());
        }
        let m = self.m(writer);
        let can = m.p.is_some() && (m.g == 0 || self.running(writer) == m.g);
        let writer = if can { writer } else { 0 };
        self.ensure_p(writer)?;
        let event = if unborn { Ev::GoCreateBlocked } else { Ev::GoCreate };
        self.emit(writer, event, &[g, stack, stack])?;
        let status = if unborn { Status::Waiting } else { Status::Runnable };
        self.gs.insert(g, Goroutine { status, seq: 0, writer: 0, stack });
        Ok(())
    }

    /// An event that needs a goroutine that runs here. Answers whether there was one.
    pub(super) fn annotate(&mut self, writer: u32, event: Ev, args: &[u64]) -> io::Result<bool> {
        if self.running(writer) == 0 {
            return Ok(false);
        }
        self.emit(writer, event, args)?;
        Ok(true)
    }
}
