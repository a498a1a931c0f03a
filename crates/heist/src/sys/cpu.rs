//! How many CPUs this process may use.

use super::cgroup::Cgroup;
use heist_core::policy::{self, FractionalQuota};
use heist_core::sync::{AtomicU32, Ordering};
use std::path::Path;

/// Whether there is only one CPU, so that waiting for another thread without sleeping is useless.
/// Asks the system once.
#[inline]
pub(crate) fn is_single() -> bool {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    match COUNT.load(Ordering::Relaxed) {
        0 => {
            let count = affinity_count();
            COUNT.store(count, Ordering::Relaxed);
            count == 1
        }
        count => count == 1,
    }
}

/// CPUs in the affinity mask of the calling thread, at least one.
pub(crate) fn affinity_count() -> u32 {
    // SAFETY: a cpu_set_t is plain bits; all zero is a valid one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: `set` is valid for `size` bytes.
    if unsafe { libc::sched_getaffinity(0, size, &raw mut set) } != 0 {
        return std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
    }
    // SAFETY: `set` was filled in by the kernel.
    (unsafe { libc::CPU_COUNT(&set) } as u32).max(1)
}

/// Runs the calling thread for a moment on each CPU that it may use, so that the thread that ran
/// there is switched out once. False if the system refuses that. No allocation.
pub(crate) fn visit_all() -> bool {
    let size = size_of::<libc::cpu_set_t>();
    // SAFETY: a cpu_set_t is plain bits; all zero is a valid one.
    let (mut before, none) = unsafe { std::mem::zeroed::<(libc::cpu_set_t, libc::cpu_set_t)>() };
    // SAFETY: `before` is valid for `size` bytes.
    if unsafe { libc::sched_getaffinity(0, size, &raw mut before) } != 0 {
        return false;
    }
    let visited = (0..libc::CPU_SETSIZE as usize).all(|cpu| {
        let mut only = none;
        // SAFETY: the number is within the set, which is valid for its size. When the call returns,
        // the thread runs there.
        let there = unsafe {
            libc::CPU_SET(cpu, &mut only);
            libc::sched_setaffinity(0, size, &raw const only) == 0
        };
        // No thread of this process runs on a CPU that does not exist or that it may not use.
        there || std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL)
    });
    // SAFETY: as above.
    unsafe { libc::sched_setaffinity(0, size, &raw const before) };
    visited
}

/// The default number of Ps of a runtime. It allocates.
pub(crate) struct DefaultProcs {
    /// The number of CPUs of a simulated machine, in tests.
    cpus: Option<u32>,
    cgroup: Option<Cgroup>,
    rounding: FractionalQuota,
}

impl DefaultProcs {
    /// Reads the quota of the control group below `root`. Without a `root`, only CPUs count: `cpus`
    /// of them, or those of the affinity mask.
    pub(crate) fn new(root: Option<&Path>, cpus: Option<u32>, rounding: FractionalQuota) -> Self {
        Self { cpus, cgroup: root.map(Cgroup::new), rounding }
    }

    /// The number at this moment.
    #[doc(alias = "defaultGOMAXPROCS")]
    pub(crate) fn now(&mut self) -> u32 {
        let quota = self.cgroup.as_mut().and_then(Cgroup::quota);
        let cpus = self.cpus.unwrap_or_else(affinity_count);
        policy::default_procs(cpus, quota, self.rounding)
    }
}

/// Restricts all threads of the process to CPU 0, or lets them use all CPUs again. For tests.
pub(crate) fn restrict(to_one: bool) -> std::io::Result<()> {
    // SAFETY: a cpu_set_t is plain bits; all zero is a valid one.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    for cpu in 0..if to_one { 1 } else { libc::CPU_SETSIZE as usize } {
        // SAFETY: the number is within the set.
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    for task in std::fs::read_dir("/proc/self/task")? {
        let name = task?.file_name();
        let tid = name.to_str().and_then(|name| name.parse().ok()).unwrap_or(0);
        // SAFETY: `set` is valid for its size. A thread that has ended meanwhile does not matter.
        unsafe { libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &raw const set) };
    }
    Ok(())
}
