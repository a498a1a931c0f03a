//! `G`: a goroutine.
//!
//! A record of three cache lines that never moves and is never unmapped: finished records go back
//! to a pool that all runtimes of the process share, so a handle may look at its record at any
//! time. The closure, and later the result, live in the record itself if they are small.
//!
//! # Who may touch what
//! - `status`, `join`, `flags`: atomic, anyone.
//! - the fields of `shown`: their owner writes, anyone reads.
//! - the fields behind `Cell`: whoever owns the goroutine in the sense of `status` (its queue's
//!   taker, the M that runs it, the claimer). A hand-over goes through a queue or the status word,
//!   which order memory.
//! - `payload`: the goroutine until `join` says finished, then the handle.

use super::M;
use super::shown::{ShownByte, ShownNumber, ShownPointer};
use crate::coro::stack::Class;
use crate::coro::switch::Coro;
use crate::sched::Sched;
use crate::sys::memory::prefetch_for_write;
use heist_core::join::JoinWord;
use heist_core::list::{Link, Linked};
use heist_core::status::{StatusWord, Ticket};
use heist_core::sync::{AtomicU16, Ordering};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::panic::Location;
use std::ptr::null;

/// Bytes of closure or result that fit into the record.
pub(crate) const INLINE_BYTES: usize = 56;
/// The strictest alignment that fits into the record.
pub(crate) const INLINE_ALIGN: usize = 8;

/// Room for a small closure or result.
#[repr(C, align(8))]
pub(crate) struct Payload(UnsafeCell<MaybeUninit<[u8; INLINE_BYTES]>>);

impl Payload {
    /// Where the value is. What is there, only the generic code knows that wrote it.
    pub(crate) const fn as_ptr<T>(&self) -> *mut T {
        self.0.get().cast()
    }
}

/// The code for one closure type, reached through a pointer.
pub(crate) struct Vtable {
    /// Moves the closure out, runs it, stores the result.
    pub(crate) run: unsafe fn(&G),
    /// Drops the closure of a goroutine that never ran.
    pub(crate) drop_closure: unsafe fn(&G),
    /// Drops a result that nobody took.
    pub(crate) drop_result: unsafe fn(&G),
}

const _: () = assert!(align_of::<Vtable>() >= heist_core::block_predictor::KIND_ALIGN);

/// How a goroutine ended. Valid once `join` says finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Not yet.
    None,
    /// The closure returned; `payload` holds its result.
    Returned,
    /// It panicked; `payload` holds the `Box<dyn Any + Send>`.
    Panicked,
    /// It was cancelled and unwound; nothing is held.
    Cancelled,
    /// It called `exit_current`; nothing is held.
    Exited,
    /// It ran out of stack and was abandoned; it never looks at its record again.
    Overflowed,
    /// There was no memory for its stack, so it never ran; nothing is held.
    NoStack,
}

macro_rules! wait_reasons {
    ($($name:ident => $text:literal,)+) => {
        /// Why a goroutine is parked, in Go's words.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[doc(alias = "waitReason")]
        pub(crate) enum WaitReason { $($name,)+ }

        impl WaitReason {
            pub(crate) const ALL: &[Self] = &[$(Self::$name,)+];

            pub(crate) const fn text(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

wait_reasons! {
    Join => "goroutine join",
    Sleep => "sleep",
    IoWait => "IO wait",
    WaitGroup => "sync.WaitGroup.Wait",
    Mutex => "sync.Mutex.Lock",
    Read => "sync.RWMutex.RLock",
    Write => "sync.RWMutex.Lock",
    Cond => "sync.Cond.Wait",
    Semaphore => "semacquire",
    Barrier => "barrier wait",
    Scope => "scope wait",
    ChanReceive => "chan receive",
    ChanSend => "chan send",
    ChanReceiveNil => "chan receive (nil chan)",
    ChanSendNil => "chan send (nil chan)",
    Select => "select",
    SelectNoCases => "select (no cases)",
}

/// Who ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Woken {
    /// The one it waited for.
    Ready,
    /// The clock: its deadline has passed.
    TimedOut,
    /// A canceller: the goroutine takes back what it left in queues, then unwinds.
    Cancelled,
}

/// The bit of `waits_since` that says that a latency is measured.
const SAMPLED: u16 = 1 << 15;

/// Set by a canceller: the next park unwinds.
pub(crate) const CANCELLED: u32 = 1;
/// The goroutine is unwinding towards its end on purpose.
pub(crate) const EXITING: u32 = 2;
/// It is of the latency class.
pub(crate) const LATENCY: u32 = 256;
/// It is of the idle class.
pub(crate) const IDLE: u32 = 512;
/// It was made to begin with a later wake-up, and nobody has seen it yet.
pub(crate) const UNBORN: u32 = 128;
/// It is looked at when it ends: whether it came near the end of its stack.
pub(crate) const WATCHED: u32 = 16;
/// It ran out of stack and is frozen where it was; see `sched::abandon`.
pub(crate) const ABANDONED: u32 = 8;
/// It computed for a whole slice without entering the runtime, and has not entered it since sysmon
/// saw that: a hint.
pub(crate) const HOG: u32 = 64;
/// It blocked without announcing it, or is of a kind that does: a hint. Its P is given away before it goes
/// on, see `sched::stall::blocking`.
pub(crate) const BLOCKS: u32 = 1024;
/// A plain thread does nothing but wait for its end.
pub(crate) const AWAITED: u32 = 2048;
/// User code locked it to its thread.
pub(crate) const LOCKED: u32 = 4096;
/// It waited for the memory of a stack in vain: it ends without having run.
pub(crate) const STACKLESS: u32 = 8192;
/// It waits in a destructor while it ends, or for what it must not leave: a second unwinding would end the process,
/// so this wait cannot be cancelled.
pub(crate) const UNCANCELLABLE: u32 = 4;
/// It waits in a destructor for the network: a canceller ends the wait, which fails then and
/// unwinds nothing.
pub(crate) const GIVES_UP: u32 = 16384;

/// The bit of `started` that says so.
const STARTED: u8 = 1;

/// What few goroutines have and therefore is not in the record.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    /// The flag of its class, or zero.
    pub(crate) class: u32,
    pub(crate) name: Option<Box<str>>,
    pub(crate) stack: Option<Class>,
    /// It is locked to the thread on which it starts.
    pub(crate) os_thread: bool,
}

/// A goroutine.
///
/// The order of the fields is the order of the cache lines: whoever runs a goroutine with a small
/// closure from beginning to end touches the first two, whoever spawns it writes all three.
#[repr(C, align(64))]
pub(crate) struct G {
    /// The next one in its queue, or on the free list. While it waits it is in none: then this is when
    /// the clock wakes it.
    link: Link<G>,
    pub(crate) status: StatusWord,
    pub(crate) join: JoinWord,
    pub(crate) flags: AtomicU16,
    /// While it waits, when that began, in minutes of its runtime; it wraps after 22 days. While it
    /// is runnable and its latency is measured, `SAMPLED` and where that began; see
    /// `metrics::latency`.
    waits_since: AtomicU16,
    pub(crate) outcome: Cell<Outcome>,
    wait_reason: ShownByte,
    /// Whether it has a stack, and above that bit how many guards it holds against being stopped by
    /// force. Its owner writes; the handler that looks runs on the owner's thread.
    started: ShownByte,
    /// Who ended the last wait; written by the claimer.
    pub(crate) woken: Cell<Woken>,
    pub(crate) vtable: ShownPointer<Vtable>,
    /// The M it must run on: it parked while panicking, or is locked to its thread.
    pub(crate) bound_m: ShownPointer<M>,
    /// Counted by an `Arc` that the record owns one share of.
    pub(crate) extras: Cell<*const Extras>,
    pub(crate) sched: ShownPointer<Sched>,
    // Second line.
    pub(crate) coro: Coro,
    pub(crate) payload: Payload,
    // Third line, after the larger part of the payload.
    /// The wait of whoever joins this goroutine. Written before its address goes into `join`.
    pub(crate) joiner: Cell<Ticket>,
    pub(crate) id: ShownNumber,
    pub(crate) parent_id: ShownNumber,
    spawn_site: ShownPointer<Location<'static>>,
}

// SAFETY: see "Who may touch what" above: every non-atomic field has one owner at a time, and
// ownership is handed over by synchronising operations.
unsafe impl Sync for G {}
// SAFETY: as above.
unsafe impl Send for G {}

// SAFETY: `link` is used by the queues and free lists, and by a goroutine that waits, which is in none
// of them.
unsafe impl Linked for G {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

impl G {
    /// A record that is on no list.
    pub(crate) fn new_dead() -> Self {
        Self {
            link: Link::new(),
            status: StatusWord::new(),
            join: JoinWord::new(),
            flags: AtomicU16::new(0),
            waits_since: AtomicU16::new(0),
            outcome: Cell::new(Outcome::None),
            wait_reason: ShownByte::new(0),
            started: ShownByte::new(0),
            woken: Cell::new(Woken::Ready),
            id: ShownNumber::new(0),
            parent_id: ShownNumber::new(0),
            sched: ShownPointer::null(),
            bound_m: ShownPointer::null(),
            vtable: ShownPointer::null(),
            spawn_site: ShownPointer::null(),
            extras: Cell::new(null()),
            joiner: Cell::new(Ticket::NONE),
            coro: Coro::none(),
            payload: Payload(UnsafeCell::new(MaybeUninit::uninit())),
        }
    }

    /// Says when the clock ends the wait that is about to begin, or `NEVER`. For the goroutine's owner.
    #[inline]
    pub(crate) fn set_due(&self, when: u64) {
        self.link.set_number(when);
    }

    /// When the clock ends the wait it is in. Nonsense, if it is in none.
    #[inline]
    pub(crate) fn due(&self) -> u64 {
        self.link.number()
    }

    /// What kind of goroutine it is: all with the same code are of one.
    #[inline]
    pub(crate) fn kind(&self) -> usize {
        self.vtable.get().addr()
    }

    /// Fetches the lines of a record that is about to be written.
    #[inline]
    pub(crate) fn prefetch(record: *const Self, lines: usize) {
        if !record.is_null() {
            for line in 0..lines {
                prefetch_for_write(record.wrapping_byte_add(64 * line).cast());
            }
        }
    }

    /// Fetches where this goroutine left its stack. For who has claimed it after a long wait.
    pub(crate) fn prefetch_stack(&self) {
        if self.has_started() {
            self.coro.prefetch_stack();
        }
    }

    /// Whether somebody asked this goroutine to end.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.has_flag(CANCELLED)
    }

    /// Whether a flag is set.
    #[inline]
    pub(crate) fn has_flag(&self, flag: u32) -> bool {
        // ORDERING: SeqCst pairs with `set_flag`: a parker that began to wait and then reads the
        // flag, and a canceller that set it and then reads the status, cannot both miss.
        u32::from(self.flags.load(Ordering::SeqCst)) & flag != 0
    }

    /// Sets a flag.
    pub(crate) fn set_flag(&self, flag: u32) {
        // ORDERING: see `has_flag`.
        self.flags.fetch_or(flag as u16, Ordering::SeqCst);
    }

    /// Clears a flag.
    pub(crate) fn clear_flag(&self, flag: u32) {
        // ORDERING: see `has_flag`.
        self.flags.fetch_and(!(flag as u16), Ordering::SeqCst);
    }

    /// Whether it is of another class than most.
    #[inline]
    pub(crate) fn is_classed(&self) -> bool {
        u32::from(self.flags.load(Ordering::Relaxed)) & (LATENCY | IDLE) != 0
    }

    /// Whether it may be stopped by force here.
    pub(crate) fn may_be_forced(&self) -> bool {
        self.started.get() < 2 * STARTED
    }

    /// One more guard against being stopped by force. False: there are too many. For the goroutine
    /// itself, as `allow_force`.
    pub(crate) fn forbid_force(&self) -> bool {
        let more = self.started.get().checked_add(2 * STARTED);
        more.inspect(|&more| self.started.set(more)).is_some()
    }

    /// One guard less.
    pub(crate) fn allow_force(&self) {
        self.started.set(self.started.get() - 2 * STARTED);
    }

    /// Whether it has a stack.
    #[inline]
    pub(crate) fn has_started(&self) -> bool {
        self.started.get() & STARTED != 0
    }

    /// Says so, of a goroutine that holds no guards.
    #[inline]
    pub(crate) fn set_started(&self, started: bool) {
        self.started.set(if started { STARTED } else { 0 });
    }

    /// Why it waits, or waited last.
    pub(crate) fn wait_reason(&self) -> WaitReason {
        let reason = WaitReason::ALL.get(usize::from(self.wait_reason.get()));
        reason.copied().unwrap_or(WaitReason::Join)
    }

    /// Says why it is about to wait.
    #[inline]
    pub(crate) fn set_wait_reason(&self, reason: WaitReason) {
        self.wait_reason.set(reason as u8);
    }

    /// Its wait begins at this minute of its runtime.
    #[inline]
    pub(crate) fn set_waits_since(&self, minute: u32) {
        self.waits_since.store(minute as u16 & !SAMPLED, Ordering::Relaxed);
    }

    /// Its latency is measured from now on; the number says where the moment is kept. For who makes
    /// it runnable.
    pub(crate) fn set_sampled(&self, number: u32) {
        self.waits_since.store(number as u16 | SAMPLED, Ordering::Relaxed);
    }

    /// That number, if its latency is measured: until now. For who runs it.
    #[inline]
    pub(crate) fn take_sampled(&self) -> Option<u32> {
        let number = self.waits_since.load(Ordering::Relaxed);
        if number & SAMPLED == 0 {
            return None;
        }
        self.waits_since.store(0, Ordering::Relaxed);
        Some((number & !SAMPLED).into())
    }

    /// For how many minutes it has waited at this one.
    pub(crate) fn waited_minutes(&self, now: u32) -> u16 {
        (now as u16).wrapping_sub(self.waits_since.load(Ordering::Relaxed)) & !SAMPLED
    }

    /// Where it was spawned.
    pub(crate) fn spawn_site(&self) -> Option<&'static Location<'static>> {
        // SAFETY: null, or the address of a location, which is static.
        unsafe { self.spawn_site.get().as_ref() }
    }

    /// Says where it is spawned.
    #[inline]
    pub(crate) fn set_spawn_site(&self, site: &'static Location<'static>) {
        self.spawn_site.set(site);
    }

    /// The name its builder gave it.
    pub(crate) fn name(&self) -> Option<&str> {
        // SAFETY: extras live as long as the goroutine; the caller looks at a live one.
        unsafe { self.extras.get().as_ref() }.and_then(|extras| extras.name.as_deref())
    }
}

#[cfg(not(heist_asan))]
const _: () = assert!(size_of::<G>() <= 192, "a goroutine record is three cache lines");
