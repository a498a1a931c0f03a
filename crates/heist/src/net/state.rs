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

use super::error;
use super::queue::{self, Queues};
use crate::context::ContextError;
use crate::current::{self, InRuntime};
use crate::goroutine::task;
use crate::netpoll::desc::{Desc, Half};
use crate::netpoll::poller::Shared;
use crate::sched::stall::blocking;
use crate::sys::clock;
use crate::sys::fd;
use crate::sys::lock::Lock;
use crate::sys::poll::{self, For, Polled};
use crate::time::deadline_at;
use crate::wait::{self, FutureWait, Waiter};
use heist_core::fd_lock::{FdLock, Taken, Unlocked, Way};
use heist_core::readiness::{Edge, Look};
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

    /// Waits until an operation in the direction may succeed, the direction is poked, or `until` is
    /// over. May return early: the caller, which holds the direction, checks again.
    pub(super) fn wait(&self, way: Way, look: Look, until: u64) -> io::Result<()> {
        let Some(rt) = wait::park_point(current::enter()) else {
            return self.wait_as_thread(way, look, until);
        };
        if wait::is_cancelled_but_spared(&rt) {
            // A destructor of a cancelled goroutine, such as a buffer that is flushed, must not
            // wait for the other end: it may never become ready, and the wait could not be
            // cancelled again.
            drop(rt);
            return Err(error::cancelled());
        }
        // Freed at the end of this function, outside the runtime.
        let mut former = None;
        match self.attach(&rt, &mut former) {
            Ok(Some(home)) => {
                wait::wait_for_event(rt, self.half(way), look, home, until);
                Ok(())
            }
            Ok(None) => {
                drop(rt);
                blocking::blocking(|| self.wait_as_thread(way, look, until))
            }
            Err(error) => {
                drop(rt);
                Err(error)
            }
        }
    }

    /// Lets the next event in the direction call `waker`. False if something happened since `look`.
    /// The caller holds the direction.
    pub(super) fn leave_waker(&self, way: Way, look: Look, waker: &Waker) -> io::Result<bool> {
        let Some(rt) = current::enter() else {
            return Err(io::Error::other("heist::net: awaited outside a heist runtime"));
        };
        // Freed at the end of this function, outside the runtime.
        let mut former = None;
        let home = self.attach(&rt, &mut former);
        drop(rt);
        let Some(home) = home? else {
            return Err(io::Error::other("heist::net: awaited in another runtime than before"));
        };
        let left = task::leave_waker(self.half(way), look, home, waker);
        if let Ok(true) = left {
            let [data, vtable] = &self.left[way as usize];
            data.store(waker.data().addr(), Ordering::Relaxed);
            vtable.store(std::ptr::from_ref(waker.vtable()).addr(), Ordering::Relaxed);
        }
        left.map_err(io::Error::other)
    }

    /// Whether `waker` is the one that was left in the direction, in which something waits. The
    /// caller holds the direction.
    pub(super) fn is_left(&self, way: Way, waker: &Waker) -> bool {
        let [data, vtable] = &self.left[way as usize];
        // As long as it is left there, it is not freed, so no other has its address.
        data.load(Ordering::Relaxed) == waker.data().addr()
            && vtable.load(Ordering::Relaxed) == std::ptr::from_ref(waker.vtable()).addr()
    }

    /// Calls the waker that was left in the direction. The caller holds the direction, and waits
    /// there itself.
    #[cold]
    pub(super) fn take_over(&self, way: Way) {
        let rt = current::enter();
        let home = self.wake(rt.as_ref(), self.half(way).poke().map(Waiter::from));
        drop(rt);
        drop(home);
    }

    /// Registers the descriptor, unless it is registered with a poller that lives. None if it
    /// belongs to another runtime. The reference to the poller that it belonged to is moved to
    /// `former`.
    fn attach(
        &self,
        rt: &InRuntime,
        former: &mut Option<Arc<Shared>>,
    ) -> io::Result<Option<&Shared>> {
        let here = rt.sched().outside.poller().shared();
        // ORDERING: Acquire pairs with the store below: a thread that sees the poller sees the
        // descriptor registered.
        let mut home = self.home.load(Ordering::Acquire);
        if !std::ptr::eq(home, Arc::as_ptr(here)) {
            let guard = self.queues.lock();
            home = self.home.load(Ordering::Relaxed);
            // SAFETY: null, or a reference that this descriptor owns, which is removed only under
            // the lock.
            if unsafe { home.as_ref() }.is_none_or(Shared::has_ended) {
                here.register(self.fd, self.desc)?;
                if !home.is_null() {
                    // Tasks of a runtime that has ended may have left their addresses here.
                    for way in [Way::Read, Way::Write] {
                        if let Some(left) = self.half(way).poke().map(Waiter::from)
                            && left.claim()
                        {
                            // SAFETY: just taken out and claimed.
                            unsafe { left.wake_claimed(Some(rt)) };
                        }
                    }
                    // SAFETY: as above; it is removed here.
                    let old = unsafe { Arc::from_raw(home.cast_const()) };
                    old.deregister(self.fd);
                    *former = Some(old);
                }
                home = Arc::into_raw(Arc::clone(here)).cast_mut();
                // ORDERING: Release: see the load above.
                self.home.store(home, Ordering::Release);
            }
            drop(guard);
        }
        // SAFETY: it is the poller of the calling goroutine's runtime, which outlives the
        // goroutine.
        Ok(std::ptr::eq(home, Arc::as_ptr(here)).then(|| unsafe { &*home }))
    }

    fn wait_as_thread(&self, way: Way, look: Look, until: u64) -> io::Result<()> {
        let bell = self.queues.lock().bell(way)?.fd();
        poll::silence(bell);
        // A thread that changed something before the bell was silenced had changed the word before
        // that.
        if self.half(way).look() != look {
            return Ok(());
        }
        let until = (until != NEVER).then_some(until);
        let edge = match poll::wait(self.fd, what(way), bell, until)? {
            Polled::Ready => Edge::Plain,
            Polled::HungUp => Edge::Eager,
            Polled::Broken => {
                if look.is_eager() {
                    // The kernel reported this before, and the operation found nothing: it is an
                    // error that the operation does not clear, and that the kernel would report
                    // forever.
                    poll::pause(bell, ERROR_PAUSE);
                }
                Edge::Eager
            }
            Polled::Again => return Ok(()),
        };
        // No goroutine waits there: this thread holds the direction.
        let _ = self.half(way).event(edge);
        Ok(())
    }

    /// Asks the kernel: Ok, or `WouldBlock`.
    pub(super) fn is_ready(&self, way: Way) -> io::Result<()> {
        match poll::wait(self.fd, what(way), poll::NO_BELL, Some(0))? {
            Polled::Ready | Polled::HungUp | Polled::Broken => Ok(()),
            Polled::Again => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Wakes the waiter that was taken out of a direction. Returns a reference to the poller where
    /// it waited, to be dropped outside the runtime.
    fn wake(&self, rt: Option<&InRuntime>, waiter: Option<Waiter>) -> Option<Arc<Shared>> {
        let waiter = waiter.filter(Waiter::claim)?;
        // A task that waited may have ended with its runtime: the lock keeps the reference.
        let guard = self.queues.lock();
        // ORDERING: Acquire: see `attach`.
        let home = self.home.load(Ordering::Acquire).cast_const();
        // SAFETY: something waits there, so it is not null; the descriptor's reference is replaced
        // under the lock only, and is not given up while the descriptor is in use.
        let home = unsafe {
            Arc::increment_strong_count(home);
            Arc::from_raw(home)
        };
        drop(guard);
        waiter.count_born();
        // SAFETY: just claimed.
        unsafe { waiter.wake_claimed(rt) };
        home.waiters_gone(1);
        Some(home)
    }
}

/// Whether a moment has passed; `NEVER` does not.
#[inline]
pub(super) fn is_over(until_ns: u64) -> bool {
    until_ns != NEVER && clock::now_ns() >= until_ns
}

const fn what(way: Way) -> For {
    match way {
        Way::Read => For::Reading,
        Way::Write => For::Writing,
    }
}

fn saturating_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}
