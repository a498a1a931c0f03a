//! Programs without a waiter: one thread reaps each of them when it has ended.
//!
//! A goroutine that waits for a program may be cancelled. If no other goroutine could wait for it,
//! as in [`Command::status`](super::Command::status), the program is an orphan: if its exit status
//! is not read, the system keeps its entry for as long as this process lives. The thread exists
//! while there are orphans.

use crate::sync::Mutex;
use crate::sys::poll::{self, Bell};
use crate::sys::{clock, fd, thread};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Child;
use std::sync::Arc;
use std::time::Duration;

/// How often the thread checks programs whose end the system does not report.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

struct Orphans {
    /// The orphans that the thread has not taken over yet.
    new: Vec<Child>,
    /// Rung when there is a new orphan. None while there is no thread.
    bell: Option<Arc<Bell>>,
}

static ORPHANS: Mutex<Orphans> = Mutex::new(Orphans { new: Vec::new(), bell: None });

/// Makes sure that the program is reaped when it has ended.
pub(super) fn adopt(mut child: Child) {
    if !matches!(child.try_wait(), Ok(None)) {
        return;
    }
    let mut orphans = ORPHANS.lock_shielded();
    orphans.new.push(child);
    if let Some(bell) = &orphans.bell {
        return bell.ring();
    }
    // If a thread or a bell cannot be made, the next orphan tries again.
    let Ok(bell) = Bell::new().map(Arc::new) else { return };
    let rings = Arc::clone(&bell);
    if thread::spawn("heist-orphans".to_owned(), move || wait_for_all(&rings)).is_ok() {
        orphans.bell = Some(bell);
    }
}

/// A program, and a descriptor that reports its end where the system has one.
struct Orphan {
    child: Child,
    ending: Option<OwnedFd>,
}

/// The main function of the thread.
fn wait_for_all(bell: &Bell) {
    let mut all = Vec::new();
    loop {
        poll::silence(bell.fd());
        let mut orphans = ORPHANS.lock();
        all.extend(orphans.new.drain(..).map(|child| {
            let ending = fd::of_process(child.id()).ok();
            Orphan { child, ending }
        }));
        // A program whose status cannot be read has been reaped elsewhere.
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
