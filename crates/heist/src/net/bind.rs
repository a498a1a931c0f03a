//! Descriptors whose operations a context ends.

use super::watch::Watch;
use crate::context::{Context, ContextError, ContextFunc};
use crate::sync::Mutex;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// A socket, a listener or a pipe: what [`Context::bind`] takes.
pub trait Bindable: Watched {}

impl<T: Watched> Bindable for T {}

/// The part of [`Bindable`] that only this crate uses. Nothing else implements it.
pub trait Watched {
    #[doc(hidden)]
    fn watch(&self) -> Arc<Watch>;
}

/// How far a binding is.
enum Phase {
    Bound,
    /// The context is done, and operations fail.
    Fired(ContextError),
    /// The guard is gone.
    Over,
}

/// A descriptor that is bound to a context. Its function and its guard share it.
struct Binding {
    watch: Arc<Watch>,
    phase: Mutex<Phase>,
}

impl Binding {
    /// The context is done.
    fn fire(&self, error: ContextError) {
        let mut phase = self.phase.lock_shielded();
        if matches!(*phase, Phase::Bound) {
            *phase = Phase::Fired(error);
            self.watch.with(|state| state.interrupt(error));
        }
    }

    /// The guard is dropped.
    fn end(&self) {
        let mut phase = self.phase.lock_shielded();
        if let Phase::Fired(error) = std::mem::replace(&mut *phase, Phase::Over) {
            self.watch.with(|state| state.end_interrupt(error));
        }
    }
}

impl Context {
    /// Ends the operations of a descriptor when this context is done, as long as the returned guard
    /// lives.
    ///
    /// Reads, writes, accepts and connects that wait at that moment fail, and so do those that
    /// begin later, whether data is there or not.
    /// [`net::context_error`](crate::net::context_error) says how the context was cancelled; the
    /// error of a deadline has the kind [`TimedOut`](std::io::ErrorKind::TimedOut). When the guard
    /// is dropped, the descriptor is as it was before: nothing is closed. A write may have written
    /// a part.
    ///
    /// A descriptor may be bound to several contexts. It works on plain threads too.
    ///
    /// # Examples
    /// ```
    /// use heist::context::{self, ContextError};
    /// use heist::net::{self, TcpListener};
    /// use std::time::Duration;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| -> std::io::Result<()> {
    /// let (ctx, _canceller) = context::background().with_timeout(Duration::from_millis(5));
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let bound = ctx.bind(&listener);
    /// let error = listener.accept().unwrap_err(); // Nobody connects.
    /// assert_eq!(net::context_error(&error), Some(ContextError::DeadlineExceeded));
    /// drop(bound);
    /// # Ok(())
    /// # })
    /// # }
    /// ```
    pub fn bind<'a>(&self, descriptor: &'a impl Bindable) -> Bound<'a> {
        let watch = descriptor.watch();
        let binding = Arc::new(Binding { watch, phase: Mutex::new(Phase::Bound) });
        let fires = Arc::clone(&binding);
        let func = self.when_done(move |error| fires.fire(error));
        Bound { func, binding, _descriptor: PhantomData }
    }
}

/// Keeps a descriptor bound to a context; see [`Context::bind`].
#[must_use = "a guard that is not kept unbinds the descriptor at once"]
pub struct Bound<'a> {
    func: ContextFunc,
    binding: Arc<Binding>,
    _descriptor: PhantomData<&'a ()>,
}

impl Drop for Bound<'_> {
    fn drop(&mut self) {
        self.func.stop();
        self.binding.end();
    }
}

impl fmt::Debug for Bound<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").finish_non_exhaustive()
    }
}
