//! The area of a thread's variables, and moving their addresses from one thread to another.
//!
//! The C library puts the static thread-locals of a thread, and its own record of the thread, into
//! one area around the thread pointer, at the high end of the thread's place (`sys::place`). The
//! layout is the same for all threads: a variable has the same distance from the thread pointer in
//! each of them. So an address inside the area of one thread becomes the address of the same
//! variable of another thread by adding the difference of the two thread pointers.
//!
//! Thread-locals of a library that was loaded by `dlopen` and did not fit into the static area are
//! in blocks of their own and are not moved. See docs/design/thread_locals.md.

use super::place::CLEAR_BYTES;
use super::registers::thread_pointer;
use std::arch::asm;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How far the area reaches below and above the thread pointer: the maximum over all threads so
/// far.
static BELOW: AtomicUsize = AtomicUsize::new(0);
static ABOVE: AtomicUsize = AtomicUsize::new(0);

/// How far beyond the area an address is still taken for one with an offset in it; see
/// `sys::place`.
static SLACK: AtomicUsize = AtomicUsize::new(CLEAR_BYTES);

/// Limits the slack: nothing else is mapped within `clear` bytes of a place that is about to be
/// used.
pub(crate) fn limit_slack(clear: usize) {
    SLACK.fetch_min(clear, Ordering::Relaxed);
}

/// Learns the area from the calling thread, whose place ends at `top`. Everything above the
/// caller's frame counts as the area: the frames up there are the first ones of the thread, whose
/// addresses no goroutine can hold.
#[inline(never)]
pub(crate) fn learn_area(top: usize) {
    let frame = 0u8;
    BELOW.fetch_max(thread_pointer() - (&raw const frame).addr(), Ordering::Relaxed);
    ABOVE.fetch_max(top - thread_pointer(), Ordering::Relaxed);
}

/// Moves every address in the area of the thread pointer `from` that the words from `begin` to
/// `end` hold to the area of `to`. Calls `found` with the position of each.
///
/// # Safety
/// The memory is mapped, both ends are at words, and no other thread changes an address of that
/// area there at the same time. Other words may change.
pub(crate) unsafe fn relocate(
    begin: usize,
    end: usize,
    from: usize,
    to: usize,
    mut found: impl FnMut(usize),
) {
    let slack = SLACK.load(Ordering::Relaxed);
    let below = BELOW.load(Ordering::Relaxed) + slack;
    let low = from - below;
    let len = below + ABOVE.load(Ordering::Relaxed) + slack;
    let mut at = begin;
    // SAFETY: by the caller's promise.
    while let Some(place) = unsafe { find(at, end, low, len) } {
        // SAFETY: a word of that memory.
        let old = unsafe { load(place) };
        let new = old.wrapping_sub(from).wrapping_add(to);
        // A waker may have written another value there since.
        // SAFETY: as above.
        if old.wrapping_sub(low) < len && unsafe { replace(place, old, new) } {
            found(place);
        }
        at = place + size_of::<usize>();
    }
}

/// Reads a word of a stack, which the compiler and sanitizers may take for one that is not in use.
///
/// # Safety
/// The word is mapped.
#[cfg(target_arch = "x86_64")]
unsafe fn load(at: usize) -> usize {
    let word;
    // SAFETY: by the caller's promise; nothing is written.
    unsafe { asm!("mov {}, [{}]", out(reg) word, in(reg) at, options(nostack, readonly)) };
    word
}

/// Replaces a word of a stack if it is still `old`.
///
/// # Safety
/// As for [`load`].
#[cfg(target_arch = "x86_64")]
unsafe fn replace(at: usize, old: usize, new: usize) -> bool {
    let seen: usize;
    // SAFETY: by the caller's promise.
    unsafe {
        asm!(
            "lock cmpxchg [{}], {}",
            in(reg) at,
            in(reg) new,
            inout("rax") old => seen,
            options(nostack),
        );
    }
    seen == old
}

/// As on x86-64.
///
/// # Safety
/// The word is mapped.
#[cfg(target_arch = "aarch64")]
unsafe fn load(at: usize) -> usize {
    // SAFETY: by the caller's promise.
    unsafe { AtomicUsize::from_ptr(at as *mut usize) }.load(Ordering::Relaxed)
}

/// As on x86-64.
///
/// # Safety
/// The word is mapped.
#[cfg(target_arch = "aarch64")]
unsafe fn replace(at: usize, old: usize, new: usize) -> bool {
    // SAFETY: by the caller's promise.
    let word = unsafe { AtomicUsize::from_ptr(at as *mut usize) };
    word.compare_exchange(old, new, Ordering::Relaxed, Ordering::Relaxed).is_ok()
}

/// The first word from `begin` to `end` that is one of the `len` addresses from `low` on.
///
/// It is in assembly, because parts of a stack are uninitialised memory for the compiler. It reads
/// four words at a time, and single ones at the end.
///
/// # Safety
/// The memory is mapped; both ends are at words.
#[cfg(target_arch = "x86_64")]
unsafe fn find(begin: usize, end: usize, low: usize, len: usize) -> Option<usize> {
    let mut at = begin;
    // SAFETY: by the caller's promise; nothing is written.
    unsafe {
        asm!(
            "lea {last}, [{end} - 32]",
            "cmp {at}, {last}",
            "ja 3f",
            "2:",
            "mov {a}, [{at}]",
            "mov {b}, [{at} + 8]",
            "sub {a}, {low}",
            "sub {b}, {low}",
            "cmp {a}, {len}",
            "jb 7f",
            "cmp {b}, {len}",
            "jb 6f",
            "mov {a}, [{at} + 16]",
            "mov {b}, [{at} + 24]",
            "sub {a}, {low}",
            "sub {b}, {low}",
            "cmp {a}, {len}",
            "jb 5f",
            "cmp {b}, {len}",
            "jb 4f",
            "add {at}, 32",
            "cmp {at}, {last}",
            "jbe 2b",
            "3:",
            "cmp {at}, {end}",
            "jae 7f",
            "mov {a}, [{at}]",
            "sub {a}, {low}",
            "cmp {a}, {len}",
            "jb 7f",
            "add {at}, 8",
            "jmp 3b",
            "4: add {at}, 8",
            "5: add {at}, 8",
            "6: add {at}, 8",
            "7:",
            at = inout(reg) at,
            end = in(reg) end,
            low = in(reg) low,
            len = in(reg) len,
            a = out(reg) _,
            b = out(reg) _,
            last = out(reg) _,
            options(nostack, readonly),
        );
    }
    (at < end).then_some(at)
}

/// As on x86-64.
///
/// # Safety
/// The memory is mapped; both ends are at words.
#[cfg(target_arch = "aarch64")]
unsafe fn find(begin: usize, end: usize, low: usize, len: usize) -> Option<usize> {
    let mut at = begin;
    // SAFETY: by the caller's promise; nothing is written.
    unsafe {
        asm!(
            "sub {last}, {end}, #32",
            "cmp {at}, {last}",
            "b.hi 3f",
            "2:",
            "ldp {a}, {b}, [{at}]",
            "sub {a}, {a}, {low}",
            "sub {b}, {b}, {low}",
            "cmp {a}, {len}",
            "b.lo 7f",
            "cmp {b}, {len}",
            "b.lo 6f",
            "ldp {a}, {b}, [{at}, #16]",
            "sub {a}, {a}, {low}",
            "sub {b}, {b}, {low}",
            "cmp {a}, {len}",
            "b.lo 5f",
            "cmp {b}, {len}",
            "b.lo 4f",
            "add {at}, {at}, #32",
            "cmp {at}, {last}",
            "b.ls 2b",
            "3:",
            "cmp {at}, {end}",
            "b.hs 7f",
            "ldr {a}, [{at}]",
            "sub {a}, {a}, {low}",
            "cmp {a}, {len}",
            "b.lo 7f",
            "add {at}, {at}, #8",
            "b 3b",
            "4: add {at}, {at}, #8",
            "5: add {at}, {at}, #8",
            "6: add {at}, {at}, #8",
            "7:",
            at = inout(reg) at,
            end = in(reg) end,
            low = in(reg) low,
            len = in(reg) len,
            a = out(reg) _,
            b = out(reg) _,
            last = out(reg) _,
            options(nostack, readonly),
        );
    }
    (at < end).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::super::placed_thread::PlacedThread;
    use super::*;
    use std::sync::{Arc, Barrier};

    #[test]
    fn an_address_in_the_area_is_found_wherever_it_is() {
        for len in 0..40 {
            for place in 0..len {
                let mut words = vec![0usize; len];
                words[place] = 1007;
                let begin = words.as_ptr().addr();
                let end = begin + words.len() * size_of::<usize>();
                let at = begin + place * size_of::<usize>();
                // SAFETY: the words are there.
                unsafe {
                    assert_eq!(find(begin, end, 1000, 8), Some(at));
                    assert_eq!(find(begin, end, 1000, 7), None);
                    assert_eq!(find(begin, end, 1008, 8), None);
                }
            }
        }
    }

    #[test]
    fn addresses_of_one_thread_become_those_of_another() {
        thread_local! {
            static ONE: std::cell::Cell<u64> = const { std::cell::Cell::new(1) };
        }
        let own = || {
            // SAFETY: only takes an address.
            let errno = unsafe { libc::__errno_location() }.addr();
            (thread_pointer(), ONE.with(|one| std::ptr::from_ref(one).addr()), errno)
        };
        // Both threads live at the same time; otherwise they could have the same place.
        let meet = Arc::new(Barrier::new(2));
        let (send, areas) = std::sync::mpsc::channel();
        let threads = [(); 2].map(|()| {
            let (meet, send) = (Arc::clone(&meet), send.clone());
            let main = move |_| {
                send.send(own()).expect("the test waits");
                meet.wait();
            };
            PlacedThread::spawn(format_args!("area"), main).expect("spawns")
        });
        threads.into_iter().for_each(PlacedThread::join);
        let (first, second) = (areas.recv().expect("has run"), areas.recv().expect("has run"));
        assert_ne!(first.0, second.0);
        assert_eq!((first.0 ^ second.0) & !0xff00_0000, 0, "they differ in one byte");
        // The compiler keeps some addresses with an offset in them.
        let offset = 50 << 10;
        let mut words =
            [1, first.1, second.1, first.0, first.2, !0, first.1 + offset, first.1 - offset];
        let range = words.as_mut_ptr_range();
        let mut places = vec![];
        // SAFETY: the words exist and nothing else uses them.
        unsafe {
            relocate(range.start.addr(), range.end.addr(), first.0, second.0, |at| places.push(at));
        }
        let expected =
            [1, second.1, second.1, second.0, second.2, !0, second.1 + offset, second.1 - offset];
        assert_eq!(words, expected);
        assert_eq!(places.len(), 5);
    }
}
