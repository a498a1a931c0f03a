//! Waiting until a descriptor is ready.

use super::{ERROR_PAUSE, NEVER, State};
use crate::current::{self, InRuntime};
use crate::goroutine::task;
use crate::net::error;
use crate::netpoll::poller::Shared;
use crate::sched::stall::blocking;
use crate::sys::poll::{self, For, Polled};
use crate::wait::{self, Waiter};
use heist_core::fd_lock::Way;
use heist_core::readiness::{Edge, Look};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Waker;

impl State {
    /// Waits until an operation in the direction may succeed, the direction is poked, or `until` is
    /// over. May return early: the caller, which holds the direction, checks again.
    pub(in crate::net) fn wait(&self, way: Way, look: Look, until: u64) -> io::Result<()> {
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
    pub(in crate::net) fn leave_waker(
        &self,
        way: Way,
        look: Look,
        waker: &Waker,
    ) -> io::Result<bool> {
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
    pub(in crate::net) fn is_left(&self, way: Way, waker: &Waker) -> bool {
        let [data, vtable] = &self.left[way as usize];
        // As long as it is left there, it is not freed, so no other has its address.
        data.load(Ordering::Relaxed) == waker.data().addr()
            && vtable.load(Ordering::Relaxed) == std::ptr::from_ref(waker.vtable()).addr()
    }

    /// Calls the waker that was left in the direction. The caller holds the direction, and waits
    /// there itself.
    #[cold]
    pub(in crate::net) fn take_over(&self, way: Way) {
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
    pub(in crate::net) fn is_ready(&self, way: Way) -> io::Result<()> {
        match poll::wait(self.fd, what(way), poll::NO_BELL, Some(0))? {
            Polled::Ready | Polled::HungUp | Polled::Broken => Ok(()),
            Polled::Again => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Wakes the waiter that was taken out of a direction. Returns a reference to the poller where
    /// it waited, to be dropped outside the runtime.
    pub(super) fn wake(
        &self,
        rt: Option<&InRuntime>,
        waiter: Option<Waiter>,
    ) -> Option<Arc<Shared>> {
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

const fn what(way: Way) -> For {
    match way {
        Way::Read => For::Reading,
        Way::Write => For::Writing,
    }
}
