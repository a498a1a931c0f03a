//! The frames of a goroutine, from registers that were saved or that a signal handler got.
//!
//! A walk reads the stack where it is, with instructions that tolerate a writer. The caller makes
//! sure, before and after, that the goroutine did not run meanwhile, or is the goroutine itself.

use super::slabs::{self, Reader};
use super::switch::Coro;
use crate::sys::modules::Modules;
use crate::sys::walk::{Frames, Registers, WALKED_MAX, Walker};

/// Where a goroutine is: the registers, and the address of its link to the scheduler, above which
/// it has no frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) registers: Registers,
    link: usize,
}

/// The words at the saved stack pointer of a suspended goroutine, as corosensei leaves them.
#[cfg(target_arch = "x86_64")]
pub(crate) mod saved {
    pub(crate) const PC: usize = 0;
    pub(crate) const FP: usize = 16;
    /// rbx, which the compiler reserves as a second base of a frame.
    pub(crate) const BASE: usize = 8;
    pub(crate) const BYTES: usize = 24;
}

/// The words at the saved stack pointer of a suspended goroutine, as corosensei leaves them.
#[cfg(target_arch = "aarch64")]
pub(crate) mod saved {
    pub(crate) const PC: usize = 16;
    pub(crate) const FP: usize = 8;
    /// x19, which the compiler reserves as a second base of a frame.
    pub(crate) const BASE: usize = 0;
    pub(crate) const BYTES: usize = 32;
}

impl Position {
    /// Where a goroutine has suspended itself. Meaningless if it runs or is resumed meanwhile. None
    /// if it is on a stack that is not heist's.
    pub(crate) fn suspended(coro: &Coro) -> Option<Self> {
        let (sp, link) = (coro.saved_stack_pointer(), coro.link());
        let mut reader = Reader::new();
        let (pc, fp) = (reader.word(sp + saved::PC)?, reader.word(sp + saved::FP)?);
        let registers = Registers { pc, sp: sp + saved::BYTES, fp, lr: pc };
        Some(Self { registers, link })
    }

    /// Where a running goroutine is, by the registers of its thread. None if the thread is on a
    /// stack that is not heist's.
    pub(crate) fn running(coro: &Coro, registers: Registers) -> Option<Self> {
        let link = coro.link();
        slabs::stack_around(registers.sp).map(|_| Self { registers, link })
    }

    /// The frames of the goroutine.
    pub(crate) fn walk(&self, walker: &mut Walker, modules: &Modules) -> Frames {
        self.walk_innermost(WALKED_MAX, walker, modules)
    }

    /// The innermost frames of the goroutine, `most` of them.
    pub(crate) fn walk_innermost(
        &self,
        most: usize,
        walker: &mut Walker,
        modules: &Modules,
    ) -> Frames {
        let link = self.link;
        let mut reader = Reader::new();
        // Only the scheduler's stacks are in no slab, and stacks that user code made.
        let own = slabs::stack_around(link).unwrap_or(0..0);
        let base = link..own.end;
        walker.walk(modules, self.registers, most, &mut |address| reader.word(address), |sp| {
            base.contains(&sp.wrapping_sub(1)) || slabs::stack_around(sp.wrapping_sub(1)).is_none()
        })
    }
}
