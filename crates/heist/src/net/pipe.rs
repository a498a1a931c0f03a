//! Pipes: bytes that go in at one end and come out at the other.

use super::source::{Ends, Source};
use heist_core::fd_lock::Way;
use std::future::Future;
use std::io;
use std::process::Stdio;
use std::task::Poll;

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
super::owned_fd!(PipeReader, io::PipeReader, Ends::Unseen);
super::read_limits!(PipeReader);
super::reads!(PipeReader);
super::operation::async_reads!(PipeReader, io::PipeReader);

impl PipeReader {
    /// Takes over a pipe of std.
    ///
    /// # Errors
    /// If it cannot be put into non-blocking mode.
    pub fn from_std(reader: io::PipeReader) -> io::Result<Self> {
        Ok(Self { source: Source::new(reader, Ends::Unseen)? })
    }

    /// Converts it to a pipe of std, in blocking mode.
    ///
    /// # Errors
    /// If it is closed, or cannot be put into blocking mode.
    pub fn into_std(self) -> io::Result<io::PipeReader> {
        self.source.into_inner()
    }

    /// A second handle of the same end, with the timeout of this one and no deadline. Each handle's
    /// timeout and deadline can be changed independently. When one of them is converted to std's
    /// type, the other must not be used any more: it would block its thread.
    ///
    /// # Errors
    /// If it is closed, or there is no descriptor left. An `Arc` or a reference needs no
    /// descriptor.
    pub fn try_clone(&self) -> io::Result<Self> {
        let clone = self.source.with(io::PipeReader::try_clone)?;
        let source = Source::nonblocking(clone, Ends::Unseen)?;
        source.set_timeout(Way::Read, self.source.timeout(Way::Read))?;
        Ok(Self { source })
    }
}

impl TryFrom<io::PipeReader> for PipeReader {
    type Error = io::Error;

    fn try_from(reader: io::PipeReader) -> io::Result<Self> {
        Self::from_std(reader)
    }
}

impl TryFrom<PipeReader> for io::PipeReader {
    type Error = io::Error;

    fn try_from(reader: PipeReader) -> io::Result<Self> {
        reader.into_std()
    }
}

/// Lets a program read the rest of a pipe, in blocking mode. A closed pipe becomes [`Stdio::null`].
impl From<PipeReader> for Stdio {
    fn from(reader: PipeReader) -> Self {
        reader.into_std().map_or_else(|_| Self::null(), Self::from)
    }
}

/// The end of a pipe that is written.
///
/// Writing after the last reader is closed fails with [`io::ErrorKind::BrokenPipe`].
pub struct PipeWriter {
    source: Source<io::PipeWriter>,
}

super::descriptor!(PipeWriter);
super::owned_fd!(PipeWriter, io::PipeWriter, Ends::Unseen);
super::write_limits!(PipeWriter);
super::writes!(PipeWriter);
super::operation::async_writes!(PipeWriter, io::PipeWriter);

impl PipeWriter {
    /// Takes over a pipe of std.
    ///
    /// # Errors
    /// If it cannot be put into non-blocking mode.
    pub fn from_std(writer: io::PipeWriter) -> io::Result<Self> {
        Ok(Self { source: Source::new(writer, Ends::Unseen)? })
    }

    /// Converts it to a pipe of std, in blocking mode.
    ///
    /// # Errors
    /// If it is closed, or cannot be put into blocking mode.
    pub fn into_std(self) -> io::Result<io::PipeWriter> {
        self.source.into_inner()
    }

    /// A second handle of the same end, with the timeout of this one and no deadline. Each handle's
    /// timeout and deadline can be changed independently. When one of them is converted to std's
    /// type, the other must not be used any more: it would block its thread.
    ///
    /// # Errors
    /// If it is closed, or there is no descriptor left. An `Arc` or a reference needs no
    /// descriptor.
    pub fn try_clone(&self) -> io::Result<Self> {
        let clone = self.source.with(io::PipeWriter::try_clone)?;
        let source = Source::nonblocking(clone, Ends::Unseen)?;
        source.set_timeout(Way::Write, self.source.timeout(Way::Write))?;
        Ok(Self { source })
    }
}

impl TryFrom<io::PipeWriter> for PipeWriter {
    type Error = io::Error;

    fn try_from(writer: io::PipeWriter) -> io::Result<Self> {
        Self::from_std(writer)
    }
}

impl TryFrom<PipeWriter> for io::PipeWriter {
    type Error = io::Error;

    fn try_from(writer: PipeWriter) -> io::Result<Self> {
        writer.into_std()
    }
}

/// Lets a program write to a pipe, in blocking mode. A closed pipe becomes [`Stdio::null`].
impl From<PipeWriter> for Stdio {
    fn from(writer: PipeWriter) -> Self {
        writer.into_std().map_or_else(|_| Self::null(), Self::from)
    }
}
