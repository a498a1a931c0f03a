//! What the public types have in common, written once.

/// What every type with a `source` has.
macro_rules! descriptor {
    ($type:ident) => {
        impl $type {
            /// Closes it while others may use it: their operations fail, and so does every later
            /// one. Dropping it closes it as well.
            ///
            /// # Errors
            /// If it is closed already.
            #[doc(alias = "Close")]
            pub fn close(&self) -> std::io::Result<()> {
                self.source.close()
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
                // SAFETY: the number stays this descriptor's until the value is dropped, closed or
                // not.
                unsafe { std::os::fd::BorrowedFd::borrow_raw(self.source.fd()) }
            }
        }
    };
}

/// Deadlines and timeouts of a type that reads.
macro_rules! read_limits {
    ($type:ident) => {
        impl $type {
            /// The moment after which reads fail; None: they wait as long as it takes.
            ///
            /// A read that waits looks at the new deadline at once.
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

            /// How long one read may take; None: as long as it takes. Reads that have begun are not
            /// affected.
            ///
            /// # Errors
            /// If the timeout is zero.
            pub fn set_read_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.source.set_timeout(heist_core::fd_lock::Way::Read, timeout)
            }

            /// How long one read may take.
            ///
            /// # Errors
            /// None; for the sake of std's signature.
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
            /// The moment after which writes fail; None: they wait as long as it takes.
            ///
            /// A write that waits looks at the new deadline at once. It may have written a part.
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

            /// How long one write may take; None: as long as it takes. Writes that have begun are
            /// not affected.
            ///
            /// # Errors
            /// If the timeout is zero.
            pub fn set_write_timeout(
                &self,
                timeout: Option<std::time::Duration>,
            ) -> std::io::Result<()> {
                self.source.set_timeout(heist_core::fd_lock::Way::Write, timeout)
            }

            /// How long one write may take.
            ///
            /// # Errors
            /// None; for the sake of std's signature.
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
            /// The moment after which reads and writes fail; None: they wait as long as it takes.
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

/// `Read` of a type whose `source` holds something that reads.
macro_rules! reads {
    ($type:ident) => {
        impl std::io::Read for &$type {
            #[inline]
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                let len = buf.len();
                if len == 0 {
                    return Ok(0);
                }
                let way = heist_core::fd_lock::Way::Read;
                self.source.transfer(way, len, |mut inner| std::io::Read::read(&mut inner, buf))
            }

            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                let len: usize = bufs.iter().map(|buf| buf.len()).sum();
                if len == 0 {
                    return Ok(0);
                }
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
                let len = bufs.iter().map(|buf| buf.len()).sum();
                let way = heist_core::fd_lock::Way::Write;
                self.source.transfer(way, len, |mut inner| {
                    std::io::Write::write_vectored(&mut inner, bufs)
                })
            }

            /// Does nothing: what was written is with the system.
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

            /// Does nothing: what was written is with the system.
            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
    };
}

pub(super) use {both_limits, descriptor, read_limits, reads, write_limits, writes};
