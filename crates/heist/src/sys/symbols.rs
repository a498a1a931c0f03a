//! Names for addresses in this program, found in its file without allocating or locking.

use std::ffi::{CStr, CString, c_int, c_void};
use std::fmt;
use std::ops::Range;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// The program or library that this code is part of.
#[derive(Debug)]
pub(crate) struct Code {
    addresses: Range<usize>,
    /// The offset between addresses in memory and in the file.
    base: usize,
    path: CString,
}

impl Code {
    /// Whether an address is in it.
    pub(crate) fn contains(&self, address: usize) -> bool {
        self.addresses.contains(&address)
    }

    /// The address as `addr2line` expects it.
    pub(crate) const fn address_in_file(&self, address: usize) -> usize {
        address.wrapping_sub(self.base)
    }
}

static OWN: OnceLock<Code> = OnceLock::new();

/// Collects what a signal handler cannot look up itself. It allocates.
pub(crate) fn prepare() {
    OWN.get_or_init(|| {
        let mut found = Code { addresses: 0..0, base: 0, path: CString::default() };
        // SAFETY: `look` gets the description, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
        if found.path.is_empty() {
            found.path = c"/proc/self/exe".into();
        }
        found
    });
}

/// Where this code is, if [`prepare`] has been called.
pub(crate) fn own_code() -> Option<&'static Code> {
    OWN.get()
}

unsafe extern "C" fn look(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
    let here = prepare as *const () as usize;
    // SAFETY: the loader passes a valid description, and `found` is that of `prepare`.
    let (base, headers, name, found) = unsafe {
        let info = &*info;
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        (info.dlpi_addr as usize, headers, info.dlpi_name, &mut *found.cast::<Code>())
    };
    for header in headers {
        let start = base + header.p_vaddr as usize;
        let addresses = start..start + header.p_memsz as usize;
        if header.p_type == libc::PT_LOAD && addresses.contains(&here) {
            // SAFETY: a name ends with a zero byte.
            let path = if name.is_null() { c"" } else { unsafe { CStr::from_ptr(name) } };
            *found = Code { addresses, base, path: path.into() };
            return 1;
        }
    }
    0
}

/// The symbols of this program, as its file has them.
#[derive(Debug)]
pub(crate) struct Symbols {
    file: &'static [u8],
    code: &'static Code,
    symbols: Range<usize>,
    names: Range<usize>,
}

/// The places of the fields used here in a 64-bit ELF file, and the values looked for.
mod elf {
    pub(super) const SECTIONS: usize = 0x28;
    pub(super) const SECTION_BYTES: usize = 0x3a;
    pub(super) const N_SECTIONS: usize = 0x3c;
    pub(super) const TYPE: usize = 4;
    pub(super) const OFFSET: usize = 24;
    pub(super) const SIZE: usize = 32;
    pub(super) const LINK: usize = 40;
    pub(super) const SYMBOLS: u32 = 2;
    pub(super) const SYMBOL_BYTES: usize = 24;
    pub(super) const FUNCTION: u8 = 2;
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn long(bytes: &[u8], at: usize) -> Option<usize> {
    number(bytes, at).map(|bytes| u64::from_le_bytes(bytes) as usize)
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    number(bytes, at).map(u32::from_le_bytes)
}

fn half(bytes: &[u8], at: usize) -> Option<usize> {
    number(bytes, at).map(|bytes| u16::from_le_bytes(bytes).into())
}

impl Symbols {
    /// Maps the program's file and never unmaps it. None if it cannot be read or was stripped.
    pub(crate) fn open() -> Option<Self> {
        let code = own_code()?;
        // SAFETY: the path ends with a zero byte, and `status` is a valid place for the answer; a
        // new mapping touches nothing that exists. It is never unmapped, so it is static; the file
        // of a running program is not written to.
        let file: &'static [u8] = unsafe {
            let file = libc::open(code.path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC);
            let mut status: libc::stat = std::mem::zeroed();
            if file < 0 || libc::fstat(file, &raw mut status) != 0 {
                return None;
            }
            let len = status.st_size as usize;
            let base = libc::mmap(null_mut(), len, libc::PROT_READ, libc::MAP_PRIVATE, file, 0);
            libc::close(file);
            if base == libc::MAP_FAILED {
                return None;
            }
            std::slice::from_raw_parts(base.cast(), len)
        };
        let (first, bytes) = (long(file, elf::SECTIONS)?, half(file, elf::SECTION_BYTES)?);
        let section = |n: usize| file.get(n.checked_mul(bytes)?.checked_add(first)?..);
        let range = |section: &[u8]| {
            let offset = long(section, elf::OFFSET)?;
            Some(offset..offset.checked_add(long(section, elf::SIZE)?)?)
        };
        let mut sections = (0..half(file, elf::N_SECTIONS)?).filter_map(section);
        let symbols = sections.find(|section| word(section, elf::TYPE) == Some(elf::SYMBOLS))?;
        let names = section(word(symbols, elf::LINK)? as usize)?;
        Some(Self { file, code, symbols: range(symbols)?, names: range(names)? })
    }

    /// The name of the function that an address is in.
    pub(crate) fn name_of(&self, address: usize) -> Option<Name<'static>> {
        self.mangled_name_of(address).map(Name)
    }

    /// The name of the function that an address is in, as the linker knows it.
    pub(crate) fn mangled_name_of(&self, address: usize) -> Option<&'static str> {
        let wanted = self.code.address_in_file(address);
        let symbols = self.file.get(self.symbols.clone())?;
        let symbol = symbols.chunks_exact(elf::SYMBOL_BYTES).find(|symbol| {
            let is_function = symbol[4] & 0xf == elf::FUNCTION;
            let (start, len) = (long(symbol, 8).unwrap_or(0), long(symbol, 16).unwrap_or(0));
            is_function && wanted.checked_sub(start).is_some_and(|offset| offset < len)
        })?;
        let name = self.file.get(self.names.clone())?.get(word(symbol, 0)? as usize..)?;
        CStr::from_bytes_until_nul(name).ok()?.to_str().ok()
    }
}

/// The name of a function as the linker knows it. Names that rustc has mangled are shown demangled,
/// without allocating.
#[derive(Debug)]
pub(crate) struct Name<'a>(&'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The other form has the hash that makes names differ.
        write!(f, "{:#}", rustc_demangle::demangle(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[inline(never)]
    fn marker() -> usize {
        std::hint::black_box(marker as *const () as usize)
    }

    #[test]
    fn a_function_is_found_by_its_address() {
        prepare();
        let symbols = Symbols::open().expect("tests are not stripped");
        let name = symbols.name_of(marker() + 1).expect("it is a function").to_string();
        assert!(name.contains("marker"), "{name}");
        assert!(symbols.name_of(8).is_none());
        assert!(own_code().expect("prepared").contains(marker()));
    }

    #[test]
    fn names_are_demangled() {
        let shown = |name: &str| Name(name).to_string();
        let method = "_ZN46_$LT$a..B$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0123456789abcdefE";
        assert_eq!(shown(method), "<a::B as core::ops::drop::Drop>::drop");
        let closure = "_ZN4main4deep28_$u7b$$u7b$closure$u7d$$u7d$17h0123456789abcdefE";
        assert_eq!(shown(closure), "main::deep::{{closure}}");
        assert_eq!(shown("_RNvCs1234_7mycrate3foo"), "mycrate::foo");
        for other in ["main", "_ZN", "_ZN99x", "_R", ""] {
            assert_eq!(shown(other), other);
        }
    }
}
