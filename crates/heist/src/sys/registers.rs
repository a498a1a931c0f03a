//! Registers of the calling thread that the language does not expose.

use super::walk::Registers;
use std::arch::asm;

/// The thread pointer: the variables of the calling thread are at fixed distances from it. No two
/// live threads have the same one, and it is a multiple of sixteen.
#[inline]
pub(crate) fn thread_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the ABI says that the first word of a thread's control block is its own address.
    unsafe {
        asm!("mov {}, fs:0", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register that every thread may read.
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}

/// The stack pointer of the function this is inlined into.
#[inline(always)]
pub(crate) fn stack_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads a register.
    unsafe {
        asm!("mov {}, rsp", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads a register.
    unsafe {
        asm!("mov {}, sp", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}

/// The registers of the function this is inlined into.
#[inline(always)]
pub(crate) fn here() -> Registers {
    let (pc, sp, fp): (usize, usize, usize);
    #[cfg(target_arch = "x86_64")]
    // SAFETY: reads registers.
    unsafe {
        asm!(
            "lea {}, [rip]", "mov {}, rsp", "mov {}, rbp",
            out(reg) pc, out(reg) sp, out(reg) fp,
            options(nostack, nomem, preserves_flags)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reads registers.
    unsafe {
        asm!(
            "adr {}, .", "mov {}, sp", "mov {}, x29",
            out(reg) pc, out(reg) sp, out(reg) fp,
            options(nostack, nomem, preserves_flags)
        );
    }
    Registers { pc, sp, fp, lr: 0 }
}

/// The word at an address that another thread may be writing to.
///
/// # Safety
/// The address is aligned and mapped.
#[inline(always)]
pub(crate) unsafe fn racy_word(address: usize) -> usize {
    let word: usize;
    // An instruction, because the compiler and a sanitizer do not know what is at the address: the
    // frames of another stack.
    #[cfg(target_arch = "x86_64")]
    // SAFETY: by the caller's promise.
    unsafe {
        asm!(
            "mov {}, [{}]", out(reg) word, in(reg) address,
            options(nostack, readonly, preserves_flags)
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: by the caller's promise.
    unsafe {
        asm!(
            "ldr {}, [{}]", out(reg) word, in(reg) address,
            options(nostack, readonly, preserves_flags)
        );
    }
    word
}
