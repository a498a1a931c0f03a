//! `G`: a goroutine.
//!
//! A record of three cache lines that never moves and is never unmapped. Finished records return to
//! a pool that all runtimes of the process share, so a handle may read its record at any time. The
//! closure, and later the result, live in the record itself if they are small.
//!
//! # Access to the fields
//! - `status`, `join`, `flags`: atomic, anyone.
//! - the `Shown` fields: their owner writes, anyone reads.
//! - `extras`: their owner; other threads read the name only (`gmp::extras`).
//! - the `Cell` fields: the owner of the goroutine in the sense of `status` (the M that took it
//!   from a queue, the M that runs it, the claimer). Ownership passes through a queue or the status
//!   word, which order memory.
//! - `payload`: the goroutine until `join` says that it has finished, then the handle. The last
//!   word of a task's payload is its `TaskWord`: atomic, anyone with a reference.

use super::M;
use super::extras::ExtrasPointer;
use super::flags::{Flag, Flags};
use super::shown::{ShownByte, ShownNumber, ShownPointer};
use crate::coro::stack::Class;
use crate::coro::switch::Coro;
use crate::sched::Sched;
use crate::sys::memory::prefetch_for_write;
use heist_core::global_queue::Lane;
use heist_core::join::JoinWord;
use heist_core::list::{Link, Linked};
use heist_core::status::{StatusWord, Ticket};
use heist_core::sync::{AtomicU16, Ordering};
use heist_core::task_word::TaskWord;
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::panic::Location;

/// Bytes of closure or result that fit into the record.
pub(crate) const INLINE_BYTES: usize = 56;
/// The strictest alignment that fits into the record.
pub(crate) const INLINE_ALIGN: usize = 8;

/// Bytes of future or result that fit into the record of a task. Its word is behind them.
pub(crate) const TASK_INLINE_BYTES: usize = INLINE_BYTES - size_of::<TaskWord>();

/// Room for a small closure or result.
#[repr(C, align(8))]
pub(crate) struct Payload(UnsafeCell<MaybeUninit<[u8; INLINE_BYTES]>>);

impl Payload {
    /// The address of the value. Only the generic code that wrote it knows its type.
    pub(crate) const fn as_ptr<T>(&self) -> *mut T {
        self.0.get().cast()
    }
}

/// The code for one closure type, reached through a pointer.
pub(crate) struct Vtable {
    /// It is the code of a half of a fork.
    pub(crate) is_half: bool,
    /// Moves the closure out, runs it, stores the result.
    pub(crate) run: unsafe fn(&G),
    /// Drops the closure of a goroutine that never ran.
    pub(crate) drop_closure: unsafe fn(&G),
    /// Drops a result that was not taken.
    pub(crate) drop_result: unsafe fn(&G),
}

const _: () = assert!(align_of::<Vtable>() >= heist_core::block_predictor::KIND_ALIGN);

/// How a goroutine ended. Valid once `join` says that it has finished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It has not ended.
    None,
    /// The closure returned; `payload` holds its result.
    Returned,
    /// It panicked; `payload` holds the `Box<dyn Any + Send>`.
    Panicked,
    /// It was cancelled and unwound; nothing is held.
    Cancelled,
    /// It called `exit_current`; nothing is held.
    Exited,
    /// It overflowed its stack and was abandoned; it never uses its record again.
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
    Once => "once wait",
    Scope => "scope wait",
    Fork => "fork join",
    ChanReceive => "chan receive",
    ChanSend => "chan send",
    ChanReceiveNil => "chan receive (nil chan)",
    ChanSendNil => "chan send (nil chan)",
    Select => "select",
    SelectNoCases => "select (no cases)",
    Task => "future pending",
    BlockOn => "block on future",
}

/// The cause of the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Woken {
    /// A waker: the event that it waited for.
    Ready,
    /// The clock: its deadline has passed.
    TimedOut,
    /// A canceller: the goroutine removes its entries from queues, then unwinds.
    Cancelled,
}

/// The bit of `waits_since` that is set while a latency is measured.
const SAMPLED: u16 = 1 << 15;

/// The bit of `wait_reason` that marks a leaked goroutine.
const LEAKED: u8 = 1 << 7;

/// The bit of `started` that is set when the goroutine has a stack.
const STARTED: u8 = 1;

/// The data that few goroutines have and that is therefore not in the record.
#[derive(Debug, Default)]
pub(crate) struct Extras {
    /// The flag of its class, or none.
    pub(crate) class: Flag,
    pub(crate) name: Option<Box<str>>,
    pub(crate) stack: Option<Class>,
    /// It is locked to the thread on which it starts.
    pub(crate) os_thread: bool,
}

/// A goroutine.
///
/// The order of the fields is the order of the cache lines. An M that runs a goroutine with a small
/// closure from beginning to end touches the first two; the spawner writes all three.
#[repr(C, align(64))]
pub(crate) struct G {
    /// The next one in its queue, or on the free list. While it waits it is in neither: then this
    /// is the time at which the clock wakes it.
    link: Link<G>,
    pub(crate) status: StatusWord,
    pub(crate) join: JoinWord,
    pub(crate) flags: Flags,
    /// While it waits: the minute of its runtime at which the wait began, which wraps after 22
    /// days. While it is runnable and its latency is measured: `SAMPLED`, and the number under
    /// which the starting time is kept; see `metrics::latency`.
    waits_since: AtomicU16,
    pub(crate) outcome: Cell<Outcome>,
    pub(super) wait_reason: ShownByte,
    /// Whether it has a stack, and above that bit the number of guards that it holds against
    /// preemption by a signal. Its owner writes; the signal handler that reads it runs on the
    /// owner's thread.
    pub(super) started: ShownByte,
    /// The cause of the end of the last wait; written by the claimer.
    pub(crate) woken: Cell<Woken>,
    pub(crate) vtable: ShownPointer<Vtable>,
    /// The M it must run on: it parked while panicking, or is locked to its thread.
    pub(crate) bound_m: ShownPointer<M>,
    /// A reference from an `Arc`, which the record owns.
    pub(crate) extras: ExtrasPointer,
    pub(crate) sched: ShownPointer<Sched>,
    // Second line.
    pub(crate) coro: Coro,
    pub(crate) payload: Payload,
    // Third line, after the larger part of the payload.
    /// The ticket of the wait that joins this goroutine, or the waker of a future that does
    /// (`sched::futures::waker::Packed`). Written before the waiter's address goes into `join`.
    pub(crate) joiner: Cell<Ticket>,
    pub(crate) id: ShownNumber,
    pub(crate) parent_id: ShownNumber,
    pub(super) spawn_site: ShownPointer<Location<'static>>,
}

// SAFETY: see "Access to the fields" above: every non-atomic field has one owner at a time, and
// ownership is handed over by synchronising operations.
unsafe impl Sync for G {}
// SAFETY: as above.
unsafe impl Send for G {}

// SAFETY: `link` is used by the queues and free lists, and by a goroutine that waits, which is in
// none of them.
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
            flags: Flags::new(),
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
            extras: ExtrasPointer::null(),
            joiner: Cell::new(Ticket::NONE),
            coro: Coro::none(),
            payload: Payload(UnsafeCell::new(MaybeUninit::uninit())),
        }
    }

    /// Sets when the clock ends the wait that is about to begin, or `NEVER`. For the goroutine's
    /// owner.
    #[inline]
    pub(crate) fn set_due(&self, when: u64) {
        self.link.set_number(when);
    }

    /// When the clock ends the wait it is in. Meaningless if it does not wait.
    #[inline]
    pub(crate) fn due(&self) -> u64 {
        self.link.number()
    }

    /// Its kind: goroutines with the same closure type have the same kind.
    #[inline]
    pub(crate) fn kind(&self) -> usize {
        self.vtable.get().addr()
    }

    /// Prefetches the lines of a record that is about to be written.
    #[inline]
    pub(crate) fn prefetch(record: *const Self, lines: usize) {
        if !record.is_null() {
            for line in 0..lines {
                prefetch_for_write(record.wrapping_byte_add(64 * line).cast());
            }
        }
    }

    /// Prefetches the top of this goroutine's stack. For the claimer, after a long wait.
    pub(crate) fn prefetch_stack(&self) {
        if self.has_started() {
            self.coro.prefetch_stack();
        }
    }

    /// Whether this goroutine was cancelled.
    #[inline]
    pub(crate) fn is_cancelled(&self) -> bool {
        self.flags.has(Flag::CANCELLED)
    }

    /// The lane of the global queue in which its class waits.
    #[inline]
    pub(crate) fn lane(&self) -> Lane {
        if !self.is_classed() {
            Lane::Normal
        } else if self.flags.began_with(Flag::LATENCY) {
            Lane::Latency
        } else {
            Lane::Idle
        }
    }

    /// Whether its class is not the normal one.
    #[inline]
    pub(crate) fn is_classed(&self) -> bool {
        self.flags.began_with(Flag::LATENCY | Flag::IDLE)
    }

    /// Whether it may be preempted by a signal.
    pub(crate) fn may_be_forced(&self) -> bool {
        self.started.get() < 2 * STARTED
    }

    /// Adds a guard against preemption by a signal. False if there are too many. Only the goroutine
    /// itself calls this and `allow_force`.
    pub(crate) fn forbid_force(&self) -> bool {
        let more = self.started.get().checked_add(2 * STARTED);
        more.inspect(|&more| self.started.set(more)).is_some()
    }

    /// Removes a guard.
    pub(crate) fn allow_force(&self) {
        self.started.set(self.started.get() - 2 * STARTED);
    }

    /// Whether it has a stack.
    #[inline]
    pub(crate) fn has_started(&self) -> bool {
        self.started.get() & STARTED != 0
    }

    /// Sets whether it has a stack. The goroutine holds no guards.
    #[inline]
    pub(crate) fn set_started(&self, started: bool) {
        self.started.set(if started { STARTED } else { 0 });
    }

    /// Whether it is a half of a fork that was taken from the goroutine that forked it.
    pub(crate) fn is_forked(&self) -> bool {
        // SAFETY: null, or the address of a table, which is static.
        unsafe { self.vtable.get().as_ref() }.is_some_and(|vtable| vtable.is_half)
    }

    /// Why it waits, or waited last.
    pub(crate) fn wait_reason(&self) -> WaitReason {
        let reason = WaitReason::ALL.get(usize::from(self.wait_reason.get() & !LEAKED));
        reason.copied().unwrap_or(WaitReason::Join)
    }

    /// Sets why it is about to wait.
    #[inline]
    pub(crate) fn set_wait_reason(&self, reason: WaitReason) {
        self.wait_reason.set(reason as u8);
    }

    /// Whether the last search found that nothing can end its wait: a mark for reports.
    pub(crate) fn is_leaked(&self) -> bool {
        self.wait_reason.get() & LEAKED != 0
    }

    /// Sets the mark, or removes it. The next wait removes it, too.
    pub(crate) fn set_leaked(&self, leaked: bool) {
        let reason = self.wait_reason.get() & !LEAKED;
        self.wait_reason.set(if leaked { reason | LEAKED } else { reason });
    }

    /// Notes that its wait begins at this minute of its runtime.
    #[inline]
    pub(crate) fn set_waits_since(&self, minute: u32) {
        self.waits_since.store(minute as u16 & !SAMPLED, Ordering::Relaxed);
    }

    /// Notes that its latency is measured from now on; `number` says where the starting time is
    /// kept. For the thread that makes it runnable.
    pub(crate) fn set_sampled(&self, number: u32) {
        self.waits_since.store(number as u16 | SAMPLED, Ordering::Relaxed);
    }

    /// Ends the measurement of its latency and returns the number, if there was one. For the M that
    /// runs it.
    #[inline]
    pub(crate) fn take_sampled(&self) -> Option<u32> {
        let number = self.waits_since.load(Ordering::Relaxed);
        if number & SAMPLED == 0 {
            return None;
        }
        self.waits_since.store(0, Ordering::Relaxed);
        Some((number & !SAMPLED).into())
    }

    /// For how many minutes it has waited at minute `now`.
    pub(crate) fn waited_minutes(&self, now: u32) -> u16 {
        (now as u16).wrapping_sub(self.waits_since.load(Ordering::Relaxed)) & !SAMPLED
    }

    /// Where it was spawned.
    pub(crate) fn spawn_site(&self) -> Option<&'static Location<'static>> {
        // SAFETY: null, or the address of a location, which is static.
        unsafe { self.spawn_site.get().as_ref() }
    }

    /// Sets where it is spawned.
    #[inline]
    pub(crate) fn set_spawn_site(&self, site: &'static Location<'static>) {
        self.spawn_site.set(site);
    }

    /// The word of a task.
    ///
    /// # Safety
    /// The record is that of a task, or of a `sched::futures::parker::Parker`, and the caller keeps
    /// it from being recycled: it owns it, or has a reference.
    #[inline]
    pub(crate) const unsafe fn task_word(&self) -> &TaskWord {
        // SAFETY: inside the payload and aligned; by the caller's promise the word was written.
        unsafe { &*self.payload.as_ptr::<u8>().add(TASK_INLINE_BYTES).cast() }
    }

    /// Whether it is a task between two polls, if it waits or is runnable.
    #[inline]
    pub(crate) fn is_idle_task(&self) -> bool {
        self.flags.has(Flag::TASK) && !self.has_started()
    }

    /// The name its builder gave it.
    pub(crate) fn name(&self) -> Option<&str> {
        // SAFETY: the extras live as long as the goroutine, and the caller uses a live one.
        unsafe { self.extras.get().as_ref() }.and_then(|extras| extras.name.as_deref())
    }
}

#[cfg(not(any(heist_asan, heist_tsan)))]
const _: () = assert!(size_of::<G>() <= 192, "a goroutine record is three cache lines");
