//! `Doorbell`: wakes a thread on the CPU that its waker is about to leave.
//!
//! A futex wakes a thread on the CPU where it ran last. If another thread computes there, the two
//! share that CPU, while the waker goes to sleep and leaves its own CPU idle; the kernel takes
//! milliseconds to balance that. The kernel has a hint for a waker that is about to sleep, and uses
//! it for a write into a pipe. So a thread that is handed a P by a thread that stops sleeps on a
//! pipe.
//!
//! The pipe is opened once, by the thread itself, through one descriptor. Before that, or if no
//! descriptor is available, the doorbell is a futex.

use super::futex::Kernel;
use super::{fd, limits};
use heist_core::note::Futex;
use heist_core::sync::{AtomicU32, Ordering};
use std::os::fd::RawFd;
use std::ptr::{from_ref, null};
use std::time::Duration;

/// Not opened yet. No descriptor has this number or the next one.
const NONE: u32 = u32::MAX;
/// No descriptor is available.
const REFUSED: u32 = u32::MAX - 1;

/// Of the descriptors that the process may have, at most one in this many is a doorbell.
const KEPT_PART: u32 = 16;

/// The object that a thread sleeps on.
#[derive(Debug)]
pub(crate) struct Doorbell {
    /// A pipe, for reading and for writing.
    fd: AtomicU32,
}

impl Doorbell {
    pub(crate) fn new() -> Self {
        Self { fd: AtomicU32::new(NONE) }
    }

    /// Opens the pipe, if that was not tried before and if this thread is among the first `most`,
    /// or fewer if the process may have few descriptors. The thread that sleeps here calls this
    /// before wakers can find it, under a lock that they take: so they see what it will sleep on.
    #[inline]
    pub(crate) fn open(&self, number: u32, most: u32) {
        if self.fd.load(Ordering::Relaxed) == NONE {
            let may = number < limits::descriptors_to_keep(most, KEPT_PART);
            let pipe = may.then(open_pipe).flatten();
            self.fd.store(pipe.map_or(REFUSED, |fd| fd as u32), Ordering::Relaxed);
        }
    }

    fn pipe(&self) -> Option<RawFd> {
        RawFd::try_from(self.fd.load(Ordering::Relaxed)).ok()
    }
}

impl Drop for Doorbell {
    fn drop(&mut self) {
        if let Some(fd) = self.pipe() {
            // SAFETY: opened by this doorbell, the only user.
            unsafe { libc::close(fd) };
        }
    }
}

impl Futex for Doorbell {
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        let Some(fd) = self.pipe() else { return Kernel.wait(word, expected, timeout) };
        let time = timeout.map(|left| libc::timespec {
            tv_sec: left.as_secs().min(1 << 30) as libc::time_t,
            tv_nsec: left.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(null(), from_ref);
        let mut waits = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // If a wake-up is seen in the word before its byte is read, the byte stays for the next
        // wait, which then ends early. So all bytes are read.
        let mut bytes = [0_u8; 64];
        // SAFETY: one valid entry, a time that lives until the end of this function or none, and
        // room for as many bytes as are asked for. The descriptor does not block.
        unsafe {
            if libc::ppoll(&raw mut waits, 1, time, null()) > 0 {
                libc::read(fd, bytes.as_mut_ptr().cast(), bytes.len());
            }
        }
    }

    fn wake(&self, word: &AtomicU32) {
        let Some(fd) = self.pipe() else { return Kernel.wake(word) };
        // SAFETY: one byte that lives until the call returns. If the pipe were full, the thread
        // would be awake.
        unsafe { libc::write(fd, [0_u8].as_ptr().cast(), 1) };
    }
}

/// A pipe behind one descriptor. No allocation: a signal handler calls this.
fn open_pipe() -> Option<RawFd> {
    let mut ends = [-1; 2];
    let flags = libc::O_CLOEXEC | libc::O_NONBLOCK;
    // SAFETY: room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), flags) } != 0 {
        return None;
    }
    let path = format_args!("/proc/self/fd/{}", ends[0]);
    let both = fd::open_named(path, libc::O_RDWR | libc::O_NONBLOCK).ok();
    for end in ends {
        // SAFETY: just opened here, and not used elsewhere.
        unsafe { libc::close(end) };
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;
    use heist_core::note::{Note, Woken};
    use std::sync::Arc;
    use std::time::Instant;

    /// A thread is woken once per ring, on a futex, then on a pipe, and also if the ring comes
    /// before it sleeps.
    #[test]
    fn a_ring_wakes_the_sleeper() {
        let shared = Arc::new((Doorbell::new(), Note::new(), AtomicU32::new(0)));
        let sleeper = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || {
                let (bell, note, n) = &*shared;
                for i in 1..=20_000 {
                    note.sleep(bell);
                    note.clear();
                    if i == 1000 {
                        bell.open(0, 1);
                    }
                    // ORDERING: pairs with the load of the ringing thread, which then sees the note
                    // cleared.
                    n.store(i, Ordering::Release);
                }
            })
        };
        let (bell, note, n) = &*shared;
        for i in 1..=20_000 {
            note.wake(bell);
            // ORDERING: see above.
            while n.load(Ordering::Acquire) != i {
                std::hint::spin_loop();
            }
        }
        sleeper.join().unwrap();
        assert!(bell.pipe().is_some());
    }

    /// A sleep on a pipe ends in time, and a ring after that is not lost.
    #[test]
    fn a_sleep_that_is_not_rung_ends_in_time() {
        let (bell, note) = (Doorbell::new(), Note::new());
        bell.open(0, 1);
        let until = Instant::now() + Duration::from_millis(20);
        let left = || Some(until.checked_duration_since(Instant::now())?).filter(|l| !l.is_zero());
        assert_eq!(note.sleep_while(&bell, left), Woken::TimedOut);
        assert!(Instant::now() >= until);
        note.wake(&bell);
        note.sleep(&bell);
    }
}
