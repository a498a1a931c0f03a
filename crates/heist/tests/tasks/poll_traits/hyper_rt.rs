//! The executor, the timers and the streams for hyper (feature `hyper`).

use crate::matrix;

use heist::hyper::{Executor, Timer};
use heist::net::{TcpListener, TcpStream};
use hyper::rt::{Executor as _, Read, ReadBuf, Sleep, Timer as _, Write};
use std::future::{Future, poll_fn};
use std::io::IoSlice;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

#[test]
fn the_executor_spawns_tasks() {
    matrix::each(|_, rt| {
        rt.block_on(async {
            let (tx, rx) = heist::chan::unbounded();
            for i in 0..100_u32 {
                let tx = tx.clone();
                Executor.execute(async move { tx.send(i) });
            }
            drop(tx);
            let mut sum = 0;
            while let Ok(i) = rx.recv_async().await {
                sum += i;
            }
            assert_eq!(sum, (0..100).sum());
        });
    });
}

#[test]
fn the_executor_needs_a_runtime() {
    let executed = std::panic::catch_unwind(|| Executor.execute(async {}));
    let text = executed.unwrap_err().downcast::<String>().unwrap();
    assert!(text.contains("not inside a heist runtime"), "{text}");
}

/// A timer of somebody else, which never ends.
struct Endless;

impl Future for Endless {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

impl Sleep for Endless {}

#[test]
fn timers_sleep_and_can_be_set_again() {
    let rt = matrix::plain(2);
    rt.block_on(async {
        let start = Instant::now();
        Timer.sleep(Duration::from_millis(3)).await;
        assert!(start.elapsed() >= Duration::from_millis(3));
        Timer.sleep_until(start + Duration::from_millis(6)).await;
        assert!(start.elapsed() >= Duration::from_millis(6));
        let endless: Pin<Box<dyn Sleep>> = Box::pin(Endless);
        for mut sleep in [Timer.sleep(Duration::from_secs(3600)), endless] {
            poll_fn(|cx| {
                assert!(sleep.as_mut().poll(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            let deadline = Instant::now() + Duration::from_millis(2);
            Timer.reset(&mut sleep, deadline);
            sleep.await;
            assert!(Instant::now() >= deadline);
        }
    });
}

#[test]
fn streams_read_and_write() {
    matrix::each(|_, rt| {
        rt.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let near = TcpStream::connect_async(listener.local_addr().unwrap()).await.unwrap();
            let (mut far, _) = listener.accept_async().await.unwrap();
            let message: Vec<u8> = (0..300_000).map(|i| (i % 251) as u8).collect();
            let sent = Arc::new(message.clone());
            let writes = heist::spawn(async move {
                let mut near = near;
                let mut n = 0;
                while n < sent.len() {
                    let (a, b) = sent[n..].split_at((sent.len() - n) / 2);
                    let bufs = [IoSlice::new(a), IoSlice::new(b)];
                    n += poll_fn(|cx| Write::poll_write_vectored(Pin::new(&mut near), cx, &bufs))
                        .await
                        .unwrap();
                }
                poll_fn(|cx| Write::poll_shutdown(Pin::new(&mut near), cx)).await.unwrap();
            });
            let mut back = Vec::new();
            loop {
                let mut room = [std::mem::MaybeUninit::uninit(); 999];
                let mut buf = ReadBuf::uninit(&mut room);
                poll_fn(|cx| Read::poll_read(Pin::new(&mut far), cx, buf.unfilled()))
                    .await
                    .unwrap();
                if buf.filled().is_empty() {
                    break;
                }
                back.extend_from_slice(buf.filled());
            }
            writes.await.unwrap();
            assert!(back == message, "{} bytes came, or others", back.len());
        });
    });
}
