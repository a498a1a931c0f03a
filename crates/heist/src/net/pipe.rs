//! Pipes: bytes that go in at one end and come out at the other.

use super::source::{Ends, Source};
use std::io;

/// Makes a pipe.
///
/// # Errors
/// If there is no descriptor left.
///
/// # Examples
/// ```
/// use std::io::{Read, Write};
///
/// let (mut out, mut into) = heist::net::pipe()?;
/// into.write_all(b"hello")?;
/// drop(into);
/// let mut text = String::new();
/// out.read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "Pipe")]
pub fn pipe() -> io::Result<(PipeReader, PipeWriter)> {
    let (reader, writer) = io::pipe()?;
    let reader = Source::new(reader, Ends::Seen)?;
    let writer = Source::new(writer, Ends::Seen)?;
    Ok((PipeReader { source: reader }, PipeWriter { source: writer }))
}

/// The end of a pipe that is read.
pub struct PipeReader {
    source: Source<io::PipeReader>,
}

super::descriptor!(PipeReader);
super::read_limits!(PipeReader);
super::reads!(PipeReader);

impl PipeReader {
    /// Takes over a pipe of somebody else.
    ///
    /// # Errors
    /// If it cannot be put into non-blocking mode.
    pub fn from_std(reader: io::PipeReader) -> io::Result<Self> {
        Ok(Self { source: Source::new(reader, Ends::Unseen)? })
    }

    /// Makes it one of std, in blocking mode.
    ///
    /// # Errors
    /// If it is closed, or cannot be put into blocking mode.
    pub fn into_std(self) -> io::Result<io::PipeReader> {
        self.source.into_inner()
    }
}

/// The end of a pipe that is written.
///
/// Writing when nobody can read any more fails with [`io::ErrorKind::BrokenPipe`].
pub struct PipeWriter {
    source: Source<io::PipeWriter>,
}

super::descriptor!(PipeWriter);
super::write_limits!(PipeWriter);
super::writes!(PipeWriter);

impl PipeWriter {
    /// Takes over a pipe of somebody else.
    ///
    /// # Errors
    /// If it cannot be put into non-blocking mode.
    pub fn from_std(writer: io::PipeWriter) -> io::Result<Self> {
        Ok(Self { source: Source::new(writer, Ends::Unseen)? })
    }

    /// Makes it one of std, in blocking mode.
    ///
    /// # Errors
    /// If it is closed, or cannot be put into blocking mode.
    pub fn into_std(self) -> io::Result<io::PipeWriter> {
        self.source.into_inner()
    }
}
