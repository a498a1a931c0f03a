//! How many CPUs this process may use.

use heist_core::sync::{AtomicU32, Ordering};

/// Whether there is one CPU only, so that waiting for another thread without sleeping is in vain.
/// Asks the system once.
#[inline]
pub(crate) fn is_single() -> bool {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    match COUNT.load(Ordering::Relaxed) {
        0 => {
            let count = affinity_count();
            COUNT.store(count, Ordering::Relaxed);
            count == 1
        }
        count => count == 1,
    }
}

/// CPUs in the affinity mask of the calling thread, at least one.
pub(crate) fn affinity_count() -> u32 {
    // SAFETY: a cpu_set_t is plain bits; all zero is a valid one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: `set` is valid for `size` bytes.
    if unsafe { libc::sched_getaffinity(0, size, &raw mut set) } != 0 {
        return std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    }
    // SAFETY: `set` was filled in by the kernel.
    (unsafe { libc::CPU_COUNT(&set) } as u32).max(1)
}
