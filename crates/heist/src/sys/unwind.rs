//! The platform's unwinder, as far as a stack overflow needs it.
//!
//! A panic can be raised only where the compiler expected one: at a call that its tables cover.
//! [`find_raise_point`] walks up from a fault to the innermost such call.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

#[repr(C)]
pub(super) struct Context {
    _private: [u8; 0],
}

const CONTINUE: c_int = 0;
const STOP: c_int = 4;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut Context, *mut c_void) -> c_int,
        arg: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIPInfo(context: *mut Context, before: *mut c_int) -> usize;
    fn _Unwind_GetCFA(context: *mut Context) -> usize;
    fn _Unwind_GetGR(context: *mut Context, register: c_int) -> usize;
    fn _Unwind_GetLanguageSpecificData(context: *mut Context) -> *const u8;
    fn _Unwind_GetRegionStart(context: *mut Context) -> usize;
}

/// The registers a callee must keep, by their numbers in the unwind tables.
#[cfg(target_arch = "x86_64")]
pub(crate) const KEPT: [c_int; 6] = [3, 6, 12, 13, 14, 15];
/// The registers a callee must keep, by their numbers in the unwind tables.
#[cfg(target_arch = "aarch64")]
pub(crate) const KEPT: [c_int; 11] = [19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29];

/// A call out of which a panic can come.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RaisePoint {
    /// An address inside the call instruction.
    pub(crate) instruction: usize,
    /// The stack pointer after the call.
    pub(crate) stack: usize,
    /// The values of the registers in [`KEPT`].
    pub(crate) kept: [usize; KEPT.len()],
}

/// What a walk up from a fault found.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Walk {
    /// Here a panic can be raised.
    Raise(RaisePoint),
    /// The fault is inside a library that may hold its own locks, such as the allocator. It
    /// returns to our code through the address in this slot.
    Foreign { return_slot: *mut usize },
    /// The tables end before such a call.
    Lost,
}

/// Finds where to raise a panic for a fault at `fault_ip`. Called in the fault's handler.
///
/// Frames further in are given up without running their destructors: the one that faulted, which
/// was in most cases only being set up, and those in the middle of a call that cannot unwind.
pub(crate) fn find_raise_point(fault_ip: usize) -> Walk {
    let mut search = Search { fault_ip, past_fault: false, in_foreign: false, walk: Walk::Lost };
    // SAFETY: `visit` gets a `Search` that outlives the walk, and only asks questions.
    unsafe { _Unwind_Backtrace(visit, (&raw mut search).cast()) };
    search.walk
}

/// [`catch_unwind`] that also catches a stack that runs out anywhere in `f`.
///
/// A panic for that is raised at the innermost call out of which the compiler expects one. If it knows that what
/// is called inside a catch does not unwind, there is none, and the panic would begin outside. Of a call through
/// a pointer it knows nothing.
pub(crate) fn catch<T>(f: impl FnOnce() -> T) -> std::thread::Result<T> {
    let (mut f, mut result) = (Some(f), None);
    let mut call = || result = f.take().map(|f| f());
    let opaque: &mut dyn FnMut() = black_box(&mut call);
    catch_unwind(AssertUnwindSafe(opaque))?;
    match result {
        Some(result) => Ok(result),
        None => heist_core::throw!("unwind::catch: nothing was called"),
    }
}

struct Search {
    fault_ip: usize,
    past_fault: bool,
    /// Frames of a foreign library have been seen, and none of ours since.
    in_foreign: bool,
    walk: Walk,
}

extern "C" fn visit(context: *mut Context, search: *mut c_void) -> c_int {
    // SAFETY: see `find_raise_point`.
    let search = unsafe { &mut *search.cast::<Search>() };
    let mut before = 0;
    // SAFETY: the unwinder passes a valid context.
    let ip = unsafe { _Unwind_GetIPInfo(context, &raw mut before) };
    let foreign = !own_code().contains(&ip);
    if !search.past_fault {
        // The handler's own frames come first.
        if before == 0 || ip != search.fault_ip {
            return CONTINUE;
        }
        search.past_fault = true;
    } else if !foreign && search.in_foreign {
        // SAFETY: as above. On x86-64 a call leaves its return address just below the caller's
        // stack; where it does not, the look below finds something else.
        let slot =
            unsafe { _Unwind_GetCFA(context) }.wrapping_sub(size_of::<usize>()) as *mut usize;
        // SAFETY: the slot is on the stack that is walked; looking proves that it is the one.
        if unsafe { *slot } == ip {
            search.walk = Walk::Foreign { return_slot: slot };
        }
        return STOP;
    } else if !foreign {
        // SAFETY: as above.
        let (tables, start) =
            unsafe { (_Unwind_GetLanguageSpecificData(context), _Unwind_GetRegionStart(context)) };
        // Frames without tables have nothing to clean up and let everything through, but there is
        // no landing place either: go on to one that has.
        // SAFETY: the unwinder found the tables of this function.
        if !tables.is_null() && unsafe { covers(tables, ip - 1 - start) } {
            // SAFETY: as above.
            let kept = KEPT.map(|register| unsafe { _Unwind_GetGR(context, register) });
            // SAFETY: as above.
            let stack = unsafe { _Unwind_GetCFA(context) };
            search.walk = Walk::Raise(RaisePoint { instruction: ip - 1, stack, kept });
            return STOP;
        }
    }
    search.in_foreign = foreign;
    CONTINUE
}

/// Whether a panic may come through the call at `offset`: the function's call-site table has an
/// entry for it that is not a refusal. The format is that of the
/// Itanium C++ ABI, in the encodings rustc emits.
///
/// # Safety
/// `tables` is a language-specific data area made by rustc.
unsafe fn covers(tables: *const u8, offset: usize) -> bool {
    const OMIT: u8 = 0xff;
    const ULEB128: u8 = 0x01;
    let mut reader = Reader(tables);
    // SAFETY: by the caller's promise the area is complete.
    unsafe {
        if reader.byte() != OMIT {
            return false; // Landing pads relative to elsewhere: not from rustc.
        }
        if reader.byte() != OMIT {
            reader.uleb128();
        }
        if reader.byte() != ULEB128 {
            return false;
        }
        let end = {
            let len = reader.uleb128();
            reader.0.wrapping_add(len)
        };
        while reader.0 < end {
            let (start, len) = (reader.uleb128(), reader.uleb128());
            let (_landing_pad, action) = (reader.uleb128(), reader.uleb128());
            if offset < start {
                return false; // Sorted by start.
            }
            if offset < start + len {
                // The actions follow the call sites and are counted from one. A filter is how a
                // function that must not unwind ends the process.
                return action == 0 || !Reader(end.wrapping_add(action - 1)).is_negative();
            }
        }
    }
    false
}

struct Reader(*const u8);

impl Reader {
    unsafe fn byte(&mut self) -> u8 {
        // SAFETY: by the caller's promise there is one more.
        unsafe {
            let byte = *self.0;
            self.0 = self.0.add(1);
            byte
        }
    }

    unsafe fn uleb128(&mut self) -> usize {
        let (mut value, mut shift) = (0, 0);
        loop {
            // SAFETY: passed on.
            let byte = unsafe { self.byte() };
            value |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 {
                return value;
            }
        }
    }

    /// Whether the next signed number is below zero.
    unsafe fn is_negative(&mut self) -> bool {
        loop {
            // SAFETY: passed on.
            let byte = unsafe { self.byte() };
            if byte & 0x80 == 0 {
                return byte & 0x40 != 0;
            }
        }
    }
}

/// The addresses of the program or library that this code is part of.
fn own_code() -> &'static Range<usize> {
    static OWN: OnceLock<Range<usize>> = OnceLock::new();
    OWN.get_or_init(|| {
        let mut found = 0..0;
        // SAFETY: `look` gets the range, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
        found
    })
}

/// Learns what a signal handler must not find out for the first time.
pub(crate) fn prepare() {
    own_code();
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    let here = own_code as *const () as usize;
    // SAFETY: the loader passes a valid description, and `found` is the range of `own_code`.
    let (base, headers, found) = unsafe {
        let count = (*info).dlpi_phnum.into();
        (
            (*info).dlpi_addr as usize,
            std::slice::from_raw_parts((*info).dlpi_phdr, count),
            &mut *found.cast::<Range<usize>>(),
        )
    };
    for header in headers {
        let start = base + header.p_vaddr as usize;
        let segment = start..start + header.p_memsz as usize;
        if header.p_type == libc::PT_LOAD && segment.contains(&here) {
            *found = segment;
            return 1;
        }
    }
    0
}
