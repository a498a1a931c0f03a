//! What threads of this process do, as the kernel sees it: for sysmon, which asks often.
//!
//! Opening the file of a thread costs twice as much as reading it, and the threads that hold Ps are
//! few and stay for a while. So some files are kept open. All of them are opened at the start, for any
//! thread, so that the number of descriptors does not change later.

use super::thread;

/// Files that are kept open.
const N_FILES: usize = 8;

/// The files of some threads.
pub(crate) struct ThreadStates {
    files: [(u32, Option<thread::StatFile>); N_FILES],
}

impl ThreadStates {
    /// Opens the files, of the calling thread for now.
    pub(crate) fn new() -> Self {
        let own = thread::id();
        Self { files: std::array::from_fn(|_| (own, thread::StatFile::open(own))) }
    }

    /// Whether a thread sleeps in the kernel.
    pub(crate) fn is_asleep(&mut self, tid: u32) -> bool {
        matches!(self.state(tid), Some(b'S' | b'D'))
    }

    /// Whether a thread runs or could.
    pub(crate) fn is_running(&mut self, tid: u32) -> bool {
        matches!(self.state(tid), Some(b'R'))
    }

    fn state(&mut self, tid: u32) -> Option<u8> {
        let (kept_tid, file) = &mut self.files[tid as usize % N_FILES];
        if *kept_tid == tid
            && let Some(state) = file.as_ref().and_then(thread::StatFile::state)
        {
            return Some(state);
        }
        // Another thread's, or of one that has ended: there may be a new one with its number.
        *file = Some(thread::StatFile::open(tid)?);
        *kept_tid = tid;
        file.as_ref()?.state()
    }
}
