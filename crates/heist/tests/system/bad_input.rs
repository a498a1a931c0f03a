//! Invalid input gets an error that says what to do.

use crate::child;
use crate::matrix;

use heist::goroutine::{self, SpawnError};
use heist::{BuildError, Builder, Runtime, StealPolicy};
use std::panic::catch_unwind;

/// The text with which a builder refuses.
#[track_caller]
fn refusal(builder: Builder) -> String {
    // SAFETY: nothing is run.
    match unsafe { builder.build() } {
        Ok(_) => panic!("it was accepted"),
        Err(error) => error.to_string(),
    }
}

/// Invalid options are refused, by name and with the limit.
#[test]
fn invalid_options_are_refused() {
    let builder = Runtime::builder;
    assert!(refusal(builder().procs(0)).starts_with("procs: 0 processors can run nothing"));
    let text = refusal(builder().procs(1 << 20));
    assert!(text.starts_with("procs: 1048576 is more than"), "{text}");
    assert!(text.contains("4096"), "{text}");
    let text = refusal(builder().procs(usize::MAX));
    assert!(text.starts_with("procs: "), "{text}");
    for bytes in [0, 1, (32 << 10) - 1] {
        let text = refusal(builder().stack_size(bytes));
        assert!(text.starts_with("stack_size: ") && text.contains("32768"), "{text}");
    }
    for bytes in [usize::MAX, (1 << 30) + 1] {
        let text = refusal(builder().stack_size(bytes));
        assert!(text.starts_with("stack_size: ") && text.contains("1073741824"), "{text}");
    }
    assert!(refusal(builder().exact_quantum(std::time::Duration::ZERO)).starts_with("quantum: "));
    for threads in [0, 1] {
        let text = refusal(builder().max_threads(threads));
        assert!(text.starts_with("max_threads: ") && text.contains("the minimum is 2"), "{text}");
    }
    assert!(refusal(builder().name("a\0b")).starts_with("name: "));
    let policy = StealPolicy::go().with_tries(0);
    assert!(refusal(builder().steal_policy(policy)).starts_with("steal_policy: "));
}

/// Valid extremes are accepted.
#[test]
fn valid_extremes_are_accepted() {
    let many = matrix::start(Runtime::builder().procs(4096).name(""));
    assert_eq!(many.run(|| heist::go(|| 1).join().unwrap() + many.procs()), 4097);
    let small = matrix::start(Runtime::builder().procs(1).stack_size(32 << 10));
    assert_eq!(small.run(|| heist::go(|| 2).join().unwrap()), 2);
    let unlimited = matrix::start(Runtime::builder().procs(1).max_threads(usize::MAX));
    assert_eq!(unlimited.run(|| 3), 3);
    let long = matrix::start(Runtime::builder().procs(1).name("n".repeat(1000)));
    assert_eq!(long.run(|| 4), 4);
}

/// Errors can be told apart and have a source where there is one.
#[test]
fn errors_have_kinds() {
    // SAFETY: nothing is run.
    let error = unsafe { Runtime::builder().procs(0).build() }.unwrap_err();
    let is_option = matches!(&error, BuildError::Option { option: "procs", .. });
    assert!(is_option, "{error:?}");
    assert!(std::error::Error::source(&error).is_none());
}

/// Runs the calling test in a child with an environment variable, and returns the result of `build`
/// as text.
fn with_variable(variable: &str, value: &str) -> String {
    let ended = child::run_with(
        |child| {
            child.env(variable, value);
        },
        || {
            // SAFETY: the code that runs keeps nothing across a park.
            match unsafe { Runtime::builder().procs(3).build() } {
                Ok(rt) => eprintln!("said: {} procs", rt.run(|| rt.procs())),
                Err(error) => eprintln!("said: {error}"),
            }
        },
    );
    ended.succeeded();
    let said = ended.stderr.lines().find_map(|line| line.strip_prefix("said: "));
    said.expect("an answer").to_owned()
}

/// Invalid environment variables are refused, with their value and what is expected.
#[test]
fn invalid_environment_is_refused() {
    let refused = [
        ("HEIST_PROCS", "abc"),
        ("HEIST_PROCS", "0"),
        ("HEIST_PROCS", "-1"),
        ("HEIST_PROCS", "1.5"),
        ("HEIST_PROCS", "99999999999999999999"),
        ("HEIST_STEAL_POLICY", "x"),
        ("HEIST_DEBUG", "nonsense"),
        ("HEIST_DEBUG", "chaos=x"),
        ("HEIST_DEBUG", "chaos=1,other=2"),
        ("HEIST_DEBUG", "quantum"),
        ("HEIST_DEBUG", "quantum=10"),
        ("HEIST_DEBUG", "quantum=ms"),
        ("HEIST_DEBUG", "quantum=-1ms"),
        ("HEIST_DEBUG", "quantum=1.5ms"),
        ("HEIST_DEBUG", "quantum=10 ms"),
        ("HEIST_DEBUG", "chaos=1,quantum=99999999999999999999s"),
        ("HEIST_DEBUG", "guard=wall"),
        ("HEIST_DEBUG", "guard=canary"),
        ("HEIST_STACK_SIZE", "big"),
        ("HEIST_STACK_SIZE", "999999999999999999999k"),
        ("HEIST_MAX_THREADS", "none"),
        ("HEIST_TRACE", ",5"),
        ("HEIST_TRACE", "file,soon"),
        ("HEIST_TRACE", "file,0"),
        ("HEIST_DEBUG", "flightrecorder"),
        ("HEIST_DEBUG", "flightrecorder=0"),
    ];
    for (variable, value) in refused {
        let said = with_variable(variable, value);
        let expected = format!("{variable}={value:?} makes no sense: expected ");
        assert!(said.starts_with(&expected), "{said}");
    }
    for (variable, value, option) in [
        ("HEIST_PROCS", "5000", "procs: "),
        ("HEIST_STACK_SIZE", "1", "stack_size: "),
        ("HEIST_STACK_SIZE", "2000m", "stack_size: "),
        ("HEIST_DEBUG", "quantum=0ms", "quantum: "),
        ("HEIST_TRACE", "/nonexistent/file", "HEIST_TRACE: /nonexistent/file cannot be written"),
    ] {
        let said = with_variable(variable, value);
        assert!(said.starts_with(option), "{said}");
    }
}

/// Environment variables override the program; empty ones count as not set.
#[test]
fn the_environment_overrides_the_program() {
    for (variable, value, said) in [
        ("HEIST_PROCS", "7", "7 procs"),
        ("HEIST_PROCS", " 2 ", "2 procs"),
        ("HEIST_PROCS", "", "3 procs"),
        ("HEIST_STACK_SIZE", "64k", "3 procs"),
        ("HEIST_STACK_SIZE", "1M", "3 procs"),
        ("HEIST_STEAL_POLICY", "gentle", "3 procs"),
        ("HEIST_DEBUG", "chaos=12", "3 procs"),
        ("HEIST_DEBUG", "quantum=500us", "3 procs"),
        ("HEIST_DEBUG", " chaos=12, quantum=10ms,", "3 procs"),
        ("HEIST_DEBUG", "quantum=1s", "3 procs"),
        ("HEIST_MAX_THREADS", "4", "3 procs"),
        ("HEIST_TRACE", "/dev/null", "3 procs"),
        ("HEIST_TRACE", "/dev/null,0.5", "3 procs"),
        ("HEIST_DEBUG", "flightrecorder=10", "3 procs"),
    ] {
        let answer = with_variable(variable, value);
        assert_eq!(answer, said, "{variable}={value}");
    }
}

/// Spawning outside a runtime says what to do; `try_go` returns the error and drops the closure.
#[test]
fn spawning_outside_a_runtime_says_what_to_do() {
    let payload = catch_unwind(|| drop(heist::go(|| ()))).unwrap_err();
    let text = payload.downcast_ref::<String>().unwrap();
    assert!(text.starts_with("heist::go: not inside a heist runtime"), "{text}");
    for advice in ["Runtime::run", "#[heist::main(unsafe)]", "Handle"] {
        assert!(text.contains(advice), "{text}");
    }
    let held = std::sync::Arc::new([0_u64; 100]);
    for large in [false, true] {
        let other = std::sync::Arc::clone(&held);
        let refused = if large {
            let filler = [0_u64; 100];
            heist::try_go(move || drop((other, filler)))
        } else {
            heist::try_go(move || drop(other))
        };
        assert_eq!(refused.unwrap_err(), SpawnError::NoRuntime);
        assert_eq!(std::sync::Arc::strong_count(&held), 1);
    }
    let named = goroutine::Builder::new().name("x").stack_size(1 << 20);
    assert_eq!(named.spawn(|| ()).unwrap_err(), SpawnError::NoRuntime);
    heist::yield_now();
    assert!(heist::current_id().is_none());
}
