//! `Operation`: a read or a write as a future.
//!
//! As an operation of a goroutine it holds its direction from the first try to the last, so several
//! tasks and goroutines take turns. When it would have to wait, it leaves the waker for the next
//! event. If it is dropped, the direction goes to the next, and the waker may be called once more.

use super::source::Source;
use crate::wait::FutureWait;
use heist_core::fd_lock::Way;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Poll, ready};

/// An operation that is tried until it does not return `WouldBlock`.
pub(super) struct Operation<'a, T, F> {
    source: &'a Source<T>,
    way: Way,
    wait: FutureWait,
    holds: bool,
    /// The number of bytes that it asks for; zero if a short result does not mean that nothing is
    /// left.
    len: usize,
    op: F,
}

impl<T> Source<T> {
    /// Reads or writes at most `len` bytes with `op`.
    pub(super) const fn transfer_async<F>(
        &self,
        way: Way,
        len: usize,
        op: F,
    ) -> Operation<'_, T, F> {
        Operation { source: self, way, wait: FutureWait::new(), holds: false, len, op }
    }

    /// Reads with `op`.
    pub(super) const fn read_async<F>(&self, op: F) -> Operation<'_, T, F> {
        self.transfer_async(Way::Read, 0, op)
    }

    /// Writes with `op`.
    pub(super) const fn write_async<F>(&self, op: F) -> Operation<'_, T, F> {
        self.transfer_async(Way::Write, 0, op)
    }
}

/// How many bytes a result stands for.
pub(super) trait Moved {
    fn n_moved(&self) -> Option<usize> {
        None
    }
}

impl Moved for usize {
    fn n_moved(&self) -> Option<usize> {
        Some(*self)
    }
}

impl Moved for () {}
impl<A, B> Moved for (A, B) {}

impl<T, F, R> Future for Operation<'_, T, F>
where
    F: FnMut(&T) -> io::Result<R>,
    R: Moved,
{
    type Output = io::Result<R>;

    fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<io::Result<R>> {
        // SAFETY: nothing that is pinned is moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        if !this.holds {
            ready!(this.source.poll_lock(this.way, &this.wait, cx.waker()))?;
            this.holds = true;
        }
        let len = this.len;
        let saw_the_end =
            |result: &R| result.n_moved().is_some_and(|n| this.source.saw_the_end(n, len));
        let done = ready!(this.source.poll(this.way, cx.waker(), &mut this.op, saw_the_end));
        this.holds = false;
        this.source.unlock(this.way);
        Poll::Ready(done)
    }
}

impl<T, F> Drop for Operation<'_, T, F> {
    fn drop(&mut self) {
        if self.holds {
            self.source.unlock(self.way);
        } else {
            self.source.leave_queue(self.way, &self.wait);
        }
    }
}

/// The async forms of reading.
macro_rules! async_reads {
    ($type:ident, $inner:ty) => {
        impl $type {
            /// Reads into `buf`, as a future, and returns the number of bytes; 0 at the end. It is
            /// awaited inside a runtime. Of several tasks and goroutines that read, one reads at a
            /// time. Deadlines and timeouts do not end the wait.
            ///
            /// # Cancel safety
            /// If the future is dropped, nothing was read.
            ///
            /// # Errors
            /// As for a read.
            pub fn read_async<'a>(
                &'a self,
                buf: &'a mut [u8],
            ) -> impl Future<Output = io::Result<usize>> + Send + 'a {
                self.source.transfer_async(Way::Read, buf.len(), move |inner: &$inner| {
                    std::io::Read::read(&mut { inner }, buf)
                })
            }

            /// Reads into `buf`, or lets the task of `cx` be woken when that may be possible: for
            /// implementations of the traits of other libraries. As with those, the last waker is
            /// the one that is woken.
            ///
            /// # Errors
            /// As for a read, and [`io::ErrorKind::ResourceBusy`] if another read is in progress.
            pub fn poll_read(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                let len = buf.len();
                self.source.poll_transfer(Way::Read, len, cx.waker(), |mut inner| {
                    std::io::Read::read(&mut inner, buf)
                })
            }
        }
    };
}

/// The async forms of writing.
macro_rules! async_writes {
    ($type:ident, $inner:ty) => {
        impl $type {
            /// Writes from `buf`, as a future, and returns how many bytes were written.
            ///
            /// # Cancel safety
            /// If the future is dropped, nothing was written.
            ///
            /// # Errors
            /// As for a write.
            pub fn write_async<'a>(
                &'a self,
                buf: &'a [u8],
            ) -> impl Future<Output = io::Result<usize>> + Send + 'a {
                self.source.transfer_async(Way::Write, buf.len(), move |inner: &$inner| {
                    std::io::Write::write(&mut { inner }, buf)
                })
            }

            /// Writes all of `buf`, as a future.
            ///
            /// # Cancel safety
            /// It is not cancel-safe: if the future is dropped, a part may have been written.
            ///
            /// # Errors
            /// As for a write.
            pub async fn write_all_async(&self, mut buf: &[u8]) -> io::Result<()> {
                while !buf.is_empty() {
                    match self.write_async(buf).await? {
                        0 => return Err(io::ErrorKind::WriteZero.into()),
                        n => buf = &buf[n..],
                    }
                }
                Ok(())
            }

            /// Writes from `buf`, or lets the task of `cx` be woken when that may be possible: for
            /// implementations of the traits of other libraries. As with those, the last waker is
            /// the one that is woken.
            ///
            /// # Errors
            /// As for a write, and [`io::ErrorKind::ResourceBusy`] if another write is in progress.
            pub fn poll_write(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                self.source.poll_transfer(Way::Write, buf.len(), cx.waker(), |mut inner| {
                    std::io::Write::write(&mut inner, buf)
                })
            }

            /// As [`poll_write`](Self::poll_write), from several buffers.
            ///
            /// # Errors
            /// As for [`poll_write`](Self::poll_write).
            pub fn poll_write_vectored(
                &self,
                cx: &mut std::task::Context<'_>,
                bufs: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                let len = $crate::net::source::offered(bufs.iter().map(|buf| buf.len()));
                self.source.poll_transfer(Way::Write, len, cx.waker(), |mut inner| {
                    std::io::Write::write_vectored(&mut inner, bufs)
                })
            }
        }
    };
}

pub(super) use {async_reads, async_writes};
