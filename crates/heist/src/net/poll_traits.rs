//! The traits of other libraries for streams: each only calls the `poll` methods of the stream.

#[cfg(any(feature = "hyper", feature = "tokio"))]
macro_rules! poll_read_uninit {
    ($type:ident) => {
        impl $type {
            /// Reads into memory that need not be initialized: the first bytes of it are, as many
            /// as it returns.
            pub(crate) fn poll_read_uninit(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &mut [std::mem::MaybeUninit<u8>],
            ) -> Poll<io::Result<usize>> {
                let len = buf.len();
                self.source.poll_transfer(Way::Read, len, cx.waker(), |inner| {
                    socket2::SockRef::from(inner).recv(buf)
                })
            }
        }
    };
}

#[cfg(any(feature = "hyper", feature = "tokio", feature = "futures-io"))]
macro_rules! poll_shutdown {
    ($type:ident) => {
        impl $type {
            /// Ends what this end sends. Nothing is left to be done if the other end is gone.
            fn poll_shutdown(&self) -> Poll<io::Result<()>> {
                match self.shutdown(Shutdown::Write) {
                    Err(error)
                        if error.kind() == io::ErrorKind::NotConnected
                            && !$crate::net::is_closed(&error) =>
                    {
                        Poll::Ready(Ok(()))
                    }
                    other => Poll::Ready(other),
                }
            }
        }
    };
}

#[cfg(feature = "futures-io")]
macro_rules! futures_io {
    ($($type:ty),+) => {$(
        /// Of several tasks that read at the same time, one reads and the others get
        /// [`io::ErrorKind::ResourceBusy`]. `read_async` lets them take turns.
        impl futures_io::AsyncRead for $type {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                (*self).poll_read(cx, buf)
            }
        }

        /// Of several tasks that write at the same time, one writes and the others get
        /// [`io::ErrorKind::ResourceBusy`]. `write_async` lets them take turns.
        impl futures_io::AsyncWrite for $type {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                (*self).poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                (*self).poll_write_vectored(cx, bufs)
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_close(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> Poll<io::Result<()>> {
                (*self).poll_shutdown()
            }
        }
    )+};
}

/// The writing of tokio's traits and of hyper's, which has the same form.
#[cfg(any(feature = "hyper", feature = "tokio"))]
macro_rules! poll_writes {
    ($trait:path, $type:ty) => {
        impl $trait for $type {
            fn poll_write(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                (*self).poll_write(cx, buf)
            }

            fn poll_write_vectored(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                bufs: &[io::IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                (*self).poll_write_vectored(cx, bufs)
            }

            fn is_write_vectored(&self) -> bool {
                true
            }

            fn poll_flush(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_shutdown(
                self: std::pin::Pin<&mut Self>,
                _: &mut std::task::Context<'_>,
            ) -> Poll<io::Result<()>> {
                (*self).poll_shutdown()
            }
        }
    };
}

#[cfg(feature = "tokio")]
macro_rules! tokio_io {
    ($($type:ty),+) => {$(
        /// Needs no runtime of tokio. Of several tasks that read at the same time, one reads and
        /// the others get [`io::ErrorKind::ResourceBusy`].
        impl tokio::io::AsyncRead for $type {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                buf: &mut tokio::io::ReadBuf<'_>,
            ) -> Poll<io::Result<()>> {
                // SAFETY: no byte that is initialized becomes uninitialized.
                let room = unsafe { buf.unfilled_mut() };
                let n = std::task::ready!(self.poll_read_uninit(cx, room))?;
                // SAFETY: the first `n` bytes of the room were written.
                unsafe { buf.assume_init(n) };
                buf.advance(n);
                Poll::Ready(Ok(()))
            }
        }

        $crate::net::poll_traits::poll_writes!(tokio::io::AsyncWrite, $type);
    )+};
}

#[cfg(feature = "hyper")]
macro_rules! hyper_io {
    ($($type:ty),+) => {$(
        /// Of several tasks that read at the same time, one reads and the others get
        /// [`io::ErrorKind::ResourceBusy`].
        impl hyper::rt::Read for $type {
            fn poll_read(
                self: std::pin::Pin<&mut Self>,
                cx: &mut std::task::Context<'_>,
                mut buf: hyper::rt::ReadBufCursor<'_>,
            ) -> Poll<io::Result<()>> {
                // SAFETY: no byte that is initialized becomes uninitialized.
                let room = unsafe { buf.as_mut() };
                let n = std::task::ready!(self.poll_read_uninit(cx, room))?;
                // SAFETY: the first `n` bytes of the room were written.
                unsafe { buf.advance(n) };
                Poll::Ready(Ok(()))
            }
        }

        $crate::net::poll_traits::poll_writes!(hyper::rt::Write, $type);
    )+};
}

/// Implements the traits that the features of this crate ask for.
macro_rules! poll_traits {
    ($type:ident) => {
        #[cfg(any(feature = "hyper", feature = "tokio"))]
        $crate::net::poll_traits::poll_read_uninit!($type);
        #[cfg(any(feature = "hyper", feature = "tokio", feature = "futures-io"))]
        $crate::net::poll_traits::poll_shutdown!($type);
        #[cfg(feature = "futures-io")]
        $crate::net::poll_traits::futures_io!($type, &$type);
        #[cfg(feature = "tokio")]
        $crate::net::poll_traits::tokio_io!($type, &$type);
        #[cfg(feature = "hyper")]
        $crate::net::poll_traits::hyper_io!($type, &$type);
    };
}

#[cfg(feature = "futures-io")]
pub(super) use futures_io;
#[cfg(feature = "hyper")]
pub(super) use hyper_io;
#[cfg(any(feature = "hyper", feature = "tokio"))]
pub(super) use poll_read_uninit;
#[cfg(any(feature = "hyper", feature = "tokio", feature = "futures-io"))]
pub(super) use poll_shutdown;
pub(super) use poll_traits;
#[cfg(any(feature = "hyper", feature = "tokio"))]
pub(super) use poll_writes;
#[cfg(feature = "tokio")]
pub(super) use tokio_io;
