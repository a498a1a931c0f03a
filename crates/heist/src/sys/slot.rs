//! One pointer per thread, read by instructions that LLVM cannot see through.
//!
//! A thread-local of the language has one problem: LLVM assumes that its address is constant inside
//! a function, and a function that parks may continue on another thread. So its getter would have
//! to be a call that is never inlined. Here the assembler computes the address, anew each time.
//!
//! The variable uses the "initial exec" model: its distance from the thread pointer is the same for
//! all threads, and known when the program has been loaded. A statically linked program has it as a
//! constant in the instruction. A library that is loaded later takes the eight bytes from the
//! reserve that the C library keeps for this. There is nothing to allocate on first use, so a
//! signal handler may read it on any thread.

use std::arch::{asm, global_asm};

/// The name of the variable. It has the version, because one program may contain two versions of
/// this crate.
macro_rules! variable {
    () => {
        concat!(
            "heist_current_m_",
            env!("CARGO_PKG_VERSION_MAJOR"),
            "_",
            env!("CARGO_PKG_VERSION_MINOR"),
            "_",
            env!("CARGO_PKG_VERSION_PATCH")
        )
    };
}

global_asm!(
    concat!(".pushsection .tbss.", variable!(), ", \"awT\", @nobits"),
    ".p2align 3",
    concat!(".globl ", variable!()),
    concat!(".hidden ", variable!()),
    concat!(".type ", variable!(), ", @tls_object"),
    concat!(".size ", variable!(), ", 8"),
    concat!(variable!(), ":"),
    ".zero 8",
    ".popsection",
);

/// The pointer of this thread, null if it was never set.
#[inline(always)]
pub(crate) fn get() -> *const () {
    let pointer;
    // SAFETY: reads the calling thread's own variable, which lives as long as the thread. Not
    // `pure`: it is read at each execution.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            concat!("mov {0}, qword ptr [rip + ", variable!(), "@GOTTPOFF]"),
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) pointer,
            options(nostack, preserves_flags, readonly),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            concat!("adrp {0}, :gottprel:", variable!()),
            concat!("ldr {0}, [{0}, :gottprel_lo12:", variable!(), "]"),
            "mrs {1}, tpidr_el0",
            "ldr {0}, [{1}, {0}]",
            out(reg) pointer,
            out(reg) _,
            options(nostack, preserves_flags, readonly),
        );
    }
    pointer
}

/// Sets it.
pub(crate) fn set(pointer: *const ()) {
    // SAFETY: as in `get`; nothing else writes to this variable.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!(
            concat!("mov {1}, qword ptr [rip + ", variable!(), "@GOTTPOFF]"),
            "mov qword ptr fs:[{1}], {0}",
            in(reg) pointer,
            out(reg) _,
            options(nostack, preserves_flags),
        );
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!(
            concat!("adrp {1}, :gottprel:", variable!()),
            concat!("ldr {1}, [{1}, :gottprel_lo12:", variable!(), "]"),
            "mrs {2}, tpidr_el0",
            "str {0}, [{2}, {1}]",
            in(reg) pointer,
            out(reg) _,
            out(reg) _,
            options(nostack, preserves_flags),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::{null, without_provenance};

    #[test]
    fn each_thread_has_its_own() {
        assert_eq!(get(), null());
        set(without_provenance(1));
        let other = std::thread::spawn(|| {
            let before = get();
            set(without_provenance(2));
            (before, get()) == (null(), without_provenance(2))
        });
        assert!(other.join().unwrap());
        assert_eq!(get(), without_provenance(1));
        set(null());
    }
}
