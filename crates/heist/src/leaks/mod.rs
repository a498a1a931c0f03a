//! Goroutines that can never run again, found in the memory of the process.
//!
//! A goroutine that waits is woken by code that has a reference to what it waits for: an end of the
//! channel, the lock, the group. If no code that can still run has one, directly or through other
//! memory, the goroutine is *leaked*. That is the reachability of a garbage collector, and this is
//! its mark phase, without the rest of a collector:
//!
//! 1. All other threads of the process are halted (`sys::halt`).
//! 2. The *candidates* are the goroutines that wait without a deadline for an object of this
//!    library (`candidates`). All others can run.
//! 3. The roots are all memory of the process but stacks of goroutines, the records of the
//!    scheduler, and the heap of the C library; the stacks of goroutines that are no candidates;
//!    and the registers of halted threads, which are in memory (`roots`).
//! 4. Every word that could be an address, also of the middle of a block or with a tag in its low
//!    or high bits, marks the block around it, whose words are looked at in turn (`mark`). A marked
//!    block in which a candidate's object lies, or a marked stack, makes the candidate one that can
//!    run: its stack is looked at, too.
//! 5. A candidate that was not reached is leaked.
//!
//! # Why a report is never wrong
//! Everything unknown counts as a reference: a word that looks like
//! an address, memory that is not the C library's heap, a block that was freed. What an address
//! leads to is known in three cases only: a block of that heap, a candidate's stack, a goroutine
//! record. An object that is in none of them, such as a static, counts as reachable. So errors hide
//! a leak and never make one up. The exceptions are programs that hide addresses: in a file or a
//! pipe, encrypted, or not aligned.
//!
//! A goroutine whose handle is reachable may be cancelled, so it is not reported.
//!
//! If a thread cannot be halted, or a goroutine is on a stack for one call (`with_stack`), nothing
//! is reported, and the error says why.
//!
//! GO: mgc.go findGoroutineLeaks, mprof.go goroutineLeakProfile.

mod candidates;
mod mark;
mod roots;
mod search;
mod waits;

use crate::gmp::G;
use crate::gmp::pool;
use crate::sched::stall::blocking;
use crate::sys::bystanders::Bystander;
use crate::sys::thread;
use crate::traceback::{collect, here, reports, text};
use heist_core::sync::{AtomicU64, Ordering};
use std::fmt;
use std::io;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// How often a search is repeated because of something that passes: a preempted goroutine
/// continued, or was preempted on another stack than its own.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(2);

/// How many leaked goroutines the last search found, in the whole process.
static N_FOUND: AtomicU64 = AtomicU64::new(0);
/// How many searches there were.
static N_SEARCHES: AtomicU64 = AtomicU64::new(0);

/// How many leaked goroutines the last search found, in the whole process.
pub(crate) fn n_found() -> u64 {
    N_FOUND.load(Ordering::Relaxed)
}

/// How many searches there were.
pub(crate) fn n_searches() -> u64 {
    N_SEARCHES.load(Ordering::Relaxed)
}

/// Searches all runtimes of the process, and marks the goroutines that are leaked; all others lose
/// the mark. Returns how many there are.
///
/// # Errors
/// If nothing can be said; the error says why.
pub(crate) fn search() -> io::Result<u64> {
    static TURN: Mutex<()> = Mutex::new(());
    blocking::blocking(|| {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // On a thread of its own: its stack and registers hold no addresses of the program.
        let thread = thread::spawn("heist-leaks".to_owned(), || {
            let _bystander = Bystander::new();
            search_here()
        })?;
        thread.join().unwrap_or_else(|_| Err(io::Error::other("the search for leaks panicked")))
    })
}

fn search_here() -> io::Result<u64> {
    let mut attempt = 0;
    let found = loop {
        attempt += 1;
        let found = {
            let runtimes = reports::runtimes();
            search::run(&runtimes)
        };
        match found {
            Err(error) if attempt < ATTEMPTS && error.kind() == io::ErrorKind::WouldBlock => {
                thread::nap(attempt * PAUSE);
            }
            found => break found?,
        }
    };
    let is_leaked = |gp: &G| found.binary_search(&(std::ptr::from_ref(gp).addr(), gp.id.get()));
    pool::for_each(|gp| {
        let (is_leaked, was_leaked) = (is_leaked(gp).is_ok(), gp.is_leaked());
        if is_leaked && !was_leaked {
            gp.set_leaked(true);
        } else if was_leaked && !is_leaked {
            gp.set_leaked(false);
        }
    });
    let n = found.len() as u64;
    N_FOUND.store(n, Ordering::Relaxed);
    N_SEARCHES.fetch_add(1, Ordering::Relaxed);
    Ok(n)
}

/// A goroutine that can never run again; see [`find_leaks`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Leak {
    /// Its number, unique in its runtime.
    pub id: u64,
    /// What it waits for, in the words of a dump.
    pub state: &'static str,
    /// Where it was spawned.
    pub spawned_at: Option<&'static Location<'static>>,
    /// Its part of a dump.
    text: String,
}

impl fmt::Display for Leak {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Finds the goroutines of all runtimes that can never run again: nothing that can still run has a
/// reference to the channel, the lock or the group that they wait for.
///
/// A leak that is found is certain. Not all are found: a reference that is no longer used but still
/// in memory hides one, and so does a handle by which the goroutine could be cancelled. The search
/// understands the heap of the C library; with another allocator, only waits that nothing can end
/// are found, such as those for [`chan::never`](crate::chan::never).
///
/// All threads of the process stand still meanwhile, for a time that grows with the memory that the
/// program uses. System calls that the signal interrupts are restarted, except for
/// those of signal(7) that never are.
///
/// From then on dumps show `(leaked)` at these goroutines.
///
/// # Errors
/// If a thread of the process blocks SIGURG, or the kernel does not let the process read its own
/// memory; or if a goroutine is inside [`with_stack`](crate::with_stack).
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| -> std::io::Result<()> {
/// use heist::chan;
///
/// drop(heist::go(|| {
///     let (_tx, rx) = chan::bounded::<u8>(0);
///     rx.recv()
/// }));
/// while heist::goroutine::find_leaks()?.is_empty() {
///     heist::yield_now();
/// }
/// // goroutine 2 [chan receive (leaked)]:
/// println!("{}", heist::goroutine::find_leaks()?[0]);
/// # Ok(())
/// # }).unwrap();
/// ```
#[doc(alias = "goroutineleak")]
pub fn find_leaks() -> io::Result<Vec<Leak>> {
    if search()? == 0 {
        return Ok(Vec::new());
    }
    let mut leaks = Vec::new();
    for sched in reports::runtimes() {
        let entries = collect::entries(&sched, here()).into_iter();
        for entry in entries.filter(|entry| entry.is_leaked) {
            let (id, state, spawned_at) = (entry.id, entry.state, entry.spawn_site);
            leaks.push(Leak { id, state, spawned_at, text: text::dump(vec![entry], None) });
        }
    }
    Ok(leaks)
}
