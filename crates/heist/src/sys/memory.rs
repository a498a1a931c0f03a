//! Address space: mapping it, guarding it, returning pages to the system.

use super::limits::Limit;
use super::thread;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicUsize, Ordering};

/// `MADV_GUARD_INSTALL` of Linux 6.13; the libc crate does not name it everywhere.
const MADV_GUARD_INSTALL: libc::c_int = 102;

/// The smallest page that the kernel can have. Every page boundary is a multiple of it.
pub(crate) const PAGE_MIN_BYTES: usize = 4 << 10;

/// The largest page that the kernel can have: a multiple of every other.
pub(crate) const PAGE_MAX_BYTES: usize =
    if cfg!(target_arch = "x86_64") { PAGE_MIN_BYTES } else { 64 << 10 };

/// The size of a page. aarch64 kernels have pages of 4, 16 or 64 KiB.
#[inline]
pub(crate) fn page_bytes() -> usize {
    if cfg!(target_arch = "x86_64") {
        return PAGE_MIN_BYTES;
    }
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    let known = BYTES.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    // SAFETY: takes no pointers. The C library has the answer since the start of the process.
    let answer = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let bytes = usize::try_from(answer).unwrap_or(PAGE_MIN_BYTES).max(PAGE_MIN_BYTES);
    BYTES.store(bytes, Ordering::Relaxed);
    bytes
}

/// Prefetches a cache line that is about to be written. It is a hint: any address is allowed.
#[inline]
pub(crate) fn prefetch_for_write(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch neither faults nor changes anything that can be read.
    unsafe {
        std::arch::asm!("prefetchw [{}]", in(reg) address, options(nostack, preserves_flags));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        std::arch::asm!("prfm pstl1keep, [{}]", in(reg) address, options(nostack, preserves_flags));
    }
}

/// Mappings that cost nothing until touched.
const UNTOUCHED: libc::c_int = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;

/// Maps `len` bytes of zeroes that cost nothing until touched.
pub(crate) fn map(len: usize) -> std::io::Result<NonNull<u8>> {
    map_with(null_mut(), len, UNTOUCHED)
}

/// Maps `len` bytes for stacks: one touched page must stay one page.
pub(crate) fn map_stacks(len: usize) -> std::io::Result<NonNull<u8>> {
    let base = map_with(null_mut(), len, UNTOUCHED | libc::MAP_STACK)?;
    keep_pages_small(base, len);
    Ok(base)
}

/// Reserves `len` bytes of addresses that nothing can use, at `address` or, if it is zero, where
/// the kernel likes. None if the address is in use.
pub(crate) fn reserve(address: usize, len: usize) -> std::io::Result<Option<NonNull<u8>>> {
    let place = if address == 0 { 0 } else { libc::MAP_FIXED_NOREPLACE };
    let (hint, flags) = (address as *mut libc::c_void, UNTOUCHED | place);
    // SAFETY: a new private mapping that replaces nothing touches nothing that exists.
    let base = unsafe { libc::mmap(hint, len, libc::PROT_NONE, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        let error = std::io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::EEXIST) { Ok(None) } else { Err(error) };
    }
    if address != 0 && base.addr() != address {
        // Kernels before 4.17 treat the address as a hint.
        // SAFETY: just mapped, not used yet.
        unsafe { libc::munmap(base, len) };
        return Ok(None);
    }
    Ok(NonNull::new(base.cast()))
}

/// Opens a part of what was reserved, for a stack. False if the system refuses.
///
/// # Safety
/// The range is inside what [`reserve`] returned, and nothing uses it.
pub(crate) unsafe fn open(base: NonNull<u8>, len: usize) -> bool {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: by the caller's promise.
    let opened = unsafe { libc::mprotect(base.as_ptr().cast(), len, access) } == 0;
    if opened {
        keep_pages_small(base, len);
    }
    opened
}

fn keep_pages_small(base: NonNull<u8>, len: usize) {
    // SAFETY: the range was just mapped. Failure (a kernel without huge pages) is harmless.
    unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_NOHUGEPAGE) };
}

fn map_with(
    address: *mut libc::c_void,
    len: usize,
    flags: libc::c_int,
) -> std::io::Result<NonNull<u8>> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new private mapping that replaces nothing touches nothing that exists.
    let base = unsafe { libc::mmap(address, len, access, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| std::io::Error::from_raw_os_error(libc::ENOMEM))
}

/// Whether `len` bytes could be mapped now. It maps them for a moment.
pub(crate) fn can_map(len: usize) -> bool {
    // SAFETY: just mapped, and not used.
    map(len).map(|base| unsafe { unmap(base, len) }).is_ok()
}

/// Whether the process can have a few mappings more than it has: `vm.max_map_count` limits them.
pub(crate) fn has_free_mappings() -> bool {
    const PAGES: usize = 8;
    let page = page_bytes();
    let Ok(base) = map(PAGES * page) else { return false };
    // SAFETY: the pages were just mapped and are not in use.
    unsafe {
        // Every other page with another protection: as many mappings as pages.
        let split = (0..PAGES).step_by(2).all(|i| {
            let at = base.as_ptr().wrapping_add(i * page).cast();
            libc::mprotect(at, page, libc::PROT_NONE) == 0
        });
        unmap(base, PAGES * page);
        split
    }
}

/// Unmaps what [`map`] mapped.
///
/// # Safety
/// The range came from [`map`] or [`map_stacks`] and is not used any more.
pub(crate) unsafe fn unmap(base: NonNull<u8>, len: usize) {
    // SAFETY: by the caller's promise.
    unsafe { libc::munmap(base.as_ptr().cast(), len) };
}

/// Whether a guard was installed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Installed {
    Yes,
    /// The kernel has no memory for it now.
    NoMemory,
    /// The kernel cannot do it: it is older than 6.13, or the memory is locked. Or it reports
    /// success without doing it: qemu-user ignores advice that it does not know.
    Unknown,
}

/// Makes pages fault on touch, without a mapping of their own.
///
/// # Safety
/// Nothing in the range is in use.
pub(crate) unsafe fn guard_install(base: NonNull<u8>, len: usize) -> Installed {
    // SAFETY: by the caller's promise.
    match unsafe { libc::madvise(base.as_ptr().cast(), len, MADV_GUARD_INSTALL) } {
        0 if faults(base) => Installed::Yes,
        0 => Installed::Unknown,
        // SAFETY: the address of this thread's own number.
        _ if unsafe { *libc::__errno_location() } == libc::ENOMEM => Installed::NoMemory,
        _ => Installed::Unknown,
    }
}

/// Makes pages fault on touch in one of the two ways. False if neither is possible.
///
/// # Safety
/// Nothing in the range is in use.
pub(crate) unsafe fn guard(base: NonNull<u8>, len: usize) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { guard_install(base, len) == Installed::Yes || guard_protect(base, len) }
}

/// Whether the kernel would fault on reading a byte that is mapped and not in use.
fn faults(address: NonNull<u8>) -> bool {
    // SAFETY: the kernel only reads, and returns `EFAULT` if it cannot. It reads the name of a
    // file: fresh memory is an empty name, which no file has.
    let read = unsafe { libc::access(address.as_ptr().cast(), libc::F_OK) };
    read != 0 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT)
}

/// How many mappings a process can have.
pub(crate) fn max_mappings() -> usize {
    /// The kernel's default.
    const USUAL: usize = 65530;
    /// Zero: not asked yet.
    static MAX: AtomicUsize = AtomicUsize::new(0);
    let known = MAX.load(Ordering::Relaxed);
    if known != 0 {
        return known;
    }
    let mut text = [0; 32];
    let asked = thread::read_start(c"/proc/sys/vm/max_map_count".as_ptr(), &mut text);
    let asked = asked.and_then(|n| std::str::from_utf8(text.get(..n)?).ok()?.trim().parse().ok());
    let max = asked.unwrap_or(USUAL);
    MAX.store(max, Ordering::Relaxed);
    max
}

/// The maximum number of ranges in one call.
pub(crate) const RANGES_MAX: usize = 64;

/// Several ranges of the same length at the same distance from each other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ranges {
    pub(crate) base: NonNull<u8>,
    pub(crate) len: usize,
    pub(crate) stride: usize,
    pub(crate) n: usize,
}

/// Guards all ranges in one system call. Returns how many are guarded: none where the kernel cannot
/// do it, or not in one call.
///
/// # Safety
/// Nothing in the ranges is in use.
pub(crate) unsafe fn guard_install_all(ranges: Ranges) -> usize {
    // SAFETY: passed on.
    unsafe { advise_all(ranges, MADV_GUARD_INSTALL) }
}

/// Makes all ranges resident in one system call, which is cheaper than a fault each. Where the
/// kernel cannot do it, they fault when they are touched.
pub(crate) fn populate_all(ranges: Ranges) {
    // SAFETY: it changes nothing that can be read.
    unsafe { advise_all(ranges, libc::MADV_POPULATE_WRITE) };
}

unsafe fn advise_all(ranges: Ranges, advice: libc::c_int) -> usize {
    let n = ranges.n.min(RANGES_MAX);
    let mut list = [NO_RANGE; RANGES_MAX];
    for (i, range) in list[..n].iter_mut().enumerate() {
        range.iov_base = ranges.base.as_ptr().wrapping_add(i * ranges.stride).cast();
        range.iov_len = ranges.len;
    }
    // SAFETY: passed on.
    unsafe { advise_list(&list[..n], advice) / ranges.len }
}

const NO_RANGE: libc::iovec = libc::iovec { iov_base: null_mut(), iov_len: 0 };

/// Returns for how many bytes, from the first range on, the kernel has followed the advice.
unsafe fn advise_list(list: &[libc::iovec], advice: libc::c_int) -> usize {
    let Some(this_process) = this_process() else { return 0 };
    let flags = 0;
    // SAFETY: the list lives until the call returns; the advice is the caller's responsibility.
    let done = unsafe {
        let call = libc::SYS_process_madvise;
        libc::syscall(call, this_process, list.as_ptr(), list.len(), advice, flags)
    };
    usize::try_from(done).unwrap_or(0)
}

/// A descriptor of this process, by which it can be named to the kernel.
fn this_process() -> Option<libc::c_int> {
    static THIS: std::sync::OnceLock<libc::c_long> = std::sync::OnceLock::new();
    // SAFETY: asks for a descriptor that is closed on exec. After a fork the child's would name the
    // parent, but threads do not survive a fork and so no runtime does.
    let fd =
        *THIS.get_or_init(|| unsafe { libc::syscall(libc::SYS_pidfd_open, libc::getpid(), 0) });
    libc::c_int::try_from(fd).ok().filter(|&fd| fd >= 0)
}

/// Makes pages fault on touch by splitting the mapping. False if there are too many mappings.
///
/// # Safety
/// Nothing in the range is in use.
pub(crate) unsafe fn guard_protect(base: NonNull<u8>, len: usize) -> bool {
    // SAFETY: by the caller's promise.
    unsafe { libc::mprotect(base.as_ptr().cast(), len, libc::PROT_NONE) == 0 }
}

/// Returns the pages of ranges (address and length) to the system; they read as zeroes afterwards.
/// Guards stay. It makes as few system calls as the kernel allows: each of them interrupts the
/// other CPUs.
///
/// # Safety
/// Nothing in the ranges is in use.
pub(crate) unsafe fn discard_all(mut ranges: impl Iterator<Item = (NonNull<u8>, usize)>) {
    loop {
        let mut list = [NO_RANGE; RANGES_MAX];
        let mut n = 0;
        for (base, len) in ranges.by_ref().take(RANGES_MAX) {
            list[n] = libc::iovec { iov_base: base.as_ptr().cast(), iov_len: len };
            n += 1;
        }
        if n == 0 {
            return;
        }
        // SAFETY: by the caller's promise.
        let mut done = unsafe { advise_list(&list[..n], libc::MADV_DONTNEED) };
        for range in &list[..n] {
            if done < range.iov_len {
                // SAFETY: as above.
                unsafe { libc::madvise(range.iov_base, range.iov_len, libc::MADV_DONTNEED) };
            }
            done = done.saturating_sub(range.iov_len);
        }
    }
}

/// A growing array in pages of its own, for code that may not use the allocator.
///
/// Growing moves pages, not bytes. It never shrinks, except that an array that has become empty
/// returns its pages.
#[derive(Debug)]
pub(crate) struct Pages<T> {
    base: NonNull<T>,
    len: usize,
    /// Zero: nothing is mapped.
    bytes: usize,
    /// How far it was ever filled since its pages were returned last.
    touched_bytes: usize,
}

// SAFETY: it owns its pages.
unsafe impl<T: Send> Send for Pages<T> {}

/// The bytes that an array keeps when it is empty, or nearly empty.
const PAGES_KEEP_BYTES: usize = 64 << 10; // A multiple of every page.
/// The addresses that it keeps, where their number is not limited.
const PAGES_RESERVED_BYTES: usize = 16 << 20;

impl<T: Copy> Pages<T> {
    /// An empty array. Pages are mapped ahead, if the system allows that, so that a million
    /// entries, or a few thousand where addresses are limited, do not depend on what it allows
    /// later. They are not touched yet.
    pub(crate) fn new() -> Self {
        let mut pages = Self { base: NonNull::dangling(), len: 0, bytes: 0, touched_bytes: 0 };
        if Limit::AddressSpace.get().is_some() || !pages.grow_to(PAGES_RESERVED_BYTES) {
            pages.grow_to(PAGES_KEEP_BYTES);
        }
        pages
    }

    /// The addresses of its pages.
    pub(crate) fn mapped(&self) -> std::ops::Range<usize> {
        let start = self.base.addr().get();
        start..start + self.bytes
    }

    /// Whether there is room for one more. The array grows when it is half full: if the system
    /// refuses that, there are many more attempts.
    fn has_room(&mut self) -> bool {
        let needed = (self.len + 1) * size_of::<T>();
        (2 * needed <= self.bytes) || self.grow() || needed <= self.bytes
    }

    /// Returns the memory of an array that has become empty, and the addresses beyond those that it
    /// keeps.
    #[cold]
    fn return_pages(&mut self) {
        let base = self.base.cast::<u8>();
        self.touched_bytes = 0;
        // SAFETY: whole pages of this array, behind all entries that are left.
        unsafe {
            if self.bytes > PAGES_RESERVED_BYTES {
                unmap(base.add(PAGES_RESERVED_BYTES), self.bytes - PAGES_RESERVED_BYTES);
                self.bytes = PAGES_RESERVED_BYTES;
            }
            let rest = (base.add(PAGES_KEEP_BYTES), self.bytes - PAGES_KEEP_BYTES);
            discard_all(std::iter::once(rest));
        }
    }

    #[cold]
    fn grow(&mut self) -> bool {
        // Memory may be limited.
        let doubled = (2 * self.bytes).max(page_bytes());
        self.grow_to(doubled) || self.grow_to(self.bytes + page_bytes())
    }

    fn grow_to(&mut self, bytes: usize) -> bool {
        let moved = if self.bytes == 0 {
            map(bytes).ok()
        } else {
            let base = self.base.as_ptr().cast();
            // SAFETY: the mapping belongs to this array, and no reference into it exists.
            let base = unsafe { libc::mremap(base, self.bytes, bytes, libc::MREMAP_MAYMOVE) };
            NonNull::new(base).filter(|_| base != libc::MAP_FAILED).map(NonNull::cast)
        };
        let Some(base) = moved else { return false };
        self.base = base.cast();
        self.bytes = bytes;
        true
    }
}

impl<T: Copy> heist_core::timer_heap::Store<T> for Pages<T> {
    fn lines(&self) -> &[T] {
        // SAFETY: the first `len` were written, and stay while the array is borrowed.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    fn lines_mut(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }

    fn push(&mut self, line: T) -> bool {
        if !self.has_room() {
            return false;
        }
        // SAFETY: there is room for one more, and pages are aligned for anything.
        unsafe { self.base.as_ptr().add(self.len).write(line) };
        self.len += 1;
        self.touched_bytes = self.touched_bytes.max(self.len * size_of::<T>());
        true
    }

    fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
        if self.len <= 1 && self.touched_bytes > PAGES_KEEP_BYTES {
            self.return_pages();
        }
    }

    #[inline]
    fn fetch(line: *const T) {
        prefetch_for_write(line.cast());
    }
}

impl<T> Drop for Pages<T> {
    fn drop(&mut self) {
        if self.bytes != 0 {
            // SAFETY: the pages belong to this array.
            unsafe { unmap(self.base.cast(), self.bytes) };
        }
    }
}
