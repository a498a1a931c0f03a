//! The parsers by example and by property, and random trees of groups against a model.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

#[test]
fn escapes_are_undone() {
    assert_eq!(unescape(r"/a\040b\134c"), r"/a b\c");
    assert_eq!(unescape(r"/a\04"), r"/a\04");
    assert_eq!(unescape(r"\999"), r"\999");
}

#[test]
fn the_group_with_the_cpu_controller_counts() {
    assert_eq!(cpu_group("0::/a/b\n"), Some((Version::Two, "/a/b")));
    let hybrid = "4:memory:/m\n3:cpu,cpuacct:/c:with:colons\n0::/u\n";
    assert_eq!(cpu_group(hybrid), Some((Version::One, "/c:with:colons")));
    assert_eq!(cpu_group("3:cpuset:/s\n2:cpuacct:/x\n"), None);
    assert_eq!(cpu_group("garbage\n"), None);
}

#[test]
fn a_mount_of_another_part_is_ignored() {
    let mounts = "1 0 0:1 /other /elsewhere rw - cgroup2 cgroup2 rw\n\
                  2 0 0:1 /a /sys/fs/cgroup rw shared:1 - cgroup2 cgroup2 rw\n";
    let found = mounted_at(mounts, Version::Two, "/a/b");
    assert_eq!(found, Some(("/sys/fs/cgroup".into(), "/b".into())));
    assert_eq!(mounted_at(mounts, Version::Two, "/ab"), None);
    assert_eq!(mounted_at(mounts, Version::Two, "/a/../x"), None);
    assert_eq!(mounted_at(mounts, Version::One, "/a"), None);
}

/// A folder of this test, removed at the end.
struct Root(PathBuf);

impl Root {
    fn new() -> Self {
        static N: AtomicU32 = AtomicU32::new(0);
        let (pid, n) = (std::process::id(), N.fetch_add(1, Ordering::Relaxed));
        let root = std::env::temp_dir().join(format!("heist-cgroup-{pid}-{n}"));
        fs::create_dir_all(&root).unwrap();
        Self(root)
    }

    fn write(&self, path: &str, contents: impl AsRef<[u8]>) {
        let path = below(&self.0, path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What the files of one group say.
#[derive(Clone, Debug)]
enum Limit {
    NoFile,
    None,
    /// Quota and period.
    Set(u64, u64),
    /// A quota with the kernel's default period.
    Short(u64),
    Odd(String),
}

impl Limit {
    fn write(&self, root: &Root, folder: &str, version: Version) {
        let files = match (self, version) {
            (Self::NoFile, _) => return,
            (Self::None, Version::Two) => vec![("cpu.max", "max 100000\n".into())],
            (Self::Set(quota, period), Version::Two) => {
                vec![("cpu.max", format!("{quota} {period}\n"))]
            }
            (Self::Short(quota), Version::Two) => vec![("cpu.max", format!("{quota}\n"))],
            (Self::Odd(text), Version::Two) => vec![("cpu.max", text.clone())],
            (Self::None, Version::One) => version_one("-1", "100000"),
            (Self::Set(quota, period), Version::One) => {
                version_one(&quota.to_string(), &period.to_string())
            }
            (Self::Short(quota), Version::One) => version_one(&quota.to_string(), "100000"),
            (Self::Odd(text), Version::One) => version_one(text, text),
        };
        for (name, text) in files {
            root.write(&format!("{folder}/{name}"), text);
        }
    }

    /// Quota and period that count.
    fn counts(&self) -> Option<(u64, u64)> {
        match *self {
            Self::Set(quota, period) if quota > 0 && period > 0 => Some((quota, period)),
            Self::Short(quota) if quota > 0 => Some((quota, DEFAULT_PERIOD_US)),
            _ => None,
        }
    }
}

fn version_one(quota: &str, period: &str) -> Vec<(&'static str, String)> {
    vec![("cpu.cfs_quota_us", format!("{quota}\n")), ("cpu.cfs_period_us", format!("{period}\n"))]
}

fn limit() -> impl Strategy<Value = Limit> {
    prop_oneof![
        Just(Limit::NoFile),
        Just(Limit::None),
        (0..1_000_000_u64, 0..200_000_u64).prop_map(|(quota, period)| Limit::Set(quota, period)),
        (any::<u64>(), any::<u64>()).prop_map(|(quota, period)| Limit::Set(quota, period)),
        (0..1_000_000_u64).prop_map(Limit::Short),
        "[a-z. -]{0,12}".prop_map(Limit::Odd),
    ]
}

/// A name of a group, or of a folder in the path of the mount point.
fn name() -> impl Strategy<Value = String> {
    r"[a-z0-9_ \\é:-]{1,8}".prop_filter("no folder", |name| name.trim() == name)
}

/// The kernel's escapes in `mountinfo`.
fn escape(path: &str) -> String {
    let mut escaped = String::new();
    for c in path.chars() {
        match c {
            ' ' | '\t' | '\n' | '\\' => escaped += &format!("\\{:03o}", c as u32),
            c => escaped.push(c),
        }
    }
    escaped
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// The group is `/outside.../names...`, of which the mount shows what is below `outside`.
    #[test]
    fn the_tightest_quota_of_a_random_tree_counts(
        two in any::<bool>(),
        outside in prop::collection::vec(name(), 0..3),
        groups in prop::collection::vec((name(), limit()), 0..5),
        top in limit(),
        point in prop::collection::vec(name(), 1..4),
    ) {
        let version = if two { Version::Two } else { Version::One };
        let root = Root::new();
        let point = format!("/{}", point.join("/"));
        let outside: String = outside.iter().map(|name| format!("/{name}")).collect();
        let shown = if outside.is_empty() { "/" } else { &*outside };
        let (kind, options) = if two { ("cgroup2", "rw") } else { ("cgroup", "rw,cpu,cpuacct") };
        let mounts = format!(
            "21 1 0:20 / /proc rw - proc proc rw\n\
             22 1 0:21 {} {} rw,nosuid shared:4 - {kind} cgroup {options}\n",
            escape(shown), escape(&point),
        );
        root.write("/proc/self/mountinfo", mounts);
        top.write(&root, &point, version);
        let mut group = String::new();
        for (name, limit) in &groups {
            group += &format!("/{name}");
            limit.write(&root, &format!("{point}{group}"), version);
        }
        let whole = format!("{outside}{group}");
        let whole = if whole.is_empty() { "/".into() } else { whole };
        let membership = if two { format!("0::{whole}\n") } else { format!("3:cpu,cpuacct:{whole}\n0::/\n") };
        root.write("/proc/self/cgroup", membership);

        let counting = groups.iter().map(|(_, limit)| limit).chain([&top]).filter_map(Limit::counts);
        let model = counting.min_by(|a, b| {
            (u128::from(a.0) * u128::from(b.1)).cmp(&(u128::from(b.0) * u128::from(a.1)))
        });
        let found = Cgroup::new(&root.0).quota();
        let is_same = match (found, model) {
            (None, None) => true,
            (Some(found), Some((quota, period))) => {
                found.cmp_cpus(Quota::new(quota, period).unwrap()).is_eq()
            }
            _ => false,
        };
        prop_assert!(is_same, "{:?}, expected {:?}", found, model);
    }

    #[test]
    fn no_contents_of_the_files_make_it_panic(
        membership in prop::collection::vec(any::<u8>(), 0..80),
        mounts in prop::collection::vec(any::<u8>(), 0..120),
        limit in prop::collection::vec(any::<u8>(), 0..30),
    ) {
        let root = Root::new();
        root.write("/proc/self/cgroup", membership);
        root.write("/proc/self/mountinfo", mounts);
        let _ = Cgroup::new(&root.0).quota();
        root.write("/proc/self/cgroup", "0::/a\n");
        root.write("/proc/self/mountinfo", "1 0 0:1 / /fs rw - cgroup2 x rw\n");
        root.write("/fs/a/cpu.max", limit);
        let _ = Cgroup::new(&root.0).quota();
    }

    #[test]
    fn no_lines_make_the_parsers_panic(
        membership in "([0-9]:?[a-z,]{0,6}:?/?[a-z./]{0,6}\n?){0,4}",
        mounts in "([0-9/a-z\\\\ .-]{0,30}( - )?(cgroup2?)? ?[a-z, ]{0,9}\n?){0,4}",
        group in "[a-z/.]{0,10}",
    ) {
        let _ = cpu_group(&membership);
        for version in [Version::One, Version::Two] {
            if let Some((_, inside)) = mounted_at(&mounts, version, &group) {
                prop_assert!(!inside.split('/').any(|name| name == ".."), "{inside}");
            }
        }
    }

    #[test]
    fn escaped_paths_come_back(path in "[ -~é\t]{0,20}") {
        prop_assert_eq!(unescape(&escape(&path)), path);
    }
}
