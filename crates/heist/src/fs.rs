//! Files, without keeping other goroutines waiting.
//!
//! The kernel has no way to wait for a plain file: a call just takes as long as it takes. These are
//! the functions of [`std::fs`], announced as blocking: if one takes long, the processor goes to
//! other goroutines meanwhile. For functions that are not here, call std inside
//! [`blocking`](crate::blocking()).
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

/// Reads a whole file.
///
/// # Errors
/// As [`std::fs::read`].
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    blocking(|| fs::read(path))
}

/// Reads a whole file, as text.
///
/// # Errors
/// As [`std::fs::read_to_string`].
pub fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    blocking(|| fs::read_to_string(path))
}

/// Writes a whole file, and replaces one that exists.
///
/// # Errors
/// As [`std::fs::write`].
pub fn write(path: impl AsRef<Path>, contents: impl AsRef<[u8]>) -> io::Result<()> {
    blocking(|| fs::write(path, contents))
}

/// Copies a file. Returns the number of bytes.
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

/// Creates a folder in one that exists.
///
/// # Errors
/// As [`std::fs::create_dir`].
pub fn create_dir(path: impl AsRef<Path>) -> io::Result<()> {
    blocking(|| fs::create_dir(path))
}

/// Creates a folder and those above it.
///
/// # Errors
/// As [`std::fs::create_dir_all`].
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    blocking(|| fs::create_dir_all(path))
}

/// Removes an empty folder.
///
/// # Errors
/// As [`std::fs::remove_dir`].
pub fn remove_dir(path: impl AsRef<Path>) -> io::Result<()> {
    blocking(|| fs::remove_dir(path))
}

/// Removes a folder with everything in it.
///
/// # Errors
/// As [`std::fs::remove_dir_all`].
pub fn remove_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    blocking(|| fs::remove_dir_all(path))
}

/// The metadata of a file.
///
/// # Errors
/// As [`std::fs::metadata`].
pub fn metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    blocking(|| fs::metadata(path))
}

/// The same, but of a symbolic link itself.
///
/// # Errors
/// As [`std::fs::symlink_metadata`].
pub fn symlink_metadata(path: impl AsRef<Path>) -> io::Result<Metadata> {
    blocking(|| fs::symlink_metadata(path))
}

/// Changes the permissions of a file.
///
/// # Errors
/// As [`std::fs::set_permissions`].
pub fn set_permissions(path: impl AsRef<Path>, permissions: Permissions) -> io::Result<()> {
    blocking(|| fs::set_permissions(path, permissions))
}

/// Whether a path exists. A dangling symbolic link does not.
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

/// The paths of the entries of a folder, in no order.
///
/// # Errors
/// As [`std::fs::read_dir`].
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    blocking(|| fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect())
}

/// Options for opening a file, as [`std::fs::OpenOptions`].
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
    /// Options that allow nothing yet.
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

    /// Whether the contents of the file are removed.
    pub fn truncate(&mut self, truncate: bool) -> &mut Self {
        self.inner.truncate(truncate);
        self
    }

    /// Whether a missing file is created.
    pub fn create(&mut self, create: bool) -> &mut Self {
        self.inner.create(create);
        self
    }

    /// Whether the file must be new: opening fails if it exists.
    pub fn create_new(&mut self, create_new: bool) -> &mut Self {
        self.inner.create_new(create_new);
        self
    }

    /// The permissions of a created file, without those that the umask of the process removes;
    /// 0o666 by default.
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

    /// Options for opening a file; see [`OpenOptions`].
    #[must_use]
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Waits until everything that was written is on the disk.
    ///
    /// # Errors
    /// As [`std::fs::File::sync_all`].
    pub fn sync_all(&self) -> io::Result<()> {
        blocking(|| self.inner.sync_all())
    }

    /// The same, but metadata such as the times of the file may be written later.
    ///
    /// # Errors
    /// As [`std::fs::File::sync_data`].
    pub fn sync_data(&self) -> io::Result<()> {
        blocking(|| self.inner.sync_data())
    }

    /// Truncates the file, or extends it with zeroes.
    ///
    /// # Errors
    /// As [`std::fs::File::set_len`].
    #[doc(alias = "Truncate")]
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        blocking(|| self.inner.set_len(size))
    }

    /// Changes its permissions.
    ///
    /// # Errors
    /// As [`std::fs::File::set_permissions`].
    #[doc(alias = "Chmod")]
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        blocking(|| self.inner.set_permissions(permissions))
    }

    /// A second handle of the same open file: both share one position.
    ///
    /// # Errors
    /// As [`std::fs::File::try_clone`].
    pub fn try_clone(&self) -> io::Result<Self> {
        blocking(|| self.inner.try_clone()).map(Self::from)
    }

    /// Its metadata.
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

    /// Converts it to std's file.
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

    /// Does nothing: the system has everything that was written.
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

    /// Does nothing: the system has everything that was written.
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
