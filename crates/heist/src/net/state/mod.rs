//! The state of a descriptor: its lock, its deadlines and its poller.
//!
//! # Which poller
//! A descriptor is registered when a goroutine first has to wait for it, with the poller of that
//! goroutine's runtime, for as long as the runtime lives. So a connection that is served without
//! waiting costs no registration, and a listener made before the runtime starts works like any
//! other. When the runtime has ended, the next goroutine that waits registers the descriptor with
//! its own runtime.
//!
//! `home` changes only under the lock of the queues, and only from a poller whose runtime has
//! ended. So a thread reads it under that lock, or after it has claimed a goroutine that waits
//! there and before that goroutine continues.
//!
//! Any other waiter (a plain thread, or a goroutine of another runtime) waits in the kernel, for
//! the descriptor and for a bell that is rung when a deadline changes or the descriptor is closed.

mod waiting;

use super::error;
use super::queue::{self, Queues};
use crate::context::ContextError;
use crate::current;
use crate::netpoll::desc::{Desc, Half};
use crate::netpoll::poller::Shared;
use crate::sys::clock;
use crate::sys::fd;
use crate::sys::lock::Lock;
use crate::time::deadline_at;
use crate::wait::{FutureWait, Waiter};
use heist_core::fd_lock::{FdLock, Taken, Unlocked, Way};
use heist_core::readiness::Look;
use std::io;
use std::os::fd::RawFd;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// No deadline.
const NEVER: u64 = u64::MAX;

/// How long a thread pauses if the kernel reports the same error repeatedly.
const ERROR_PAUSE: Duration = Duration::from_millis(1);

/// The state of a descriptor.
pub struct State {
    pub(super) desc: &'static Desc,
    pub(super) fd: RawFd,
    lock: FdLock,
    queues: Lock<Queues>,
    /// The poller it is registered with: null, or a reference from an `Arc`.
    home: AtomicPtr<Shared>,
    /// When each direction fails, in the time of `clock::now_ns`.
    deadlines_ns: [AtomicU64; 2],
    /// How long one operation in each direction may take.
    timeouts_ns: [AtomicU64; 2],
    /// How many of the contexts that it is bound to are done: the lower half counts those that were
    /// cancelled, the upper half those whose deadline passed.
    interrupts: AtomicU64,
    /// Whether an operation fails where it would wait.
    nonblocking: AtomicBool,
    closing: Closing,
    /// The waker that was left last in each direction: its data and its table, to be compared.
    left: [[AtomicUsize; 2]; 2],
}

/// How the descriptor is closed before its value is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Closing {
    /// The open file behind it is closed.
    Retires,
    /// Other code may share it: it is left unchanged.
    LeavesAlone,
}

/// One context whose deadline passed.
const DEADLINE: u64 = 1 << 32;

/// What a context that is done adds to the interrupts.
const fn interrupt_of(error: ContextError) -> u64 {
    match error {
        ContextError::Canceled => 1,
        ContextError::DeadlineExceeded => DEADLINE,
    }
}

// SAFETY: everything that is not Sync by itself is behind the lock `queues`.
unsafe impl Sync for State {}
// SAFETY: as above.
unsafe impl Send for State {}

impl State {
    pub(super) fn new(fd: RawFd, closing: Closing) -> io::Result<Self> {
        // The lock of the pool is a lock of the runtime.
        let rt = current::enter();
        let desc = Desc::take();
        drop(rt);
        Ok(Self {
            desc: desc?,
            fd,
            lock: FdLock::new(),
            queues: Queues::new(),
            home: AtomicPtr::new(null_mut()),
            deadlines_ns: [const { AtomicU64::new(NEVER) }; 2],
            timeouts_ns: [const { AtomicU64::new(NEVER) }; 2],
            interrupts: AtomicU64::new(0),
            nonblocking: AtomicBool::new(false),
            closing,
            left: [const { [const { AtomicUsize::new(0) }; 2] }; 2],
        })
    }

    pub(super) const fn half(&self, way: Way) -> &'static Half {
        match way {
            Way::Read => &self.desc.read,
            Way::Write => &self.desc.write,
        }
    }

    /// Begins a use in one direction. [`State::unlock`] ends it. Waits for the direction until
    /// `until_ns`.
    #[inline]
    pub(super) fn lock(&self, way: Way, until_ns: u64) -> io::Result<()> {
        match self.lock.lock(way) {
            Taken::Yes => Ok(()),
            Taken::Busy => queue::lock(&self.lock, &self.queues, way, until_ns),
            taken => queue::done(taken),
        }
    }

    /// Begins a use in one direction, if it is free.
    pub(super) fn try_lock(&self, way: Way) -> io::Result<bool> {
        match self.lock.lock(way) {
            Taken::Busy => Ok(false),
            taken => queue::done(taken).map(|()| true),
        }
    }

    /// As [`lock`](Self::lock), as a future.
    pub(super) fn poll_lock(
        &self,
        way: Way,
        wait: &FutureWait,
        waker: &Waker,
    ) -> Poll<io::Result<()>> {
        if !wait.is_queued() {
            match self.lock.lock(way) {
                Taken::Busy => {}
                taken => return Poll::Ready(queue::done(taken)),
            }
        }
        queue::poll_lock(&self.lock, &self.queues, way, wait, waker)
    }

    /// Ends the wait of a future for a direction.
    pub(super) fn leave_queue(&self, way: Way, wait: &FutureWait) -> Unlocked {
        if queue::leave(&self.queues, way, wait) { self.unlock(way) } else { Unlocked::Done }
    }

    #[inline]
    pub(super) fn unlock(&self, way: Way) -> Unlocked {
        match self.lock.unlock(way) {
            Unlocked::Queued => queue::pass_on(&self.lock, &self.queues, way),
            ended => ended,
        }
    }

    /// Begins a use that needs no direction. [`State::release`] ends it.
    pub(super) fn acquire(&self) -> io::Result<()> {
        queue::done(self.lock.acquire())
    }

    pub(super) fn release(&self) -> Unlocked {
        self.lock.release()
    }

    /// Closes it: every operation that uses it, or queues for it, fails. Begins a use. False if it
    /// is closed already.
    pub(super) fn close(&self) -> bool {
        if !self.lock.close() {
            return false;
        }
        let rt = current::enter();
        queue::refuse_all(&self.queues, rt.as_ref());
        let homes = [Way::Read, Way::Write].map(|way| {
            let home = self.wake(rt.as_ref(), self.half(way).close().map(Waiter::from));
            self.queues.lock().ring(way);
            home
        });
        drop(rt);
        drop(homes);
        true
    }

    /// Detaches it from the poller. For the last user.
    pub(super) fn detach(&self) {
        let home = self.home.swap(null_mut(), Ordering::Relaxed);
        if !home.is_null() {
            // SAFETY: the reference that `attach` stored here.
            let home = unsafe { Arc::from_raw(home.cast_const()) };
            home.deregister(self.fd);
        }
    }

    /// Returns the record to its pool. The descriptor is closed or was given away.
    pub(super) fn give_back(&self) {
        let _rt = current::enter();
        self.desc.give();
    }

    /// Whether it has a poller: only then are there events.
    #[inline]
    pub(super) fn is_attached(&self) -> bool {
        !self.home.load(Ordering::Relaxed).is_null()
    }

    /// When an operation that begins now must end.
    #[inline]
    pub(super) fn end_of_operation(&self, way: Way) -> u64 {
        match self.timeouts_ns[way as usize].load(Ordering::Relaxed) {
            NEVER => NEVER,
            timeout => clock::now_ns().saturating_add(timeout),
        }
    }

    /// Fails if the descriptor is closed or its deadline is over; otherwise returns the deadline.
    /// `look` was taken before.
    #[inline]
    pub(super) fn check(&self, way: Way, look: Look) -> io::Result<u64> {
        if look.is_closed() {
            return Err(error::closed());
        }
        let interrupts = self.interrupts.load(Ordering::Relaxed);
        if interrupts != 0 {
            return Err(error::interrupted(match interrupts % DEADLINE {
                0 => ContextError::DeadlineExceeded,
                _ => ContextError::Canceled,
            }));
        }
        let deadline = self.deadlines_ns[way as usize].load(Ordering::Relaxed);
        if is_over(deadline) {
            return Err(error::timeout());
        }
        Ok(deadline)
    }

    /// Lets operations fail, now and later, because a context is done. Nothing happens to a
    /// descriptor that is closed.
    pub(super) fn interrupt(&self, by: ContextError) {
        self.interrupts.fetch_add(interrupt_of(by), Ordering::Relaxed);
        if self.acquire().is_err() {
            return;
        }
        self.poke(&[Way::Read, Way::Write]);
        if self.release() == Unlocked::Last {
            self.retire();
        }
    }

    /// Takes an interrupt back.
    pub(super) fn end_interrupt(&self, by: ContextError) {
        self.interrupts.fetch_sub(interrupt_of(by), Ordering::Relaxed);
    }

    pub(super) fn is_nonblocking(&self) -> bool {
        self.nonblocking.load(Ordering::Relaxed)
    }

    pub(super) fn set_nonblocking(&self, nonblocking: bool) {
        self.nonblocking.store(nonblocking, Ordering::Relaxed);
    }

    /// Closes the open file, after the last use of a closed descriptor has ended. The number of the
    /// descriptor stays in use until its value is dropped, because other code may have borrowed
    /// it.
    pub(super) fn retire(&self) {
        self.detach();
        if self.closing == Closing::Retires {
            fd::retire(self.fd);
        }
    }

    /// Sets the deadline of directions. The caller has begun a use of the descriptor.
    pub(super) fn set_deadline(&self, ways: &[Way], deadline: Option<Instant>) {
        let at = deadline.map_or(NEVER, deadline_at);
        for &way in ways {
            self.deadlines_ns[way as usize].store(at, Ordering::Relaxed);
        }
        self.poke(ways);
    }

    /// Lets the operations of directions check their terms again. The caller has begun a use of the
    /// descriptor.
    fn poke(&self, ways: &[Way]) {
        for &way in ways {
            let rt = current::enter();
            // The poke orders memory: an operation that looks after it sees the new terms.
            let home = self.wake(rt.as_ref(), self.half(way).poke().map(Waiter::from));
            self.queues.lock().ring(way);
            drop(rt);
            drop(home);
        }
    }

    pub(super) fn set_timeout(&self, way: Way, timeout: Option<Duration>) -> io::Result<()> {
        if timeout.is_some_and(|timeout| timeout.is_zero()) {
            let text = "cannot set a 0 duration timeout";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let ns = timeout.map_or(NEVER, saturating_ns);
        self.timeouts_ns[way as usize].store(ns, Ordering::Relaxed);
        Ok(())
    }

    pub(super) fn timeout(&self, way: Way) -> Option<Duration> {
        match self.timeouts_ns[way as usize].load(Ordering::Relaxed) {
            NEVER => None,
            ns => Some(Duration::from_nanos(ns)),
        }
    }
}

/// Whether a moment has passed; `NEVER` does not.
#[inline]
pub(super) fn is_over(until_ns: u64) -> bool {
    until_ns != NEVER && clock::now_ns() >= until_ns
}

fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}
