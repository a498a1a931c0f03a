//! Writing to standard error without std's lock and without allocating.

use std::fmt::{self, Write};

/// Bytes collected before a write, so that a report line is written in one piece.
const BUFFER: usize = 512;

/// A small buffer in front of descriptor 2.
pub(crate) struct Stderr {
    buffer: [u8; BUFFER],
    len: usize,
}

impl Stderr {
    pub(crate) const fn new() -> Self {
        Self { buffer: [0; BUFFER], len: 0 }
    }

    fn flush(&mut self) {
        let mut rest = &self.buffer[..self.len];
        while !rest.is_empty() {
            // SAFETY: `rest` is valid for its length.
            let n = unsafe { libc::write(2, rest.as_ptr().cast(), rest.len()) };
            if n <= 0 {
                break; // Standard error is gone.
            }
            rest = &rest[n as usize..];
        }
        self.len = 0;
    }
}

impl Write for Stderr {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.len == BUFFER {
                self.flush();
            }
            self.buffer[self.len] = byte;
            self.len += 1;
        }
        Ok(())
    }
}

impl Drop for Stderr {
    fn drop(&mut self) {
        self.flush();
    }
}

/// Writes one report. Safe in a signal handler and in the scheduler.
pub(crate) fn report(text: fmt::Arguments<'_>) {
    // An error here is one of standard error itself, which cannot be reported.
    let _ = Stderr::new().write_fmt(text);
}

/// Ends the process without running exit handlers, except for the runtime's own.
pub(crate) fn exit_now(code: i32) -> ! {
    super::last_words::speak();
    // SAFETY: ends the process; nothing runs afterwards.
    unsafe { libc::_exit(code) }
}
