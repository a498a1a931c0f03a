//! The limits that the system sets to this process.

use std::io;

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

/// How many descriptors the runtime may keep for one of its purposes: at most `most`, and at most one in
/// `part` of those that the process may have.
pub(crate) fn descriptors_to_keep(most: u32, part: u32) -> u32 {
    let limit = Limit::Descriptors.get().unwrap_or(u64::MAX);
    (limit / u64::from(part)).min(most.into()) as u32
}

/// An error of the system with what was wanted, and what to raise so that it can be had.
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
