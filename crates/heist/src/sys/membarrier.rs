//! Fences of which one side is free: the light one costs nothing, the heavy one a system call.
//!
//! `membarrier(PRIVATE_EXPEDITED)` makes every thread of the process that is running execute a
//! full fence; one that is not running has passed one when it was switched out. Where the kernel
//! has no membarrier, both are ordinary full fences.

use heist_core::sync::{AtomicU32, Ordering, fence};
use std::sync::atomic::compiler_fence;

const UNKNOWN: u32 = 0;
const ASYMMETRIC: u32 = 1;
const ORDINARY: u32 = 2;

static MODE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Registers the process with the kernel. Before the first fence.
pub(crate) fn prepare() {
    if MODE.load(Ordering::Relaxed) == UNKNOWN {
        let registered = command(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
        MODE.store(if registered { ASYMMETRIC } else { ORDINARY }, Ordering::Relaxed);
    }
}

/// Whether the heavy fence makes other threads pass one, so that they need none of their own. To be
/// asked after [`prepare`].
pub(crate) fn is_asymmetric() -> bool {
    MODE.load(Ordering::Relaxed) == ASYMMETRIC
}

/// The frequent side, for who has asked [`is_asymmetric`] once and for all.
#[inline(always)]
pub(crate) fn no_fence() {
    // ORDERING: pairs with `heavy_fence`, which makes this thread execute a full one.
    compiler_fence(Ordering::SeqCst);
}

/// The frequent side.
#[inline(always)]
pub(crate) fn light_fence() {
    no_fence();
    if MODE.load(Ordering::Relaxed) != ASYMMETRIC {
        ordinary_fence();
    }
}

/// Out of line: it is rare, and the way around it is a jump.
#[cold]
#[inline(never)]
fn ordinary_fence() {
    // ORDERING: pairs with the full fence in `heavy_fence`.
    fence(Ordering::SeqCst);
}

/// The rare side.
pub(crate) fn heavy_fence() {
    // ORDERING: pairs with `light_fence`.
    fence(Ordering::SeqCst);
    if MODE.load(Ordering::Relaxed) == ASYMMETRIC
        && !command(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    {
        heist_core::throw!("heavy_fence: membarrier was registered and then refused");
    }
}

fn command(command: libc::c_int) -> bool {
    let (flags, cpu) = (0, 0);
    // SAFETY: the call takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) == 0 }
}
