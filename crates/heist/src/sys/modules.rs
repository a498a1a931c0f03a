//! The program and the libraries of the process, with the tables that say how their frames unwind.
//!
//! The tables are found once, and again when a library was loaded or unloaded meanwhile. A library
//! can be unloaded while a stack is walked, so its tables are copied; the program's stay where they
//! are. A set of tables is never freed: a signal handler may be using it. There is one set for each
//! change of the loaded libraries that a walk came after.

use framehop::{
    ExplicitModuleSectionInfo, Module, MustNotAllocateDuringUnwind, Unwinder, UnwinderNative,
};
use std::ffi::{c_int, c_void};
use std::ops::{Deref, Range};
use std::ptr::{null_mut, slice_from_raw_parts};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Mutex, PoisonError};

/// A table: the program's own, or the copy of a library's.
pub(super) enum Table {
    Own(&'static [u8]),
    Copied(Box<[u8]>),
}

impl Default for Table {
    fn default() -> Self {
        Self::Own(&[])
    }
}

impl Deref for Table {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Copied(bytes) => bytes,
        }
    }
}

/// The unwind tables of everything that was loaded at one moment.
pub(crate) struct Modules {
    pub(super) unwinder: UnwinderNative<Table, MustNotAllocateDuringUnwind>,
    version: Version,
}

/// How often something was loaded and unloaded.
type Version = (u64, u64);

static CURRENT: AtomicPtr<Modules> = AtomicPtr::new(null_mut());

/// The tables of everything that is loaded now. It allocates if that has changed.
pub(crate) fn current() -> &'static Modules {
    static UPDATE: Mutex<()> = Mutex::new(());
    let version = version();
    if let Some(known) = known().filter(|known| known.version == version) {
        return known;
    }
    let _update = UPDATE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = known().filter(|known| known.version == version) {
        return known;
    }
    let mut found = Modules { unwinder: UnwinderNative::new(), version };
    // SAFETY: `add` gets the record, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(add), (&raw mut found).cast()) };
    let found = Box::leak(Box::new(found));
    // ORDERING: Release pairs with `known`: a thread that finds the set sees its contents.
    CURRENT.store(found, Ordering::Release);
    found
}

/// The tables that the last call of [`current`] found. For signal handlers.
pub(crate) fn known() -> Option<&'static Modules> {
    // ORDERING: Acquire: see `current`.
    // SAFETY: null, or a set, which is never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

fn version() -> Version {
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        bytes: usize,
        version: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader passes a valid description, and `version` is that of `version`.
        unsafe {
            if bytes >= size_of::<libc::dl_phdr_info>() {
                version.cast::<Version>().write(((*info).dlpi_adds, (*info).dlpi_subs));
            }
        }
        1
    }
    let mut version: Version = (0, 0);
    // SAFETY: `look` gets the place for the answer, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut version).cast()) };
    version
}

/// Adds one loaded file. The loader's lock is held, so it is not unloaded meanwhile.
unsafe extern "C" fn add(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description, and `found` is that of `current`.
    let (base, headers, found) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (info.dlpi_addr as usize, headers, &mut *found.cast::<Modules>())
    };
    // The program comes first.
    let is_program = found.unwinder.max_known_code_address() == 0;
    let range = |header: &libc::Elf64_Phdr| {
        let start = base + header.p_vaddr as usize;
        start..start + header.p_memsz as usize
    };
    let loaded = || headers.iter().filter(|header| header.p_type == libc::PT_LOAD).map(range);
    let index = headers.iter().find(|header| header.p_type == libc::PT_GNU_EH_FRAME).map(range);
    let (Some(start), Some(end)) =
        (loaded().map(|part| part.start).min(), loaded().map(|part| part.end).max())
    else {
        return 0;
    };
    let mut sections = ExplicitModuleSectionInfo::default();
    if let Some(index) = index
        && let Some(at) = frames_of(&index)
        && let Some(part) = loaded().find(|part| part.contains(&at))
    {
        let frames = at..part.end;
        sections.eh_frame_hdr_svma = Some(in_file(base, &index));
        sections.eh_frame_hdr = Some(table(&index, is_program));
        sections.eh_frame_svma = Some(in_file(base, &frames));
        sections.eh_frame = Some(table(&frames, is_program));
    }
    found.unwinder.add_module(Module::new(
        String::new(),
        start as u64..end as u64,
        base as u64,
        sections,
    ));
    0
}

fn in_file(base: usize, part: &Range<usize>) -> Range<u64> {
    (part.start - base) as u64..(part.end - base) as u64
}

/// The table at these addresses of a loaded file, which stays if it is the program.
fn table(part: &Range<usize>, is_program: bool) -> Table {
    let bytes = slice_from_raw_parts(part.start as *const u8, part.len());
    // SAFETY: a part of a loaded file that can be read. The program is never unloaded, and a
    // library not before this call has copied it.
    let bytes: &'static [u8] = unsafe { &*bytes };
    if is_program { Table::Own(bytes) } else { Table::Copied(bytes.into()) }
}

/// The address of the frame table that the index at `index` is of, in the encoding that every
/// linker uses: a distance of 32 bits.
fn frames_of(index: &Range<usize>) -> Option<usize> {
    const VERSION: u8 = 1;
    const DISTANCE: u8 = 0x1b;
    if index.len() < 8 {
        return None;
    }
    // SAFETY: inside the index, which is loaded.
    let head = unsafe { (index.start as *const [u8; 8]).read_unaligned() };
    let [VERSION, DISTANCE, _, _, distance @ ..] = head else { return None };
    (index.start + 4).checked_add_signed(i32::from_le_bytes(distance) as isize)
}
