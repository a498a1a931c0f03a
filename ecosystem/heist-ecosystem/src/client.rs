//! hyper-util's client, with its pool, over heist's sockets: requests from tasks and goroutines.

use bytes::Bytes;
use heist::hyper::{Executor, Timer};
use heist::net::{TcpStream, lookup_host};
use http::Uri;
use hyper::body::Body;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use tower_service::Service;

/// A client that speaks HTTP/1.
#[must_use]
pub fn http1<B>() -> Client<Connector, B>
where
    B: Body<Data = Bytes> + Send,
{
    Client::builder(Executor).timer(Timer).pool_timer(Timer).build(Connector)
}

/// A client that speaks HTTP/2 from the first byte, as gRPC without TLS does.
#[must_use]
pub fn http2<B>() -> Client<Connector, B>
where
    B: Body<Data = Bytes> + Send,
{
    Client::builder(Executor).timer(Timer).pool_timer(Timer).http2_only(true).build(Connector)
}

/// Opens connections for a client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Connector;

impl Service<Uri> for Connector {
    type Response = Stream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Stream>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        Box::pin(async move {
            let host = uri.host().ok_or(io::ErrorKind::InvalidInput)?;
            let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
            let port = uri.port_u16().unwrap_or(80);
            // The lookup blocks its thread. On heist that does not hold up other tasks.
            let addresses: Vec<_> = lookup_host((host, port))?.collect();
            let mut last = io::ErrorKind::AddrNotAvailable.into();
            for address in addresses {
                match TcpStream::connect_async(address).await {
                    Ok(stream) => {
                        stream.set_nodelay(true)?;
                        return Ok(Stream(stream));
                    }
                    Err(error) => last = error,
                }
            }
            Err(last)
        })
    }
}

/// A connection of a client.
#[derive(Debug)]
pub struct Stream(TcpStream);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl Read for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Read::poll_read(Pin::new(&mut self.0), cx, buf)
    }
}

impl Write for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write(Pin::new(&mut self.0), cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_flush(Pin::new(&mut self.0), cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_shutdown(Pin::new(&mut self.0), cx)
    }

    fn is_write_vectored(&self) -> bool {
        Write::is_write_vectored(&self.0)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write_vectored(Pin::new(&mut self.0), cx, bufs)
    }
}
