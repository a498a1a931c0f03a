//! The life of a goroutine as checked transitions of one word.
//!
//! ```text
//!            spawn            execute
//!   Dead ----------> Runnable ------> Running ----> Dead
//!                      ^  ^             |  |
//!                      |  +----yield----+  |
//!                      +-----claim--- Waiting
//! ```
//!
//! The word also carries a number that grows by one when the goroutine begins to run and when it
//! begins to wait. The number of a wait is its ticket. A waker names the wait that it wants to
//! end; the compare-and-swap from `Waiting` with that ticket to `Runnable` is the claim. Of several
//! wakers (two channels of a select, a timeout, a cancellation) exactly one wins, and a waker that
//! comes after the wait is over cannot hit the next one. An execution trace orders the events of
//! a goroutine by the same number.
//!
//! A goroutine in a blocking call, and one that was stopped by force together with its thread, have
//! no status of their own: the first is `Running`, and the word of its M says where the thread is
//! (`m_word`); the second is `Runnable` and bound to its M.
//!
//! # Sealed waits
//! A goroutine that parks is published to its wakers by a commit function, after it began to wait.
//! A holder of the ticket is one of them and may claim it from then on. A canceller has no ticket:
//! it reads it from the word, and could claim the goroutine while the commit function is still
//! running, on behalf of a goroutine that already runs elsewhere. This is harmless for commit
//! functions that only release a lock which the goroutine takes again. For all others the wait
//! begins sealed: the word does not show the ticket until the commit is over.
//!
//! # The owner of the goroutine
//! - `Runnable`: the queue it is in, or the thread that is moving it.
//! - `Running`: the M that runs it. Only that M leaves this state, by a plain store.
//! - `Waiting`: no thread, until a claim succeeds; then the claimer.
//!
//! # Ordering
//! - A goroutine that can be cancelled enters `Waiting`, then loads its cancel flag; the canceller
//!   stores the flag, then asks whether it waits. One of them must see the other. Waiting is
//!   frequent and cancelling is rare, so the goroutine stores the word and executes a light fence,
//!   and the canceller a heavy one between its two steps (see `m_word` for the pair). The model
//!   `loom_park_versus_ready` runs it, with full fences.
//! - Every other waker found the wait through a queue, whose lock, or word, orders the entry before
//!   the claim.
//! - A reader that does not own the goroutine (`see`, `is_still`) loads the word with Acquire, and
//!   again after an Acquire fence: if the two are equal and say `Waiting`, its reads in between are
//!   ordered after the Release that began the wait and before the claim that ended it.
//! - A claim is AcqRel: the claimer sees what the goroutine wrote before it parked, and the M that
//!   runs it next (through a queue) sees what the claimer wrote.
//!
//! GO: runtime2.go _Gidle.., proc.go casgstatus, ready.

use crate::sync::{AtomicU64, Ordering, fence, keep_seq_cst};

/// Where a goroutine is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Status {
    /// Not in use: on a free list, or just out of it.
    Dead = 0,
    /// In a run queue, or on its way from one to another.
    Runnable = 1,
    /// Running on an M.
    Running = 2,
    /// Parked until a waker claims it.
    Waiting = 3,
}

impl Status {
    /// All statuses.
    pub const ALL: [Self; 4] = [Self::Dead, Self::Runnable, Self::Running, Self::Waiting];

    /// Whether a goroutine may go from this status to `to`.
    #[must_use]
    pub const fn may_become(self, to: Self) -> bool {
        use Status::{Dead, Runnable, Running, Waiting};
        matches!(
            (self, to),
            (Dead, Runnable | Waiting)
                | (Runnable, Running)
                | (Running, Runnable | Waiting | Dead)
                | (Waiting, Runnable)
        )
    }

    /// Go's name of it in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Runnable => "runnable",
            Self::Running => "running",
            Self::Waiting => "waiting",
        }
    }

    /// Whether this is the status in a word.
    #[inline]
    const fn is_in(self, word: u64) -> bool {
        word & STATUS_MASK & !SEALED == self as u64
    }

    const fn from_bits(bits: u64) -> Self {
        Self::ALL[(bits & STATUS_MASK & !SEALED) as usize]
    }
}

/// Names one wait of one goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket(u64);

impl Ticket {
    /// Names no wait: tickets count from one.
    pub const NONE: Self = Self(0);

    /// As a number, for an atomic.
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// From the number of [`Ticket::to_bits`].
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}

/// A status word as it was read, for readers that look at a goroutine that they do not own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u64);

impl Seen {
    /// The status that was seen.
    #[must_use]
    pub const fn status(self) -> Status {
        Status::from_bits(self.0)
    }
}

const STATUS_MASK: u64 = 0xff;
/// Set in the status byte of a wait whose ticket is not shown.
const SEALED: u64 = 0x80;
const TICKET_ONE: u64 = 0x100;

/// The status of a goroutine with its number.
#[derive(Debug)]
pub struct StatusWord(AtomicU64);

impl StatusWord {
    /// A dead goroutine that never waited.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU64::new(Status::Dead as u64))
    }

    /// The status at some recent moment.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Status {
        Status::from_bits(self.0.load(Ordering::Acquire))
    }

    /// How often it began to run or to wait; the ticket of a goroutine that waits.
    #[inline]
    #[must_use]
    pub fn number(&self) -> u64 {
        self.0.load(Ordering::Relaxed) / TICKET_ONE
    }

    /// The status and the number at one recent moment.
    #[must_use]
    pub fn look(&self) -> (Status, u64) {
        let word = self.0.load(Ordering::Acquire);
        (Status::from_bits(word), word / TICKET_ONE)
    }

    /// The word, to be compared later by [`StatusWord::is_still`].
    #[must_use]
    pub fn see(&self) -> Seen {
        Seen(self.0.load(Ordering::Acquire) & !SEALED)
    }

    /// Whether the word is the one that was seen. Then a goroutine that was waiting has waited all
    /// the time since, because each wait has its own ticket: what the reader read meanwhile is
    /// what the goroutine left. A goroutine that was runnable may have run.
    #[must_use]
    pub fn is_still(&self, seen: Seen) -> bool {
        // The reads of what the word guards come before this one.
        fence(Ordering::Acquire);
        self.0.load(Ordering::Relaxed) & !SEALED == seen.0
    }

    /// If it waits, and not sealed, the ticket to claim it with.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> Option<Ticket> {
        keep_seq_cst();
        let word = self.0.load(Ordering::SeqCst);
        (word & STATUS_MASK == Status::Waiting as u64).then_some(Ticket(word & !STATUS_MASK))
    }

    /// Begins the wait of an unborn goroutine: it starts when it is claimed.
    #[must_use]
    pub fn begin_unborn_wait(&self) -> Ticket {
        let word = self.0.load(Ordering::Relaxed);
        if !Status::Dead.is_in(word) {
            bad_transition(word, Status::Dead, Status::Waiting);
        }
        self.enter_waiting(word, 0)
    }

    /// Changes the status. The caller owns the goroutine, so no other thread changes the word
    /// meanwhile. A waiting goroutine has no owner: from there this is [`StatusWord::claim_sole`].
    #[inline]
    #[doc(alias = "casgstatus")]
    pub fn transition(&self, from: Status, to: Status) {
        let word = self.0.load(Ordering::Relaxed);
        if !from.is_in(word) || !from.may_become(to) {
            bad_transition(word, from, to);
        }
        if from == Status::Waiting {
            self.claim_sole();
        } else if to == Status::Waiting {
            self.enter_waiting(word, 0);
        } else {
            let step = if from == Status::Runnable { TICKET_ONE } else { 0 };
            let number = (word & !STATUS_MASK).wrapping_add(step);
            self.0.store(number | to as u64, Ordering::Release);
        }
    }

    /// Begins a wait of the running goroutine. From here on it can be claimed.
    ///
    /// `light_fence` pairs with the heavy one of a canceller.
    #[inline]
    pub fn begin_wait(&self, light_fence: impl FnOnce()) -> Ticket {
        let word = self.0.load(Ordering::Relaxed);
        if !Status::Running.is_in(word) {
            bad_transition(word, Status::Running, Status::Waiting);
        }
        let ticket = (word & !STATUS_MASK).wrapping_add(TICKET_ONE);
        // No other thread changes the word of a running goroutine.
        self.0.store(ticket | Status::Waiting as u64, Ordering::Release);
        light_fence();
        Ticket(ticket)
    }

    /// As [`StatusWord::begin_wait`], but the word does not show the ticket until
    /// [`StatusWord::unseal`].
    #[inline]
    pub fn begin_sealed_wait(&self) -> Ticket {
        let word = self.0.load(Ordering::Relaxed);
        if !Status::Running.is_in(word) {
            bad_transition(word, Status::Running, Status::Waiting);
        }
        self.enter_waiting(word, SEALED)
    }

    /// Begins a sealed wait of a task that goes idle. The owner of the task ends the seal, and then
    /// checks for a cancellation: [`StatusWord::unseal`] has the ordering for that.
    #[inline]
    pub fn begin_idle_wait(&self) -> Ticket {
        let word = self.0.load(Ordering::Relaxed);
        if !Status::Running.is_in(word) {
            bad_transition(word, Status::Running, Status::Waiting);
        }
        let ticket = (word & !STATUS_MASK).wrapping_add(TICKET_ONE);
        // No other thread changes the word of a running goroutine.
        self.0.store(ticket | Status::Waiting as u64 | SEALED, Ordering::Release);
        Ticket(ticket)
    }

    /// Ends the seal: the commit is over. Does nothing if a holder of the ticket was faster.
    #[inline]
    pub fn unseal(&self, ticket: Ticket) {
        let waiting = ticket.0 | Status::Waiting as u64;
        // ORDERING: SeqCst, as for entering the wait: the read of the cancel flag comes after it.
        let _ =
            self.0.compare_exchange(waiting | SEALED, waiting, Ordering::SeqCst, Ordering::Relaxed);
        keep_seq_cst();
    }

    /// Every wait has its own ticket, however it began: a waker of an earlier one, or of an earlier
    /// goroutine with the same record, must not hit it.
    #[inline]
    fn enter_waiting(&self, word: u64, sealed: u64) -> Ticket {
        let ticket = (word & !STATUS_MASK).wrapping_add(TICKET_ONE);
        self.0.swap(ticket | Status::Waiting as u64 | sealed, Ordering::SeqCst);
        keep_seq_cst();
        Ticket(ticket)
    }

    /// The ticket that the next wait will have. Only for the running goroutine itself, to put into
    /// queues before it parks.
    #[inline]
    #[must_use]
    pub fn next_ticket(&self) -> Ticket {
        Ticket((self.0.load(Ordering::Relaxed) & !STATUS_MASK).wrapping_add(TICKET_ONE))
    }

    /// Claims the wait that `ticket` names: true for one caller only, which must then put the
    /// goroutine into a queue.
    #[inline]
    #[must_use]
    pub fn claim(&self, ticket: Ticket) -> bool {
        let mut waiting = ticket.0 | Status::Waiting as u64;
        loop {
            let runnable = ticket.0 | Status::Runnable as u64;
            match self.0.compare_exchange(waiting, runnable, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                // Sealed, or unsealed between two reads.
                Err(now) if now & !SEALED == waiting & !SEALED => waiting = now,
                Err(_) => return false,
            }
        }
    }

    /// Whether the wait that `ticket` names has begun and was not claimed.
    #[must_use]
    pub fn is_waiting(&self, ticket: Ticket) -> bool {
        let word = self.0.load(Ordering::Acquire);
        word & !SEALED == ticket.0 | Status::Waiting as u64
    }

    /// Claims the current wait, if `is_meant` accepts it and its commit is over.
    ///
    /// `is_meant` may read what the goroutine's owner wrote before the wait began and what does not
    /// change while it lasts. If the wait ends meanwhile, the values may be meaningless, and the
    /// claim fails.
    #[inline]
    #[must_use]
    pub fn claim_if(&self, is_meant: impl FnOnce() -> bool) -> bool {
        let word = self.0.load(Ordering::Acquire);
        word & STATUS_MASK == Status::Waiting as u64
            && is_meant()
            && self.claim(Ticket(word & !STATUS_MASK))
    }

    /// As [`StatusWord::claim_if`], for a waker of a task, which may end a sealed wait.
    #[inline]
    #[must_use]
    pub fn claim_idle(&self, is_meant: impl FnOnce() -> bool) -> bool {
        let word = self.0.load(Ordering::Acquire);
        Status::Waiting.is_in(word) && is_meant() && self.claim(Ticket(word & !STATUS_MASK))
    }

    /// Claims a goroutine that must be waiting for this caller alone.
    #[inline]
    pub fn claim_sole(&self) {
        let word = self.0.load(Ordering::Relaxed);
        if !Status::Waiting.is_in(word) || !self.claim(Ticket(word & !STATUS_MASK)) {
            bad_transition(word, Status::Waiting, Status::Runnable);
        }
    }
}

impl Default for StatusWord {
    fn default() -> Self {
        Self::new()
    }
}

#[cold]
#[inline(never)]
fn bad_transition(word: u64, from: Status, to: Status) -> ! {
    crate::throw!(
        "StatusWord: {} -> {} asked of a goroutine that is {}",
        from.name(),
        to.name(),
        Status::from_bits(word).name()
    );
}
