//! Cancelling a context.

use super::node::Node;
use super::{Cause, ContextError};
use std::error::Error;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

/// Cancels a [`Context`](super::Context). Clones cancel the same context. Cancelling a cancelled
/// context does nothing.
///
/// Dropping it does **not** cancel: [`on_drop`](Self::on_drop) makes a guard that does. A context
/// that is no longer used costs nothing, cancelled or not.
#[derive(Clone)]
#[doc(alias = "CancelFunc")]
pub struct Canceller {
    pub(super) node: Arc<Node>,
}

// As for `Context`.
impl UnwindSafe for Canceller {}
impl RefUnwindSafe for Canceller {}

impl Canceller {
    /// Cancels the context and everything below it.
    ///
    /// When this returns, the context and all contexts below it have ended and their functions can
    /// no longer be stopped, even if another canceller or a deadline ended them at the same time.
    pub fn cancel(&self) {
        Node::cancel(&self.node, ContextError::Canceled, None);
    }

    /// Cancels the context and everything below it, with a cause.
    ///
    /// # Examples
    /// ```
    /// let (ctx, canceller) = heist::context::background().with_cancel();
    /// canceller.cancel_with("nobody listens");
    /// canceller.cancel_with("too late");
    /// assert_eq!(ctx.err().unwrap().to_string(), "context canceled");
    /// assert_eq!(ctx.cause().unwrap().to_string(), "nobody listens");
    /// ```
    #[doc(alias = "CancelCauseFunc")]
    pub fn cancel_with(&self, cause: impl Into<Box<dyn Error + Send + Sync>>) {
        let cause = Cause::from(cause.into());
        Node::cancel(&self.node, ContextError::Canceled, Some(cause));
    }

    /// A guard that cancels when it is dropped, as Go's `defer cancel()`.
    ///
    /// # Examples
    /// ```
    /// let (ctx, canceller) = heist::context::background().with_cancel();
    /// {
    ///     let _guard = canceller.on_drop();
    ///     assert!(ctx.err().is_none());
    /// }
    /// assert!(ctx.err().is_some());
    /// ```
    pub const fn on_drop(self) -> CancelOnDrop {
        CancelOnDrop(self)
    }
}

impl fmt::Debug for Canceller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Canceller").field("err", &self.node.err()).finish()
    }
}

/// Cancels a [`Context`](super::Context) when it is dropped; see [`Canceller::on_drop`].
#[derive(Debug)]
#[must_use = "a guard that is not kept cancels at once"]
pub struct CancelOnDrop(Canceller);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}
