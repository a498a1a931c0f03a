//! Any descriptor that can be polled.

use super::bind::Watched;
use super::source::Source;
use super::watch::Watch;
use crate::sys::fd;
use heist_core::fd_lock::Way;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes a descriptor of any kind one that goroutines can wait for: a terminal, a device, an
/// eventfd, a socket of another library.
///
/// It is put into non-blocking mode. That affects every descriptor of the same open file, even in
/// another process.
///
/// # Examples
/// ```
/// use heist::net::PollFd;
/// use std::io::{Read, Write};
///
/// let (reader, mut writer) = std::io::pipe()?;
/// let mut reader = PollFd::new(reader)?;
/// writer.write_all(b"x")?;
/// reader.wait_readable()?;
/// let mut byte = [0];
/// reader.read_exact(&mut byte)?;
/// assert_eq!(&byte, b"x");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct PollFd<T> {
    source: Source<T>,
}

impl<T: AsFd> PollFd<T> {
    /// Takes over a descriptor.
    ///
    /// Goroutines can wait for a descriptor through one value only. If another `PollFd` or a socket
    /// of this crate has the same descriptor, and goroutines have waited there, the first wait here
    /// fails with [`io::ErrorKind::AlreadyExists`]. Duplicate the descriptor, or share the
    /// `PollFd`.
    ///
    /// # Errors
    /// [`io::ErrorKind::Unsupported`] for plain files and folders: they are always ready, and there
    /// is nothing to wait for. Use [`blocking`](crate::blocking) with them.
    pub fn new(inner: T) -> io::Result<Self>
    where
        T: AsRawFd,
    {
        // The two traits may name different descriptors. That is refused, because only the borrowed
        // one is known to be open.
        let number = inner.as_fd().as_raw_fd();
        if number != inner.as_raw_fd() {
            let text = "AsFd and AsRawFd name different descriptors; they must agree";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if fd::is_plain_file(number)? {
            let text = "a plain file cannot be waited for; use heist::blocking";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        Ok(Self { source: Source::shared(inner, number)? })
    }

    /// Returns the inner value, in blocking mode.
    ///
    /// # Errors
    /// If it is closed, or cannot be put into blocking mode.
    pub fn into_inner(self) -> io::Result<T>
    where
        T: AsRawFd,
    {
        self.source.into_inner()
    }
}

impl<T: AsRawFd> PollFd<T> {
    /// Takes over a descriptor that is known not to be a plain file.
    pub(crate) fn pollable(inner: T) -> io::Result<Self> {
        let number = inner.as_raw_fd();
        Ok(Self { source: Source::shared(inner, number)? })
    }
}

impl<T> PollFd<T> {
    /// The inner value. It must not be closed through this reference, nor put into blocking mode.
    /// Do operations that may block in [`read_with`](Self::read_with) and
    /// [`write_with`](Self::write_with).
    #[must_use]
    pub fn get_ref(&self) -> &T {
        self.source.get_ref()
    }

    /// Reads with `op`: calls it, waits until the descriptor is readable, and repeats, until `op`
    /// does not return [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// The error that `op` returns; also if it is closed or the deadline is over.
    pub fn read_with<R>(&self, op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.source.read(op)
    }

    /// Writes with `op`: calls it, waits until the descriptor is writable, and repeats, until `op`
    /// does not return [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// The error that `op` returns; also if it is closed or the deadline is over.
    pub fn write_with<R>(&self, op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.source.write(op)
    }

    /// As [`read_with`](Self::read_with), as a future, which is awaited inside a runtime. Deadlines
    /// and timeouts do not end the wait.
    ///
    /// # Cancel safety
    /// If the future is dropped, `op` has not returned anything but [`io::ErrorKind::WouldBlock`].
    ///
    /// # Errors
    /// The error that `op` returns; also if it is closed.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.block_on(async {
    /// use std::io::{Read, Write};
    ///
    /// let (reader, mut writer) = std::io::pipe()?;
    /// let reader = heist::net::PollFd::new(reader)?;
    /// heist::go(move || writer.write_all(b"x"));
    /// let mut byte = [0];
    /// assert_eq!(reader.read_with_async(|mut pipe| pipe.read(&mut byte)).await?, 1);
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn read_with_async<R>(
        &self,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        let (result, ()) = self.source.read_async(|inner: &T| Ok((op(inner)?, ()))).await?;
        Ok(result)
    }

    /// As [`write_with`](Self::write_with), as a future; see
    /// [`read_with_async`](Self::read_with_async).
    ///
    /// # Errors
    /// The error that `op` returns; also if it is closed.
    pub async fn write_with_async<R>(
        &self,
        mut op: impl FnMut(&T) -> io::Result<R>,
    ) -> io::Result<R> {
        let (result, ()) = self.source.write_async(|inner: &T| Ok((op(inner)?, ()))).await?;
        Ok(result)
    }

    /// Waits until there is data to read, the end of the stream, or an error. Another reader may
    /// take it first.
    ///
    /// # Errors
    /// If it is closed or the deadline is over.
    pub fn wait_readable(&self) -> io::Result<()> {
        self.source.wait_ready(Way::Read)
    }

    /// Waits until there is room to write, or an error. Another writer may use it first.
    ///
    /// # Errors
    /// If it is closed or the deadline is over.
    pub fn wait_writable(&self) -> io::Result<()> {
        self.source.wait_ready(Way::Write)
    }

    /// Closes it, even while other goroutines use it: their operations fail, and so does every
    /// later one. The descriptor itself is left to `T`, which may share it with others.
    ///
    /// # Errors
    /// If it is closed already.
    pub fn close(&self) -> io::Result<()> {
        self.source.close()
    }

    /// Sets the moment after which reads fail. With None they wait without a limit.
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_read_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
        self.source.set_deadline(&[Way::Read], deadline)
    }

    /// Sets the moment after which writes fail. With None they wait without a limit.
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_write_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
        self.source.set_deadline(&[Way::Write], deadline)
    }

    /// Sets the moment after which reads and writes fail. With None they wait without a limit.
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_deadline(&self, deadline: Option<Instant>) -> io::Result<()> {
        self.source.set_deadline(&[Way::Read, Way::Write], deadline)
    }

    /// Sets how long one read may wait. With None it waits without a limit.
    ///
    /// # Errors
    /// If the timeout is zero.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.source.set_timeout(Way::Read, timeout)
    }

    /// Sets how long one write may wait. With None it waits without a limit.
    ///
    /// # Errors
    /// If the timeout is zero.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.source.set_timeout(Way::Write, timeout)
    }

    /// How long one read may wait.
    ///
    /// # Errors
    /// None. The signature is std's.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.source.timeout(Way::Read))
    }

    /// How long one write may wait.
    ///
    /// # Errors
    /// None. The signature is std's.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.source.timeout(Way::Write))
    }
}

impl<T> Read for &PollFd<T>
where
    for<'a> &'a T: Read,
{
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return self.source.transfer_none(|mut inner| inner.read(buf));
        }
        self.source.read(|mut inner| inner.read(buf))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return self.source.transfer_none(|mut inner| inner.read_vectored(bufs));
        }
        self.source.read(|mut inner| inner.read_vectored(bufs))
    }
}

impl<T> Read for PollFd<T>
where
    for<'a> &'a T: Read,
{
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl<T> Write for &PollFd<T>
where
    for<'a> &'a T: Write,
{
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return self.source.transfer_none(|mut inner| inner.write(buf));
        }
        self.source.write(|mut inner| inner.write(buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        if bufs.iter().all(|buf| buf.is_empty()) {
            return self.source.transfer_none(|mut inner| inner.write_vectored(bufs));
        }
        self.source.write(|mut inner| inner.write_vectored(bufs))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.source.write(|mut inner| inner.flush())
    }
}

impl<T> Write for PollFd<T>
where
    for<'a> &'a T: Write,
{
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&*self).flush()
    }
}

impl<T> Watched for PollFd<T> {
    fn watch(&self) -> Arc<Watch> {
        self.source.watch()
    }
}

impl<T> AsRawFd for PollFd<T> {
    fn as_raw_fd(&self) -> RawFd {
        self.source.fd()
    }
}

impl<T> AsFd for PollFd<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the number belongs to this descriptor until the value is dropped, closed or not.
        unsafe { BorrowedFd::borrow_raw(self.source.fd()) }
    }
}

impl<T: std::fmt::Debug> std::fmt::Debug for PollFd<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PollFd").field(&self.source).finish()
    }
}
