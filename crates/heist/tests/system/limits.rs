//! At every limit of the system a runtime continues, or refuses to start with a reason.

use crate::limited;

use heist::Runtime;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// With all descriptors in use, after the start, goroutines are preempted and blocked threads are
/// detected.
#[test]
fn goroutines_are_preempted_without_a_free_descriptor() {
    let ended = limited::run(80, |n| {
        limited::set_limit(libc::RLIMIT_NOFILE, n);
        for procs in [1, 2, 4] {
            let rt = limited::build(Runtime::builder().procs(procs));
            rt.run(|| {
                let network = limited::connect().expect("there are descriptors still");
                let held = limited::take_all_descriptors();
                assert!(held.len() > 10, "{} were left", held.len());
                for _ in 0..3 {
                    limited::hog_is_frozen();
                    limited::sleeper_loses_its_processor();
                    limited::time_passes();
                }
                limited::echo(network);
                drop(held);
                limited::everything_works();
            });
        }
    });
    ended.worked();
}

/// For any number of descriptors.
#[test]
fn a_runtime_works_or_is_refused_with_few_descriptors() {
    let mut worked = 0;
    for n in 3..=64 {
        let ended = limited::run(n, |n| {
            limited::set_limit(libc::RLIMIT_NOFILE, n);
            let rt = limited::build(Runtime::builder().procs(2));
            rt.run(limited::everything_works);
            rt.run(|| {
                let _held = limited::take_all_descriptors();
                limited::hog_is_frozen();
                limited::sleeper_loses_its_processor();
                limited::time_passes();
            });
        });
        let works = ended.worked_or_was_refused();
        if !works {
            ended.said("descriptors");
        }
        // With this many there is no reason to refuse.
        assert!(works || n < 12, "{ended}");
        worked += u32::from(works);
    }
    assert!(worked >= 53, "{worked}");
}

/// Goroutines that have a stack can sleep, however little the system gives from then on.
#[test]
fn thousands_sleep_although_the_system_gives_no_more_memory() {
    const N: usize = 6_000;
    let ended = limited::run(0, |_| {
        let rt = limited::build(Runtime::builder().procs(1).stack_size(32 << 10));
        rt.run(|| {
            let (begin, begun) = heist::chan::bounded::<()>(0);
            let handles: Vec<_> = (0..N)
                .map(|_| {
                    let begun = begun.clone();
                    heist::go(move || {
                        assert!(begun.recv().is_err(), "it is closed");
                        heist::time::sleep(std::time::Duration::from_millis(200));
                    })
                })
                .collect();
            let waiting = || {
                let groups = heist::goroutine::census();
                groups
                    .iter()
                    .filter(|group| group.state == "chan receive")
                    .map(|group| group.count)
                    .sum::<usize>()
            };
            while waiting() < N {
                heist::yield_now();
            }
            limited::set_limit(libc::RLIMIT_AS, 1 << 20);
            drop(begin);
            handles.into_iter().for_each(|handle| handle.join().expect("it has slept"));
        });
    });
    ended.worked();
}

/// Mounts an empty folder over `/proc`, for this process alone.
fn hide_proc() {
    // SAFETY: these change the namespace of this process and touch no memory of it.
    unsafe {
        if libc::unshare(libc::CLONE_NEWNS) != 0
            && libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) != 0
        {
            limited::skip("no mount namespace");
        }
        let (none, root, proc) = (c"none".as_ptr(), c"/".as_ptr(), c"/proc".as_ptr());
        let private = libc::MS_REC | libc::MS_PRIVATE;
        if libc::mount(none, root, std::ptr::null(), private, std::ptr::null()) != 0
            || libc::mount(none, proc, c"tmpfs".as_ptr(), 0, std::ptr::null()) != 0
        {
            limited::skip("nothing can be mounted");
        }
    }
    assert!(!Path::new("/proc/self/stat").exists());
}

/// Where `/proc` is not mounted, CPU clocks show what threads do. It is reported once, and counted.
#[test]
fn a_runtime_works_without_proc() {
    let ended = limited::run(0, |_| {
        hide_proc();
        for procs in [1, 2, 4] {
            let rt = limited::build(Runtime::builder().procs(procs));
            for _ in 0..3 {
                rt.run(limited::everything_works);
            }
            let clocks = rt.metrics().get("/heist/degraded/thread-states:events");
            assert!(clocks.is_some_and(|n| n > 0), "{clocks:?}");
        }
    });
    if ended.worked() {
        assert_eq!(ended.times("heist: cannot read in /proc what a thread does"), 1, "{ended}");
    }
}

/// `/proc` of another namespace shows other threads under the numbers of these.
#[test]
fn a_runtime_works_with_the_proc_of_another_namespace() {
    let ended = limited::run(0, |_| {
        // SAFETY: the child of the fork is the first process of a new namespace; this test has no
        // other thread, so it may do anything; the parent waits for it and passes its end on.
        unsafe {
            if libc::unshare(libc::CLONE_NEWPID) != 0
                && libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWPID) != 0
            {
                limited::skip("no process namespace");
            }
            let child = libc::fork();
            if child != 0 {
                let mut status = 0;
                assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
                let exited = libc::WIFEXITED(status);
                libc::_exit(if exited { libc::WEXITSTATUS(status) } else { 99 });
            }
            libc::alarm(50);
            assert_eq!(libc::getpid(), 1, "the first of its namespace");
        }
        let rt = limited::build(Runtime::builder().procs(2));
        for _ in 0..3 {
            rt.run(limited::everything_works);
        }
        let clocks = rt.metrics().get("/heist/degraded/thread-states:events");
        assert!(clocks.is_some_and(|n| n > 0), "{clocks:?}");
    });
    ended.worked();
}

/// Has the kernel refuse a system call to all threads of this process from now on.
fn refuse_calls(calls: &[libc::c_long]) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    // The number of the call is the first word of the filter's input.
    let mut filter = vec![step(LOAD, 0, 0, 0)];
    for &call in calls {
        filter.push(step(JUMP_IF_EQUAL, 0, 1, u32::try_from(call).expect("a number of a call")));
        filter.push(step(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EPERM as u32));
    }
    filter.push(step(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW));
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).expect("a short filter"),
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the program is valid until the call returns.
    let refuses = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
        let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER, libc::SECCOMP_FILTER_FLAG_TSYNC);
        libc::syscall(libc::SYS_seccomp, mode, flags, &raw const program) == 0
    };
    if !refuses {
        limited::skip("no seccomp filters");
    }
}

/// Blocking calls whose processor is taken, goroutines that are cancelled while they begin to wait,
/// and a world that stops.
fn take_and_cancel() {
    for _ in 0..200 {
        let blocked = heist::go(|| heist::blocking(std::thread::yield_now));
        let waits = heist::go(|| heist::chan::never::<()>().recv());
        heist::yield_now();
        waits.cancel();
        assert!(waits.join().expect_err("it never ends by itself").is_cancelled());
        blocked.join().expect("it ends");
    }
    heist::with_procs(3, || ());
}

/// A kernel or a sandbox without `membarrier`, from the start.
#[test]
fn a_runtime_works_without_membarrier() {
    let ended = limited::run(0, |_| {
        refuse_calls(&[libc::SYS_membarrier]);
        for procs in [1, 2, 4] {
            let rt = limited::build(Runtime::builder().procs(procs));
            rt.run(limited::everything_works);
            rt.run(take_and_cancel);
            assert_eq!(rt.metrics().get("/heist/degraded/membarrier:events"), Some(1));
        }
    });
    if ended.worked() {
        assert_eq!(ended.times("heist: the kernel refuses membarrier"), 1, "{ended}");
    }
}

/// A sandbox that is entered while goroutines run, in whichever way the fences can be replaced.
#[test]
fn a_runtime_survives_the_loss_of_membarrier() {
    let affinity = [libc::SYS_membarrier, libc::SYS_sched_setaffinity];
    for n in 1..=2 {
        let ended = limited::run(n, |n| {
            let runtimes = [1, 2, 4].map(|procs| limited::build(Runtime::builder().procs(procs)));
            for rt in &runtimes {
                rt.run(limited::everything_works);
                assert_eq!(rt.metrics().get("/heist/degraded/membarrier:events"), Some(0));
            }
            runtimes[2].run(|| {
                let busy: Vec<_> = (0..8).map(|_| heist::go(take_and_cancel)).collect();
                refuse_calls(&affinity[..n as usize]);
                for busy in busy {
                    busy.join().expect("it ends");
                }
            });
            for rt in &runtimes {
                rt.run(limited::everything_works);
                rt.run(take_and_cancel);
                assert_eq!(rt.metrics().get("/heist/degraded/membarrier:events"), Some(1));
            }
        });
        if ended.worked() {
            assert_eq!(ended.times("heist: the kernel refuses membarrier"), 1, "{ended}");
        }
    }
}

/// Spawns a child of each kind, or says that there is no memory.
fn hello() {
    let answers: Vec<_> = (0..100).map(|i| heist::try_go(move || i)).collect();
    for (i, answer) in answers.into_iter().enumerate() {
        match answer {
            Err(error) => limited::refused(error),
            Ok(handle) => match handle.join() {
                Ok(answer) => assert_eq!(answer, i),
                Err(error) => limited::refused(error),
            },
        }
    }
}

/// Sizes of address space beyond what the process has, in KiB, from nothing to enough for
/// everything.
fn sizes() -> impl Iterator<Item = u64> {
    (0..20_000).step_by(400).chain((20_000..=300_000).step_by(20_000))
}

/// For any size of address space: everything works, or the runtime or a spawn is refused with a
/// reason.
#[test]
fn a_runtime_works_or_is_refused_with_little_address_space() {
    let mut worked = 0;
    for kib in sizes() {
        let ended = limited::run(kib, |kib| {
            limited::limit_address_space(kib << 10);
            let rt = limited::build(Runtime::builder().procs(2));
            rt.run(hello);
            rt.run(limited::everything_works);
            rt.run(hello);
        });
        let works = ended.worked_or_was_refused();
        assert!(works || kib < 20_000, "{ended}");
        worked += u32::from(works);
    }
    assert!(worked > 0);
}

struct SetWhenDropped(Arc<AtomicBool>);

impl Drop for SetWhenDropped {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// A goroutine that can never get a stack ends with an error, and the one that waits for it
/// continues.
#[test]
fn a_goroutine_without_hope_for_a_stack_ends_with_an_error() {
    let ended = limited::run(0, |_| {
        let rt = limited::build(Runtime::builder().procs(2));
        rt.run(limited::everything_works);
        // Far too little, whatever else is allocated and freed.
        let before = limited::limit_address_space(64 << 20);
        let metrics = rt.run(|| {
            let dropped = Arc::new(AtomicBool::new(false));
            let large = || heist::goroutine::Builder::new().stack_size(1 << 30);
            let closure = SetWhenDropped(Arc::clone(&dropped));
            let joined = large().spawn(move || drop(closure)).expect("it waits for a stack");
            let error = joined.join().expect_err("there is none");
            assert!(error.is_out_of_memory() && !error.is_cancelled(), "{error}");
            let text = error.to_string();
            assert!(text.ends_with("never ran: the system has no memory for its stack"), "{text}");
            assert!(dropped.load(Ordering::Relaxed), "the closure is dropped");
            // A scope does not take it for done.
            let scope = std::panic::catch_unwind(|| {
                heist::scope(|s| drop(large().spawn_scoped(s, || ()).expect("it waits")));
            });
            assert!(scope.is_err());
            heist::Handle::current().expect("on a goroutine").metrics()
        });
        limited::set_soft_limit(libc::RLIMIT_AS, before);
        assert!(metrics.get("/heist/degraded/stacks:events") > Some(0));
        assert_eq!(metrics.get("/heist/degraded/goroutines:goroutines"), Some(2));
        rt.run(limited::everything_works);
    });
    if ended.worked() {
        assert_eq!(ended.times("heist: the system refuses memory for a stack"), 1, "{ended}");
        assert_eq!(ended.times("ends without having run"), 1, "{ended}");
    }
}

/// Sends a message when it is dropped.
struct TellWhenDropped(heist::chan::Sender<()>);

impl Drop for TellWhenDropped {
    fn drop(&mut self) {
        self.0.try_send(()).expect("there is room");
    }
}

/// The same with hundreds of them: failing retries do not keep the runtime busy.
#[test]
fn hundreds_without_hope_for_stacks_end_with_errors() {
    run_out_of_stacks(false);
}

/// The same where the system does not report how much memory is used.
#[test]
fn hundreds_end_with_errors_without_proc() {
    run_out_of_stacks(true);
}

fn run_out_of_stacks(hides_proc: bool) {
    let ended = limited::run(0, |_| {
        const N: usize = 2000;
        let rt = limited::build(Runtime::builder().procs(2));
        rt.run(limited::everything_works);
        limited::limit_address_space(48 << 20);
        if hides_proc {
            hide_proc();
        }
        // A spawn is refused as soon as a goroutine waits for a stack. If another processor was
        // that fast, too few of them wait: all of them end and are spawned again.
        while !rt.run(|| spawn_beyond_memory(N)) {}
    });
    ended.worked();
}

/// Spawns `n` goroutines, for which there are not stacks enough, and waits until each has begun or
/// has ended with an error. False if not all of them could be spawned.
fn spawn_beyond_memory(n: usize) -> bool {
    let (keep, gate) = heist::chan::bounded::<()>(0);
    let (told, tells) = heist::chan::bounded(n);
    let mut all = Vec::with_capacity(n);
    while all.len() < n {
        let (gate, tell) = (gate.clone(), TellWhenDropped(told.clone()));
        let waits = move || {
            drop(tell);
            let _ = gate.recv();
        };
        match heist::try_go(waits) {
            Ok(handle) => all.push(handle),
            Err(error) => {
                assert_eq!(error, heist::goroutine::SpawnError::NoMemory);
                drop(keep);
                all.into_iter().for_each(|handle| drop(handle.join()));
                return false;
            }
        }
    }
    // Each begins, or ends without having run.
    for _ in 0..n {
        tells.recv().expect("it tells");
    }
    heist::yield_now();
    let n_ended = all.iter().filter(|handle| handle.is_finished()).count();
    assert!((100..n).contains(&n_ended), "{n_ended}");
    true
}

/// Where there is no memory for a thread, deadlines of plain threads expire when a context is
/// queried, and functions run on the canceller's thread.
#[test]
fn contexts_work_without_memory_for_a_thread() {
    use heist::context::{self, ContextError};
    for kib in [300, 1000, 3000] {
        let ended = limited::run(kib, |kib| {
            let soon = std::time::Duration::from_millis(20);
            limited::limit_address_space(kib << 10);
            let (ctx, _canceller) = context::background().with_timeout(soon);
            assert_eq!(ctx.err(), None);
            assert_eq!(ctx.wait(), ContextError::DeadlineExceeded);
            let (ctx, _canceller) = context::background().with_timeout(soon);
            while ctx.err().is_none() {
                std::thread::yield_now();
            }
            let (ctx, canceller) = context::background().with_cancel();
            let ran = Arc::new(AtomicBool::new(false));
            let run = Arc::clone(&ran);
            ctx.after_func(move || run.store(true, Ordering::Relaxed));
            canceller.cancel();
            assert!(ran.load(Ordering::Relaxed));
        });
        ended.worked();
    }
}

/// Where the system does not report the end of a program, its waiter can be cancelled.
#[test]
fn a_wait_for_a_program_is_cancelled_without_pidfd() {
    let ended = limited::run(0, |_| {
        refuse_calls(&[libc::SYS_pidfd_open]);
        let rt = limited::build(Runtime::builder().procs(2));
        rt.run(|| {
            let mut command = heist::process::Command::new("sleep");
            let mut program = command.arg("30").spawn().expect("it starts");
            let id = program.id();
            let waiting = heist::go(move || program.wait().map(drop));
            heist::time::sleep(std::time::Duration::from_millis(20));
            waiting.cancel();
            assert!(waiting.join().expect_err("it was cancelled").is_cancelled());
            // SAFETY: a child of this process, which has not been waited for.
            assert_eq!(unsafe { libc::kill(id as i32, libc::SIGKILL) }, 0);
            let mut program = heist::process::Command::new("true").spawn().expect("it starts");
            assert!(program.wait().expect("it ends").success());
        });
    });
    ended.worked();
}

/// A call that a sandbox refuses and that a runtime needs is found when the runtime is built.
#[test]
fn a_runtime_without_signal_stacks_or_timers_is_refused() {
    for call in [libc::SYS_sigaltstack, libc::SYS_timerfd_settime] {
        let ended = limited::run(call as u64, |call| {
            refuse_calls(&[call as libc::c_long]);
            let rt = limited::build(Runtime::builder().procs(2));
            rt.run(limited::everything_works);
        });
        if ended.code == Some(8) {
            ended.worked();
            return;
        }
        assert!(!ended.worked_or_was_refused(), "{ended}");
        ended.said("what the sandbox allows");
    }
}

/// A user without other threads, so that a limit on them is one for this process. Root is exempt.
fn become_a_user(limit: u64) {
    limited::set_limit(libc::RLIMIT_NPROC, limit);
    let number = 61_000 + u32::try_from(limit).expect("a small number");
    // SAFETY: changes the user of this process and nothing else.
    unsafe {
        if libc::geteuid() != 0 || libc::setuid(number) != 0 {
            limited::skip("no other user");
        }
    }
}

/// However many threads the process may have: everything works, or the runtime is refused with a
/// reason.
#[test]
fn a_runtime_works_or_is_refused_with_few_threads() {
    for n in 1..=20 {
        let ended = limited::run(n, |n| {
            become_a_user(n);
            for procs in [1, 2, 4] {
                let rt = limited::build(Runtime::builder().procs(procs));
                rt.run(limited::everything_works);
                rt.run(|| {
                    // Briefly more than the allowed number of threads.
                    let sleep = || std::thread::sleep(std::time::Duration::from_millis(1));
                    let sleepers: Vec<_> = (0..30).map(|_| heist::go(sleep)).collect();
                    sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("it ends"));
                });
            }
        });
        if ended.code == Some(8) {
            ended.worked();
            return;
        }
        let works = ended.worked_or_was_refused();
        if !works {
            ended.said("raise `ulimit -u`");
        }
        // The test harness has a thread of its own besides the one that builds the runtime.
        assert!(works || n < 7, "{ended}");
        assert!(ended.times("heist: the system refuses another thread") <= 1, "{ended}");
    }
}

/// A control group for memory, removed when it is dropped. Its process has ended by then.
struct MemoryGroup(PathBuf);

impl MemoryGroup {
    /// Makes one with a limit, in either version.
    fn new(bytes: u64) -> std::io::Result<Self> {
        let name = format!("heist-test-{}", std::process::id());
        let versions =
            [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
        let (root, file) =
            if Path::new(versions[0].0).is_dir() { versions[0] } else { versions[1] };
        let group = Self(Path::new(root).join(name));
        std::fs::create_dir(&group.0)?;
        std::fs::write(group.0.join(file), bytes.to_string())?;
        Ok(group)
    }

    /// How often it reached its limit, where that is counted.
    fn times_full(&self) -> Option<u64> {
        std::fs::read_to_string(self.0.join("memory.failcnt")).ok()?.trim().parse().ok()
    }
}

impl Drop for MemoryGroup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// Joins the group in `folder`, fills it with pages of a file and runs.
fn work_in_group(folder: &Path) {
    if std::fs::write(folder.join("cgroup.procs"), "0").is_err() {
        limited::skip("the group cannot be joined");
    }
    let file = std::env::temp_dir().join(format!("heist-test-{}", std::process::id()));
    let rt = limited::build(Runtime::builder().procs(2));
    for _ in 0..3 {
        let mut open = std::fs::File::create(&file).expect("there is a disk");
        for _ in 0..64 {
            open.write_all(&[1; 1 << 20]).expect("there is room");
        }
        rt.run(limited::everything_works);
        rt.run(hello);
    }
    std::fs::remove_file(&file).expect("it is there");
}

/// In a control group that is full of pages that the kernel can reclaim, everything works.
#[test]
fn a_runtime_works_in_a_control_group_at_its_limit() {
    const VARIABLE: &str = "HEIST_TEST_GROUP";
    let given = std::env::var_os(VARIABLE);
    let group = if given.is_some() { None } else { Some(MemoryGroup::new(32 << 20)) };
    let group = match group.transpose() {
        Ok(group) => group,
        Err(error) => return println!("skipped: no control group: {error}"),
    };
    let folder = given.map(PathBuf::from).or_else(|| Some(group.as_ref()?.0.clone()));
    let folder = folder.expect("it was given or made");
    let tell = |command: &mut Command| {
        command.env(VARIABLE, &folder);
    };
    let ended = limited::run_with(0, tell, |_| work_in_group(&folder));
    if ended.worked() {
        let full = group.and_then(|group| group.times_full());
        assert_ne!(full, Some(0), "the group never reached its limit");
    }
}
