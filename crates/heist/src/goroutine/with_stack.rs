//! Running one function on a larger stack.

use super::lock_os_thread;
use crate::coro::extra::{self, Extra};
use crate::coro::stack::{self, Class, Stack};
use crate::coro::stack_pool;
use crate::current;
use crate::sched::stacks::overflow;
use crate::sys::alt_stack::AltStack;
use std::panic::resume_unwind;

/// Runs `f` on a stack of at least `bytes`, up to 1 GiB, and returns its result.
///
/// For code that recurses deeper than other code of the same goroutine: parsers, serialisers, SQL
/// expressions, drops of long lists, debug builds. If the current stack has that much room, `f`
/// runs there. Otherwise it runs on a larger stack, of twice as much or more, in the same goroutine
/// and on the same thread: ids, thread-locals, panics and cancellation are as in a plain call. It
/// works on plain threads too.
///
/// A goroutine that parks in `f` stays on its thread, as by
/// [`lock_os_thread`](crate::lock_os_thread): every such wait costs two additional thread switches.
///
/// # Panics
/// If `f` panics, with the same payload; if `bytes` is more than 1 GiB; if there is no memory for
/// the stack.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// fn depth(text: &[u8]) -> usize {
///     match text {
///         [b'(', inside @ ..] => 1 + heist::with_stack(64 << 10, || depth(inside)),
///         _ => 0,
///     }
/// }
/// // Grows step by step: each call checks whether there is room.
/// assert_eq!(depth(&[b'('; 50_000]), 50_000);
/// // Or once, around the whole recursion.
/// fn count(n: u64) -> u64 {
///     if n == 0 { 0 } else { 1 + count(n - 1) }
/// }
/// assert_eq!(heist::with_stack(512 << 20, || count(100_000)), 100_000);
/// # });
/// ```
#[track_caller]
pub fn with_stack<R>(bytes: usize, f: impl FnOnce() -> R) -> R {
    if has_room(bytes) {
        return in_place(f);
    }
    assert!(
        bytes <= stack::MAX_BYTES,
        "heist::with_stack: {bytes} bytes are more than the maximum, {}",
        stack::MAX_BYTES
    );
    match on_larger_stack(bytes, f) {
        Ok(result) => result,
        Err(_) => panic!(
            "heist::with_stack: no memory for a stack of {bytes} bytes; ask for less or raise the memory limit"
        ),
    }
}

/// As [`with_stack`], but without memory for a larger stack `f` runs on the current one.
pub(crate) fn with_stack_if_possible<R>(bytes: usize, f: impl FnOnce() -> R) -> R {
    if has_room(bytes) {
        return in_place(f);
    }
    match on_larger_stack(bytes, f) {
        Ok(result) => result,
        Err(f) => in_place(f),
    }
}

fn has_room(bytes: usize) -> bool {
    extra::room(current::goroutine()).is_some_and(|room| room >= bytes)
}

/// Hands `f` back if there is no memory for the stack.
fn on_larger_stack<R, F: FnOnce() -> R>(bytes: usize, f: F) -> Result<R, F> {
    let owner = current::goroutine();
    let room = extra::room(owner);
    // A plain thread needs one: it has no M, whose signal stack would be large enough.
    let _alt_stack = (owner.is_none() && room.is_none()).then(|| {
        overflow::install();
        AltStack::install()
    });
    let _on_thread = lock_os_thread();
    let taken = Taken::new(bytes);
    let Some(stack) = &taken.0 else { return Err(f) };
    let result = Extra::new(stack, owner).call(f);
    drop(taken);
    Ok(result.unwrap_or_else(|payload| resume_unwind(payload)))
}

/// Never inlined: otherwise the caller's frame would include that of `f` and need the room for it
/// on the smaller stack.
#[inline(never)]
fn in_place<R>(f: impl FnOnce() -> R) -> R {
    f()
}

/// The smallest size that is worth a switch to another stack.
const LEAST_BYTES: usize = 1 << 20;

/// A stack that is returned to its pool when it is dropped.
struct Taken(Option<Stack>);

impl Taken {
    /// Takes a stack of more than twice the size, if possible, so that a recursion that calls this
    /// at every level switches stacks rarely. Pages that are not touched cost nothing.
    fn new(bytes: usize) -> Self {
        let class = Class::for_bytes((2 * bytes).clamp(LEAST_BYTES, stack::MAX_BYTES));
        let _rt = current::enter();
        Self(class.and_then(|class| stack_pool::take(class).ok()))
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let rt = current::enter();
        if let Some(stack) = self.0.take() {
            stack_pool::give(stack);
        }
        if let Some(rt) = &rt {
            rt.sched().threads.helper().ask_to_scavenge();
        }
    }
}
