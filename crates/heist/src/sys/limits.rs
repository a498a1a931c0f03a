//! The limits that the system sets to this process.

use super::{clock, memory};
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A limit on a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Open descriptors: `ulimit -n`.
    Descriptors,
    /// Bytes of address space: `ulimit -v`.
    AddressSpace,
    /// Bytes of private writable memory: `ulimit -d`.
    Data,
    /// Threads of the user: `ulimit -u`.
    Threads,
}

impl Limit {
    /// The soft limit, or None if there is none.
    pub(crate) fn get(self) -> Option<u64> {
        let resource = match self {
            Self::Descriptors => libc::RLIMIT_NOFILE,
            Self::AddressSpace => libc::RLIMIT_AS,
            Self::Data => libc::RLIMIT_DATA,
            Self::Threads => libc::RLIMIT_NPROC,
        };
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is a valid place for the answer.
        let answered = unsafe { libc::getrlimit(resource, &raw mut limit) } == 0;
        (answered && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
    }
}

/// How many descriptors the runtime may keep for one purpose: at most `most`, and at most one in
/// `part` of those that the process may have.
pub(crate) fn descriptors_to_keep(most: u32, part: u32) -> u32 {
    let limit = Limit::Descriptors.get().unwrap_or(u64::MAX);
    (limit / u64::from(part)).min(most.into()) as u32
}

/// The bytes left for the allocator, for threads and for everything else when memory for stacks is
/// mapped.
const HEADROOM: u64 = 8 << 20;

/// How much the process may still map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    /// There is no limit.
    Endless,
    Bytes(u64),
    /// There is a limit, and the system does not say how much is used: `/proc` is not mounted.
    Unknown,
}

impl Room {
    /// Whether there is room for `bytes`. If that is unknown, the answer is yes, so that it is
    /// tried.
    pub(crate) fn has(self, bytes: u64) -> bool {
        match self {
            Self::Endless => true,
            Self::Bytes(room) => bytes <= room,
            Self::Unknown => usize::try_from(bytes).is_ok_and(memory::can_map),
        }
    }
}

/// How much the process may still map. No allocation.
pub(crate) fn room() -> Room {
    let (space, data) = (Limit::AddressSpace.get(), Limit::Data.get());
    if space.is_none() && data.is_none() {
        return Room::Endless;
    }
    let Some((space_used, data_used)) = used() else { return Room::Unknown };
    let left =
        |limit: Option<u64>, used| limit.map_or(u64::MAX, |limit| limit.saturating_sub(used));
    Room::Bytes(left(space, space_used).min(left(data, data_used)))
}

/// With less room than this, an arena of the allocator for each thread is too much.
const ARENAS_ROOM: u64 = 1 << 30;

/// Keeps glibc's allocator from mapping an arena of 64 MiB for each new thread where there is
/// little room: a few threads would take all of it, and none would be left for the next thread.
/// All threads share one arena then. Called before the first thread of a runtime is made. Other
/// allocators do not read the option.
pub(crate) fn spare_room() {
    if let Room::Bytes(room) = room()
        && room < ARENAS_ROOM
    {
        // SAFETY: it sets an option of the allocator, under the allocator's lock.
        unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    }
}

/// Bytes of address space and of private writable memory that the process has.
fn used() -> Option<(u64, u64)> {
    let mut text = [0u8; 128];
    let n = super::thread::read_start(c"/proc/self/statm".as_ptr(), &mut text)?;
    // In pages: the total, three fields that do not matter here, code, and data.
    let mut fields = std::str::from_utf8(&text[..n]).ok()?.split_ascii_whitespace();
    let page = memory::page_bytes() as u64;
    let mut used = |skip| Some(fields.nth(skip)?.parse::<u64>().ok()?.saturating_mul(page));
    Some((used(0)?, used(4)?))
}

/// How long a refusal of [`affordable`] is also the answer to later callers. Shorter than the pause
/// of the helper, whose attempts are the ones that count.
const REFUSAL_NS: u64 = 4_000_000;

/// The last refusal: until when it holds, and for how many bytes. The two words are not written
/// together: a caller that mixes two refusals is refused for a moment, or asks the system once
/// more.
static REFUSED_UNTIL_NS: AtomicU64 = AtomicU64::new(0);
static REFUSED_BYTES: AtomicUsize = AtomicUsize::new(usize::MAX);

/// How many of `wanted` bytes to map now, at least `least`: where memory is limited, half of the
/// rest, so that some is left for others.
pub(crate) fn affordable(wanted: usize, least: usize) -> io::Result<usize> {
    let refusal = || Err(io::Error::from_raw_os_error(libc::ENOMEM));
    let until_ns = REFUSED_UNTIL_NS.load(Ordering::Relaxed);
    if until_ns != 0 && least >= REFUSED_BYTES.load(Ordering::Relaxed) && clock::now_ns() < until_ns
    {
        return refusal();
    }
    let room = room();
    if !room.has(HEADROOM.saturating_add(least as u64)) {
        REFUSED_BYTES.store(least, Ordering::Relaxed);
        REFUSED_UNTIL_NS.store(clock::now_ns() + REFUSAL_NS, Ordering::Relaxed);
        return refusal();
    }
    Ok(match room {
        Room::Endless => wanted,
        Room::Bytes(bytes) => {
            let half = usize::try_from(bytes.saturating_sub(HEADROOM) / 2).unwrap_or(usize::MAX);
            half.clamp(least.min(wanted), wanted)
        }
        Room::Unknown if room.has(HEADROOM.saturating_add(wanted as u64)) => wanted,
        Room::Unknown => least,
    })
}

/// An error of the system, with what was wanted and which limit to raise.
pub(crate) fn explain(error: &io::Error, wanted: &str) -> io::Error {
    let limit = |name: &str, limit: Limit, unit: u64| {
        limit.get().map(|value| format!("{name} (now {})", value / unit))
    };
    let raise = match error.raw_os_error() {
        Some(libc::EMFILE) => limit("`ulimit -n`", Limit::Descriptors, 1),
        Some(libc::ENFILE) => Some("the sysctl fs.file-max".to_owned()),
        Some(libc::EAGAIN) => Some(format!(
            "{}pids.max of the control group",
            limit("`ulimit -u`", Limit::Threads, 1).map_or_else(String::new, |text| text + " or ")
        )),
        Some(libc::ENOMEM) => limit("`ulimit -v`", Limit::AddressSpace, 1024)
            .or_else(|| limit("`ulimit -d`", Limit::Data, 1024))
            .or_else(|| Some("the memory of the system or the sysctl vm.max_map_count".to_owned())),
        Some(libc::EPERM | libc::EACCES | libc::ENOSYS) => {
            Some("what the sandbox allows".to_owned())
        }
        _ => None,
    };
    let raise = raise.map_or_else(String::new, |what| format!("; raise {what}"));
    io::Error::new(error.kind(), format!("no {wanted}: {error}{raise}"))
}
