//! `HEIST_DEBUG=tlsreport`: where goroutines that moved had the address of a thread-local.
//!
//! There are two causes of such a place. Usually the compiler has kept an address across a call;
//! the runtime has moved it, and nothing is wrong. But it may be a borrow that user code holds
//! across a park, which the runtime cannot correct. The report lists all places, so that a person
//! can check them.
//!
//! The M that moves the addresses records where they were. The goroutine itself, when it is back in
//! user code and may allocate, finds the functions of these places.

use crate::current;
use crate::gmp::m::{M, MOVED_MAX};
use crate::sys::frames::{self, Frame};
use std::backtrace::Backtrace;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::panic::Location;
use std::sync::{Mutex, OnceLock, PoisonError};

/// A place: the return address in the function, and where the goroutine was spawned.
type Place = (usize, Option<&'static Location<'static>>);

struct Entry {
    function: String,
    count: u64,
}

fn places() -> &'static Mutex<HashMap<Place, Entry>> {
    static PLACES: OnceLock<Mutex<HashMap<Place, Entry>>> = OnceLock::new();
    PLACES.get_or_init(Mutex::default)
}

/// The calling goroutine has moved, and had addresses on its stack.
#[cold]
#[inline(never)]
pub(crate) fn note() {
    // SAFETY: the M of the calling thread is alive.
    let Some(m) = (unsafe { current::m().as_ref() }) else { return };
    let Some(gp) = m.current() else { return };
    let found = take_places(m);
    let mut stack: Vec<Frame> = vec![];
    frames::walk(|frame| stack.push(frame));
    // After the goroutine's frames come those of its thread, which are on another stack.
    let bounds = gp.coro.stack_bounds();
    stack.retain(|frame| bounds.is_some_and(|bounds| bounds.contains(frame.low)));
    for at in found.into_iter().filter(|&at| at != 0) {
        // A frame reaches up to the next one. Functions below all of them have returned since.
        let Some(depth) = stack.iter().rposition(|frame| frame.low <= at) else { continue };
        let place = (stack[depth].ip, gp.spawn_site());
        let mut places = places().lock().unwrap_or_else(PoisonError::into_inner);
        let entry = places.entry(place).or_insert_with(|| {
            let function = function_of(&stack[depth..]);
            Entry { function, count: 0 }
        });
        entry.count += 1;
    }
}

fn take_places(m: &M) -> [usize; MOVED_MAX] {
    let mut found = [0; MOVED_MAX];
    for (found, noted) in found.iter_mut().zip(&m.moved) {
        *found = noted.replace(0);
    }
    found
}

/// The innermost function of user code, at or outside the first frame, with its file and line.
fn function_of(stack: &[Frame]) -> String {
    // It has addresses, by which a frame is found, and all functions that were inlined into it.
    let all = format!("{:#}", Backtrace::force_capture());
    let ours = ["heist::", "<heist::", "core::", "std::", "alloc::", "corosensei::", "<core::"];
    let mut first = None;
    for frame in stack {
        let address = format!("{:#x} - ", frame.ip);
        let mut lines = all.lines().peekable();
        while let Some(line) = lines.next() {
            let Some((_, function)) = line.split_once(&address) else { continue };
            let at = lines.peek().and_then(|next| next.trim_start().strip_prefix("at "));
            let text = format!("{function} at {}", at.unwrap_or("an unknown line"));
            if !ours.iter().any(|start| function.starts_with(start)) {
                return text;
            }
            first.get_or_insert(text);
        }
    }
    first.unwrap_or_else(|| "an unknown function".to_owned())
}

/// Takes the report and starts a new one. None if it is empty.
pub(crate) fn take() -> Option<String> {
    let places = std::mem::take(&mut *places().lock().unwrap_or_else(PoisonError::into_inner));
    if places.is_empty() {
        return None;
    }
    let mut rows: Vec<_> = places.into_iter().collect();
    rows.sort_by(|(_, a), (_, b)| b.count.cmp(&a.count).then_with(|| a.function.cmp(&b.function)));
    let mut report = "heist: goroutines that moved to another thread had addresses of thread-locals in \
                      these functions.\nThe addresses were moved too. A borrow of a thread-local that is \
                      held across a call into heist\ncannot be: look whether there is one.\n"
        .to_owned();
    for ((_, site), entry) in rows {
        let _ = write!(report, "{:>9} x  {}", entry.count, entry.function);
        if let Some(site) = site {
            let _ = write!(report, "\n             in goroutines spawned at {site}");
        }
        report.push('\n');
    }
    Some(report)
}
