//! What threads of this process do, as the kernel sees it: for sysmon, which asks often.
//!
//! Opening the file of a thread costs twice as much as reading it, and the threads that hold Ps are
//! few and stay for a while. So some files are kept open. All of them are opened at the start, for any
//! thread, so that the number of descriptors does not change later.

use super::thread::{self, CallFile, StatFile};

/// Threads whose files are kept open.
const N_THREADS: usize = 8;

/// The files of some threads.
pub(crate) struct ThreadStates {
    stats: [(u32, Option<StatFile>); N_THREADS],
    calls: [(u32, Option<CallFile>); N_THREADS],
}

impl ThreadStates {
    /// Opens the files, of the calling thread for now.
    pub(crate) fn new() -> Self {
        let own = thread::id();
        Self {
            stats: std::array::from_fn(|_| (own, StatFile::open(own))),
            calls: std::array::from_fn(|_| (own, CallFile::open(own))),
        }
    }

    /// Whether a thread sleeps in the kernel.
    pub(crate) fn is_asleep(&mut self, tid: u32) -> bool {
        matches!(self.state(tid), Some(b'S' | b'D'))
    }

    /// Whether a thread runs or could. To be asked of one that most likely does.
    pub(crate) fn is_running(&mut self, tid: u32) -> bool {
        let runs = ask(&mut self.calls, tid, CallFile::open, CallFile::is_running);
        runs.unwrap_or_else(|| matches!(self.state(tid), Some(b'R')))
    }

    fn state(&mut self, tid: u32) -> Option<u8> {
        ask(&mut self.stats, tid, StatFile::open, StatFile::state)
    }
}

/// Asks the file of a thread.
fn ask<F, A>(
    files: &mut [(u32, Option<F>); N_THREADS],
    tid: u32,
    open: fn(u32) -> Option<F>,
    answer: fn(&F) -> Option<A>,
) -> Option<A> {
    let (kept_tid, file) = &mut files[tid as usize % N_THREADS];
    if *kept_tid == tid
        && let Some(answer) = file.as_ref().and_then(answer)
    {
        return Some(answer);
    }
    // Another thread's, or of one that has ended: there may be a new one with its number.
    *file = Some(open(tid)?);
    *kept_tid = tid;
    file.as_ref().and_then(answer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// Whichever file is asked.
    #[test]
    fn who_computes_runs_and_who_waits_sleeps() {
        let stop = AtomicBool::new(false);
        let (tell, told) = std::sync::mpsc::channel();
        let (_never, awaited) = std::sync::mpsc::channel::<()>();
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
                let _ = awaited.recv_timeout(std::time::Duration::from_millis(200));
            });
            let mut states = ThreadStates::new();
            let threads = [told.recv().unwrap(), told.recv().unwrap()];
            for (computes, tid) in threads {
                // The one that is to sleep needs a moment for it.
                while states.is_asleep(tid) == computes {
                    std::thread::yield_now();
                }
                for _ in 0..3 {
                    assert_eq!(states.is_running(tid), computes);
                    let state = states.state(tid);
                    assert_eq!(matches!(state, Some(b'R')), computes, "{state:?}");
                }
            }
            stop.store(true, Ordering::Relaxed);
        });
    }
}
