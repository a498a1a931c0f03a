//! A goroutine in Go's words, for reports and dumps.
//!
//! GO: the goroutine headers of traceback.go.

use super::G;
use heist_core::status::Status;
use std::fmt;

/// One goroutine in Go's words: `goroutine 7 [sync.WaitGroup.Wait]:` and who made it where.
pub(crate) struct Described<'a>(pub(crate) &'a G);

impl fmt::Display for Described<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gp = self.0;
        let what = match gp.status.get() {
            Status::Waiting => gp.wait_reason().text(),
            status => status.name(),
        };
        writeln!(f, "goroutine {} [{what}]:", gp.id.get())?;
        if let Some(site) = gp.spawn_site() {
            match gp.parent_id.get() {
                0 => writeln!(f, "created outside the runtime\n\t{site}")?,
                parent => writeln!(f, "created by goroutine {parent}\n\t{site}")?,
            }
        }
        Ok(())
    }
}
