//! The errors of heist's own, in contrast to those of the system.

use crate::context::ContextError;
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

#[derive(Clone, Copy, Debug)]
struct Interrupted(ContextError);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Interrupted {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.0)
    }
}

/// The error of an operation on a descriptor that is bound to a context that is done. Not of the
/// kind `Interrupted`, after which callers try again.
#[cold]
pub(crate) fn interrupted(by: ContextError) -> io::Error {
    let kind = match by {
        ContextError::Canceled => io::ErrorKind::Other,
        ContextError::DeadlineExceeded => io::ErrorKind::TimedOut,
    };
    io::Error::new(kind, Interrupted(by))
}

/// How the context was cancelled because of which an operation failed; see
/// [`Context::bind`](crate::context::Context::bind). None if the operation failed for another
/// reason, such as a deadline or a timeout of the descriptor itself.
///
/// # Examples
/// ```
/// use heist::context::{self, ContextError};
/// use heist::net::{self, UnixStream};
/// use std::io::Read;
///
/// # fn main() -> std::io::Result<()> {
/// let (ctx, canceller) = context::background().with_cancel();
/// let (mut stream, _other) = UnixStream::pair()?;
/// canceller.cancel();
/// let bound = ctx.bind(&stream);
/// let error = (&stream).read(&mut [0; 16]).unwrap_err();
/// assert_eq!(net::context_error(&error), Some(ContextError::Canceled));
/// # drop(bound);
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn context_error(error: &io::Error) -> Option<ContextError> {
    find::<Interrupted>(error).map(|interrupted| interrupted.0)
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
    find::<Closed>(error).is_some()
}

/// The error of this type in the chain. It may have been wrapped on its way, and an `io::Error`
/// does not return its inner error as its source.
fn find<E: Error + 'static>(error: &io::Error) -> Option<&E> {
    let mut next: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = next {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        next = match error.downcast_ref::<io::Error>() {
            Some(wrapper) => wrapper.get_ref().map(|inner| inner as &(dyn Error + 'static)),
            None => error.source(),
        };
    }
    None
}
