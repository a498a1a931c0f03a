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

use crate::sched::syscall::blocking;
use std::fs::{self, Metadata};
use std::io::{self, Read, Seek, SeekFrom, Write};
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

/// Makes a folder and those above it.
///
/// # Errors
/// As [`std::fs::create_dir_all`].
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    blocking(|| fs::create_dir_all(path))
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

/// The paths of what is in a folder, in no order.
///
/// # Errors
/// As [`std::fs::read_dir`].
pub fn read_dir(path: impl AsRef<Path>) -> io::Result<Vec<PathBuf>> {
    blocking(|| fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect())
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

    /// Waits until what was written is on the disk.
    ///
    /// # Errors
    /// As [`std::fs::File::sync_all`].
    pub fn sync_all(&self) -> io::Result<()> {
        blocking(|| self.inner.sync_all())
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

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        blocking(|| self.inner.read(buf))
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        blocking(|| self.inner.write(buf))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        blocking(|| self.inner.seek(to))
    }
}
