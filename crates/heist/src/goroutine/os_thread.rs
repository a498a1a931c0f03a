//! Keeping a goroutine on its OS thread.

use crate::current;
use crate::gmp::G;
use crate::sched::threads::bound;
use std::fmt;
use std::marker::PhantomData;

/// Keeps the calling goroutine on its OS thread while the guard lives.
///
/// The goroutine may park, yield and be preempted as before, and always continues on this thread.
/// No other goroutine runs there meanwhile. So it may hold thread-locals, guards and handles that
/// belong to the thread across calls into heist. Libraries with a state per thread need this:
/// OpenGL, GUI toolkits, `setns`, `unshare`.
///
/// Locks nest: the goroutine is unlocked when the last guard is dropped. If a goroutine ends while
/// it is locked, because a guard was forgotten or because it was spawned by
/// [`Builder::os_thread`](super::Builder::os_thread), its thread ends too: no other goroutine gets
/// a thread whose state may have been changed.
///
/// Every wait of a locked goroutine costs two thread switches more than that of an unlocked one. On
/// a plain thread the guard does nothing.
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
#[must_use = "the goroutine is unlocked when the guard is dropped"]
#[doc(alias = "UnlockOSThread")]
pub struct OsThreadGuard {
    /// Which goroutine took the guard, and the number of its lock: a guard in a thread-local may
    /// outlive the goroutine.
    locked: Option<(&'static G, u64)>,
    id: u64,
    _not_send: PhantomData<*mut ()>,
}

impl Drop for OsThreadGuard {
    fn drop(&mut self) {
        let Some((gp, number)) = self.locked else { return };
        // A goroutine that ended while it was locked leaves its thread to no other goroutine, but a
        // destructor of that thread may drop the guard.
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
