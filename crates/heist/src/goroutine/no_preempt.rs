//! Keeping a goroutine from being preempted by a signal.

use crate::current;
use crate::gmp::G;
use std::fmt;
use std::marker::PhantomData;

/// Keeps the calling goroutine from being preempted by a signal while the guard lives.
///
/// A goroutine that computes for longer than its slice without a call into heist is preempted by a
/// signal, wherever it is, while others use its processor. Rust code does not notice; most C code
/// does not either. Some code does: code that holds a spinlock which other goroutines wait for,
/// that measures time, that talks to a device, or that treats `EINTR` as a failure. Take a guard
/// around such code, and keep it for a short time: until it is dropped, the goroutine gives up its
/// processor only if it calls heist or blocks. A dump of all goroutines does not interrupt it
/// either, and shows no stack for it while it runs.
///
/// Guards nest. The goroutine may still park and move to another thread; the guard is about
/// signals, [`lock_os_thread`](crate::lock_os_thread) is about threads. On a plain thread it does
/// nothing. [`Builder::forced_preemption`](crate::Builder::forced_preemption) is the switch for a
/// whole runtime.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let checksum = {
///     let _guard = heist::no_preempt();
///     (0..1000u32).fold(0, u32::wrapping_add) // A C function, say.
/// };
/// # assert_eq!(checksum, 499_500);
/// # });
/// ```
///
/// # Panics
/// If a goroutine holds more than 127 guards.
pub fn no_preempt() -> NoPreempt {
    let held = current::goroutine().map(|gp| {
        assert!(gp.forbid_force(), "heist::no_preempt: more than 127 guards are held; drop them when the critical code ends");
        (gp, number_of(gp))
    });
    NoPreempt { held, _not_send: PhantomData }
}

/// The number of the calling goroutine's runtime, and the goroutine's number in it.
fn number_of(gp: &G) -> (u64, u64) {
    // SAFETY: the calling goroutine's runtime outlives it.
    (unsafe { &*gp.sched.get() }.life.number(), gp.id.get())
}

/// Keeps its goroutine from being preempted by a signal; see [`no_preempt`].
#[must_use = "the goroutine can be preempted again when the guard is dropped"]
pub struct NoPreempt {
    /// Which goroutine took the guard: a guard in a thread-local may outlive it, and another
    /// goroutine may have its record by then.
    held: Option<(&'static G, (u64, u64))>,
    _not_send: PhantomData<*mut ()>,
}

impl Drop for NoPreempt {
    fn drop(&mut self) {
        let Some((gp, number)) = self.held else { return };
        if current::goroutine().is_some_and(|own| std::ptr::eq(own, gp)) && number_of(gp) == number
        {
            gp.allow_force();
        }
    }
}

impl fmt::Debug for NoPreempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let goroutine = self.held.map(|(_, (_, id))| id);
        f.debug_struct("NoPreempt").field("goroutine", &goroutine).finish_non_exhaustive()
    }
}
