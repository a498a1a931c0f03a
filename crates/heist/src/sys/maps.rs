//! The memory of the process, mapping by mapping, for code that may not use the allocator.
//!
//! Mappings are read from `/proc/self/maps`. Their contents are copied by the kernel, which returns
//! an error where this process would fault: a mapping may contain guards. Pages that were never
//! touched are left out.

use super::memory::{PAGE_MAX_BYTES, Pages, page_bytes};
use heist_core::timer_heap::Store;
use std::ffi::CStr;
use std::ops::Range;

/// What the kernel says about a mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The one that grows with `brk`.
    Heap,
    /// Not of a file, and private to the process.
    Anonymous,
    /// Of a file, private to the process.
    File,
    /// Shared with other processes, maybe.
    Shared,
}

/// A mapping that can be read and may hold addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) kind: Kind,
}

/// Lists the mappings of the process that may hold addresses. False if there is no such list, or no
/// memory for it.
pub(crate) fn list(into: &mut Pages<Mapping>) -> bool {
    let Some(file) = File::open(c"/proc/self/maps") else { return false };
    let mut text = [0; 8 << 10];
    let mut kept = 0;
    loop {
        let Some(n) = file.read(&mut text[kept..]) else { return false };
        if n == 0 {
            return kept == 0;
        }
        let filled = kept + n;
        let mut line_start = 0;
        while let Some(len) = text[line_start..filled].iter().position(|&byte| byte == b'\n') {
            let line = &text[line_start..line_start + len];
            if let Some(mapping) = parse(line)
                && !into.push(mapping)
            {
                return false;
            }
            line_start += len + 1;
        }
        text.copy_within(line_start..filled, 0);
        kept = filled - line_start;
        if kept == text.len() {
            return false;
        }
    }
}

/// A line such as `7f00-7f10 rw-p 00000000 00:00 0   [heap]`. None if the mapping holds no
/// addresses of the program.
fn parse(line: &[u8]) -> Option<Mapping> {
    let line = line.iter().position(|&byte| byte >= 0x80).map_or(line, |end| &line[..end]);
    let line = std::str::from_utf8(line).ok()?;
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) =
        (usize::from_str_radix(start, 16).ok()?, usize::from_str_radix(end, 16).ok()?);
    let rights = fields.next()?.as_bytes();
    let inode = fields.nth(2)?;
    let name = fields.next().unwrap_or("");
    let is_anonymous = inode == "0";
    let is_readable = rights.first() == Some(&b'r');
    let is_writable = rights.get(1) == Some(&b'w');
    // Memory of the program may be protected against writing for a while.
    if !is_readable || !(is_writable || is_anonymous) || name.starts_with("[v") {
        return None;
    }
    let kind = match rights.get(3) {
        Some(b's') => Kind::Shared,
        _ if name == "[heap]" => Kind::Heap,
        _ if is_anonymous => Kind::Anonymous,
        _ => Kind::File,
    };
    Some(Mapping { start, end, kind })
}

/// Copies memory of the process.
pub(crate) struct Copier {
    /// Which pages are there.
    pages: Option<File>,
    buffer: Pages<usize>,
}

/// How much is copied at once.
const COPY_WORDS: usize = PAGE_MAX_BYTES / size_of::<usize>();
/// How many pages are looked up at once.
const LOOK_PAGES: usize = 512;
/// The bits of an entry of the page map for pages in memory, and on disk.
const IS_THERE: u64 = 1 << 63 | 1 << 62;

impl Copier {
    /// None if the system has no memory, or does not copy.
    pub(crate) fn new() -> Option<Self> {
        let mut buffer = Pages::new();
        while buffer.lines().len() < COPY_WORDS {
            if !buffer.push(0) {
                return None;
            }
        }
        let mut copier = Self { pages: File::open(c"/proc/self/pagemap"), buffer };
        let probe = [0x5eed_usize; 2];
        let start = probe.as_ptr().addr();
        (copier.copy(start..start + size_of_val(&probe)) == size_of_val(&probe)
            && copier.buffer.lines()[0] == probe[0])
            .then_some(copier)
    }

    /// The memory that holds the copy.
    pub(crate) fn room(&self) -> Range<usize> {
        self.buffer.mapped()
    }

    /// Calls `look` with each aligned word of a part of a mapping that can be read.
    pub(crate) fn for_each_word(
        &mut self,
        part: Range<usize>,
        kind: Kind,
        mut look: impl FnMut(usize),
    ) {
        let page = page_bytes();
        let mut at = part.start;
        while at < part.end {
            let first = at & !(page - 1);
            let mut are_there = [IS_THERE; LOOK_PAGES];
            // A page of a shared mapping may be in memory though it is not mapped.
            if let Some(pages) = self.pages.as_ref().filter(|_| kind != Kind::Shared) {
                pages.read_at(&mut are_there, first / page);
            }
            for (nth, entry) in are_there.iter().enumerate() {
                let end = (first + (nth + 1) * page).min(part.end);
                if at >= part.end {
                    break;
                }
                if entry & IS_THERE != 0 {
                    let n = self.copy(at..end) / size_of::<usize>();
                    self.buffer.lines()[..n].iter().for_each(|&word| look(word));
                }
                at = end;
            }
        }
    }

    /// A word of memory, if it can be read.
    pub(crate) fn word(&mut self, address: usize) -> Option<usize> {
        let bytes = size_of::<usize>();
        let end = address.checked_add(bytes)?;
        (self.copy(address..end) == bytes).then(|| self.buffer.lines()[0])
    }

    /// Copies into the buffer, and returns how many bytes.
    fn copy(&mut self, part: Range<usize>) -> usize {
        let bytes = part.len().min(COPY_WORDS * size_of::<usize>());
        let to =
            libc::iovec { iov_base: self.buffer.lines_mut().as_mut_ptr().cast(), iov_len: bytes };
        let from = libc::iovec { iov_base: part.start as *mut libc::c_void, iov_len: bytes };
        // SAFETY: the kernel writes at most `bytes` into the buffer, and checks both ranges.
        let copied = unsafe {
            libc::process_vm_readv(libc::getpid(), &raw const to, 1, &raw const from, 1, 0)
        };
        usize::try_from(copied).unwrap_or(0)
    }
}

/// A file that is read without the allocator.
struct File(libc::c_int);

impl File {
    fn open(path: &CStr) -> Option<Self> {
        // SAFETY: the path ends with a zero byte.
        let file = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        (file >= 0).then_some(Self(file))
    }

    fn read(&self, into: &mut [u8]) -> Option<usize> {
        // SAFETY: `into` is valid for its length.
        let n = unsafe { libc::read(self.0, into.as_mut_ptr().cast(), into.len()) };
        usize::try_from(n).ok()
    }

    /// Reads words from the `nth` on. What cannot be read stays as it is.
    fn read_at(&self, into: &mut [u64], nth: usize) {
        let offset = (nth * size_of::<u64>()) as libc::off_t;
        // SAFETY: `into` is valid for its length.
        unsafe {
            libc::pread(self.0, into.as_mut_ptr().cast(), size_of_val(into), offset);
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: opened by this value, the only user.
        unsafe { libc::close(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_list_are_understood() {
        let parsed = |line: &str| parse(line.as_bytes());
        let heap = "5588a000-5589b000 rw-p 00000000 00:00 0                          [heap]";
        let expected = Mapping { start: 0x5588_a000, end: 0x5589_b000, kind: Kind::Heap };
        assert_eq!(parsed(heap), Some(expected));
        let code = "00400000-00452000 r-xp 00000000 08:02 173521      /usr/bin/dbus-daemon";
        assert_eq!(parsed(code), None);
        let data = "00651000-00652000 rw-p 00051000 08:02 173521      /usr/bin/dbus daemon";
        assert_eq!(parsed(data).map(|mapping| mapping.kind), Some(Kind::File));
        let shared = "7f01-7f02 rw-s 00000000 00:01 42 /memfd:\u{e4} (deleted)";
        assert_eq!(parsed(shared).map(|mapping| mapping.kind), Some(Kind::Shared));
        assert_eq!(parsed("7ffe-7fff r--p 00000000 00:00 0    [vvar]"), None);
        assert_eq!(parsed("7f01-7f02 ---p 00000000 00:00 0"), None);
        assert_eq!(parsed("nonsense"), None);
    }

    #[test]
    fn memory_of_the_process_is_found_and_copied() {
        let mut mappings = Pages::new();
        // An emulator, or a sandbox, may refuse the system call. Then nothing is searched.
        let Some(mut copier) = Copier::new() else {
            eprintln!("SKIPPED: the system does not copy memory of processes");
            return;
        };
        let secret = Box::new([0x00dd_5eed_1234_5678_usize; 3]);
        let place = secret.as_ptr().addr();
        assert!(list(&mut mappings));
        let around = mappings.lines().iter().find(|m| (m.start..m.end).contains(&place));
        let around = *around.expect("the heap is listed");
        let mut n = 0;
        copier.for_each_word(place..place + 24, around.kind, |word| {
            n += usize::from(word == secret[0])
        });
        assert_eq!(n, 3);
        copier.for_each_word(8..16, Kind::Anonymous, |_| panic!("nothing is mapped there"));
    }
}
