//! The guard at the low end of a stack, which detects an overflow.
//!
//! The best way is `MADV_GUARD_INSTALL`, which needs no extra mapping. A kernel without it has
//! `mprotect`, which costs two mappings for each stack, and the number of mappings of a process is
//! limited. **A stack without a guard is never used**: beyond that number a goroutine waits until a
//! stack is free. The way is chosen once for the process, when the first stack is made.

use crate::sys::memory::{self, Installed, PAGE_MAX_BYTES, Ranges};
use crate::sys::stderr;
use heist_core::sync::{AtomicU32, AtomicUsize, Ordering};
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// The guard at the low end. Compiled code probes every page of a large frame, so one page would be
/// enough for it; the rest is for C functions without such probes.
pub(crate) const GUARD_BYTES: usize =
    if PAGE_MAX_BYTES > 16 << 10 { PAGE_MAX_BYTES } else { 16 << 10 };

/// How the low end of stacks is protected in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Guard {
    /// By `MADV_GUARD_INSTALL`, if the kernel has it. The initial value.
    Install = 0,
    /// By `mprotect`.
    Protect = 1,
}

static GUARD: AtomicU32 = AtomicU32::new(INSTALL);
const INSTALL: u32 = Guard::Install as u32;

/// The number of stacks that are guarded by `mprotect`.
static N_PROTECTED: AtomicUsize = AtomicUsize::new(0);
/// The number of mappings that a guard by `mprotect` adds: itself, and the stack above it.
const MAPPINGS_EACH: usize = 2;
/// The number of mappings left for everything else: without any, neither a thread nor a large block
/// can be made.
const MAPPINGS_LEFT: usize = 2048;

/// An address of a mapping.
pub(super) fn at(address: usize) -> NonNull<u8> {
    NonNull::without_provenance(NonZeroUsize::MIN.saturating_add(address - 1))
}

/// Guards the low ends of several new stacks in one call, if that is possible. Returns how many are
/// guarded.
///
/// # Safety
/// The ranges are not in use.
pub(super) unsafe fn install_all(ranges: Ranges) -> usize {
    if GUARD.load(Ordering::Relaxed) != INSTALL {
        return 0;
    }
    // SAFETY: passed on.
    unsafe { memory::guard_install_all(ranges) }
}

/// Guards the low end of a new stack in the best way this kernel has. False if it has no guard and
/// cannot be used yet.
///
/// # Safety
/// The `GUARD_BYTES` from `low` on are mapped and not in use.
pub(super) unsafe fn install(low: NonNull<u8>) -> bool {
    if GUARD.load(Ordering::Relaxed) == INSTALL {
        // SAFETY: by the caller's promise.
        match unsafe { memory::guard_install(low, GUARD_BYTES) } {
            Installed::Yes => return true,
            Installed::NoMemory => return false,
            Installed::Unknown => GUARD.store(Guard::Protect as u32, Ordering::Relaxed),
        }
    }
    // If `mprotect` fails halfway, the mapping may have been split, but nothing of it is protected.
    let most = memory::max_mappings().saturating_sub(MAPPINGS_LEFT) / MAPPINGS_EACH;
    let guarded = N_PROTECTED.load(Ordering::Relaxed) < most
        // SAFETY: by the caller's promise.
        && unsafe { memory::guard_protect(low, GUARD_BYTES) };
    if guarded {
        N_PROTECTED.fetch_add(1, Ordering::Relaxed);
    } else {
        report_limit();
    }
    guarded
}

/// Chooses the way in which stacks are guarded from now on, for example one that is not the best.
/// For tests.
pub(crate) fn protect_by(way: &str) -> bool {
    let guard = match way {
        "install" => Guard::Install,
        "protect" => Guard::Protect,
        _ => return false,
    };
    GUARD.store(guard as u32, Ordering::Relaxed);
    true
}

/// Reports once which limit is reached.
#[cold]
fn report_limit() {
    static SAID: AtomicU32 = AtomicU32::new(0);
    if SAID.swap(1, Ordering::Relaxed) == 0 {
        stderr::report(format_args!(
            "heist: no more stacks than {} can be guarded: on this kernel each takes {MAPPINGS_EACH} of the {} mappings \
             that a process can have\n\tgoroutines that have not begun wait until a stack is free\n\traise the limit with \
             sysctl vm.max_map_count, or use Linux 6.13 or later, where a guard takes none\n",
            N_PROTECTED.load(Ordering::Relaxed),
            memory::max_mappings(),
        ));
    }
}
