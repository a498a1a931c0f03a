//! `AsyncRead` and `AsyncWrite` of tokio, without its runtime (feature `tokio`).

use crate::matrix;

use heist::net::{TcpListener, TcpStream, UnixStream};
use heist::spawn;
use std::future::poll_fn;
use std::io::{IoSlice, Result};
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Reads into memory that is not initialized. Behind what was filled before nothing is changed.
async fn read<S: AsyncRead + Unpin>(stream: &mut S, into: &mut Vec<u8>) -> Result<usize> {
    let before = into.len();
    into.reserve(500);
    let mut buf = ReadBuf::uninit(&mut into.spare_capacity_mut()[..500]);
    buf.put_slice(b"head");
    poll_fn(|cx| Pin::new(&mut *stream).poll_read(cx, &mut buf)).await?;
    assert_eq!(&buf.filled()[..4], b"head");
    let read = buf.filled()[4..].to_vec();
    into.truncate(before);
    into.extend_from_slice(&read);
    Ok(read.len())
}

async fn echo<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> Result<()> {
    loop {
        let mut piece = Vec::new();
        if read(&mut stream, &mut piece).await? == 0 {
            return poll_fn(|cx| Pin::new(&mut stream).poll_shutdown(cx)).await;
        }
        let mut rest = &piece[..];
        while !rest.is_empty() {
            let n = poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, rest)).await?;
            rest = &rest[n..];
        }
        poll_fn(|cx| Pin::new(&mut stream).poll_flush(cx)).await?;
    }
}

async fn ask<S>(stream: S, len: usize)
where
    S: Send + Sync + 'static,
    for<'a> &'a S: AsyncRead + AsyncWrite,
{
    let stream = Arc::new(stream);
    let writer = Arc::clone(&stream);
    let message: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
    let sent = message.clone();
    let writes = spawn(async move {
        let mut n = 0;
        assert!((&*writer).is_write_vectored());
        while n < sent.len() {
            let (a, b) = sent[n..].split_at((sent.len() - n) / 2);
            let bufs = [IoSlice::new(a), IoSlice::new(b)];
            n +=
                poll_fn(|cx| Pin::new(&mut &*writer).poll_write_vectored(cx, &bufs)).await.unwrap();
        }
        poll_fn(|cx| Pin::new(&mut &*writer).poll_shutdown(cx)).await.unwrap();
    });
    let mut back = Vec::new();
    while read(&mut &*stream, &mut back).await.unwrap() > 0 {}
    writes.await.unwrap();
    assert!(back == message, "{} of {len} bytes came back, or others", back.len());
}

#[test]
fn streams_read_and_write() {
    matrix::each(|_, rt| {
        rt.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect_async(listener.local_addr().unwrap()).await.unwrap();
            let (far, _) = listener.accept_async().await.unwrap();
            let echoes = spawn(echo(far));
            ask(near, 300_000).await;
            echoes.await.unwrap().unwrap();
            let (near, far) = UnixStream::pair().unwrap();
            let echoes = spawn(echo(far));
            ask(near, 300_000).await;
            echoes.await.unwrap().unwrap();
        });
    });
}

/// The other end is gone: shutting down has nothing left to do. A closed stream is an error.
#[test]
fn a_shutdown_of_a_dead_connection_succeeds() {
    let rt = matrix::plain(1);
    rt.block_on(async {
        let (mut near, far) = UnixStream::pair().unwrap();
        drop(far);
        poll_fn(|cx| AsyncWrite::poll_shutdown(Pin::new(&mut near), cx)).await.unwrap();
        near.close().unwrap();
        let error = poll_fn(|cx| AsyncWrite::poll_shutdown(Pin::new(&mut near), cx)).await;
        assert!(heist::net::is_closed(&error.unwrap_err()));
    });
}
