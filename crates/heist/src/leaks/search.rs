//! One search, while all other threads stand still.

use super::candidates::Candidate;
use super::mark::{Heaps, Marker};
use super::roots::{self, Roots};
use super::waits::Noted;
use crate::coro::slabs;
use crate::gmp::{M, pool};
use crate::sched::Sched;
use crate::sys::halt::{Halt, Standing};
use crate::sys::memory::Pages;
use crate::sys::thread;
use heist_core::timer_heap::Store;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Heaps of the C library beyond these count as memory that is not understood.
const HEAPS_MAX: usize = 512;

/// The frames of the scheduler are smaller than the stack of an M.
const SCHEDULER_MAX_BYTES: usize = 256 << 10;

const NO_MEMORY: &str = "there is no memory for the search";

/// Where the threads are.
pub(super) struct Threads {
    standing: Pages<Standing>,
}

impl Threads {
    /// Whether the thread of an M runs the scheduler or goroutines.
    pub(super) fn is_scheduling(&self, m: &M) -> bool {
        let address = std::ptr::from_ref(m).addr();
        self.standing.lines().iter().any(|thread| thread.m == address)
    }

    /// The parts of their signal stacks that hold no reference of the program: those that are not
    /// in use and, if the scheduler was interrupted, its registers.
    pub(super) fn meaningless(&self) -> impl Iterator<Item = Range<usize>> {
        self.standing.lines().iter().map(|thread| {
            let [start, in_use, end] = thread.signal_stack;
            start..if is_in_scheduler(thread) { end } else { in_use }
        })
    }

    /// The stacks of `with_stack` that are in use.
    pub(super) fn other_stacks(&self) -> impl Iterator<Item = Range<usize>> {
        let all = self.standing.lines().iter().flat_map(|thread| thread.others.unwrap_or_default());
        all.map(|(start, end)| start..end)
    }

    /// The lowest stack pointer in a stack.
    pub(super) fn lowest_on(&self, stack: &Range<usize>) -> Option<usize> {
        let pointers = self.standing.lines().iter().map(|thread| thread.stack_pointer);
        pointers.filter(|sp| stack.contains(sp)).min()
    }
}

/// Whether a thread was interrupted in the scheduler, on its own stack.
fn is_in_scheduler(thread: &Standing) -> bool {
    // SAFETY: zero, or the M of the thread, which is alive.
    let m = unsafe { (thread.m as *const M).as_ref() };
    m.is_some_and(|m| {
        let base = m.stack_base.get();
        (base.saturating_sub(SCHEDULER_MAX_BYTES)..base).contains(&thread.stack_pointer)
    })
}

/// A thread whose handler sleeps.
#[derive(Clone, Copy)]
struct Asleep {
    m: *const M,
    version: u32,
}

/// The leaked goroutines of the process: the addresses of their records, sorted, and their numbers.
///
/// # Errors
/// If nothing can be said. `WouldBlock` if another attempt may succeed.
pub(super) fn run(runtimes: &[Arc<Sched>]) -> io::Result<Vec<(usize, u64)>> {
    let no_memory = || io::Error::other(NO_MEMORY);
    let mut marker = Marker::new(Heaps::with_room_for(HEAPS_MAX));
    let mut threads = Threads { standing: Pages::new() };
    let mut asleep: Pages<Asleep> = Pages::new();
    let mut roots = Roots::new().ok_or_else(|| {
        io::Error::other("there is no memory for the search, or the kernel does not copy memory")
    })?;
    let own_stack = thread::own_stack().ok_or_else(no_memory)?;
    let is_excused = |tid| m_of(runtimes, tid).is_some_and(|m| m.captured.sleeping().is_some());
    let halt = Halt::all(is_excused)?;
    let searched = search(
        &halt,
        Parts {
            runtimes,
            marker: &mut marker,
            threads: &mut threads,
            asleep: &mut asleep,
            roots: &mut roots,
        },
        own_stack,
    );
    let is_still = |thread: &Asleep| {
        // SAFETY: the runtimes live.
        unsafe { &*thread.m }.captured.is_still(thread.version)
    };
    let is_unchanged = asleep.lines().iter().all(is_still);
    drop(halt);
    let again = |why| io::Error::new(io::ErrorKind::WouldBlock, why);
    searched.map_err(again)?;
    if !is_unchanged {
        return Err(again("a preempted goroutine continued"));
    }
    let leaked = marker.candidates.as_slice().iter().filter(|candidate| !candidate.can_run);
    Ok(leaked.map(|candidate| (candidate.record, candidate.id)).collect())
}

fn m_of(runtimes: &[Arc<Sched>], tid: u32) -> Option<&M> {
    runtimes.iter().flat_map(|sched| sched.threads.all_ms().iter()).find(|m| m.tid() == tid)
}

struct Parts<'a> {
    runtimes: &'a [Arc<Sched>],
    marker: &'a mut Marker,
    threads: &'a mut Threads,
    asleep: &'a mut Pages<Asleep>,
    roots: &'a mut Roots,
}

/// The search. It does not allocate, free, print or lock: a thread that stands still may hold any
/// lock.
fn search(halt: &Halt, parts: Parts<'_>, own_stack: Range<usize>) -> Result<(), &'static str> {
    let Parts { runtimes, marker, threads, asleep, roots } = parts;
    for thread in halt.threads() {
        if !threads.standing.push(thread) {
            return Err(NO_MEMORY);
        }
    }
    for tid in halt.excused() {
        // If it is not asleep any more, it is about to answer the signal: nothing is known of it.
        let m = m_of(runtimes, tid).ok_or("a thread ended")?;
        let (version, registers) =
            m.captured.sleeping().ok_or("a preempted goroutine continued")?;
        let m_address = std::ptr::from_ref(m).addr();
        let standing = Standing {
            stack_pointer: registers.sp,
            m: m_address,
            signal_stack: [0; 3],
            others: Some([(0, 0); 4]),
        };
        if !asleep.push(Asleep { m, version }) || !threads.standing.push(standing) {
            return Err(NO_MEMORY);
        }
    }
    let mut is_complete = true;
    pool::for_each(|gp| {
        if let Some(candidate) = Candidate::of(gp) {
            is_complete &= marker.candidates.push(candidate);
        }
    });
    if !is_complete || !marker.candidates.sort() || !roots.find(marker) {
        return Err(NO_MEMORY);
    }
    check_stacks(threads)?;
    is_complete &= roots.leave_out(own_stack);
    is_complete &= roots.leave_out(threads.standing.mapped());
    is_complete &= roots.leave_out(asleep.mapped());
    is_complete &= note_waits(marker);
    is_complete &= roots.leave_out_known(runtimes, threads, marker);
    if !is_complete {
        return Err(NO_MEMORY);
    }
    roots.mark(marker);
    roots::mark_goroutines(marker, threads)?;
    if marker.is_complete() { Ok(()) } else { Err(NO_MEMORY) }
}

/// Finds out what each candidate waits for. False if there is no memory.
fn note_waits(marker: &mut Marker) -> bool {
    let n = marker.candidates.as_slice().len();
    for nth in 0..n {
        match marker.waits.note(nth, &marker.candidates, &marker.heaps) {
            Noted::Yes => {}
            // It is looked at with the others, when the waits are sorted.
            Noted::CanRun => marker.candidates.get_mut(nth).is_marked = true,
            Noted::Failed => return false,
        }
    }
    marker.waits.sort();
    marker.begin();
    for nth in 0..n {
        let candidate = marker.candidates.get_mut(nth);
        if std::mem::take(&mut candidate.is_marked) {
            marker.can_run(nth);
        }
    }
    true
}

/// An error if a thread uses a stack that nothing is known of.
fn check_stacks(threads: &Threads) -> Result<(), &'static str> {
    for thread in threads.standing.lines() {
        if thread.others.is_none() {
            return Err("a thread uses many stacks (heist::with_stack)");
        }
        let Some(stack) = slabs::stack_around(thread.stack_pointer) else { continue };
        let mut is_known =
            threads.other_stacks().any(|other| other.contains(&thread.stack_pointer));
        pool::for_each(|gp| {
            is_known |= gp.has_started() && gp.coro.extent().is_some_and(|(own, _)| own == stack);
        });
        if !is_known {
            return Err("a preempted goroutine is on another stack than its own");
        }
    }
    Ok(())
}
