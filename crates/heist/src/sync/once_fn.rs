//! Functions that do their work once.
//!
//! GO: sync/oncefunc.go.

use super::OnceLock;
use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any, resume_unwind};

/// A function that runs `f` when it is called for the first time. Other callers wait meanwhile
/// until `f` has returned.
///
/// If `f` panics, so does every call, with the same message. If the goroutine that runs `f` is
/// cancelled or exits, `f` counts as run, and later calls panic. Neither making the function nor
/// calling it allocates.
///
/// # Examples
/// ```
/// use std::sync::atomic::{AtomicU32, Ordering};
///
/// let runs = AtomicU32::new(0);
/// let setup = heist::sync::once_fn(|| {
///     runs.fetch_add(1, Ordering::Relaxed);
/// });
/// setup();
/// setup();
/// assert_eq!(runs.load(Ordering::Relaxed), 1);
/// ```
#[doc(alias = "OnceFunc")]
pub fn once_fn<F>(f: F) -> impl Fn() + Send + Sync
where
    F: FnOnce() + Send,
{
    let once = OnceFn::new(f);
    move || *once.call()
}

/// A function that makes its value when it is called for the first time, and then returns a clone
/// of it each time. For several values, return a tuple. Panics and cancellation are as for
/// [`once_fn`].
///
/// # Examples
/// ```
/// let config = heist::sync::once_value(|| "read from a file".to_owned());
/// assert_eq!(config(), config());
/// ```
///
/// ```should_panic
/// let broken = heist::sync::once_value(|| -> u8 { panic!("no such file") });
/// std::panic::catch_unwind(std::panic::AssertUnwindSafe(&broken)).unwrap_err();
/// broken(); // no such file
/// ```
#[doc(alias = "OnceValue")]
#[doc(alias = "OnceValues")]
pub fn once_value<T, F>(f: F) -> impl Fn() -> T + Send + Sync
where
    T: Clone + Send + Sync,
    F: FnOnce() -> T + Send,
{
    let once = OnceFn::new(f);
    move || once.call().clone()
}

struct OnceFn<T, F> {
    f: Cell<Option<F>>,
    done: OnceLock<Result<T, Failure>>,
}

// SAFETY: only the caller that fills the lock takes `f`.
unsafe impl<T: Send + Sync, F: Send> Sync for OnceFn<T, F> {}

impl<T, F: FnOnce() -> T> OnceFn<T, F> {
    const fn new(f: F) -> Self {
        Self { f: Cell::new(Some(f)), done: OnceLock::new() }
    }

    fn call(&self) -> &T {
        let mut payload = None;
        let done = self.done.get_or_init(|| {
            let Some(f) = self.f.take() else { unreachable!("the lock is filled once") };
            catch_unwind(AssertUnwindSafe(f)).map_err(|caught| {
                let failure = Failure::of(&*caught);
                payload = Some(caught);
                failure
            })
        });
        if let Some(payload) = payload {
            // The first call fails in the same way as `f`.
            resume_unwind(payload);
        }
        match done {
            Ok(value) => value,
            Err(failure) => failure.repeat(),
        }
    }
}

/// How later calls report a function that did not return.
enum Failure {
    Literal(&'static str),
    Text(String),
    /// A panic whose payload is not text, or a goroutine that was cancelled or exited.
    Other,
}

impl Failure {
    fn of(payload: &(dyn Any + Send)) -> Self {
        if let Some(text) = payload.downcast_ref::<&'static str>() {
            return Self::Literal(text);
        }
        payload.downcast_ref::<String>().map_or(Self::Other, |text| Self::Text(text.clone()))
    }

    fn repeat(&self) -> ! {
        match self {
            Self::Literal(text) => panic_any(*text),
            Self::Text(text) => panic_any(text.clone()),
            Self::Other => panic!("sync: a function that runs once did not return"),
        }
    }
}
