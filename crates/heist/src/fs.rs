//! Files, without holding up other goroutines.
//!
//! The kernel has no way to wait for a plain file: a call just takes as long as it takes. These are
//! [`std::fs`]'s functions, announced as blocking: if one takes long, the processor goes to other
//! goroutines meanwhile. For what is not here, call std inside [`blocking`](crate::blocking()).
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| -> std::io::Result<()> {
//! let path = std::env::temp_dir().join(format!("heist-doc-{}", std::process::id()));
//! heist::fs::write(&path, "hello")?;
//! assert_eq!(heist::fs::read_to_string(&path)?, "hello");
//! heist::fs::remove_file(&path)?;
//! # Ok(())
//! # })
//! # }
//! ```

use crate::sched::stall::blocking::blocking;
use std::fs::{self, Metadata, Permissions};
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The whole of a file.
///
/// # Errors
/// As [`std::fs::read`].
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    blocking(|| fs::read(path))
}

/// The whole of a file, as text.
///
/// # Errors
/// As [`std::fs::read_to_string`].
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    blocking(|| fs::read_to_string(path))
}

/// Replaces or makes a file.
///
/// # Errors
/// As [`std::fs::write`].
pub fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    blocking(|| fs::write(path, contents))
}

/// Copies a file; answers how many bytes.
///
/// # Errors
/// As [`std::fs::copy`].
pub fn copy(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<u64> {
    blocking(|| fs::copy(from, to))
}

/// Renames a file or a folder.
///
/// # Errors
/// As [`std::fs::rename`].
pub fn rename(from: impl AsRef<Path>, to: impl AsRef<Path>) -> io::Result<()> {
    blocking(|| fs::rename(from, to))
}

/// Removes a file.
///
/// # Errors
/// As [`std::fs::remove_file`].
pub fn remove_file(path: impl AsRef<Path>) -> io::Result<()> {
    blocking(|| fs::remove_file(path))
}

/// Gives a file a second name.
///
/// # Errors
/// As [`std::fs::hard_link`].
pub fn hard_link(original: impl AsRef<Path>, link: impl AsRef<Path>) -> io::Result<()> {
    blocking(|| fs::hard_link(original, link))
}

/// The path that a symbolic link holds.
///
/// # Errors
/// As [`std::fs::read_link`].
pub fn read_link(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    blocking(|| fs::read_link(path))
}

/// Makes a folder in one that exists.
///
/// # Errors
/// As [`std::fs::create_dir`].
pub fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    blocking(|| fs::create_dir(path))
}

/// Makes a folder and those above it.
///
/// # Errors
/// As [`std::fs::create_dir_all`].
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    blocking(|| fs::create_dir_all(path))
}

/// Removes a folder that is empty.
///
/// # Errors
/// As [`std::fs::remove_dir`].
pub fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    blocking(|| fs::remove_dir(path))
}

/// Removes a folder with all that is in it.
///
/// # Errors
/// As [`std::fs::remove_dir_all`].
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    blocking(|| fs::remove_dir_all(path))
}

/// What the system knows about a file.
///
/// # Errors
/// As [`std::fs::metadata`].
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    blocking(|| fs::metadata(path))
}

/// The same about a symbolic link itself, if it is one.
///
/// # Errors
/// As [`std::fs::symlink_metadata`].
pub fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    blocking(|| fs::symlink_metadata(path))
}

/// Changes who may do what with a file.
///
/// # Errors
/// As [`std::fs::set_permissions`].
pub fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    blocking(|| fs::set_permissions(path, permissions))
}

/// Whether there is something at a path. A symbolic link to nothing is nothing.
///
/// # Errors
/// As [`std::fs::exists`].
pub fn exists(path: impl AsRef<Path>) -> io::Result<bool> {
    blocking(|| fs::exists(path))
}

/// The path from the root, without symbolic links.
///
/// # Errors
/// As [`std::fs::canonicalize`].
pub fn canonicalize(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    blocking(|| fs::canonicalize(path))
}

/// The paths of what is in a folder, in no order.
///
/// # Errors
/// As [`std::fs::read_dir`].
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    blocking(|| fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect())
}

/// How a file is to be opened, as [`std::fs::OpenOptions`].
///
/// # Examples
/// ```
/// use heist::fs::{self, OpenOptions};
/// use std::io::Write;
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| -> std::io::Result<()> {
/// let path = std::env::temp_dir().join(format!("heist-doc-options-{}", std::process::id()));
/// for line in ["one\n", "two\n"] {
///     let mut file = OpenOptions::new().append(true).create(true).open(&path)?;
///     file.write_all(line.as_bytes())?;
/// }
/// assert_eq!(fs::read_to_string(&path)?, "one\ntwo\n");
/// fs::remove_file(&path)?;
/// # Ok(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "OpenFile")]
pub struct OpenOptions {
    inner: fs::OpenOptions,
}

impl OpenOptions {
    /// Nothing is allowed yet.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "as std, which has no default either")]
    pub fn new() -> Self {
        Self { inner: fs::OpenOptions::new() }
    }

    /// Whether it may be read.
    pub fn read(&mut self, read: bool) -> &mut Self {
        self.inner.read(read);
        self
    }

    /// Whether it may be written.
    pub fn write(&mut self, write: bool) -> &mut Self {
        self.inner.write(write);
        self
    }

    /// Whether every write goes to the end of the file.
    pub fn append(&mut self, append: bool) -> &mut Self {
        self.inner.append(append);
        self
    }

    /// Whether what is in the file goes away.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.inner.truncate(truncate);
        self
    }

    /// Whether a file that is not there is made.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.inner.create(create);
        self
    }

    /// Whether the file must be a new one: fails if something is there.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.inner.create_new(create_new);
        self
    }

    /// Who may do what with a file that is made, less what the process's umask forbids; 0o666 unless
    /// it is set.
    pub fn mode(&mut self, mode: u32) -> &mut Self {
        self.inner.mode(mode);
        self
    }

    /// Opens a file.
    ///
    /// # Errors
    /// As [`std::fs::OpenOptions::open`].
    pub fn open(&self, path: impl AsRef<Path>) -> io::Result<File> {
        blocking(|| self.inner.open(path)).map(File::from)
    }
}

impl From<fs::OpenOptions> for OpenOptions {
    fn from(inner: fs::OpenOptions) -> Self {
        Self { inner }
    }
}

/// An open file, as [`std::fs::File`].
#[derive(Debug)]
pub struct File {
    inner: fs::File,
}

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`std::fs::File::open`].
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        blocking(|| fs::File::open(path)).map(Self::from)
    }

    /// Opens an empty file for writing.
    ///
    /// # Errors
    /// As [`std::fs::File::create`].
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        blocking(|| fs::File::create(path)).map(Self::from)
    }

    /// Says how a file is to be opened; see [`OpenOptions`].
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Waits until what was written is on the disk.
    ///
    /// # Errors
    /// As [`std::fs::File::sync_all`].
    pub fn sync_all(&self) -> io::Result<()> {
        blocking(|| self.inner.sync_all())
    }

    /// The same, but what the system knows about the file may come later, as its times.
    ///
    /// # Errors
    /// As [`std::fs::File::sync_data`].
    pub fn sync_data(&self) -> io::Result<()> {
        blocking(|| self.inner.sync_data())
    }

    /// Cuts the file off, or fills it up with zeroes.
    ///
    /// # Errors
    /// As [`std::fs::File::set_len`].
    #[doc(alias = "Truncate")]
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        blocking(|| self.inner.set_len(size))
    }

    /// Changes who may do what with it.
    ///
    /// # Errors
    /// As [`std::fs::File::set_permissions`].
    #[doc(alias = "Chmod")]
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        blocking(|| self.inner.set_permissions(permissions))
    }

    /// A second handle of the same open file: both read and write at one place.
    ///
    /// # Errors
    /// As [`std::fs::File::try_clone`].
    pub fn try_clone(&self) -> io::Result<Self> {
        blocking(|| self.inner.try_clone()).map(Self::from)
    }

    /// What the system knows about it.
    ///
    /// # Errors
    /// As [`std::fs::File::metadata`].
    pub fn metadata(&self) -> io::Result<Metadata> {
        blocking(|| self.inner.metadata())
    }

    /// Std's file, for everything else.
    #[must_use]
    pub const fn as_std(&self) -> &fs::File {
        &self.inner
    }

    /// Makes it std's.
    #[must_use]
    pub fn into_std(self) -> fs::File {
        self.inner
    }
}

impl From<fs::File> for File {
    fn from(inner: fs::File) -> Self {
        Self { inner }
    }
}

impl From<File> for fs::File {
    fn from(file: File) -> Self {
        file.inner
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> Self {
        file.inner.into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.inner.as_raw_fd()
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        blocking(|| (&self.inner).read(buf))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        blocking(|| (&self.inner).read_vectored(bufs))
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        blocking(|| (&self.inner).write(buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        blocking(|| (&self.inner).write_vectored(bufs))
    }

    /// Does nothing: what was written is with the system.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    /// Does nothing: what was written is with the system.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        blocking(|| (&self.inner).seek(to))
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}
