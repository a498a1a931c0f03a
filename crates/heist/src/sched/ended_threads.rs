//! Threads of Ms that have ended, and whose mappings are kept for a while.
//!
//! A goroutine that waits may have addresses of the thread-locals of the thread that ran it last. They
//! are moved when it goes on (`coro::relocation`); until then the mapping of that thread must not become
//! something else. The C library gives the mapping of a thread free when the thread is joined. So ended
//! threads are joined late and many at a time, after one sweep over all stacks for all of them. What is
//! kept of an ended thread is address space and one or two pages.

use crate::gmp::pool;
use crate::sys::tls;
use std::thread::JoinHandle;

/// So many ended threads are worth a sweep, which looks at every goroutine of the process.
const SWEEP_AT: usize = 64;

/// Ended threads that were not joined yet.
#[derive(Default)]
pub(super) struct EndedThreads {
    /// With their thread pointers. Those in `ending` may still run destructors of thread-locals.
    ending: Vec<(JoinHandle<()>, usize)>,
    n_kept: usize,
}

impl EndedThreads {
    /// Adds one whose M has left it for good.
    pub(super) fn add(&mut self, handle: JoinHandle<()>, thread: usize) {
        self.ending.push((handle, thread));
        self.n_kept += 1;
    }

    /// Joins them, if they are enough for a sweep.
    pub(super) fn collect(&mut self) {
        if self.n_kept < SWEEP_AT {
            return;
        }
        let Some(nobody) = tls::nobody() else { return };
        // ALLOC: helper thread
        let ended: Vec<_> =
            self.ending.extract_if(.., |(thread, _)| thread.is_finished()).collect();
        // ALLOC: helper thread
        let pointers: Vec<_> = ended.iter().map(|&(_, pointer)| pointer).collect();
        pool::for_each(|gp| {
            // SAFETY: a record that was in use; these threads have ended, and were not joined.
            unsafe { gp.coro.sweep(gp, &pointers, nobody) };
        });
        for (thread, _) in ended {
            // A panic in an M has ended the process.
            let _ = thread.join();
        }
        // The rest is looked at again when as many have ended once more.
        self.n_kept = 0;
    }

    /// Joins all of them but the one with that thread pointer: no goroutine of the runtime goes on any more.
    pub(super) fn join_all_but(self, caller: usize) {
        for (thread, _) in self.ending.into_iter().filter(|&(_, pointer)| pointer != caller) {
            // A panic in an M has ended the process.
            let _ = thread.join();
        }
    }
}
