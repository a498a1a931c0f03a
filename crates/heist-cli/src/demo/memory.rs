//! Memory as the kernel reports it: that of this process, and what is left.

use std::fs;

/// A part of this process's memory, as a line of `/proc/self/status` names it.
#[derive(Clone, Copy)]
pub enum Part {
    /// Resident now.
    Resident,
    /// The most that was resident since the last [`forget_peak`].
    Peak,
    /// Page tables, which the kernel holds beside the resident memory.
    PageTables,
}

/// Bytes of a part, 0 where the kernel does not report it.
pub fn of_process(part: Part) -> u64 {
    let key = match part {
        Part::Resident => "VmRSS",
        Part::Peak => "VmHWM",
        Part::PageTables => "VmPTE",
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    field(&status, key).unwrap_or(0)
}

/// Starts a new peak. Where the kernel refuses, the peak is that of the whole process.
pub fn forget_peak() {
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// Bytes that can be used without swapping, None where the kernel does not report it.
pub fn available() -> Option<u64> {
    let of_machine = field(&fs::read_to_string("/proc/meminfo").ok()?, "MemAvailable")?;
    Some(of_group().map_or(of_machine, |of_group| of_group.min(of_machine)))
}

/// The memory that the control group leaves; None if it sets no limit.
fn of_group() -> Option<u64> {
    let number = |file| -> Option<u64> {
        let text = fs::read_to_string(format!("/sys/fs/cgroup/{file}")).ok()?;
        text.trim().parse().ok()
    };
    Some(number("memory.max")?.saturating_sub(number("memory.current")?))
}

/// Bytes of a line such as `VmRSS: 1024 kB`.
fn field(text: &str, key: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    let kib = line.strip_prefix(':')?.split_whitespace().next()?;
    Some(kib.parse::<u64>().ok()? * 1024)
}

#[test]
fn fields_are_found_by_their_whole_name() {
    let text = "VmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\nVmPTE:\tmuch\n";
    assert_eq!(field(text, "VmRSS"), Some(1024 * 1024));
    assert_eq!(field(text, "Vm"), None);
    assert_eq!(field(text, "VmPTE"), None);
    assert_eq!(field(text, "VmSwap"), None);
}

#[test]
fn this_process_has_memory() {
    assert!(of_process(Part::Resident) > 0);
    assert!(of_process(Part::Peak) >= of_process(Part::Resident) / 2);
    assert!(available().is_some_and(|bytes| bytes > 0));
}
