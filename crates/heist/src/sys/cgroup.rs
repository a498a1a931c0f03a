//! The CPU quota of the control group this process is in.
//!
//! A group's quota is shared by everything in it and below, so the tightest of the group and all
//! its ancestors counts. Both versions are understood: `cpu.max` of version 2, `cpu.cfs_quota_us`
//! and `cpu.cfs_period_us` of version 1; on a system with both mounted, the one that has the CPU
//! controller. A file that cannot be read or parsed sets no limit: a program must not fail to
//! start, or run on one CPU, because a file looks odd.
//!
//! It allocates, so neither sysmon nor code inside the runtime may call it.
//!
//! GO: internal/runtime/cgroup.

use heist_core::policy::Quota;
use std::fs;
use std::path::{Path, PathBuf};

/// Which interface a group has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// Where the group and its ancestors are in the file system.
#[derive(Debug)]
pub(crate) struct Cgroup {
    /// The folder that holds `/proc` and the mount points: `/`, or the folder of a test.
    root: PathBuf,
    /// The contents of `/proc/self/cgroup` when the folders were found.
    membership: String,
    version: Version,
    /// The group first, then its ancestors up to the mount point.
    folders: Vec<PathBuf>,
}

impl Cgroup {
    /// The group of this process, as seen below `root`.
    pub(crate) fn new(root: &Path) -> Self {
        let mut group = Self {
            root: root.to_owned(),
            membership: String::new(),
            version: Version::Two,
            folders: Vec::new(),
        };
        group.find();
        group
    }

    /// The tightest quota, or None if there is none. Finds out again which group the process is in.
    pub(crate) fn quota(&mut self) -> Option<Quota> {
        self.find();
        let quotas = self.folders.iter().filter_map(|folder| quota_in(folder, self.version));
        quotas.min_by(|a, b| a.cmp_cpus(*b))
    }

    fn find(&mut self) {
        let membership = fs::read_to_string(self.root.join("proc/self/cgroup")).unwrap_or_default();
        if membership == self.membership {
            return;
        }
        self.folders.clear();
        if let Some((version, path)) = cpu_group(&membership) {
            let mounts =
                fs::read_to_string(self.root.join("proc/self/mountinfo")).unwrap_or_default();
            if let Some((mount, group)) = mounted_at(&mounts, version, path) {
                self.version = version;
                let mount = below(&self.root, &mount);
                let folder = below(&mount, &group);
                let inside = folder.ancestors().take_while(|folder| folder.starts_with(&mount));
                self.folders = inside.map(Path::to_owned).collect();
            }
        }
        self.membership = membership;
    }
}

/// `path`, which is absolute, inside `root`.
fn below(root: &Path, path: &str) -> PathBuf {
    let relative = path.trim_start_matches('/');
    if relative.is_empty() { root.to_owned() } else { root.join(relative) }
}

/// The group that has the CPU controller: lines are `number:controllers:path`.
fn cpu_group(membership: &str) -> Option<(Version, &str)> {
    let mut unified = None;
    for line in membership.lines() {
        let mut parts = line.splitn(3, ':');
        let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
        if controllers.split(',').any(|controller| controller == "cpu") {
            return Some((Version::One, path));
        }
        if number == "0" && controllers.is_empty() {
            unified = Some((Version::Two, path));
        }
    }
    unified
}

/// Where the hierarchy is mounted, and the path of the group below that.
///
/// Lines are `id parent device root mount-point options... - type source super-options`.
fn mounted_at(mounts: &str, version: Version, group: &str) -> Option<(String, String)> {
    for line in mounts.lines() {
        let Some((before, after)) = line.split_once(" - ") else { continue };
        let mut after = after.split(' ');
        let (kind, options) = (after.next(), after.nth(1).unwrap_or_default());
        let fits = match version {
            Version::Two => kind == Some("cgroup2"),
            Version::One => kind == Some("cgroup") && options.split(',').any(|one| one == "cpu"),
        };
        let mut before = before.split(' ').skip(3);
        let (Some(root), Some(point)) = (before.next(), before.next()) else { continue };
        // A mount may show only a part of the hierarchy, and not the part that this process is in.
        if fits && let Some(inside) = strip_path(group, &unescape(root)) {
            return Some((unescape(point), inside.to_owned()));
        }
    }
    None
}

/// `path` below `prefix`, by whole names. None if it is elsewhere.
fn strip_path<'a>(path: &'a str, prefix: &str) -> Option<&'a str> {
    let rest = path.strip_prefix(prefix.trim_end_matches('/'))?;
    let whole = rest.is_empty() || rest.starts_with('/');
    (whole && !rest.split('/').any(|name| name == "..")).then_some(rest)
}

/// Undoes the kernel's octal escapes of blanks and backslashes.
fn unescape(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        let code = (byte == b'\\').then(|| octal(tail)).flatten();
        bytes.push(code.unwrap_or(byte));
        rest = if code.is_some() { &tail[3..] } else { tail };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn octal(digits: &[u8]) -> Option<u8> {
    let digits = std::str::from_utf8(digits.get(..3)?).ok()?;
    u8::from_str_radix(digits, 8).ok()
}

/// The quota of one group.
fn quota_in(folder: &Path, version: Version) -> Option<Quota> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    match version {
        Version::Two => {
            let text = read("cpu.max")?;
            let mut words = text.split_whitespace();
            let quota = words.next()?.parse().ok()?;
            let period = words.next().map_or(Some(DEFAULT_PERIOD_US), |word| word.parse().ok())?;
            Quota::new(quota, period)
        }
        Version::One => {
            // No limit is -1.
            let quota = read("cpu.cfs_quota_us")?.trim().parse().ok()?;
            Quota::new(quota, read("cpu.cfs_period_us")?.trim().parse().ok()?)
        }
    }
}

/// The kernel's default period.
const DEFAULT_PERIOD_US: u64 = 100_000;

#[cfg(test)]
mod tests;
