//! The goroutines of a runtime, listed while they run.

use crate::current;
use crate::gmp::described::Described;
use crate::gmp::{g, pool};
use crate::sched::Sched;
use std::fmt::Write;

impl Sched {
    /// All goroutines as text, the calling one first, then by number.
    pub(crate) fn dump(&self) -> String {
        let own = current::goroutine().map(|gp| gp.id.get());
        let minute = self.minute_now();
        let mut found: Vec<(u64, String)> = Vec::new();
        pool::for_each(|gp| {
            if self.is_mine(gp) && !gp.has_flag(g::UNBORN) {
                found.push((gp.id.get(), Described::at(gp, minute).to_string()));
            }
        });
        found.sort_by_key(|&(id, _)| (Some(id) != own, id));
        let mut text = String::new();
        for (_, goroutine) in found {
            // Writing to a String does not fail.
            let _ = writeln!(text, "{goroutine}");
        }
        text
    }
}
