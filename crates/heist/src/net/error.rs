//! The errors of heist's own, in contrast to those of the system.

use std::error::Error;
use std::fmt;
use std::io;

#[derive(Clone, Copy, Debug)]
struct Closed;

impl fmt::Display for Closed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("use of closed network connection")
    }
}

impl Error for Closed {}

#[derive(Clone, Copy, Debug)]
struct Timeout;

impl fmt::Display for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("i/o timeout")
    }
}

impl Error for Timeout {}

/// The error of a descriptor on which `close` was called.
#[cold]
pub(crate) fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, Closed)
}

/// The error of an operation whose time is over.
#[cold]
pub(crate) fn timeout() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, Timeout)
}

/// The error of a destructor that would wait for I/O while its goroutine is being cancelled.
#[cold]
pub(crate) fn cancelled() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the goroutine is being cancelled")
}

/// Whether an operation failed because its own side called `close`, before it or meanwhile.
///
/// # Examples
/// ```
/// # fn main() -> std::io::Result<()> {
/// let socket = heist::net::UdpSocket::bind("127.0.0.1:0")?;
/// socket.close()?;
/// let error = socket.recv(&mut [0; 16]).unwrap_err();
/// assert!(heist::net::is_closed(&error));
/// # Ok(())
/// # }
/// ```
#[must_use]
#[doc(alias = "ErrClosed")]
pub fn is_closed(error: &io::Error) -> bool {
    // The error may have been wrapped on its way. An `io::Error` does not return its inner error as
    // its source.
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.is::<Closed>() {
            return true;
        }
        next = match error.downcast_ref::<io::Error>() {
            Some(wrapper) => wrapper.get_ref().map(|inner| inner as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    false
}
