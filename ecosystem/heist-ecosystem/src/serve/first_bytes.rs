//! A time limit for the bytes by which a connection shows whether it speaks HTTP/1 or HTTP/2.
//!
//! hyper-util waits for them without a limit, and hyper's own begins behind them.

use heist::net::TcpStream;
use heist::time::Sleep;
use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// What every connection of HTTP/2 begins with.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection whose first bytes must come in time.
#[derive(Debug)]
pub struct FirstBytes {
    stream: TcpStream,
    /// None when the version is known.
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    over: Pin<Box<Sleep>>,
    /// So many bytes have come, and they were those of the preface.
    n_same: usize,
}

impl FirstBytes {
    pub(super) fn new(stream: TcpStream, limit: Duration) -> Self {
        let over = Box::pin(heist::time::sleep_async(limit));
        Self { stream, waiting: Some(Waiting { over, n_same: 0 }) }
    }
}

impl Read for FirstBytes {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let Some(waiting) = &mut this.waiting else {
            return Read::poll_read(Pin::new(&mut this.stream), cx, buf);
        };
        let mut bytes = [0; PREFACE.len()];
        let len = bytes.len().min(buf.remaining());
        let mut first = ReadBuf::new(&mut bytes[..len]);
        match Read::poll_read(Pin::new(&mut this.stream), cx, first.unfilled())? {
            Poll::Ready(()) => {}
            Poll::Pending => {
                ready!(waiting.over.as_mut().poll(cx));
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        let first = first.filled();
        let left = &PREFACE[waiting.n_same..];
        waiting.n_same += first.len();
        if first.is_empty() || waiting.n_same >= PREFACE.len() || !left.starts_with(first) {
            this.waiting = None;
        }
        buf.put_slice(first);
        Poll::Ready(Ok(()))
    }
}

impl Write for FirstBytes {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write(Pin::new(&mut self.stream), cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_flush(Pin::new(&mut self.stream), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_shutdown(Pin::new(&mut self.stream), cx)
    }

    fn is_write_vectored(&self) -> bool {
        Write::is_write_vectored(&self.stream)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write_vectored(Pin::new(&mut self.stream), cx, bufs)
    }
}
