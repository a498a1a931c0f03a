//! What is at the low end of a stack, so that it is noticed when a goroutine gets there.
//!
//! The best way is `MADV_GUARD_INSTALL`, which needs no mapping of its own. A kernel without it has
//! `mprotect`, which does, so that at some tens of thousands of stacks it is refused; from then on
//! stacks have a canary instead. The choice is one for the process, made when the first stack is.

use crate::sys::memory::{self, Ranges};
use heist_core::sync::{AtomicU32, Ordering};
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// The guard at the low end: one page. Compiled code probes every page of a large frame, so one is
/// enough.
pub(crate) use crate::sys::memory::PAGE_MAX_BYTES as GUARD_BYTES;

/// How the low end of stacks is protected in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum Guard {
    /// Not tried yet: by `MADV_GUARD_INSTALL`, if the kernel has it.
    Install = 0,
    /// By `mprotect`, which costs a mapping per stack.
    Protect = 1,
    /// Not at all; a canary is checked at every switch.
    Canary = 2,
}

static GUARD: AtomicU32 = AtomicU32::new(INSTALL);
const INSTALL: u32 = Guard::Install as u32;
const PROTECT: u32 = Guard::Protect as u32;
const CANARY: u64 = 0x6865_6973_7421_5eed;

/// An address of a mapping.
pub(super) fn at(address: usize) -> NonNull<u8> {
    NonNull::without_provenance(NonZeroUsize::MIN.saturating_add(address - 1))
}

/// The addresses of a stack's guard and reserve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guarded {
    low: usize,
    reserve: usize,
    end: usize,
}

impl Guarded {
    /// Those of the stack that begins at `low`.
    pub(super) const fn new(low: usize, reserve_bytes: usize) -> Self {
        let reserve = low + GUARD_BYTES;
        Self { low, reserve, end: reserve + reserve_bytes }
    }

    /// Whether an address is in either.
    pub(crate) const fn contains(&self, address: usize) -> bool {
        self.low <= address && address < self.end
    }

    /// Whether an address is in the guard page, which never opens.
    pub(crate) const fn is_hard(&self, address: usize) -> bool {
        self.low <= address && address < self.reserve
    }

    /// An address at which nothing can be run.
    pub(crate) const fn no_code(&self) -> usize {
        self.low
    }

    /// Lets the goroutine that owns the stack use the reserve. False if the kernel refuses.
    pub(crate) fn open(&self) -> bool {
        let base = at(self.reserve);
        let len = self.end - self.reserve;
        // SAFETY: the range is the reserve of a stack whose owner asks.
        unsafe {
            match GUARD.load(Ordering::Relaxed) {
                INSTALL => memory::guard_remove(base, len),
                PROTECT => memory::guard_unprotect(base, len),
                _ => false,
            }
        }
    }

    /// Guards the pages of the reserve again that lie wholly below `used`.
    pub(crate) fn close_below(&self, used: usize) {
        let end = (used & !(GUARD_BYTES - 1)).min(self.end);
        if self.reserve < end {
            let base = at(self.reserve);
            // SAFETY: nothing below `used` is in use.
            unsafe {
                match GUARD.load(Ordering::Relaxed) {
                    INSTALL => memory::guard_install(base, end - self.reserve),
                    PROTECT => memory::guard_protect(base, end - self.reserve),
                    _ => false,
                }
            };
        }
    }
}

/// Guards the low ends of several new stacks in one call, if that is possible. Answers of how many.
///
/// # Safety
/// Nobody uses the ranges.
pub(super) unsafe fn install_all(ranges: Ranges) -> usize {
    if GUARD.load(Ordering::Relaxed) != INSTALL {
        return 0;
    }
    // SAFETY: passed on.
    unsafe { memory::guard_install_all(ranges) }
}

/// Guards the low end of a new stack, the best way this kernel has. False: it has a canary.
///
/// # Safety
/// Nobody uses the `len` bytes from `low` on, which are mapped.
pub(super) unsafe fn install(low: NonNull<u8>, len: usize) -> bool {
    if GUARD.load(Ordering::Relaxed) == INSTALL {
        // SAFETY: by the caller's promise.
        if unsafe { memory::guard_install(low, len) } {
            return true;
        }
        GUARD.store(PROTECT, Ordering::Relaxed);
    }
    if GUARD.load(Ordering::Relaxed) == PROTECT {
        // SAFETY: by the caller's promise.
        if unsafe { memory::guard_protect(low, len) } {
            return true;
        }
        fall_back_to_canaries();
    }
    // SAFETY: by the caller's promise.
    unsafe { low.cast::<u64>().as_ptr().write_volatile(CANARY) };
    false
}

/// Whether the canary of a stack is as it was.
///
/// # Safety
/// The stack that begins at `low` has one.
pub(super) unsafe fn canary_lives(low: usize) -> bool {
    // SAFETY: the lowest word of such a stack is mapped and holds the canary.
    unsafe { (low as *const u64).read_volatile() == CANARY }
}

/// Protects the stacks made from now on in a way that is not the best one. For tests.
pub(crate) fn protect_by(way: &str) -> bool {
    let guard = match way {
        "install" => Guard::Install,
        "protect" => Guard::Protect,
        "canary" => Guard::Canary,
        _ => return false,
    };
    GUARD.store(guard as u32, Ordering::Relaxed);
    true
}

#[cold]
fn fall_back_to_canaries() {
    if GUARD.swap(Guard::Canary as u32, Ordering::Relaxed) != Guard::Canary as u32 {
        crate::sys::stderr::report(format_args!(
            "heist: the kernel refuses more guard pages (vm.max_map_count); going on with canaries \
             that are checked at every switch\n"
        ));
    }
}
