//! Facts about the system that only a diagnosis needs. The functions allocate.

use super::{membarrier, memory};
use std::ffi::CStr;
use std::fs;

/// The kernel and its release.
pub(crate) fn kernel() -> String {
    // SAFETY: bytes may be zero.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: `names` is a valid place for the answer, whose texts end with a zero byte.
    unsafe {
        libc::uname(&raw mut names);
        let text =
            |name: &[libc::c_char]| CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned();
        format!("{} {} on {}", text(&names.sysname), text(&names.release), text(&names.machine))
    }
}

/// Whether the kernel can fence other threads.
pub(crate) fn has_membarrier() -> bool {
    membarrier::is_offered()
}

/// Whether the kernel guards pages without a mapping for each.
pub(crate) fn has_light_guards() -> bool {
    /// `MADV_GUARD_INSTALL` of Linux 6.13.
    const GUARD_INSTALL: libc::c_int = 102;
    let len = memory::PAGE_MAX_BYTES;
    let Ok(page) = memory::map(len) else { return false };
    // SAFETY: just mapped, used only here, and unmapped here.
    unsafe {
        let guards = libc::madvise(page.as_ptr().cast(), len, GUARD_INSTALL) == 0;
        memory::unmap(page, len);
        guards
    }
}

/// The maximum number of mappings of a process.
pub(crate) fn max_mappings() -> Option<u64> {
    fs::read_to_string("/proc/sys/vm/max_map_count").ok()?.trim().parse().ok()
}

/// Descriptors that this process has open.
pub(crate) fn open_descriptors() -> Option<u64> {
    // Without the one that counts them.
    Some((fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}

/// A number in a file of the control group that has `controller`: the file of version 2 or, without
/// one, of version 1. None if there is no such limit or it cannot be found.
pub(crate) fn of_group(controller: &str, version_2: &str, version_1: &str) -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let number = |folder: String, file: &str| {
        fs::read_to_string(format!("/sys/fs/cgroup{folder}/{file}")).ok()?.trim().parse().ok()
    };
    groups
        .lines()
        .find_map(|line| {
            // Lines are `number:controllers:path`.
            let mut parts = line.splitn(3, ':');
            let (_, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
            let path = path.trim_end_matches('/');
            if controllers.is_empty() {
                number(path.to_owned(), version_2)
            } else if controllers.split(',').any(|one| one == controller) {
                number(format!("/{controllers}{path}"), version_1)
            } else {
                None
            }
        })
        // Version 1 reports the largest number of pages for no limit.
        .filter(|&n| n < 1 << 62)
}
