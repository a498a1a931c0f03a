//! `Poller`: waits for the descriptors of a runtime.
//!
//! One thread polls at a time. The scheduler's gate ensures that, and it is checked here. The
//! poller claims the goroutines that it finds, as every waker does, and returns them as a list of
//! runnable goroutines. Nothing here allocates, needs a P, or makes a goroutine run.
//!
//! # Time
//! The kernel's poll counts milliseconds. Timers count microseconds, so the end of a wait is set in
//! a timer descriptor that is polled with the others. It is set only if it is not set to that
//! moment already.
//!
//! # Breaking a poll
//! [`Poller::wake`] makes the poll that is blocked, or else the next one, return. All wakes until
//! then need one write: the flag says that one is pending. The poller clears the flag when it has
//! seen the event, and only then does its caller look for what the waker changed. A waker that
//! found the flag set came before that, so the caller sees its change.
//!
//! # Counting waiters
//! `waiters` is how many goroutines are parked on descriptors. A goroutine counts itself before it
//! can be found. Its claimer removes it from the count. If the poller claims it, the goroutine is
//! part of the number that `poll` returns, which the caller subtracts when the goroutines are in a
//! queue. So the count is zero only when no goroutine waits and none is between the poller and a
//! queue. If a timer or a canceller claims it, the goroutine subtracts itself.
//!
//! GO: netpoll.go, netpoll_epoll.go.

use super::desc::{Desc, Token};
use crate::gmp::{G, task};
use crate::sys::timer_fd::TimerFd;
use heist_core::list::List;
use heist_core::readiness::Edge;
use heist_core::sync::{AtomicU32, Ordering};
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Waker};
use std::cell::UnsafeCell;
use std::io;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Events taken in one call.
const EVENTS: usize = 128;

/// How long a poll may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Not at all.
    No,
    /// Until this moment of `sys::clock::now_ns`.
    UntilNs(u64),
    /// Until something happens.
    Forever,
}

/// The poller of a runtime.
pub(crate) struct Poller {
    turn: UnsafeCell<Turn>,
    /// Whether a thread polls: checks the scheduler's gate.
    polling: AtomicU32,
    shared: Arc<Shared>,
    waker: Waker,
    /// Whether a wake-up is pending.
    waking: AtomicU32,
}

/// The data of the thread that polls.
struct Turn {
    poll: Poll,
    events: Events,
    timer: TimerFd,
    /// The moment the timer is set to, if it has not been seen to fire.
    armed_ns: Option<u64>,
}

/// The part of a poller that descriptors need, for as long as they live.
#[derive(Debug)]
pub(crate) struct Shared {
    registry: Registry,
    /// Goroutines parked on descriptors.
    pub(crate) waiters: AtomicU32,
    /// Its runtime has ended, and with it every goroutine that could wait.
    has_ended: AtomicBool,
}

// SAFETY: `turn` is used by one thread at a time, which `polling` checks.
unsafe impl Sync for Poller {}

impl Poller {
    pub(crate) fn new() -> io::Result<Self> {
        let poll = Poll::new()?;
        let timer = TimerFd::new()?;
        let registry = poll.registry().try_clone()?;
        registry.register(&mut SourceFd(&timer.fd()), Token::TIMER.into(), Interest::READABLE)?;
        let waker = Waker::new(&registry, Token::WAKER.into())?;
        let events = Events::with_capacity(EVENTS);
        Ok(Self {
            turn: UnsafeCell::new(Turn { poll, events, timer, armed_ns: None }),
            polling: AtomicU32::new(0),
            shared: Arc::new(Shared {
                registry,
                waiters: AtomicU32::new(0),
                has_ended: AtomicBool::new(false),
            }),
            waker,
            waking: AtomicU32::new(0),
        })
    }

    /// The part that descriptors keep a reference to.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// How many goroutines are parked on descriptors.
    #[inline]
    pub(crate) fn waiters(&self) -> u32 {
        self.shared.waiters.load(Ordering::Relaxed)
    }

    /// Subtracts `n` from the count of waiters: they are in a queue now.
    #[inline]
    #[doc(alias = "netpollAdjustWaiters")]
    pub(crate) fn waiters_gone(&self, n: u32) {
        self.shared.waiters_gone(n);
    }

    /// Waits for events, at most for `wait`, and appends to `ready` the goroutines that they wake,
    /// claimed and in no queue. Returns the number to subtract from `waiters`; see
    /// [`Poller::waiters_gone`]. May return early with nothing.
    ///
    /// # Safety
    /// No other thread polls.
    #[doc(alias = "netpoll")]
    #[must_use]
    pub(crate) unsafe fn poll(&self, wait: Wait, ready: &mut List<G>) -> u32 {
        // ORDERING: Acquire pairs with the Release at the end: one thread polls after the other.
        if self.polling.swap(1, Ordering::Acquire) != 0 {
            heist_core::throw!("Poller::poll: two threads poll");
        }
        // SAFETY: by the caller's promise, checked above, no other thread polls.
        let turn = unsafe { &mut *self.turn.get() };
        let timeout = match wait {
            Wait::No => Some(Duration::ZERO),
            Wait::Forever => None,
            Wait::UntilNs(when_ns) => {
                turn.arm(when_ns);
                None
            }
        };
        let mut n = 0;
        match turn.poll.poll(&mut turn.events, timeout) {
            Ok(()) => {
                fetch(&turn.events);
                for event in &turn.events {
                    match Token::from(event.token()) {
                        Token::TIMER => turn.armed_ns = None,
                        Token::WAKER => self.take_wake_up(),
                        token => n += dispatch(token, event, ready),
                    }
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => heist_core::throw!("Poller::poll: {error}"),
        }
        // ORDERING: see above.
        self.polling.store(0, Ordering::Release);
        n
    }

    /// Makes the poll that is blocked, or the next one, return. From any thread.
    #[doc(alias = "netpollBreak")]
    pub(crate) fn wake(&self) {
        // ORDERING: AcqRel pairs with `take_wake_up`: the thread that polls sees, after the poll,
        // everything the caller wrote before this.
        if self.waking.swap(1, Ordering::AcqRel) == 0
            && let Err(error) = self.waker.wake()
        {
            heist_core::throw!("Poller::wake: {error}");
        }
    }

    fn take_wake_up(&self) {
        // ORDERING: see `wake`.
        self.waking.swap(0, Ordering::AcqRel);
    }
}

impl Turn {
    fn arm(&mut self, when_ns: u64) {
        if self.armed_ns != Some(when_ns) {
            self.armed_ns = Some(when_ns);
            self.timer.set(when_ns);
        }
    }
}

impl Shared {
    /// Registers a descriptor, once and for both directions. `desc` gets every event until
    /// [`Shared::deregister`].
    pub(crate) fn register(&self, fd: RawFd, desc: &'static Desc) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY;
        self.registry.register(&mut SourceFd(&fd), Token::of(desc).into(), interest)
    }

    /// Removes the descriptor from the poller. An event that was taken from the kernel before may
    /// still be delivered.
    pub(crate) fn deregister(&self, fd: RawFd) {
        // It was registered, so the kernel has no reason to refuse.
        let _ = self.registry.deregister(&mut SourceFd(&fd));
    }

    /// Notes that the runtime has ended: no thread polls any more, and no goroutine waits.
    pub(crate) fn end(&self) {
        // ORDERING: Release pairs with `has_ended`: everything the last goroutine did comes before.
        self.has_ended.store(true, Ordering::Release);
    }

    /// Whether its runtime has ended.
    pub(crate) fn has_ended(&self) -> bool {
        // ORDERING: see `end`.
        self.has_ended.load(Ordering::Acquire)
    }

    /// Counts a goroutine that is about to wait for a descriptor.
    #[inline]
    pub(crate) fn waiter_came(&self) {
        self.waiters.fetch_add(1, Ordering::Relaxed);
    }

    /// Subtracts `n` from the count of waiters.
    #[inline]
    pub(crate) fn waiters_gone(&self, n: u32) {
        if n != 0 && self.waiters.fetch_sub(n, Ordering::Relaxed) < n {
            heist_core::throw!("Poller::waiters_gone: the count of waiters is below zero");
        }
    }
}

/// Prefetches the records of a batch of events and the goroutines that wait on them. All together,
/// not one after the other, because each is written by a read-modify-write that waits for its cache
/// line.
fn fetch(events: &Events) {
    let tokens = || events.iter().map(|event| Token::from(event.token()));
    tokens().for_each(Token::prefetch);
    tokens().filter_map(Token::desc).for_each(|desc| G::prefetch(desc.read.waiter_hint(), 2));
}

/// Delivers an event to its descriptor. Returns how many goroutines it put into `ready`.
fn dispatch(token: Token, event: &Event, ready: &mut List<G>) -> u32 {
    let Some(desc) = token.desc() else { return 0 };
    let tag = token.tag();
    let mut n = 0;
    let both = event.is_error();
    if both || event.is_readable() || event.is_read_closed() || event.is_priority() {
        let eager = both || event.is_read_closed() || event.is_priority();
        n += claim(desc.read.event_of(tag, edge(eager)), ready);
    }
    if both || event.is_writable() || event.is_write_closed() {
        n += claim(desc.write.event_of(tag, edge(both || event.is_write_closed())), ready);
    }
    n
}

const fn edge(eager: bool) -> Edge {
    if eager { Edge::Eager } else { Edge::Plain }
}

fn claim(waiter: Option<(NonNull<G>, heist_core::status::Ticket)>, ready: &mut List<G>) -> u32 {
    let Some((gp, ticket)) = waiter else { return 0 };
    if ticket == task::MARK {
        // SAFETY: it was left there, and the word was taken by this thread alone, which polls.
        if unsafe { task::claim_left(gp) } {
            // SAFETY: just claimed, so it is valid, in no queue and owned by this thread.
            unsafe { ready.push_back(gp) };
        }
        return 1;
    }
    // SAFETY: records are never unmapped. A goroutine that another waker woke does not wait, or is
    // in another wait: then the ticket does not match.
    if !unsafe { gp.as_ref() }.status.claim(ticket) {
        return 0;
    }
    // SAFETY: just claimed, so it is valid, in no queue and owned by this thread.
    unsafe { ready.push_back(gp) };
    1
}
