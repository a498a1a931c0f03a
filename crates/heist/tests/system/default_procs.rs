//! The default number of processors: CPUs, affinity, quotas of control groups.

use crate::child;
use crate::matrix;

use heist::{Builder, FractionalQuota, Runtime, go, testing, yield_now};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A folder that looks like the root of a machine with control groups.
struct Machine {
    root: PathBuf,
}

impl Machine {
    fn new(cgroup: &str, mountinfo: &str) -> Self {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("heist-cgroup-{}-{number}", std::process::id());
        let machine = Self { root: std::env::temp_dir().join(name) };
        machine.write("proc/self/cgroup", cgroup);
        machine.write("proc/self/mountinfo", mountinfo);
        machine
    }

    /// One with version 2 alone, and the process in `/a/b`.
    fn v2() -> Self {
        Self::new("0::/a/b\n", "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw\n")
    }

    fn write(&self, path: &str, text: &str) {
        let path = self.root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        // A rename, so that no reader sees half of it.
        let fresh = path.with_extension("new");
        std::fs::write(&fresh, text).unwrap();
        std::fs::rename(fresh, path).unwrap();
    }

    fn builder(&self, cpus: u32) -> Builder {
        Runtime::builder().machine(&self.root, Some(cpus))
    }

    /// How many processors a runtime on this machine has.
    fn procs(&self, cpus: u32) -> usize {
        matrix::start(self.builder(cpus)).procs()
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // A folder that cannot be removed is left in the temporary one.
        let _ = std::fs::remove_dir_all(&self.root);
    }
}

/// GM-04, GM-05, IN-42: version 2: three CPUs of eight, rounded up, at least two, never more than
/// there are CPUs; no limit without a quota.
#[test]
fn a_quota_of_cgroup_v2_sets_procs() {
    let machine = Machine::v2();
    assert_eq!(machine.procs(8), 8, "no file at all");
    for (quota, procs) in [
        ("max 100000", 8),
        ("300000 100000", 3),
        ("200001 100000", 3),
        ("250000 100000", 3),
        ("299999 100000", 3),
        ("150000 100000", 2),
        ("100000 100000", 2),
        ("50000 100000", 2),
        ("1000 100000", 2),
        ("900000 100000", 8),
        ("18446744073709551615 1", 8),
        ("600000 200000", 3),
        ("300000", 3),
    ] {
        machine.write("sys/fs/cgroup/a/b/cpu.max", &format!("{quota}\n"));
        assert_eq!(machine.procs(8), procs, "{quota}");
    }
    machine.write("sys/fs/cgroup/a/b/cpu.max", "50000 100000\n");
    assert_eq!(machine.procs(1), 1, "there is one CPU only");
}

/// GM-04: the tightest quota of a group and all groups above it counts.
#[test]
fn the_tightest_ancestor_counts() {
    let machine = Machine::v2();
    machine.write("sys/fs/cgroup/a/b/cpu.max", "600000 100000\n");
    machine.write("sys/fs/cgroup/a/cpu.max", "800000 200000\n");
    assert_eq!(machine.procs(16), 4);
    machine.write("sys/fs/cgroup/cpu.max", "300000 100000\n");
    assert_eq!(machine.procs(16), 3);
    machine.write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    machine.write("sys/fs/cgroup/cpu.max", "max 100000\n");
    assert_eq!(machine.procs(16), 4);
    // Groups that are not ancestors do not count.
    machine.write("sys/fs/cgroup/a/other/cpu.max", "200000 100000\n");
    machine.write("sys/fs/cpu.max", "200000 100000\n");
    assert_eq!(machine.procs(16), 4);
}

/// GM-04: version 1, where the quota and the period are in two files, and -1 is no limit; also when
/// both versions are mounted.
#[test]
fn a_quota_of_cgroup_v1_sets_procs() {
    let machine = Machine::new(
        "5:memory:/m\n4:cpu,cpuacct:/docker/x\n1:name=systemd:/s\n0::/u\n",
        "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
         32 31 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
         33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
         41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
    );
    let folder = "sys/fs/cgroup/cpu,cpuacct/docker/x";
    let set = |quota: &str, period: &str| {
        machine.write(&format!("{folder}/cpu.cfs_quota_us"), quota);
        machine.write(&format!("{folder}/cpu.cfs_period_us"), period);
    };
    set("-1\n", "100000\n");
    machine.write("sys/fs/cgroup/unified/u/cpu.max", "200000 100000\n");
    assert_eq!(machine.procs(8), 8, "the CPU controller is with version 1");
    set("450000\n", "100000\n");
    assert_eq!(machine.procs(8), 5);
    machine.write("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "150000\n");
    machine.write("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "50000\n");
    assert_eq!(machine.procs(8), 3);
}

/// GM-04: a container sees a part of the hierarchy, mounted where it likes, also with blanks.
#[test]
fn a_part_of_the_hierarchy_is_mounted() {
    let machine = Machine::new(
        "0::/kubepods/pod1/box\n",
        "30 23 0:26 /other /mnt/other rw - cgroup2 cgroup2 rw\n\
         31 23 0:26 /kubepods/pod1 /my\\040groups rw shared:4 master:1 - cgroup2 cgroup2 rw\n",
    );
    machine.write("my groups/box/cpu.max", "400000 100000\n");
    machine.write("mnt/other/cpu.max", "200000 100000\n");
    assert_eq!(machine.procs(8), 4);
    let inside = Machine::new("0::/\n", "30 23 0:26 / /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n");
    inside.write("sys/fs/cgroup/cpu.max", "500000 100000\n");
    assert_eq!(inside.procs(8), 5);
}

/// An invalid value is no limit, and not an error.
#[test]
fn invalid_quotas_are_no_limit() {
    for garbage in
        ["", "\n", "max", "-5 100000", "0 100000", "300000 0", "many 100000", "\0\u{fffd}"]
    {
        let machine = Machine::v2();
        machine.write("sys/fs/cgroup/a/b/cpu.max", garbage);
        assert_eq!(machine.procs(6), 6, "{garbage:?}");
    }
    for (cgroup, mountinfo) in [
        ("", ""),
        ("garbage", "garbage"),
        ("0::/a/b", ""),
        ("0::/a/b", "1 2 3\n- - -\n a - cgroup2\n"),
        ("0::/../outside", "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
    ] {
        assert_eq!(Machine::new(cgroup, mountinfo).procs(6), 6, "{cgroup:?} {mountinfo:?}");
    }
    let nowhere = Runtime::builder().machine(Path::new("/nowhere"), Some(5));
    assert_eq!(matrix::start(nowhere).procs(), 5);
}

/// The builder determines how a fraction is rounded.
#[test]
fn fractions_are_rounded_as_asked() {
    let machine = Machine::v2();
    use FractionalQuota::{Down, Nearest, Up};
    for (quota, up, down, nearest) in
        [(50_000, 2, 1, 1), (140_000, 2, 1, 1), (150_000, 2, 1, 2), (260_000, 3, 2, 3)]
    {
        machine.write("sys/fs/cgroup/a/b/cpu.max", &format!("{quota} 100000\n"));
        for (rounding, procs) in [(Up, up), (Down, down), (Nearest, nearest)] {
            let rt = matrix::start(machine.builder(8).fractional_quota(rounding));
            assert_eq!(rt.procs(), procs, "{quota} {rounding:?}");
        }
    }
}

/// Keeps a runtime busy until dropped: an idle one does not check its quota.
struct Busy(Arc<AtomicBool>);

impl Busy {
    fn new(rt: &Runtime) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        rt.handle().spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                heist::time::sleep(Duration::from_millis(1));
            }
        });
        Self(stop)
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Longer than it takes until a change has been noticed for sure.
const A_WHILE: Duration = Duration::from_millis(2500);

fn stays(rt: &Runtime, procs: usize) {
    let until = Instant::now() + A_WHILE;
    while Instant::now() < until {
        assert_eq!(rt.procs(), procs);
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// GM-07: the quota is followed while goroutines run; an explicit number, even the same one, ends
/// that, and the way back to the default begins it again at once. Within `with_procs` it is paused.
#[test]
fn a_quota_is_followed() {
    let machine = Machine::v2();
    let quota = |text: &str| machine.write("sys/fs/cgroup/a/b/cpu.max", text);
    quota("300000 100000");
    let rt = matrix::start(machine.builder(6));
    let busy = Busy::new(&rt);
    assert_eq!(rt.procs(), 3);
    for (text, procs) in [("100000 100000", 2), ("300000 100000", 3), ("max 100000", 6)] {
        quota(text);
        matrix::eventually("the quota is noticed", || rt.procs() == procs);
    }
    assert_eq!(rt.set_procs(6), 6);
    quota("400000 100000");
    stays(&rt, 6);
    assert_eq!(rt.set_default_procs(), 6);
    assert_eq!(rt.procs(), 4);
    rt.run(|| heist::with_procs(1, || assert_eq!(heist::procs(), 1)));
    assert_eq!(rt.procs(), 4);
    quota("500000 100000");
    matrix::eventually("it follows again after with_procs", || rt.procs() == 5);
    drop(busy);
}

/// GM-07: the process is moved to another group.
#[test]
fn another_group_is_followed() {
    let machine = Machine::v2();
    machine.write("sys/fs/cgroup/a/b/cpu.max", "300000 100000");
    machine.write("sys/fs/cgroup/c/cpu.max", "500000 100000");
    let rt = matrix::start(machine.builder(6));
    let busy = Busy::new(&rt);
    assert_eq!(rt.procs(), 3);
    machine.write("proc/self/cgroup", "0::/c\n");
    matrix::eventually("the move is noticed", || rt.procs() == 5);
    drop(busy);
}

/// An idle program does not wake up to look; it does when there is work again.
#[test]
fn an_idle_program_does_not_look() {
    let machine = Machine::v2();
    let rt = matrix::start(machine.builder(3));
    rt.run(yield_now);
    matrix::eventually("rest", || testing::sample(&rt).n_idle == 3);
    std::thread::sleep(Duration::from_millis(200));
    machine.write("sys/fs/cgroup/a/b/cpu.max", "100000 100000");
    stays(&rt, 3);
    let busy = Busy::new(&rt);
    matrix::eventually("it checks the quota again", || rt.procs() == 2);
    drop(busy);
}

/// GM-06, GM-08: the environment overrides the program, and only the return to the default changes
/// that; the switches of Go's names work.
#[test]
fn the_environment_overrides_the_default() {
    for (variable, value) in [("HEIST_PROCS", "5"), ("HEIST_DEBUG", "updatemaxprocs=0")] {
        let ended = child::run_with(
            |command| {
                command.env(variable, value);
            },
            || {
                let procs = if std::env::var_os("HEIST_PROCS").is_some() { 5 } else { 3 };
                let machine = Machine::v2();
                machine.write("sys/fs/cgroup/a/b/cpu.max", "300000 100000");
                let rt = matrix::start(machine.builder(6));
                let busy = Busy::new(&rt);
                machine.write("sys/fs/cgroup/a/b/cpu.max", "400000 100000");
                stays(&rt, procs);
                assert_eq!(rt.set_default_procs(), procs);
                assert_eq!(rt.procs(), 4);
                drop(busy);
            },
        );
        ended.succeeded();
    }
}

/// GM-04: the switch of Go's name turns the quota off.
#[test]
fn the_quota_can_be_switched_off() {
    let ended = child::run_with(
        |command| {
            command.env("HEIST_DEBUG", "containermaxprocs=0");
        },
        || {
            let machine = Machine::v2();
            machine.write("sys/fs/cgroup/a/b/cpu.max", "300000 100000");
            assert_eq!(machine.procs(6), 6);
        },
    );
    ended.succeeded();
}

/// GM-06: the affinity mask of the process counts, also when it changes.
#[test]
fn the_affinity_is_followed() {
    let ended = child::run(|| {
        let cpus = std::thread::available_parallelism().unwrap().get();
        let nowhere = || Runtime::builder().machine(Path::new("/nowhere"), None);
        let rt = matrix::start(nowhere());
        assert_eq!(rt.procs(), cpus);
        let busy = Busy::new(&rt);
        testing::restrict_to_one_cpu(true).unwrap();
        matrix::eventually("the mask is noticed", || rt.procs() == 1);
        assert_eq!(matrix::start(nowhere()).procs(), 1);
        rt.run(|| go(|| ()).join().unwrap());
        testing::restrict_to_one_cpu(false).unwrap();
        matrix::eventually("the mask is noticed", || rt.procs() == cpus);
        drop(busy);
    });
    ended.succeeded();
}
