//! Tests of the join word in one thread; its races are in `loom_join`.
#![cfg(not(loom))]

use heist_core::join::{Dropped, Finished, JoinWord, WAITER_ALIGN};
use std::num::NonZeroUsize;

fn waiter() -> NonZeroUsize {
    NonZeroUsize::new(3 * WAITER_ALIGN).unwrap()
}

/// Finish, then join: there is no waiter to wake, and the handle recycles if it is last.
#[test]
fn finished_goroutine_is_joined_without_a_wait() {
    let word = JoinWord::new();
    assert!(!word.is_finished() && !word.is_detached());
    assert_eq!(word.finish(), Finished::Published);
    assert!(word.is_finished());
    assert!(!word.register(waiter()), "the result is there");
    assert!(!word.release_runtime(), "the handle is still there");
    assert!(word.release_handle(), "the handle is last");
}

/// Register, then finish: the waiter is woken, and the runtime recycles if it is last.
#[test]
fn waiter_is_woken_by_the_finish() {
    let word = JoinWord::new();
    assert!(word.register(waiter()));
    assert_eq!(word.finish(), Finished::Wake(waiter()));
    assert!(!word.unregister(waiter()), "it is being woken");
    assert!(!word.release_handle(), "the runtime is still there");
    assert!(word.release_runtime(), "the runtime is last");
}

/// A detached goroutine drops its own result, and the runtime recycles its record.
#[test]
fn detached_goroutine_drops_its_result() {
    let word = JoinWord::new();
    assert_eq!(word.drop_handle(), Dropped::Detached);
    assert!(word.is_detached());
    assert_eq!(word.finish(), Finished::Unwanted);
    assert!(word.release_runtime());
}

/// A handle dropped after the finish has a result to drop.
#[test]
fn handle_dropped_after_the_finish_has_a_result() {
    let word = JoinWord::new();
    assert_eq!(word.finish(), Finished::Published);
    assert_eq!(word.drop_handle(), Dropped::HasResult);
    assert!(!word.is_detached(), "the handle still has to take the result");
    assert!(!word.release_handle());
    assert!(word.release_runtime());
}

/// A wait that was given up leaves no trace.
#[test]
fn unregistered_waiter_is_forgotten() {
    let word = JoinWord::new();
    assert!(word.register(waiter()));
    assert!(word.unregister(waiter()));
    assert_eq!(word.finish(), Finished::Published);
}

/// A recycled record starts as a new one.
#[test]
fn reset_makes_a_new_word() {
    let word = JoinWord::new();
    assert_eq!(word.drop_handle(), Dropped::Detached);
    assert_eq!(word.finish(), Finished::Unwanted);
    word.reset();
    assert!(!word.is_finished() && !word.is_detached());
    assert!(word.register(waiter()));
}

/// A goroutine finishes once.
#[test]
#[should_panic(expected = "throw: JoinWord::finish: finished twice")]
fn second_finish_throws() {
    let word = JoinWord::new();
    assert_eq!(word.finish(), Finished::Published);
    let _ = word.finish();
}

/// Regression: a handle that was dropped while its waiter was registered was told that the result
/// is there.
#[test]
#[should_panic(expected = "throw: JoinWord::drop_handle")]
fn handle_dropped_under_its_waiter_throws() {
    let word = JoinWord::new();
    assert!(word.register(waiter()));
    let _ = word.drop_handle();
}
