//! Why a goroutine has no result.

use super::GoroutineId;
use crate::gmp::G;
use crate::gmp::g::Outcome;
use std::any::Any;
use std::error::Error;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

/// Why a goroutine has no result.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let outcome = |error: heist::JoinError| match error {
///     error if error.is_cancelled() => "was cancelled".to_owned(),
///     error if error.is_exited() => "ended itself".to_owned(),
///     error if error.is_stack_overflow() => "recursed too deep".to_owned(),
///     error => format!("panicked: {}", error.panic_message().unwrap_or("without a text")),
/// };
/// let panics = heist::go(|| -> u32 { panic!("no luck") });
/// assert_eq!(outcome(panics.join().unwrap_err()), "panicked: no luck");
/// let exits = heist::go(|| -> u32 { heist::exit_current() });
/// assert_eq!(outcome(exits.join().unwrap_err()), "ended itself");
/// let waits = heist::go(|| heist::chan::never::<u32>().recv());
/// waits.cancel();
/// assert_eq!(outcome(waits.join().unwrap_err()), "was cancelled");
/// # });
/// ```
pub struct JoinError {
    id: GoroutineId,
    kind: Kind,
}

/// The payload of a goroutine's panic.
struct Payload(Box<dyn Any + Send>);

// SAFETY: a shared reference to it is only used to check whether the payload is text and to read
// that text; the text types are `Sync`.
unsafe impl Sync for Payload {}

// The goroutine that made it has ended, and no other code has had access to it.
impl UnwindSafe for Payload {}
impl RefUnwindSafe for Payload {}

enum Kind {
    Panicked(Payload),
    StackOverflow,
    NoMemory,
    Cancelled,
    Exited,
}

impl JoinError {
    /// The goroutine that ended.
    #[must_use]
    pub const fn id(&self) -> GoroutineId {
        self.id
    }

    /// Whether it panicked.
    #[must_use]
    pub const fn is_panic(&self) -> bool {
        matches!(self.kind, Kind::Panicked(_))
    }

    /// Whether it ran out of stack.
    #[must_use]
    pub const fn is_stack_overflow(&self) -> bool {
        matches!(self.kind, Kind::StackOverflow)
    }

    /// Whether it never ran because the system had no memory for its stack, and no other goroutine
    /// was left that could have given it one.
    #[must_use]
    pub const fn is_out_of_memory(&self) -> bool {
        matches!(self.kind, Kind::NoMemory)
    }

    /// Whether it was cancelled.
    #[must_use]
    pub const fn is_cancelled(&self) -> bool {
        matches!(self.kind, Kind::Cancelled)
    }

    /// Whether it ended itself by [`exit_current`](crate::exit_current).
    #[must_use]
    pub const fn is_exited(&self) -> bool {
        matches!(self.kind, Kind::Exited)
    }

    /// The text of the panic, if its payload is text.
    #[must_use]
    pub fn panic_message(&self) -> Option<&str> {
        match &self.kind {
            Kind::Panicked(payload) => crate::panic_report::text(&*payload.0),
            _ => None,
        }
    }

    /// The value it panicked with, as `std::thread::JoinHandle::join` gives it.
    ///
    /// # Errors
    /// The error itself, if it is not a panic.
    ///
    /// # Examples
    /// The caller that joins continues the panic:
    /// ```
    /// fn join_or_panic<T>(handle: heist::JoinHandle<T>) -> T {
    ///     handle.join().unwrap_or_else(|error| match error.into_panic() {
    ///         Ok(payload) => std::panic::resume_unwind(payload),
    ///         Err(error) => panic!("{error}"),
    ///     })
    /// }
    ///
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let passed_on = heist::go(|| join_or_panic(heist::go(|| panic!("no luck"))));
    /// assert_eq!(passed_on.join().unwrap_err().panic_message(), Some("no luck"));
    /// # });
    /// ```
    pub fn into_panic(self) -> Result<Box<dyn Any + Send>, Self> {
        match self.kind {
            Kind::Panicked(payload) => Ok(payload.0),
            kind => Err(Self { id: self.id, kind }),
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = self.id;
        match &self.kind {
            Kind::Panicked(payload) => {
                let message = crate::panic_report::message(&*payload.0);
                write!(f, "goroutine {id} panicked: {message}")
            }
            Kind::StackOverflow => write!(f, "goroutine {id} overflowed its stack"),
            Kind::NoMemory => {
                write!(f, "goroutine {id} never ran: the system has no memory for its stack")
            }
            Kind::Cancelled => write!(f, "goroutine {id} was cancelled"),
            Kind::Exited => write!(f, "goroutine {id} ended itself"),
        }
    }
}

impl fmt::Debug for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JoinError({self})")
    }
}

impl Error for JoinError {}

/// The outcome of a goroutine that has ended and has not returned.
///
/// # Safety
/// Only the caller takes the outcome, once.
pub(super) unsafe fn take_error(g: &G, id: GoroutineId) -> JoinError {
    let kind = match g.outcome.get() {
        Outcome::Panicked => {
            // SAFETY: the payload holds the box, which only the caller takes, once.
            Kind::Panicked(Payload(unsafe { g.payload.as_ptr::<Box<dyn Any + Send>>().read() }))
        }
        Outcome::Cancelled => Kind::Cancelled,
        Outcome::Exited => Kind::Exited,
        Outcome::Overflowed => Kind::StackOverflow,
        Outcome::NoStack => Kind::NoMemory,
        Outcome::None | Outcome::Returned => {
            heist_core::throw!("take_error: there is no error")
        }
    };
    JoinError { id, kind }
}
