//! Stack overflow of a goroutine: the report, and what becomes of the process.
//!
//! Below a stack lies its guard. Touching it raises SIGSEGV, whose handler runs on the M's
//! alternate stack. The overflow is not turned into a panic: frames whose callees cannot unwind
//! have no landing pads, so their destructors would be skipped, and safe code relies on those. The
//! process ends with the report. If the runtime was built with [`OverflowPolicy::Abandon`], the
//! goroutine is abandoned instead and stays where it is forever.
//!
//! # What the handler may do
//! The interrupted code may hold any lock of user code. The handler makes system calls, walks the
//! stack and writes to standard error; none of that allocates. The first lines are written before
//! the walk, which on old systems takes the loader's lock. If the process is to end anyway, an
//! alarm ends it if the walk hangs.

use crate::coro::extra;
use crate::coro::stack::Bounds;
use crate::current;
use crate::gmp::{G, M};
use crate::sched::report::write_frames;
use crate::sched::stacks::abandon::abandon;
use crate::sys::signal::{self, Fault};
use crate::sys::unwind::{self, Frames};
use crate::sys::{place, placed_thread, stderr, thread};
use heist_core::sync::{AtomicU32, Ordering};
use std::fmt;
use std::time::Duration;

/// How the runtime reacts when a goroutine overflows its stack.
///
/// # Examples
/// ```no_run
/// use heist::{OverflowPolicy, Runtime};
///
/// let rt = unsafe { Runtime::builder().overflow_policy(OverflowPolicy::Abandon).build() }?;
/// rt.run(|| {
///     fn deep(n: u64) -> u64 {
///         deep(n + 1) + n
///     }
///     let error = heist::go(|| deep(0)).join().unwrap_err();
///     assert!(error.is_stack_overflow());
/// });
/// # Ok::<(), heist::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OverflowPolicy {
    /// The process ends with a report and exit code 2, as in Go.
    #[default]
    Exit,
    /// The goroutine is abandoned, after the same report; the others continue.
    ///
    /// The goroutine stays where it is. It is never resumed and never unwound, so no destructor
    /// runs: its locks stay held, what it borrowed stays borrowed, and a [`scope`](crate::scope())
    /// or a [`Runtime::run`](crate::Runtime::run) that waits for it does not return. Its stack and
    /// its thread are kept until the process ends. Its [`JoinHandle`](crate::JoinHandle) gives an
    /// error for which [`is_stack_overflow`](crate::JoinError::is_stack_overflow) is true, and
    /// dumps still list it.
    ///
    /// The process still ends if the overflow happens inside the runtime, while the goroutine
    /// panics, or with a function of another library among the callers: such a function may hold
    /// the allocator's lock or the loader's.
    Abandon,
}

heist_core::named_policy!(OverflowPolicy, "overflow policy", [
    "exit" => OverflowPolicy::Exit,
    "abandon" => OverflowPolicy::Abandon,
]);

/// The thread that is writing a report, or zero.
static REPORTER: AtomicU32 = AtomicU32::new(0);
/// How long the report of a process that ends may take.
const REPORT_MAX_SECONDS: u32 = 10;
/// How long a thread waits for the report of another before it looks again.
const TURN_PERIOD: Duration = Duration::from_millis(1);

/// Handles a memory fault. Returns if it is no overflow of a stack that heist made.
pub(crate) fn on_fault(fault: &Fault<'_>) {
    if REPORTER.load(Ordering::Relaxed) == thread::id() {
        stderr::report(format_args!("fatal error: another fault during the report\n"));
        stderr::exit_now(2);
    }
    // SAFETY: the M of the calling thread is alive.
    let m = unsafe { current::m().as_ref() };
    let gp = m.and_then(M::current);
    if m.is_some_and(|m| place::guard_below(m.stack_end.get()).contains(&fault.address)) {
        handle_scheduler(fault);
    }
    let Some(stack) = stacks_of(gp).find(|stack| stack.guard().contains(&fault.address)) else {
        return;
    };
    match m.zip(gp) {
        Some((m, gp)) => handle(m, gp, stack, fault),
        None => handle_thread(stack, fault),
    }
}

/// Installs [`on_fault`] as the handler of memory faults.
pub(crate) fn install() {
    signal::install_fault_handler(on_fault);
}

/// The stacks of heist that the goroutine is on, or the calling thread if it runs none.
fn stacks_of(gp: Option<&G>) -> impl Iterator<Item = Bounds> {
    extra::stacks_of(gp).chain(gp.and_then(|gp| gp.coro.stack_bounds()))
}

/// Handles a thread that runs goroutines and has overflowed its own stack.
fn handle_scheduler(fault: &Fault<'_>) -> ! {
    let name = placed_thread::name();
    end_with(format_args!("heist: thread '{}' has overflowed its stack\n", &*name), fault)
}

/// Handles a plain thread that has overflowed the stack that `with_stack` gave it.
fn handle_thread(stack: Bounds, fault: &Fault<'_>) -> ! {
    end_with(
        format_args!(
            "heist: a thread overflowed its stack of {} bytes\n\t\
             give it more with heist::with_stack\n",
            stack.usable_bytes(),
        ),
        fault,
    )
}

/// Ends the process with a report: `what`, then the frames.
fn end_with(what: fmt::Arguments<'_>, fault: &Fault<'_>) -> ! {
    signal::block_all();
    await_turn();
    stderr::report(what);
    signal::end_process_after(REPORT_MAX_SECONDS, 2);
    stderr::report(format_args!("fatal error: stack overflow\n"));
    let mut frames = unwind::walk(fault.instruction(), &|_| true);
    frames.is_complete = true;
    write_frames(&frames);
    stderr::exit_now(2)
}

fn handle(m: &M, gp: &G, stack: Bounds, fault: &Fault<'_>) -> ! {
    // This thread never continues.
    signal::block_all();
    await_turn();
    report(m, gp, stack);
    let alone = m.sched().config.on_overflow == OverflowPolicy::Abandon;
    if !alone || !m.is_in_user() || std::thread::panicking() {
        signal::end_process_after(REPORT_MAX_SECONDS, 2);
        let why = if !alone {
            ""
        } else if m.is_in_user() {
            ": it cannot be abandoned while it panics"
        } else {
            ": it cannot be abandoned inside the runtime"
        };
        stderr::report(format_args!("fatal error: stack overflow{why}\n"));
        write_frames(&walk(gp, fault));
        stderr::exit_now(2);
    }
    let frames = walk(gp, fault);
    write_frames(&frames);
    if frames.has_foreign || !frames.is_complete {
        stderr::report(format_args!(
            "fatal error: stack overflow: it cannot be abandoned inside a foreign library, which \
             may hold a lock\n"
        ));
        stderr::exit_now(2);
    }
    stderr::report(format_args!(
        "\tgoroutine {} is abandoned: it keeps its locks, its stack and M{}, and everything that \
         waits for it, except its handle, waits forever\n",
        gp.id.get(),
        m.id,
    ));
    // ORDERING: Release pairs with `await_turn`: reports come out one after the other.
    REPORTER.store(0, Ordering::Release);
    abandon(m, gp)
}

/// Waits until no other thread writes a report. If the other report ends the process, this thread
/// never comes back.
fn await_turn() {
    let own = thread::id();
    // ORDERING: Acquire: see `handle`.
    while REPORTER.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed).is_err() {
        thread::nap(TURN_PERIOD);
    }
}

fn walk(gp: &G, fault: &Fault<'_>) -> Frames {
    let is_on_stack = |address: usize| stacks_of(Some(gp)).any(|stack| stack.contains(address));
    unwind::walk(fault.instruction(), &is_on_stack)
}

fn report(m: &M, gp: &G, stack: Bounds) {
    stderr::report(format_args!(
        "heist: goroutine {}{} overflowed its stack of {} bytes\n\tspawned at {} by goroutine {}, \
         running on M{}\n\tgive it more with goroutine::Builder::stack_size, all of them with \
         Builder::stack_size or HEIST_STACK_SIZE, or run what recurses in heist::with_stack\n",
        gp.id.get(),
        Named(gp.name()),
        stack.usable_bytes(),
        Site(gp.spawn_site()),
        gp.parent_id.get(),
        m.id,
    ));
}

struct Named<'a>(Option<&'a str>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |name| write!(f, " ({name})"))
    }
}

struct Site(Option<&'static std::panic::Location<'static>>);

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(site) => write!(f, "{site}"),
            None => f.write_str("an unknown place"),
        }
    }
}
