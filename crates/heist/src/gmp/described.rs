//! A goroutine in the format of Go's dumps, for reports.
//!
//! GO: the goroutine headers of traceback.go.

use super::G;
use super::flags::Flag;
use heist_core::status::Status;
use std::fmt;

/// One goroutine in Go's format: `goroutine 7 [sync.WaitGroup.Wait, 2 minutes, locked to thread]:`,
/// then which goroutine spawned it and where.
pub(crate) struct Described<'a> {
    gp: &'a G,
    /// The current minute of its runtime.
    minute: u32,
}

impl<'a> Described<'a> {
    /// The goroutine as it is at this minute of its runtime.
    pub(crate) const fn at(gp: &'a G, minute: u32) -> Self {
        Self { gp, minute }
    }

    /// The state of a goroutine, or the reason for which it waits.
    pub(crate) fn state_of(gp: &G) -> &'static str {
        Self::name_of(gp, gp.status.get())
    }

    fn name_of(gp: &G, status: Status) -> &'static str {
        match status {
            _ if gp.flags.has(Flag::ABANDONED) => "abandoned: stack overflow",
            Status::Waiting => gp.wait_reason().text(),
            status => status.name(),
        }
    }
}

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gp = self.gp;
        let status = gp.status.get();
        write!(f, "goroutine {} [{}", gp.id.get(), Self::name_of(gp, status))?;
        let minutes = gp.waited_minutes(self.minute);
        if status == Status::Waiting && minutes >= 1 {
            write!(f, ", {minutes} minutes")?;
        }
        if gp.flags.has(Flag::LOCKED) {
            f.write_str(", locked to thread")?;
        }
        writeln!(f, "]:")?;
        if let Some(site) = gp.spawn_site() {
            match gp.parent_id.get() {
                0 => writeln!(f, "created outside the runtime\n\t{site}")?,
                parent => writeln!(f, "created by goroutine {parent}\n\t{site}")?,
            }
        }
        Ok(())
    }
}
