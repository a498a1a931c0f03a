//! Why a file cannot be read.

use std::borrow::Cow;
use std::{fmt, io};

/// Why a file cannot be read, and where.
#[derive(Debug)]
pub struct Error {
    offset: u64,
    what: Cow<'static, str>,
    source: Option<io::Error>,
}

impl Error {
    pub(crate) fn new(offset: u64, what: impl Into<Cow<'static, str>>) -> Self {
        Self { offset, what: what.into(), source: None }
    }

    pub(crate) fn io(offset: u64, source: io::Error) -> Self {
        Self { offset, what: "cannot be read".into(), source: Some(source) }
    }

    /// The byte of the file at which the problem is.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: {}", self.offset, self.what)?;
        match &self.source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.source.as_ref().map(|source| source as _)
    }
}
