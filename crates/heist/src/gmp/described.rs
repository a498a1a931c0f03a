//! A goroutine in the format of Go's dumps, for reports.
//!
//! GO: the goroutine headers of traceback.go.

use super::G;
use super::flags::Flag;
use crate::sched::Sched;
use heist_core::status::Status;
use std::fmt;
use std::sync::OnceLock;

/// One goroutine in Go's format: `goroutine 7 [sync.WaitGroup.Wait, 2 minutes, locked to thread]:`,
/// then its stack, which goroutine spawned it and where.
pub(crate) struct Described<'a> {
    gp: &'a G,
    /// The current minute of its runtime.
    minute: u32,
    /// Its runtime, if the stack is shown.
    sched: Option<&'a Sched>,
}

impl<'a> Described<'a> {
    /// The goroutine as it is at this minute of its runtime.
    pub(crate) const fn at(gp: &'a G, minute: u32) -> Self {
        Self { gp, minute, sched: None }
    }

    /// The goroutine of `sched` as it is now, with its stack. Writing it allocates.
    pub(crate) fn with_stack(sched: &'a Sched, gp: &'a G) -> Self {
        Self { gp, minute: sched.life.minute_now(), sched: Some(sched) }
    }

    /// The state of a goroutine, or the reason for which it waits.
    pub(crate) fn state_of(gp: &G) -> &'static str {
        Self::name_of(gp, gp.status.get())
    }

    /// Whether the last search for leaks found it. A goroutine that was cancelled since may wait
    /// again, in a destructor.
    pub(crate) fn is_leaked(gp: &G) -> bool {
        gp.is_leaked() && !gp.is_cancelled()
    }

    fn name_of(gp: &G, status: Status) -> &'static str {
        match status {
            _ if gp.flags.has(Flag::ABANDONED) => "abandoned: stack overflow",
            Status::Waiting => gp.wait_reason().text(),
            status => status.name(),
        }
    }
}

impl Described<'_> {
    /// The header line.
    pub(crate) fn write_header(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        let gp = self.gp;
        let status = gp.status.get();
        write!(f, "goroutine {} [{}", gp.id.get(), Self::name_of(gp, status))?;
        if status == Status::Waiting && Self::is_leaked(gp) {
            f.write_str(" (leaked)")?;
        }
        let minutes = gp.waited_minutes(self.minute);
        if status == Status::Waiting && minutes >= 1 {
            write!(f, ", {minutes} minutes")?;
        }
        if gp.flags.has(Flag::LOCKED) {
            f.write_str(", locked to thread")?;
        }
        writeln!(f, "]:")
    }

    /// The lines that say where it comes from.
    pub(crate) fn write_origin(&self, f: &mut dyn fmt::Write) -> fmt::Result {
        match (self.gp.spawn_site(), self.gp.parent_id.get()) {
            (None, _) => Ok(()),
            (Some(site), 0) => writeln!(f, "created outside the runtime\n\t{site}"),
            (Some(site), parent) => {
                let forked = self.gp.is_forked();
                let how = if forked { "forked" } else { "created" };
                writeln!(f, "{how} by goroutine {parent}\n\t{site}")
            }
        }
    }
}

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write_header(f)?;
        if let Some((write_stack, sched)) = WRITE_STACK.get().zip(self.sched) {
            write_stack(sched, self.gp, f)?;
        }
        self.write_origin(f)
    }
}

/// Writes the frames of a goroutine. The reader layer passes it in.
pub(crate) type WriteStack = fn(&Sched, &G, &mut dyn fmt::Write) -> fmt::Result;

static WRITE_STACK: OnceLock<WriteStack> = OnceLock::new();

/// From now on reports that end the process, or follow the end of a runtime, show frames.
pub(crate) fn show_stacks_with(write_stack: WriteStack) {
    let _ = WRITE_STACK.set(write_stack);
}
