//! The position of the stack pointer in corosensei's record of a suspended coroutine.
//!
//! corosensei does not expose it, and the compiler may order the fields in any way, but always in
//! the same way for the same type. So the position is learned once, from a coroutine made for that:
//! of all words of its record, only this one changes when it is resumed for the first time and
//! suspends itself.

use super::stack::Class;
use super::stack_pool;
use super::switch::Inner;
use heist_core::sync::{AtomicUsize, Ordering};
use std::ptr::NonNull;

const WORDS: usize = size_of::<Inner>() / size_of::<usize>();
const _: () = assert!(size_of::<Inner>().is_multiple_of(size_of::<usize>()));

/// The index of the word.
static PLACE: AtomicUsize = AtomicUsize::new(usize::MAX);

/// The address of that index, for debuggers.
pub(crate) const PLACE_AT: *const () = (&raw const PLACE).cast();

/// Learns the position, for the process, with a stack of this class. Called before any goroutine
/// runs.
pub(crate) fn learn(class: Class) -> std::io::Result<()> {
    if PLACE.load(Ordering::Relaxed) != usize::MAX {
        return Ok(());
    }
    let mut probe = Inner::with_stack(stack_pool::take(class)?, |yielder, _| {
        yielder.suspend(());
    });
    let before = words(&probe);
    // The body does not use its input.
    let _ = probe.resume(NonNull::dangling());
    let after = words(&probe);
    let changed = |&i: &usize| before[i] != after[i];
    let mut places = (0..WORDS).filter(changed);
    let (Some(place), None) = (places.next(), places.next()) else {
        heist_core::throw!("layout::learn: the record of a coroutine is not as expected");
    };
    let _ = probe.resume(NonNull::dangling());
    stack_pool::give(probe.into_stack());
    PLACE.store(place, Ordering::Relaxed);
    Ok(())
}

fn words(record: &Inner) -> [usize; WORDS] {
    // SAFETY: all fields are words, and initialised.
    unsafe { std::ptr::from_ref(record).cast::<[usize; WORDS]>().read() }
}

/// The stack pointer in a record. Meaningless if the coroutine is not suspended.
///
/// # Safety
/// The memory of the record is mapped.
pub(super) unsafe fn stack_pointer(record: *const Inner) -> usize {
    // SAFETY: by the caller's promise; the position is one of its words. Another thread may write
    // it meanwhile, so the read is volatile.
    unsafe { record.cast::<usize>().add(PLACE.load(Ordering::Relaxed)).read_volatile() }
}
