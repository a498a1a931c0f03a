//! The states of threads of this process in the kernel, for sysmon, which asks often.
//!
//! Opening the file of a thread costs twice as much as reading it, and the threads that hold Ps are
//! few and stay for a while. So some files are kept open. All of them are opened at the start, of
//! any thread, so that the number of descriptors does not change later. When the process has no
//! free descriptor, the file of one thread is closed before that of another is opened.
//!
//! # Without the files
//! There may be no `/proc`, or that of another namespace, or another thread may take the descriptor
//! that was just closed. Then the CPU clock of the thread decides, which needs neither: the thread
//! runs if the clock has advanced since the last look, and it sleeps if the clock has not advanced
//! for [`STILL_NS`]. A runnable thread that has no CPU looks asleep, too. Taking its P is harmless:
//! the thread waits for one when it continues. In between nothing is known, and the thread is
//! treated as running.

use super::clock;
use super::degraded::{Lack, Plain};
use super::fd;
use super::limits;
use super::thread::{self, CallFile, StatFile};
use std::io;

/// Threads whose files are kept open.
const N_THREADS: usize = 8;
/// Of the descriptors that the process may have, at most one in this many is kept for each kind of
/// file.
const KEPT_PART: u32 = 32;
/// Threads whose clocks are remembered.
const N_CLOCKS: usize = 64;
/// A thread whose CPU clock has not advanced for this long is treated as asleep.
const STILL_NS: u64 = 4_000_000;

/// The state of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// It runs or is runnable.
    Running,
    /// It sleeps in the kernel.
    Asleep,
    /// It is stopped by a debugger, or has ended.
    Stopped,
    /// It cannot be determined now.
    Unknown,
}

/// The files of some threads.
pub(crate) struct ThreadStates {
    stats: Kept<StatFile>,
    calls: Kept<CallFile>,
    clocks: [ClockLook; N_CLOCKS],
}

/// Open files of one kind.
struct Kept<F> {
    files: [(u32, Option<F>); N_THREADS],
    /// How many of the slots are used: few, if the process may have few descriptors.
    n: usize,
}

/// The last look at the CPU clock of a thread.
#[derive(Clone, Copy)]
struct ClockLook {
    tid: u32,
    cpu_ns: u64,
    /// When the clock was first seen at this value.
    since_ns: u64,
}

impl ThreadStates {
    /// Opens the files, at first those of the calling thread.
    pub(crate) fn new() -> Self {
        let n = limits::descriptors_to_keep(N_THREADS as u32, KEPT_PART) as usize;
        Self {
            stats: Kept::new(n.max(1), StatFile::open),
            calls: Kept::new(n, CallFile::open),
            clocks: [ClockLook { tid: 0, cpu_ns: 0, since_ns: 0 }; N_CLOCKS],
        }
    }

    /// The state of a thread that most likely sleeps.
    pub(crate) fn of_sleeper(&mut self, tid: u32) -> State {
        match self.stats.ask(tid, StatFile::open, StatFile::state) {
            Ok(letter) => of_letter(letter),
            Err(error) => self.by_clock(tid, &error),
        }
    }

    /// The state of a thread that most likely runs.
    pub(crate) fn of_runner(&mut self, tid: u32) -> State {
        match self.calls.ask(tid, CallFile::open, CallFile::is_running) {
            Ok(true) => State::Running,
            Ok(false) => State::Asleep,
            Err(_) => self.of_sleeper(tid),
        }
    }

    /// The state of a thread by its CPU clock.
    #[cold]
    fn by_clock(&mut self, tid: u32, error: &io::Error) -> State {
        let Some(cpu_ns) = thread::cpu_ns(tid) else {
            // The thread has ended, or a sandbox forbids its clock.
            return State::Unknown;
        };
        Lack::ThreadState.missed(format_args!(
            "cannot read in /proc what a thread does ({}); judging by CPU clocks: a blocked call \
             keeps its processor for {} ms",
            Plain(error),
            STILL_NS / 1_000_000
        ));
        let now_ns = clock::now_ns();
        let look = &mut self.clocks[tid as usize % N_CLOCKS];
        let known = look.tid == tid;
        if known && look.cpu_ns == cpu_ns {
            let still_ns = now_ns.saturating_sub(look.since_ns);
            return if still_ns >= STILL_NS { State::Asleep } else { State::Unknown };
        }
        *look = ClockLook { tid, cpu_ns, since_ns: now_ns };
        if known { State::Running } else { State::Unknown }
    }
}

/// The meaning of a letter of `ps`.
const fn of_letter(letter: u8) -> State {
    match letter {
        b'R' => State::Running,
        b'S' | b'D' => State::Asleep,
        _ => State::Stopped,
    }
}

impl<F> Kept<F> {
    fn new(n: usize, open: fn(u32) -> io::Result<F>) -> Self {
        let own = thread::id();
        let file = |i| if i < n { open(own).ok() } else { None };
        Self { files: std::array::from_fn(|i| (own, file(i))), n }
    }

    /// Reads the file of a thread.
    fn ask<A>(
        &mut self,
        tid: u32,
        open: fn(u32) -> io::Result<F>,
        answer: fn(&F) -> Option<A>,
    ) -> io::Result<A> {
        if self.n == 0 {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let (kept_tid, kept) = &mut self.files[tid as usize % self.n];
        if *kept_tid == tid
            && let Some(answer) = kept.as_ref().and_then(answer)
        {
            return Ok(answer);
        }
        // The file of another thread, or of one that has ended: a new thread may have its number.
        let opened = match open(tid) {
            Err(error) if kept.is_some() && fd::is_exhaustion(&error) => {
                *kept = None;
                open(tid)
            }
            opened => opened,
        };
        let file = kept.insert(opened?);
        *kept_tid = tid;
        answer(file).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Two threads, one of which computes and one of which sleeps, for as long as `look` takes.
    fn beside_two_threads(look: impl FnOnce([(bool, u32); 2])) {
        let stop = AtomicBool::new(false);
        let (tell, told) = std::sync::mpsc::channel();
        let (end, ended) = std::sync::mpsc::channel::<()>();
        std::thread::scope(|scope| {
            let (tell_too, stop) = (tell.clone(), &stop);
            scope.spawn(move || {
                tell_too.send((true, thread::id())).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            scope.spawn(move || {
                tell.send((false, thread::id())).unwrap();
                let _ = ended.recv();
            });
            look([told.recv().unwrap(), told.recv().unwrap()]);
            stop.store(true, Ordering::Relaxed);
            drop(end);
        });
    }

    /// This holds for either file.
    #[test]
    fn files_tell_a_thread_that_computes_from_one_that_sleeps() {
        beside_two_threads(|threads| {
            let mut states = ThreadStates::new();
            for (computes, tid) in threads {
                // The sleeping thread needs a moment to fall asleep.
                while (states.of_sleeper(tid) == State::Asleep) == computes {
                    std::thread::yield_now();
                }
                for _ in 0..3 {
                    let expected = if computes { State::Running } else { State::Asleep };
                    assert_eq!(states.of_runner(tid), expected);
                    assert_eq!(states.of_sleeper(tid), expected);
                }
            }
        });
    }

    /// Without `/proc` and without a descriptor. On a busy machine the thread that computes may
    /// look asleep.
    #[test]
    fn clocks_tell_a_thread_that_computes_from_one_that_sleeps() {
        beside_two_threads(|threads| {
            let mut states = ThreadStates::new();
            let error = io::Error::from_raw_os_error(libc::EMFILE);
            for (computes, tid) in threads {
                let expected = if computes { State::Running } else { State::Asleep };
                while states.by_clock(tid, &error) != expected {
                    std::thread::yield_now();
                }
            }
        });
    }
}
