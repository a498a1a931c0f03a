//! `AsyncRead` and `AsyncWrite` of futures-io (feature `futures-io`).

use crate::matrix;

use futures_io::{AsyncRead, AsyncWrite};
use heist::net::{TcpListener, TcpStream, UnixStream};
use heist::spawn;
use std::future::poll_fn;
use std::io::{IoSlice, Result};
use std::pin::Pin;

/// Sends back what comes, until the end.
async fn echo<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) -> Result<()> {
    let mut buf = [0; 1000];
    loop {
        let n = poll_fn(|cx| Pin::new(&mut stream).poll_read(cx, &mut buf)).await?;
        if n == 0 {
            return poll_fn(|cx| Pin::new(&mut stream).poll_close(cx)).await;
        }
        let mut rest = &buf[..n];
        while !rest.is_empty() {
            let n = poll_fn(|cx| Pin::new(&mut stream).poll_write(cx, rest)).await?;
            rest = &rest[n..];
        }
        poll_fn(|cx| Pin::new(&mut stream).poll_flush(cx)).await?;
    }
}

/// Writes and reads at the same time, through two references.
async fn ask<S>(stream: S, len: usize)
where
    S: Send + Sync + 'static,
    for<'a> &'a S: AsyncRead + AsyncWrite,
{
    let stream = std::sync::Arc::new(stream);
    let writer = std::sync::Arc::clone(&stream);
    let message: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
    let sent = message.clone();
    let writes = spawn(async move {
        let mut n = 0;
        while n < sent.len() {
            let (a, b) = sent[n..].split_at((sent.len() - n) / 2);
            let bufs = [IoSlice::new(a), IoSlice::new(b)];
            n +=
                poll_fn(|cx| Pin::new(&mut &*writer).poll_write_vectored(cx, &bufs)).await.unwrap();
        }
        poll_fn(|cx| Pin::new(&mut &*writer).poll_close(cx)).await.unwrap();
    });
    let (mut back, mut buf) = (Vec::new(), [0; 777]);
    loop {
        match poll_fn(|cx| Pin::new(&mut &*stream).poll_read(cx, &mut buf)).await.unwrap() {
            0 => break,
            n => back.extend_from_slice(&buf[..n]),
        }
    }
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
