//! Macros for the methods that the public types have in common.

/// The methods and traits of every type with a `source`.
macro_rules! descriptor {
    ($type:ident) => {
        impl $type {
            /// Closes it, even while other goroutines use it: their operations fail, and so does
            /// every later one. Dropping it closes it as well.
            ///
            /// # Errors
            /// If it is closed already.
            #[doc(alias = "Close")]
            pub fn close(&self) -> std::io::Result<()> {
                self.source.close()
            }

            /// Whether operations fail with [`WouldBlock`](std::io::ErrorKind::WouldBlock) where
            /// they would wait. The goroutine waits by default, and the thread is not blocked in
            /// either mode.
            ///
            /// The mode belongs to this handle, not to those that `try_clone` makes. An operation
            /// that waits is not affected.
            ///
            /// # Errors
            /// If it is closed.
            pub fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
                self.source.set_nonblocking(nonblocking)
            }
        }

        impl $crate::net::bind::Watched for $type {
            fn watch(&self) -> std::sync::Arc<$crate::net::watch::Watch> {
                self.source.watch()
            }
        }

        impl std::fmt::Debug for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.source.fmt(f)
            }
        }

        impl std::os::fd::AsRawFd for $type {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                self.source.fd()
            }
        }

        impl std::os::fd::AsFd for $type {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                // SAFETY: the number belongs to this descriptor until the value is dropped, closed
                // or not.
                unsafe { std::os::fd::BorrowedFd::borrow_raw(self.source.fd()) }
            }
        }
    };
}

/// Conversions from and to owned descriptors, as std's types have them.
macro_rules! owned_fd {
    ($type:ident, $std:ty, $ends:expr) => {
        /// Takes over a descriptor, which is put into non-blocking mode. Timeouts that were set for
        /// it in the system are not taken over; `from_std` does that.
        ///
        /// # Panics
        /// If there is no memory.
        impl From<std::os::fd::OwnedFd> for $type {
            fn from(fd: std::os::fd::OwnedFd) -> Self {
                match $crate::net::source::Source::new(<$std>::from(fd), $ends) {
                    Ok(source) => Self { source },
                    Err(error) => panic!("heist::net: a descriptor cannot be taken over: {error}"),
                }
            }
        }

        /// The descriptor, in blocking mode. That of one that was closed is the descriptor of a
        /// dead file.
        impl From<$type> for std::os::fd::OwnedFd {
            fn from(value: $type) -> Self {
                value.source.into_inner_anyway().into()
            }
        }

        /// The number of the descriptor, which is in blocking mode and which the caller closes.
        impl std::os::fd::IntoRawFd for $type {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                std::os::fd::IntoRawFd::into_raw_fd(std::os::fd::OwnedFd::from(self))
            }
        }
    };
}

/// Deadlines and timeouts of a type that reads.
macro_rules! read_limits {
    ($type:ident) => {
        impl $type {
            /// Sets the moment after which reads fail. With None they wait without a limit.
            ///
            /// A read that is waiting observes the new deadline at once.
            ///
            /// # Errors
            /// If it is closed.
            #[doc(alias = "SetReadDeadline")]
            pub fn set_read_deadline(
                &self,
                deadline: Option<std::time::Instant>,
            ) -> std::io::Result<()> {
                self.source.set_deadline(&[heist_core::fd_lock::Way::Read], deadline)
            }

            /// Sets how long one read may wait. With None it waits without a limit. Reads that have
            /// begun are not affected.
            ///
            /// A read that takes longer fails with [`TimedOut`](std::io::ErrorKind::TimedOut); on
            /// this system std uses `WouldBlock` instead. Data that is there is read even if the
            /// time is over.
            ///
            /// # Errors
            /// If the timeout is zero.
            pub fn set_read_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.source.set_timeout(heist_core::fd_lock::Way::Read, timeout)
            }

            /// How long one read may wait.
            ///
            /// # Errors
            /// None. The signature is std's.
            pub fn read_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok(self.source.timeout(heist_core::fd_lock::Way::Read))
            }
        }
    };
}

/// Deadlines and timeouts of a type that writes.
macro_rules! write_limits {
    ($type:ident) => {
        impl $type {
            /// Sets the moment after which writes fail. With None they wait without a limit.
            ///
            /// A write that is waiting observes the new deadline at once. It may have written a
            /// part.
            ///
            /// # Errors
            /// If it is closed.
            #[doc(alias = "SetWriteDeadline")]
            pub fn set_write_deadline(
                &self,
                deadline: Option<std::time::Instant>,
            ) -> std::io::Result<()> {
                self.source.set_deadline(&[heist_core::fd_lock::Way::Write], deadline)
            }

            /// Sets how long one write may wait. With None it waits without a limit. Writes that
            /// have begun are not affected.
            ///
            /// A write that takes longer fails with [`TimedOut`](std::io::ErrorKind::TimedOut); on
            /// this system std uses `WouldBlock` instead.
            ///
            /// # Errors
            /// If the timeout is zero.
            pub fn set_write_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.source.set_timeout(heist_core::fd_lock::Way::Write, timeout)
            }

            /// How long one write may wait.
            ///
            /// # Errors
            /// None. The signature is std's.
            pub fn write_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok(self.source.timeout(heist_core::fd_lock::Way::Write))
            }
        }
    };
}

/// The deadline of both directions.
macro_rules! both_limits {
    ($type:ident) => {
        $crate::net::read_limits!($type);
        $crate::net::write_limits!($type);

        impl $type {
            /// Sets the moment after which reads and writes fail. With None they wait without a
            /// limit.
            ///
            /// # Errors
            /// If it is closed.
            #[doc(alias = "SetDeadline")]
            pub fn set_deadline(
                &self,
                deadline: Option<std::time::Instant>,
            ) -> std::io::Result<()> {
                use heist_core::fd_lock::Way;
                self.source.set_deadline(&[Way::Read, Way::Write], deadline)
            }
        }
    };
}

/// Conversions from and to a socket of std that has timeouts.
macro_rules! std_socket {
    ($type:ident, $std:ty, $ends:expr) => {
        impl $type {
            /// Takes over a socket of std, with its timeouts.
            ///
            /// It is put into non-blocking mode. That affects every other handle of the same
            /// socket, such as those that `try_clone` makes.
            ///
            /// # Errors
            /// If it cannot be put into non-blocking mode.
            pub fn from_std(inner: $std) -> std::io::Result<Self> {
                let (read, write) = (inner.read_timeout()?, inner.write_timeout()?);
                let source = $crate::net::source::Source::new(inner, $ends)?;
                source.set_timeouts(read, write)?;
                Ok(Self { source })
            }

            /// Converts it to a socket of std, in blocking mode, with its timeouts. Deadlines are
            /// not kept.
            ///
            /// The mode belongs to the socket: its other handles, made by `try_clone`, must not be
            /// used as sockets of this crate any more, because they would block their threads.
            ///
            /// # Errors
            /// If it is closed, or cannot be put into blocking mode.
            pub fn into_std(self) -> std::io::Result<$std> {
                use heist_core::fd_lock::Way;
                let timeouts = [Way::Read, Way::Write].map(|way| self.source.timeout(way));
                let inner = self.source.into_inner()?;
                inner.set_read_timeout(timeouts[0])?;
                inner.set_write_timeout(timeouts[1])?;
                Ok(inner)
            }

            /// A second handle of the same socket, with the timeouts of this one and no deadlines.
            /// Each handle's timeouts and deadlines can be changed independently.
            ///
            /// # Errors
            /// If it is closed, or there is no descriptor left. An `Arc` or a reference needs no
            /// descriptor.
            pub fn try_clone(&self) -> std::io::Result<Self> {
                use heist_core::fd_lock::Way;
                let clone = self.source.with(<$std>::try_clone)?;
                let source = $crate::net::source::Source::nonblocking(clone, $ends)?;
                source.set_timeouts(
                    self.source.timeout(Way::Read),
                    self.source.timeout(Way::Write),
                )?;
                Ok(Self { source })
            }
        }

        impl TryFrom<$std> for $type {
            type Error = std::io::Error;

            fn try_from(inner: $std) -> std::io::Result<Self> {
                Self::from_std(inner)
            }
        }

        impl TryFrom<$type> for $std {
            type Error = std::io::Error;

            fn try_from(socket: $type) -> std::io::Result<Self> {
                socket.into_std()
            }
        }
    };
}

/// `Read` of a type whose `source` holds something that reads.
macro_rules! reads {
    ($type:ident) => {
        impl std::io::Read for &$type {
            #[inline]
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                let len = buf.len();
                let way = heist_core::fd_lock::Way::Read;
                self.source.transfer(way, len, |mut inner| std::io::Read::read(&mut inner, buf))
            }

            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                let len = $crate::net::source::offered(bufs.iter().map(|buf| buf.len()));
                let way = heist_core::fd_lock::Way::Read;
                self.source
                    .transfer(way, len, |mut inner| std::io::Read::read_vectored(&mut inner, bufs))
            }
        }

        impl std::io::Read for $type {
            #[inline]
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                (&*self).read(buf)
            }

            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                (&*self).read_vectored(bufs)
            }
        }
    };
}

/// `Write` of a type whose `source` holds something that writes.
macro_rules! writes {
    ($type:ident) => {
        impl std::io::Write for &$type {
            #[inline]
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                let way = heist_core::fd_lock::Way::Write;
                self.source
                    .transfer(way, buf.len(), |mut inner| std::io::Write::write(&mut inner, buf))
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                let len = $crate::net::source::offered(bufs.iter().map(|buf| buf.len()));
                let way = heist_core::fd_lock::Way::Write;
                self.source.transfer(way, len, |mut inner| {
                    std::io::Write::write_vectored(&mut inner, bufs)
                })
            }

            /// Does nothing: the system has everything that was written.
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        impl std::io::Write for $type {
            #[inline]
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                (&*self).write(buf)
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                (&*self).write_vectored(bufs)
            }

            /// Does nothing: the system has everything that was written.
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
    };
}

pub(super) use {
    both_limits, descriptor, owned_fd, read_limits, reads, std_socket, write_limits, writes,
};
