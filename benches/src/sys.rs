//! The operating system: CPU time, memory, limits, and ending a process group.

use std::time::Duration;
use std::{fs, mem};

/// Whose CPU time to ask for.
#[derive(Clone, Copy, Debug)]
pub enum Who {
    Myself,
    /// Children that have ended and been waited for, and theirs.
    Children,
}

/// User plus system CPU time so far.
pub fn cpu_time(who: Who) -> Duration {
    let who = match who {
        Who::Myself => libc::RUSAGE_SELF,
        Who::Children => libc::RUSAGE_CHILDREN,
    };
    // SAFETY: rusage is plain integers, for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { mem::zeroed() };
    // SAFETY: `usage` is a live rusage that the call only writes.
    let status = unsafe { libc::getrusage(who, &raw mut usage) };
    assert_eq!(status, 0, "getrusage failed");
    let span = |t: libc::timeval| {
        Duration::from_secs(t.tv_sec.unsigned_abs())
            + Duration::from_micros(t.tv_usec.unsigned_abs())
    };
    span(usage.ru_utime) + span(usage.ru_stime)
}

/// Resident bytes of this process.
pub fn resident_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = statm.split_whitespace().nth(1).and_then(|s| s.parse().ok()).unwrap_or(0);
    // SAFETY: sysconf has no preconditions.
    let page_bytes = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    pages * page_bytes.unsigned_abs()
}

/// Allows as many open files as the hard limit permits; a thousand connections need it.
pub fn raise_file_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a live rlimit that the call only writes.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0 {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: `limit` is a live rlimit that the call only reads. A refusal leaves the
        // old limit, and the workload that needs more will say so.
        let _ = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    }
}

/// Kills a process group that this process started.
pub fn kill_group(leader: u32) {
    let Ok(group) = libc::pid_t::try_from(leader) else {
        return;
    };
    // SAFETY: kill has no memory preconditions; the group is that of our own child, which
    // has not been waited for yet, so its number cannot have been reused.
    let _ = unsafe { libc::kill(-group, libc::SIGKILL) };
}

/// Seconds that all CPUs together have been busy since boot, stolen time included.
pub fn machine_busy_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    // SAFETY: sysconf has no preconditions.
    let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    busy_ticks(&stat) as f64 / ticks_per_s
}

fn busy_ticks(stat: &str) -> u64 {
    let Some(line) = stat.lines().find_map(|l| l.strip_prefix("cpu ")) else {
        return 0;
    };
    let field: Vec<u64> = line.split_whitespace().filter_map(|s| s.parse().ok()).collect();
    // user nice system idle iowait irq softirq steal; guest time is already within user.
    [0, 1, 2, 5, 6, 7].iter().filter_map(|&i| field.get(i)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_leaves_out_idle_iowait_and_guests() {
        let stat = "cpu  10 20 30 4000 500 6 7 8 900 1000\ncpu0 1 1 1 1\n";
        assert_eq!(busy_ticks(stat), 10 + 20 + 30 + 6 + 7 + 8);
    }

    #[test]
    fn this_process_uses_memory_and_time() {
        assert!(resident_bytes() > 0);
        let before = cpu_time(Who::Myself);
        let start = std::time::Instant::now();
        while start.elapsed() < Duration::from_millis(20) {
            std::hint::spin_loop();
        }
        assert!(cpu_time(Who::Myself) > before);
        assert!(machine_busy_s() > 0.0);
    }
}
