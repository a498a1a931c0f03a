//! From one generation to the next: what Go's reader wants to hear again.
//!
//! At the start of a generation every goroutine and every P is introduced with its status, as Go
//! does, and the numbers of their changes begin from 0. A reader that has only this generation
//! knows them all. Later than in the first generation, Go takes no status of a goroutine that
//! it does not know, so such a goroutine seems to be made then.

use super::{Ev, NO_THREAD, Order, ProcStatus, Status, thread};
use std::io::{self, Write};

impl<W: Write> Order<W> {
    /// Whether the generation is long enough to begin another.
    pub(in super::super) fn is_generation_full(&self) -> bool {
        self.wire.is_generation_full(self.gs.len() + self.ps.len())
    }

    /// Begins a generation.
    pub(in super::super) fn next_generation(&mut self) -> io::Result<()> {
        self.wire.next_generation()?;
        self.gs.values_mut().for_each(|g| g.seq = 0);
        self.ps.values_mut().for_each(|p| p.seq = 0);
        let mut ms: Vec<_> = self.ms.iter().map(|(&writer, &m)| (writer, m)).collect();
        ms.sort_unstable_by_key(|&(writer, _)| writer);
        for (writer, m) in ms {
            if let Some(p) = m.p
                && let Some(proc) = self.ps.get(&p)
            {
                self.emit(writer, Ev::ProcStatus, &[p, proc.status as u64])?;
            }
            if let Some(&g) = self.gs.get(&m.g) {
                let args = [m.g, thread(writer), g.status as u64, g.stack];
                self.emit(writer, Ev::GoStatusStack, &args)?;
            }
        }
        self.restate_idle()
    }

    /// Introduces what is on no thread again.
    fn restate_idle(&mut self) -> io::Result<()> {
        let idle = self.ps.iter().filter(|(_, p)| p.status == ProcStatus::Idle);
        let mut idle: Vec<_> = idle.map(|(&p, _)| p).collect();
        idle.sort_unstable();
        for p in idle {
            self.emit(0, Ev::ProcStatus, &[p, ProcStatus::Idle as u64])?;
        }
        let off = |status| matches!(status, Status::Runnable | Status::Waiting);
        let gs = self.gs.iter().filter(|(_, g)| off(g.status));
        let mut gs: Vec<_> = gs.map(|(&id, g)| (id, g.status, g.stack)).collect();
        gs.sort_unstable_by_key(|&(id, ..)| id);
        for (g, status, stack) in gs {
            self.emit(0, Ev::GoStatusStack, &[g, NO_THREAD, status as u64, stack])?;
        }
        Ok(())
    }

    /// Introduces a goroutine later than in the first generation.
    pub(super) fn introduce_late(&mut self, g: u64, status: Status, stack: u64) -> io::Result<()> {
        self.go_create(0, g, status == Status::Waiting, stack)
    }
}
