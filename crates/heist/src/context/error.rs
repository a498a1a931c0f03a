//! How and why a context was cancelled.

use std::error::Error;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// How a context was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContextError {
    /// By a [`Canceller`](super::Canceller), its own or that of a context above it.
    Canceled,
    /// By its deadline, or by that of a context above it.
    DeadlineExceeded,
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Canceled => "context canceled",
            Self::DeadlineExceeded => "context deadline exceeded",
        })
    }
}

impl Error for ContextError {}

/// Why a context was cancelled: any error. Clones share it.
///
/// # Examples
/// ```
/// use heist::context::{self, ContextError};
/// let (ctx, canceller) = context::background().with_cancel();
/// canceller.cancel();
/// let cause = ctx.cause().unwrap();
/// assert_eq!(cause.downcast_ref(), Some(&ContextError::Canceled));
/// ```
#[derive(Clone)]
pub struct Cause(Arc<dyn Error + Send + Sync>);

// A shared error does not change any more.
impl UnwindSafe for Cause {}
impl RefUnwindSafe for Cause {}

impl Cause {
    /// A cause made from an error or from text.
    ///
    /// # Examples
    /// ```
    /// use heist::context::Cause;
    /// let cause = Cause::new("x".parse::<u8>().unwrap_err());
    /// assert!(cause.downcast_ref::<std::num::ParseIntError>().is_some());
    /// ```
    #[must_use]
    pub fn new(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        error.into().into()
    }

    /// The error as its original type, if that is `E`.
    #[must_use]
    pub fn downcast_ref<E: Error + 'static>(&self) -> Option<&E> {
        self.0.downcast_ref()
    }
}

impl From<Box<dyn Error + Send + Sync>> for Cause {
    fn from(error: Box<dyn Error + Send + Sync>) -> Self {
        // A cause that is passed on is not wrapped again.
        error.downcast::<Self>().map_or_else(|error| Self(error.into()), |cause| *cause)
    }
}

impl From<ContextError> for Cause {
    fn from(error: ContextError) -> Self {
        Self(Arc::new(error))
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source()
    }
}
