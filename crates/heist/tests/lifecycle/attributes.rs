//! `#[heist::main(unsafe)]` and `#[heist::test(unsafe)]` against the real runtime.

use heist::{current_id, go, yield_now};
use std::process::{ExitCode, Termination};
use std::sync::atomic::{AtomicUsize, Ordering};

#[heist::main(unsafe, procs = 2, name = "program")]
fn returns_a_result() -> Result<(), String> {
    let answer = go(|| 6 * 7).join().map_err(|error| error.to_string())?;
    assert_eq!(answer, 42);
    assert_eq!(current_id().unwrap().as_u64(), 1);
    yield_now();
    let name = heist::testing::thread_name();
    assert!(name.starts_with("program-m"), "{name}");
    Err("on purpose".to_owned())
}

#[heist::main(unsafe)]
fn returns_nothing() {
    assert!(current_id().is_some());
}

/// The main function of a program runs as the first goroutine, and its result becomes the exit
/// code.
#[test]
fn main_is_a_goroutine() {
    returns_nothing();
    assert_eq!(returns_a_result().report(), ExitCode::FAILURE);
}

static RUNS: AtomicUsize = AtomicUsize::new(0);

/// SP-14: a test runs as goroutine 1.
#[heist::test(unsafe)]
fn a_test_is_goroutine_one() {
    assert_eq!(current_id().unwrap().as_u64(), 1);
    assert_eq!(go(|| 5).join().unwrap(), 5);
}

/// With a list of procs the body runs once for each.
#[heist::test(unsafe, procs = [1, 2, 4, 16])]
fn a_list_of_procs_runs_each() {
    let run = RUNS.fetch_add(1, Ordering::SeqCst);
    assert!(run < 4);
    let handles: Vec<_> = (0..100_u32).map(|i| go(move || i)).collect();
    let sum: u32 = handles.into_iter().map(|h| h.join().unwrap()).sum();
    assert_eq!(sum, 4950);
}

/// Options reach the runtime: a small stack is enough for a small goroutine.
#[heist::test(unsafe, procs = 1, stack_size = 32 * 1024)]
fn options_reach_the_runtime() {
    assert_eq!(go(|| 1).join().unwrap(), 1);
}

/// A test may return a result.
#[heist::test(unsafe, procs = 2)]
fn a_test_may_return_a_result() -> Result<(), heist::JoinError> {
    assert_eq!(go(|| 3).join()?, 3);
    Ok(())
}

/// A panic of the main goroutine fails the test with its text.
#[heist::test(unsafe, procs = [1, 2])]
#[should_panic(expected = "of the goroutine")]
fn a_panic_fails_the_test() {
    yield_now();
    panic!("the text of the goroutine");
}

/// Every option of the builder is one of the attribute, and a handle shows them.
#[heist::test(
    unsafe,
    procs = [2, 4],
    name = "options",
    stack_size = 64 << 10,
    latency_procs = 1,
    fractional_quota = heist::FractionalQuota::Down,
    max_threads = 100,
    steal_policy = heist::StealPolicy::gentle(),
    panic_policy = "isolate".parse().unwrap(),
    overflow_policy = heist::OverflowPolicy::Abandon,
    shutdown_timeout = std::time::Duration::from_secs(7),
    quantum = std::time::Duration::from_millis(9),
    wake_up_bound = std::time::Duration::from_millis(2),
    forced_preemption = true,
    deadlock_detection = false,
    seed = 1,
    chaos = 2
)]
fn a_handle_shows_every_option() {
    let rt = heist::Handle::current().unwrap();
    assert_eq!((rt.name(), rt.latency_procs(), rt.num_goroutines()), ("options", 1, 1));
    assert_eq!(rt.panic_policy(), heist::PanicPolicy::Isolate);
    assert_eq!(rt.overflow_policy(), heist::OverflowPolicy::Abandon);
    assert_eq!(rt.shutdown_timeout(), std::time::Duration::from_secs(7));
    assert!(rt.is_running() && rt.same_runtime(&heist::Handle::current().unwrap()));
    // The environment may set others.
    for (variable, is_set) in [
        ("HEIST_STACK_SIZE", rt.stack_size() == 64 << 10),
        ("HEIST_MAX_THREADS", rt.max_threads() == 100),
        ("HEIST_STEAL_POLICY", rt.steal_policy() == heist::StealPolicy::gentle()),
        ("HEIST_DEBUG", rt.quantum() == std::time::Duration::from_millis(9)),
    ] {
        assert!(is_set || std::env::var_os(variable).is_some(), "{variable}");
    }
    assert!(format!("{rt:?}").starts_with("Handle { name: \"options\", procs: "));
}
