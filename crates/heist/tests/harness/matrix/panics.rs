//! The panic messages of goroutines, kept back until a test fails.
//!
//! The test harness captures the output of threads that std has started. The threads of a runtime
//! are not among them, so the log would be full of panics that tests expect. A panic that leaves
//! `Runtime::run` ends a test without a second message, so those that are left are shown when the
//! process ends with an error.

use std::backtrace::Backtrace;
use std::io::Write;
use std::panic::PanicHookInfo;
use std::sync::{Mutex, Once, PoisonError};
use std::thread;

/// The last ones: a test that fails is most likely about those.
const KEPT_MAX: usize = 8;

static KEPT: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// From now on, panics of goroutines are shown only when a thread of the harness panics. A runtime
/// was started before: its own hook, which names goroutines, then comes after this one.
pub fn keep_back() {
    static ONCE: Once = Once::new();
    // A child has no captured output, and its parent reads all of it.
    let is_child = std::env::var_os("HEIST_TEST_CHILD").is_some();
    let shows_all = std::env::args().any(|argument| argument == "--nocapture");
    if is_child || shows_all {
        return;
    }
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| report(info, &*before)));
        // SAFETY: the function may be called at any time, and needs no argument.
        unsafe { on_exit(show_at_exit, std::ptr::null_mut()) };
    });
}

unsafe extern "C" {
    /// As `atexit`, but the function is told the exit code. The libc crate does not have it.
    fn on_exit(
        function: extern "C" fn(libc::c_int, *mut libc::c_void),
        argument: *mut libc::c_void,
    ) -> libc::c_int;
}

extern "C" fn show_at_exit(code: libc::c_int, _argument: *mut libc::c_void) {
    if code != 0 {
        // Nothing may panic here.
        let _ = std::io::stderr().write_all(take().as_bytes());
    }
}

fn report(info: &PanicHookInfo<'_>, before: &(dyn Fn(&PanicHookInfo<'_>) + Send + Sync)) {
    if thread::current().name().is_some() {
        eprint!("{}", take());
        return before(info);
    }
    let text = format!("{info}\n{}\n", Backtrace::capture());
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    if kept.len() == KEPT_MAX {
        kept.remove(0);
    }
    kept.push(text);
}

/// Takes the messages that were kept back, and stops keeping them.
pub fn take() -> String {
    let kept = std::mem::take(&mut *KEPT.lock().unwrap_or_else(PoisonError::into_inner));
    if kept.is_empty() {
        return String::new();
    }
    format!("the last panics of goroutines in this process:\n{}", kept.concat())
}
