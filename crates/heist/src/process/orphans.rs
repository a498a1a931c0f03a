//! Programs that nobody waits for any more: one thread takes away what is left of each when it has ended.
//!
//! A goroutine that waits for a program may be cancelled. If it was the only one that could wait, as in
//! [`Command::status`](super::Command::status), the program is an orphan: without somebody to ask how it
//! ended, the system keeps its entry for as long as this process lives. The thread is there as long as an
//! orphan is.

use crate::sync::Mutex;
use crate::sys::poll::{self, Bell};
use crate::sys::{clock, fd};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

/// How often the thread looks after programs whose end the system does not tell of.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

struct Orphans {
    /// Those that the thread has not seen.
    new: Vec<Child>,
    /// Rung when there is a new one; None while there is no thread.
    bell: Option<Arc<Bell>>,
}

static ORPHANS: Mutex<Orphans> = Mutex::new(Orphans { new: Vec::new(), bell: None });

/// Sees to it that nothing is left of the program when it has ended.
pub(super) fn adopt(mut child: Child) {
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    let mut orphans = ORPHANS.lock_shielded();
    orphans.new.push(child);
    if let Some(bell) = &orphans.bell {
        return bell.ring();
    }
    // If there is no thread or no bell to be had, the next one who comes tries again.
    let Ok(bell) = Bell::new().map(Arc::new) else { return };
    let thread = std::thread::Builder::new().name("heist-orphans".to_owned());
    let rings = Arc::clone(&bell);
    if thread.spawn(move || wait_for_all(&rings)).is_ok() {
        orphans.bell = Some(bell);
    }
}

/// A program, and a descriptor that tells its end where the system has such a thing.
struct Orphan {
    child: Child,
    ending: Option<OwnedFd>,
}

/// What the thread does.
fn wait_for_all(bell: &Bell) {
    let mut all = Vec::new();
    loop {
        poll::silence(bell.fd());
        let mut orphans = ORPHANS.lock();
        all.extend(orphans.new.drain(..).map(|child| {
            let ending = fd::of_process(child.id()).ok();
            Orphan { child, ending }
        }));
        // One that cannot be asked for is somebody else's.
        all.retain_mut(|orphan| matches!(orphan.child.try_wait(), Ok(None)));
        if all.is_empty() {
            orphans.bell = None;
            return;
        }
        drop(orphans);
        let is_told = all.iter().all(|orphan| orphan.ending.is_some());
        let until_ns = (!is_told).then(|| clock::now_ns() + LOOK_AGAIN.as_nanos() as u64);
        let fds = all.iter().filter_map(|orphan| orphan.ending.as_ref()).map(AsRawFd::as_raw_fd);
        poll::wait_any(fds.chain([bell.fd()]), until_ns);
    }
}
