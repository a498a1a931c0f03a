//! At every limit of the system a runtime goes on, or refuses to start with a reason.

mod limited;

use heist::Runtime;

/// With all descriptors in use, after the start, goroutines are stopped and blocked threads are found out.
#[test]
fn goroutines_are_stopped_without_a_free_descriptor() {
    let ended = limited::run("goroutines_are_stopped_without_a_free_descriptor", 80, |n| {
        limited::set_limit(libc::RLIMIT_NOFILE, n);
        for procs in [1, 2, 4] {
            let rt = limited::build(Runtime::builder().procs(procs));
            rt.run(|| {
                let network = limited::connect().expect("there are descriptors still");
                let held = limited::take_all_descriptors();
                assert!(held.len() > 10, "{} were left", held.len());
                for _ in 0..3 {
                    limited::hog_is_stopped();
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

/// Whatever the number of descriptors is.
#[test]
fn a_runtime_works_or_is_refused_with_few_descriptors() {
    let mut worked = 0;
    for n in 3..=64 {
        let ended = limited::run("a_runtime_works_or_is_refused_with_few_descriptors", n, |n| {
            limited::set_limit(libc::RLIMIT_NOFILE, n);
            let rt = limited::build(Runtime::builder().procs(2));
            rt.run(limited::everything_works);
            rt.run(|| {
                let _held = limited::take_all_descriptors();
                limited::hog_is_stopped();
                limited::sleeper_loses_its_processor();
                limited::time_passes();
            });
        });
        let works = ended.worked_or_was_refused();
        if !works {
            ended.said("descriptors");
        }
        // With that many there is no excuse.
        assert!(works || n < 12, "{ended}");
        worked += u32::from(works);
    }
    assert!(worked >= 53, "{worked}");
}

/// Mounts an empty folder over `/proc`, for this process alone.
fn hide_proc() {
    // SAFETY: these change what this process sees and touch no memory of ours.
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
    assert!(!std::path::Path::new("/proc/self/stat").exists());
}

/// Where `/proc` is not mounted, CPU clocks tell what threads do. It is said once, and counted.
#[test]
fn a_runtime_works_without_proc() {
    let ended = limited::run("a_runtime_works_without_proc", 0, |_| {
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
    let ended = limited::run("a_runtime_works_with_the_proc_of_another_namespace", 0, |_| {
        // SAFETY: the child of the fork is the first process of a new namespace; this test has no other
        // thread, so it may do anything; the parent waits for it and passes its end on.
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
