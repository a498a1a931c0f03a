//! Keeping a goroutine on its OS thread.

use crate::current;
use crate::gmp::G;
use crate::sched::threads::bound;
use std::fmt;
use std::marker::PhantomData;

/// Keeps the calling goroutine on its OS thread while the guard lives.
///
/// The goroutine may park, yield and be stopped as before, and always comes back to this thread, on
/// which nothing else runs meanwhile. So it may hold thread-locals, guards and handles that belong
/// to the thread across calls into heist. It is what libraries with a state per thread need:
/// OpenGL, GUI toolkits, `setns`, `unshare`.
///
/// Locks nest: the goroutine is free again when the last guard is dropped. A goroutine that ends
/// while it is locked, because a guard was forgotten or it was spawned by
/// [`Builder::os_thread`](super::Builder::os_thread), takes its thread with it: nobody else gets a
/// thread whose state it may have changed.
///
/// Every wait of a locked goroutine costs two thread switches more than that of another. On a plain
/// thread the guard does nothing.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let guard = heist::lock_os_thread();
/// let before = std::thread::current().id();
/// heist::go(|| heist::yield_now()).join().unwrap();
/// assert_eq!(std::thread::current().id(), before);
/// drop(guard);
/// # });
/// ```
#[doc(alias = "LockOSThread")]
pub fn lock_os_thread() -> OsThreadGuard {
    let Some(rt) = current::enter() else {
        return OsThreadGuard { locked: None, id: 0, _not_send: PhantomData };
    };
    let gp = rt.goroutine();
    let number = bound::lock(rt.m(), gp);
    OsThreadGuard { locked: Some((gp, number)), id: gp.id.get(), _not_send: PhantomData }
}

/// Keeps its goroutine on its OS thread; see [`lock_os_thread`].
#[must_use = "the goroutine is free again when the guard is dropped"]
#[doc(alias = "UnlockOSThread")]
pub struct OsThreadGuard {
    /// Which goroutine, and by which lock: a guard in a thread-local may outlive it.
    locked: Option<(&'static G, u64)>,
    id: u64,
    _not_send: PhantomData<*mut ()>,
}

impl Drop for OsThreadGuard {
    fn drop(&mut self) {
        let Some((gp, number)) = self.locked else { return };
        // Not even a goroutine that ended locked leaves its thread to another; but the guard may be
        // dropped by a destructor of that thread.
        if let Some(rt) = current::enter()
            && std::ptr::eq(rt.goroutine(), gp)
            && bound::is_locked(rt.m(), number)
        {
            bound::unlock(rt.m(), gp);
        }
    }
}

impl fmt::Debug for OsThreadGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let goroutine = self.locked.map(|_| self.id);
        f.debug_struct("OsThreadGuard").field("goroutine", &goroutine).finish_non_exhaustive()
    }
}
