//! `Poller`: the one place of a runtime that waits for descriptors.
//!
//! One thread polls at a time; that is the scheduler's gate, and it is checked. What it finds it
//! claims, as every waker does, and hands back as a list of runnable goroutines. Nothing here
//! allocates, needs a P, or makes a goroutine run.
//!
//! # Time
//! The kernel's poll counts milliseconds. Our timers count microseconds, so the end of a wait is
//! set in a timer descriptor that is polled with the others. It is set only if it is not set to
//! that moment already.
//!
//! # Breaking a poll
//! [`Poller::wake`] makes the poll that is blocked, or else the next one, return. Many wakes until
//! then are one write: the flag says that one is on its way. The poller takes the flag back when it
//! has seen the event, and only then does its caller look for what the waker wanted to tell: a
//! waker that found the flag set came before that, so the caller sees it.
//!
//! # Counting waiters
//! `waiters` is how many goroutines are parked on descriptors. A goroutine counts itself before it
//! can be found. Who claims it takes it off: the poller by the number it returns, which its caller
//! subtracts when the goroutines are in a queue, so that the count is zero only when nobody waits
//! and nobody is on the way; the goroutine itself if a timer or a canceller woke it.
//!
//! GO: netpoll.go, netpoll_epoll.go.

use super::desc::{Desc, Token};
use crate::gmp::G;
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
    /// Whether somebody polls: the caller's gate, checked.
    polling: AtomicU32,
    shared: Arc<Shared>,
    waker: Waker,
    /// Whether a wake-up is on its way.
    waking: AtomicU32,
}

/// What belongs to who polls.
struct Turn {
    poll: Poll,
    events: Events,
    timer: TimerFd,
    /// The moment the timer is set to, if it has not been seen to fire.
    armed_ns: Option<u64>,
}

/// What descriptors need of their poller, for as long as they live.
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

    /// What descriptors keep of it.
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// How many goroutines are parked on descriptors.
    #[inline]
    pub(crate) fn waiters(&self) -> u32 {
        self.shared.waiters.load(Ordering::Relaxed)
    }

    /// Takes `n` off the count of waiters: they are in a queue now.
    #[inline]
    #[doc(alias = "netpollAdjustWaiters")]
    pub(crate) fn waiters_gone(&self, n: u32) {
        self.shared.waiters_gone(n);
    }

    /// Waits for events, at most for `wait`, and appends to `ready` the goroutines whose turn it
    /// is, claimed and in no queue. Answers how many that makes less of `waiters`: see
    /// [`Poller::waiters_gone`]. May return early with nothing.
    ///
    /// # Safety
    /// Nobody else polls.
    #[doc(alias = "netpoll")]
    #[must_use]
    pub(crate) unsafe fn poll(&self, wait: Wait, ready: &mut List<G>) -> u32 {
        // ORDERING: Acquire pairs with the release at the end: one thread's turn after another's.
        if self.polling.swap(1, Ordering::Acquire) != 0 {
            heist_core::throw!("Poller::poll: two threads poll");
        }
        // SAFETY: by the caller's promise, and checked above, this thread has the turn.
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
        // ORDERING: AcqRel pairs with `take_wake_up`: what the caller wrote before this is seen by
        // whoever polled, after it polled.
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
    /// Registers a descriptor, once and for both directions. `desc` hears of every edge until
    /// [`Shared::deregister`].
    pub(crate) fn register(&self, fd: RawFd, desc: &'static Desc) -> io::Result<()> {
        let interest = Interest::READABLE | Interest::WRITABLE | Interest::PRIORITY;
        self.registry.register(&mut SourceFd(&fd), Token::of(desc).into(), interest)
    }

    /// The poller forgets the descriptor. An event that was taken already may still come.
    pub(crate) fn deregister(&self, fd: RawFd) {
        // It was registered; the kernel has no other reason to refuse.
        let _ = self.registry.deregister(&mut SourceFd(&fd));
    }

    /// Nobody polls any more, and nobody waits.
    pub(crate) fn end(&self) {
        // ORDERING: Release pairs with `has_ended`: what the last goroutine did comes before.
        self.has_ended.store(true, Ordering::Release);
    }

    /// Whether its runtime has ended.
    pub(crate) fn has_ended(&self) -> bool {
        // ORDERING: see `end`.
        self.has_ended.load(Ordering::Acquire)
    }

    /// A goroutine is about to wait for a descriptor.
    #[inline]
    pub(crate) fn waiter_came(&self) {
        self.waiters.fetch_add(1, Ordering::Relaxed);
    }

    /// So many wait no more.
    #[inline]
    pub(crate) fn waiters_gone(&self, n: u32) {
        if n != 0 && self.waiters.fetch_sub(n, Ordering::Relaxed) < n {
            heist_core::throw!("Poller: fewer than no waiters");
        }
    }
}

/// Fetches what a batch of events is about, and who waits for it: all together, and not one after
/// the other, since each is written by a read-modify-write that waits for its line.
fn fetch(events: &Events) {
    let tokens = || events.iter().map(|event| Token::from(event.token()));
    tokens().for_each(Token::prefetch);
    tokens().filter_map(Token::desc).for_each(|desc| G::prefetch(desc.read.waiter_hint(), 2));
}

/// Tells a descriptor of an event. Answers how many goroutines it put into `ready`.
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
    // SAFETY: records are never unmapped. A goroutine that was woken otherwise is in no wait, or in
    // another: then the ticket does not fit.
    if !unsafe { gp.as_ref() }.status.claim(ticket) {
        return 0;
    }
    // SAFETY: just claimed, so it is valid, in no queue and ours to move.
    unsafe { ready.push_back(gp) };
    1
}
