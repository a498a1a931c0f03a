//! Asymmetric fences: the light one costs nothing, the heavy one a system call.
//!
//! `membarrier(PRIVATE_EXPEDITED)` makes every thread of the process that is running execute a
//! full fence; one that is not running has passed one when it was switched out. Where the kernel
//! has no membarrier, both are ordinary full fences.
//!
//! # When it is refused later
//! A sandbox that was entered after the start may refuse what was registered. From then on both
//! sides are ordinary fences ([`is_asymmetric`] is false). That is not enough at the moment of the
//! change: a thread may have asked just before, and executed no fence, while its writes are not
//! visible yet. So the thread that finds the refusal makes every thread pass a fence once
//! ([`settle`]): it runs for a moment on each CPU, which switches out the thread that ran there.
//! Where the sandbox refuses that as well, it waits longer than any CPU delays a store.

use super::degraded::Lack;
use heist_core::sync::{AtomicU32, Ordering, fence};
use std::sync::atomic::compiler_fence;

const UNKNOWN: u32 = 0;
const ASYMMETRIC: u32 = 1;
const ORDINARY: u32 = 2;
/// Both sides are ordinary from now on, but a thread that asked before may not have passed a fence
/// yet.
const SETTLING: u32 = 3;

static MODE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Registers the process with the kernel. Called before the first fence.
pub(crate) fn prepare() {
    if MODE.load(Ordering::Relaxed) == UNKNOWN {
        let registered = command(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
            && command(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED);
        MODE.store(if registered { ASYMMETRIC } else { ORDINARY }, Ordering::Relaxed);
        if !registered {
            lacks();
        }
    }
}

/// Whether the kernel offers what is needed, and no sandbox refuses it.
pub(crate) fn is_offered() -> bool {
    match MODE.load(Ordering::Relaxed) {
        UNKNOWN => command(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED),
        mode => mode == ASYMMETRIC,
    }
}

fn lacks() {
    Lack::Membarrier.missed(format_args!(
        "the kernel refuses membarrier; every call into the runtime costs a fence instead"
    ));
}

/// Whether the heavy fence makes other threads pass one, so that they need none of their own. Asked
/// after [`prepare`].
pub(crate) fn is_asymmetric() -> bool {
    MODE.load(Ordering::Relaxed) == ASYMMETRIC
}

/// The frequent side, for a caller that has asked [`is_asymmetric`] once.
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

/// Out of line: it is rare, and skipping it is a jump.
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
    match MODE.load(Ordering::Relaxed) {
        ASYMMETRIC if command(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) => {}
        ASYMMETRIC | SETTLING => change(),
        _ => {}
    }
}

/// `membarrier` was registered and is refused now.
#[cold]
fn change() {
    // Another thread may be doing the same. Each settles for itself.
    let _ = MODE.compare_exchange(ASYMMETRIC, SETTLING, Ordering::Relaxed, Ordering::Relaxed);
    settle();
    if MODE.swap(ORDINARY, Ordering::Relaxed) != ORDINARY {
        lacks();
    }
}

/// Makes every thread of the process pass a full fence, without `membarrier`.
#[cold]
pub(crate) fn settle() {
    /// No CPU delays a store for this long: it is interrupted more often.
    const DRAINED_NS: libc::c_long = 50_000_000;
    // ORDERING: the caller's writes are visible before the first thread is switched out.
    fence(Ordering::SeqCst);
    if !super::cpu::visit_all() {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: DRAINED_NS };
        // SAFETY: a valid time; the remaining time is not requested.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
    // ORDERING: the writes of other threads before they were switched out are visible after this.
    fence(Ordering::SeqCst);
}

fn command(command: libc::c_int) -> bool {
    let (flags, cpu) = (0, 0);
    // SAFETY: the call takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) == 0 }
}
