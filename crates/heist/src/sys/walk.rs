//! Walking a stack from saved registers, over memory that the caller reads.
//!
//! It neither allocates nor locks, so a signal handler can do it. The memory may change meanwhile:
//! then the frames are meaningless, but every address that is read goes through the caller.

use super::modules::Modules;
use framehop::{
    CacheNative, Error, FrameAddress, MustNotAllocateDuringUnwind, UnwindRegsNative, Unwinder,
};
use std::hash::{Hash, Hasher};

/// The registers that a walk begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registers {
    /// The next instruction.
    pub(crate) pc: usize,
    pub(crate) sp: usize,
    pub(crate) fp: usize,
    /// The return address of a function that has not saved it. Zero on x86-64.
    pub(crate) lr: usize,
}

/// Frames that are kept at the inner end.
const INNERMOST: usize = 64;
/// Frames that are kept at the outer end.
const OUTERMOST: usize = 64;
const KEPT: usize = INNERMOST + OUTERMOST;
/// A walk for a reader ends after this many.
pub(crate) const WALKED_MAX: usize = 1 << 16;

/// How a walk ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum End {
    /// At the outermost frame.
    Base,
    /// At a frame whose caller cannot be found.
    Lost,
}

/// The addresses of the calls on a stack, the innermost first: those of both ends, and how many
/// there are.
#[derive(Clone, Debug)]
pub(crate) struct Frames {
    /// The outer half is a ring until the walk has ended.
    kept: [usize; KEPT],
    n: usize,
    pub(crate) end: End,
}

impl Frames {
    pub(crate) const NONE: Self = Self { kept: [0; KEPT], n: 0, end: End::Lost };

    fn push(&mut self, address: usize) {
        let at = if self.n < KEPT { self.n } else { INNERMOST + (self.n - INNERMOST) % OUTERMOST };
        self.kept[at] = address;
        self.n += 1;
    }

    /// Puts the outer half in order.
    fn finish(&mut self, end: End) {
        self.end = end;
        if self.n > KEPT {
            self.kept[INNERMOST..].rotate_left((self.n - INNERMOST) % OUTERMOST);
        }
    }

    /// The addresses that are kept, the innermost first. Each is inside the call.
    pub(crate) fn addresses(&self) -> &[usize] {
        &self.kept[..self.n.min(KEPT)]
    }

    /// How many frames are left out, and how many are in front of them.
    pub(crate) fn elided(&self) -> Option<(usize, usize)> {
        self.n.checked_sub(KEPT).filter(|&n| n != 0).map(|n| (INNERMOST, n))
    }
}

impl PartialEq for Frames {
    fn eq(&self, other: &Self) -> bool {
        (self.n, self.end, self.addresses()) == (other.n, other.end, other.addresses())
    }
}

impl Eq for Frames {}

impl Hash for Frames {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.addresses().hash(state);
    }
}

/// What a walk needs beside the stack. It is large, and made in advance.
pub(crate) struct Walker(CacheNative<MustNotAllocateDuringUnwind>);

impl Walker {
    pub(crate) fn new() -> Self {
        Self(CacheNative::new_in())
    }

    /// The frames from `start` on, `most` of them. `read` returns the word at an address of the
    /// stack, or None; the walk ends at a frame for whose stack pointer `is_base` is true.
    pub(crate) fn walk(
        &mut self,
        modules: &Modules,
        start: Registers,
        most: usize,
        read: &mut impl FnMut(usize) -> Option<usize>,
        is_base: impl Fn(usize) -> bool,
    ) -> Frames {
        let mut frames = Frames::NONE;
        let mut regs = native(start);
        let mut at = FrameAddress::from_instruction_pointer(start.pc as u64);
        let end = loop {
            frames.push(at.address_for_lookup() as usize);
            if frames.n >= most {
                break End::Lost;
            }
            let before = regs;
            let mut read_word = |address: u64| read(address as usize).map(|w| w as u64).ok_or(());
            let step = modules.unwinder.unwind_frame(at, &mut regs, &mut self.0, &mut read_word);
            let caller = match step {
                Err(Error::FramepointerUnwindingMovedBackwards) => {
                    // The caller is on another stack, at a lower address.
                    regs = before;
                    step_over(&mut regs, read)
                }
                Ok(caller) => caller,
                Err(_) => None,
            };
            match caller.and_then(FrameAddress::from_return_address) {
                _ if is_base(regs.sp() as usize) => break End::Base,
                Some(caller) => at = caller,
                None => break End::Lost,
            }
        };
        frames.finish(end);
        frames
    }
}

#[cfg(target_arch = "x86_64")]
fn native(start: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(start.pc as u64, start.sp as u64, start.fp as u64)
}

#[cfg(target_arch = "aarch64")]
fn native(start: Registers) -> UnwindRegsNative {
    UnwindRegsNative::new(start.lr as u64, start.sp as u64, start.fp as u64)
}

/// The caller of a frame that begins with the saved frame pointer and the return address.
fn step_over(
    regs: &mut UnwindRegsNative,
    read: &mut impl FnMut(usize) -> Option<usize>,
) -> Option<u64> {
    #[cfg(target_arch = "x86_64")]
    let fp = regs.bp();
    #[cfg(target_arch = "aarch64")]
    let fp = regs.fp();
    let (outer, caller) = (read(fp as usize)? as u64, read(fp as usize + 8)? as u64);
    regs.set_sp(fp + 16);
    #[cfg(target_arch = "x86_64")]
    {
        regs.set_bp(outer);
        regs.set_ip(caller);
    }
    #[cfg(target_arch = "aarch64")]
    {
        regs.set_fp(outer);
        regs.set_lr(caller);
    }
    Some(caller)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_of_a_deep_stack_are_kept_in_order() {
        for n in [0, 1, INNERMOST, KEPT - 1, KEPT, KEPT + 1, 3 * KEPT + 7] {
            let mut frames = Frames::NONE;
            (0..n).for_each(|frame| frames.push(frame));
            frames.finish(End::Base);
            let inner = (0..n.min(INNERMOST)).chain(n.saturating_sub(OUTERMOST).max(INNERMOST)..n);
            assert_eq!(frames.addresses(), inner.collect::<Vec<_>>(), "{n}");
            assert_eq!(frames.elided(), (n > KEPT).then(|| (INNERMOST, n - KEPT)), "{n}");
        }
    }
}
