//! Fences of which one side is free: the light one costs nothing, the heavy one a system call.
//!
//! `membarrier(PRIVATE_EXPEDITED)` makes every thread of the process that is running execute a
//! full fence; one that is not running has passed one when it was switched out. Where the kernel
//! has no membarrier, both are ordinary full fences.
//!
//! # When it is refused later
//! A sandbox that was entered after the start may refuse what was registered. From then on both sides are
//! ordinary fences ([`is_asymmetric`] is false). That is not enough for the moment of the change: a thread may
//! have asked just before, and executed no fence, while what it wrote is not visible yet. So whoever finds
//! the refusal sees to it that every thread passes a fence once ([`settle`]): it runs for a moment on each
//! CPU, which switches out what ran there. Where the sandbox refuses that as well, it waits for as long as
//! no CPU keeps a store to itself.

use super::degraded::Lack;
use heist_core::sync::{AtomicU32, Ordering, fence};
use std::sync::atomic::compiler_fence;

const UNKNOWN: u32 = 0;
const ASYMMETRIC: u32 = 1;
const ORDINARY: u32 = 2;
/// Ordinary from now on, but a thread that asked before may not have passed a fence yet.
const SETTLING: u32 = 3;

static MODE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Registers the process with the kernel. Before the first fence.
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
    match MODE.load(Ordering::Relaxed) {
        ASYMMETRIC if command(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED) => {}
        ASYMMETRIC | SETTLING => change(),
        _ => {}
    }
}

/// `membarrier` was registered and is refused now.
#[cold]
fn change() {
    // Another thread may be in the middle of this. Each settles for itself.
    let _ = MODE.compare_exchange(ASYMMETRIC, SETTLING, Ordering::Relaxed, Ordering::Relaxed);
    settle();
    if MODE.swap(ORDINARY, Ordering::Relaxed) != ORDINARY {
        lacks();
    }
}

/// Makes every thread of the process pass a full fence after this was called, without `membarrier`.
#[cold]
pub(crate) fn settle() {
    /// No CPU keeps a store to itself for as long as this: it is interrupted more often.
    const DRAINED_NS: libc::c_long = 50_000_000;
    // ORDERING: what the caller wrote is visible before the first thread is switched out.
    fence(Ordering::SeqCst);
    if !super::cpu::visit_all() {
        let pause = libc::timespec { tv_sec: 0, tv_nsec: DRAINED_NS };
        // SAFETY: a valid time; what is left of it is not asked for.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
    // ORDERING: what other threads wrote before they were switched out is seen after this.
    fence(Ordering::SeqCst);
}

fn command(command: libc::c_int) -> bool {
    let (flags, cpu) = (0, 0);
    // SAFETY: the call takes no pointers.
    unsafe { libc::syscall(libc::SYS_membarrier, command, flags, cpu) == 0 }
}
