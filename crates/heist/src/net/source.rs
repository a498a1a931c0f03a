//! `Source`: a descriptor together with the type that operates on it.
//!
//! An operation is tried first and waits only if it must. The result of the last try is remembered:
//! an operation that found less than it asked for has drained the descriptor, so the next one waits
//! without trying, and a request costs one read and one write.

use super::state::{Closing, State, is_over};
use super::watch::Watch;
use crate::sys::fd;
use crate::wait::FutureWait;
use heist_core::fd_lock::{Unlocked, Way};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Whether an operation that found less than it asked for has drained the descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    /// It has: the kernel returns everything that is there.
    Seen,
    /// It may not have.
    Unseen,
}

/// A moment that has passed.
const LONG_AGO: u64 = 1;

/// The maximum number of bytes that the kernel moves in one call.
const TRANSFER_MAX: usize = 0x7fff_f000;
/// The maximum number of slices that std passes to the kernel in one call.
const SLICES_MAX: usize = 1024;

/// The maximum number of bytes that a call with these slices moves.
pub(super) fn offered(lens: impl Iterator<Item = usize>) -> usize {
    lens.take(SLICES_MAX).fold(0, usize::saturating_add)
}

/// A descriptor in non-blocking mode.
pub(super) struct Source<T> {
    /// Shared with those that watch it.
    state: Arc<State>,
    ends: Ends,
    /// Lets other goroutines reach it; empty if none does.
    watch: OnceLock<Arc<Watch>>,
    /// None while it is being dropped or converted.
    inner: Option<T>,
}

impl<T: AsRawFd> Source<T> {
    /// Takes over a descriptor and puts it into non-blocking mode.
    pub(super) fn new(inner: T, ends: Ends) -> io::Result<Self> {
        fd::set_nonblocking(inner.as_raw_fd(), true)?;
        Self::nonblocking(inner, ends)
    }

    /// Takes over a descriptor that is in non-blocking mode.
    pub(super) fn nonblocking(inner: T, ends: Ends) -> io::Result<Self> {
        let state = Arc::new(State::new(inner.as_raw_fd(), Closing::Retires)?);
        Ok(Self { state, ends, watch: OnceLock::new(), inner: Some(inner) })
    }

    /// Takes over a descriptor that other code may share. `number` is the descriptor that the value
    /// lends: if it were asked again, it could name another one.
    pub(super) fn shared(inner: T, number: RawFd) -> io::Result<Self> {
        fd::set_nonblocking(number, true)?;
        let state = Arc::new(State::new(number, Closing::LeavesAlone)?);
        Ok(Self { state, ends: Ends::Unseen, watch: OnceLock::new(), inner: Some(inner) })
    }

    /// Returns the inner value, in blocking mode, even if the descriptor is closed: then that of a
    /// dead file.
    pub(super) fn into_inner_anyway(mut self) -> T {
        self.end_watch();
        if self.state.close() {
            let _ = self.state.release();
            self.state.detach();
            // It is open, so the call cannot fail; if it did, the descriptor would stay as it is.
            let _ = fd::set_nonblocking(self.state.fd, false);
        }
        match self.inner.take() {
            Some(inner) => inner,
            None => heist_core::throw!("net: a descriptor is used after its end"),
        }
    }

    /// Returns the inner value, in blocking mode.
    pub(super) fn into_inner(mut self) -> io::Result<T> {
        if !self.state.close() {
            return Err(super::error::closed());
        }
        self.end_watch();
        let _ = self.state.release();
        self.state.detach();
        let Some(inner) = self.inner.take() else { return Err(super::error::closed()) };
        fd::set_nonblocking(self.state.fd, false)?;
        Ok(inner)
    }
}

impl<T> Source<T> {
    /// Lets another goroutine reach it.
    pub(super) fn watch(&self) -> Arc<Watch> {
        Arc::clone(self.watch.get_or_init(|| Arc::new(Watch::new(Arc::clone(&self.state)))))
    }

    /// Ends the watch: the descriptor is about to be closed or given away.
    fn end_watch(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.forget();
        }
    }

    /// Reads with `op`, which is repeated until it does not return `WouldBlock`.
    #[inline]
    pub(super) fn read<R>(&self, op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.operate(Way::Read, op, |_| false)
    }

    /// Writes with `op`, which is repeated until it does not return `WouldBlock`.
    #[inline]
    pub(super) fn write<R>(&self, op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        self.operate(Way::Write, op, |_| false)
    }

    /// Reads or writes at most `len` bytes with `op`, which returns how many.
    #[inline]
    pub(super) fn transfer(
        &self,
        way: Way,
        len: usize,
        op: impl FnMut(&T) -> io::Result<usize>,
    ) -> io::Result<usize> {
        if len == 0 {
            // There is nothing to wait for; this fails only if the descriptor is closed.
            return self.with(|_| Ok(0));
        }
        let len = len.min(TRANSFER_MAX);
        // The end of the stream, a read of 0 bytes, does not drain the descriptor: it can be read
        // again.
        self.operate(way, op, |&n| self.ends == Ends::Seen && 0 < n && n < len)
    }

    #[inline]
    fn operate<R>(
        &self,
        way: Way,
        mut op: impl FnMut(&T) -> io::Result<R>,
        saw_the_end: impl Fn(&R) -> bool,
    ) -> io::Result<R> {
        if self.state.is_nonblocking() {
            return self.operate_now(way, op);
        }
        // The time waiting for the direction, which another operation may hold, counts.
        let end = self.state.end_of_operation(way);
        self.state.lock(way, end)?;
        let used = Used { source: self, way: Some(way) };
        let state = &used.source.state;
        let half = state.half(way);
        let mut in_vain = false;
        loop {
            let look = half.look();
            let deadline = state.check(way, look)?;
            // Data that is there is taken even if the time is over: the delay was the scheduler's.
            if (in_vain || !look.is_ready()) && is_over(end) {
                return Err(super::error::timeout());
            }
            if !look.is_ready() {
                if look.is_awaited() {
                    state.take_over(way);
                    continue;
                }
                state.wait(way, look, deadline.min(end))?;
                in_vain = false;
                continue;
            }
            in_vain = true;
            match op(used.inner()) {
                Ok(result) => {
                    if saw_the_end(&result) && !look.is_eager() && state.is_attached() {
                        half.drained(look);
                    }
                    return Ok(result);
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        half.drained(look);
                    }
                    io::ErrorKind::Interrupted => {}
                    _ => return Err(error),
                },
            }
        }
    }

    /// As [`operate`](Self::operate), but fails with `WouldBlock` where that would wait.
    #[cold]
    fn operate_now<R>(&self, way: Way, mut op: impl FnMut(&T) -> io::Result<R>) -> io::Result<R> {
        let is_busy = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        self.state.lock(way, LONG_AGO).map_err(|error| match is_busy(&error) {
            true => io::ErrorKind::WouldBlock.into(),
            false => error,
        })?;
        let used = Used { source: self, way: Some(way) };
        let half = self.state.half(way);
        loop {
            let look = half.look();
            self.state.check(way, look)?;
            // The kernel is asked, whatever was remembered of it.
            match op(used.inner()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    half.drained(look);
                    return Err(error);
                }
                other => return other,
            }
        }
    }

    /// Reads or writes with `op`, for a caller that holds the direction. If `op` would have to
    /// wait, the next event calls `waker`. Deadlines are checked and not waited for.
    pub(super) fn poll<R>(
        &self,
        way: Way,
        waker: &Waker,
        mut op: impl FnMut(&T) -> io::Result<R>,
        saw_the_end: impl Fn(&R) -> bool,
    ) -> Poll<io::Result<R>> {
        let half = self.state.half(way);
        loop {
            let look = half.look();
            self.state.check(way, look)?;
            if look.is_awaited() {
                if self.state.is_left(way, waker) {
                    return Poll::Pending;
                }
                self.state.take_over(way);
                continue;
            }
            if !look.is_ready() {
                if self.state.leave_waker(way, look, waker)? {
                    return Poll::Pending;
                }
                continue;
            }
            match op(self.get_ref()) {
                Ok(result) => {
                    if saw_the_end(&result) && !look.is_eager() && self.state.is_attached() {
                        half.drained(look);
                    }
                    return Poll::Ready(Ok(result));
                }
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => {
                        half.drained(look);
                    }
                    io::ErrorKind::Interrupted => {}
                    _ => return Poll::Ready(Err(error)),
                },
            }
        }
    }

    /// Reads or writes at most `len` bytes with `op`, once, for a caller that does not hold the
    /// direction between two calls.
    pub(super) fn poll_transfer(
        &self,
        way: Way,
        len: usize,
        waker: &Waker,
        op: impl FnMut(&T) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        if len == 0 {
            return Poll::Ready(self.with(|_| Ok(0)));
        }
        if !self.state.try_lock(way)? {
            let text = "another goroutine or task reads or writes in the same direction";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::ResourceBusy, text)));
        }
        let _used = Used { source: self, way: Some(way) };
        self.poll(way, waker, op, |&n| self.saw_the_end(n, len))
    }

    /// Whether an operation that asked for `len` bytes and got `n` has drained the descriptor.
    pub(super) fn saw_the_end(&self, n: usize, len: usize) -> bool {
        self.ends == Ends::Seen && 0 < n && n < len.min(TRANSFER_MAX)
    }

    /// Waits for a direction as a future, which is pinned.
    pub(super) fn poll_lock(
        &self,
        way: Way,
        wait: &FutureWait,
        waker: &Waker,
    ) -> Poll<io::Result<()>> {
        self.state.poll_lock(way, wait, waker)
    }

    /// Ends the use of a direction.
    pub(super) fn unlock(&self, way: Way) {
        drop(Used { source: self, way: Some(way) });
    }

    /// Ends the wait of a future for a direction.
    pub(super) fn leave_queue(&self, way: Way, wait: &FutureWait) {
        if self.state.leave_queue(way, wait) == Unlocked::Last {
            self.state.retire();
        }
    }

    /// Calls `op` with an empty buffer. As in std, there is nothing to wait for.
    pub(super) fn transfer_none(
        &self,
        op: impl FnOnce(&T) -> io::Result<usize>,
    ) -> io::Result<usize> {
        match self.with(op) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        }
    }

    /// Waits until a direction is ready.
    pub(super) fn wait_ready(&self, way: Way) -> io::Result<()> {
        // The remembered readiness may be out of date; the kernel is asked.
        self.operate(way, |_| self.state.is_ready(way), |()| false)
    }

    /// Forgets that a direction was ready, unless an event came since. For an operation that cannot
    /// tell by itself that the descriptor is drained.
    pub(super) fn forget_ready(&self, way: Way) {
        let half = self.state.half(way);
        half.drained(half.look());
    }

    /// Uses the descriptor for an operation that neither reads nor writes.
    pub(super) fn with<R>(&self, op: impl FnOnce(&T) -> io::Result<R>) -> io::Result<R> {
        self.state.acquire()?;
        let used = Used { source: self, way: None };
        op(used.inner())
    }

    pub(super) fn close(&self) -> io::Result<()> {
        if !self.state.close() {
            return Err(super::error::closed());
        }
        drop(Used { source: self, way: None });
        Ok(())
    }

    pub(super) fn set_deadline(&self, ways: &[Way], deadline: Option<Instant>) -> io::Result<()> {
        self.state.acquire()?;
        let _used = Used { source: self, way: None };
        self.state.set_deadline(ways, deadline);
        Ok(())
    }

    pub(super) fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.state.acquire()?;
        let _used = Used { source: self, way: None };
        self.state.set_nonblocking(nonblocking);
        Ok(())
    }

    pub(super) fn set_timeout(&self, way: Way, timeout: Option<Duration>) -> io::Result<()> {
        self.state.set_timeout(way, timeout)
    }

    pub(super) fn set_timeouts(
        &self,
        read: Option<Duration>,
        write: Option<Duration>,
    ) -> io::Result<()> {
        self.set_timeout(Way::Read, read)?;
        self.set_timeout(Way::Write, write)
    }

    pub(super) fn timeout(&self, way: Way) -> Option<Duration> {
        self.state.timeout(way)
    }

    /// The number of the descriptor, which is meaningless once it is closed.
    pub(super) fn fd(&self) -> std::os::fd::RawFd {
        self.state.fd
    }

    /// The inner value.
    pub(super) fn get_ref(&self) -> &T {
        match &self.inner {
            Some(inner) => inner,
            None => heist_core::throw!("net: a descriptor is used after its end"),
        }
    }
}

impl<T> Drop for Source<T> {
    fn drop(&mut self) {
        self.end_watch();
        if self.state.close() {
            let _ = self.state.release();
            self.state.detach();
        }
        self.state.give_back();
    }
}

impl<T: fmt::Debug> fmt::Debug for Source<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.state.acquire() {
            Ok(()) => Used { source: self, way: None }.inner().fmt(f),
            Err(_) => f.write_str("Closed"),
        }
    }
}

/// A use of the descriptor, which is not closed meanwhile.
struct Used<'a, T> {
    source: &'a Source<T>,
    way: Option<Way>,
}

impl<T> Used<'_, T> {
    #[inline]
    fn inner(&self) -> &T {
        self.source.get_ref()
    }
}

impl<T> Drop for Used<'_, T> {
    #[inline]
    fn drop(&mut self) {
        let state = &self.source.state;
        let ended = match self.way {
            Some(way) => state.unlock(way),
            None => state.release(),
        };
        if ended == Unlocked::Last {
            state.retire();
        }
    }
}
