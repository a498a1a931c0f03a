//! The receiving end as a `Stream` (feature `futures-core`).

use crate::matrix;

use futures_core::stream::{FusedStream, Stream};
use heist::chan::{self, Receiver, Sender};
use heist::spawn;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

async fn next<S: Stream>(stream: &mut Pin<&mut S>) -> Option<S::Item> {
    poll_fn(|cx| stream.as_mut().poll_next(cx)).await
}

#[test]
fn a_stream_has_all_messages_and_ends() {
    matrix::each(|_, rt| {
        for capacity in [Some(0), Some(1), Some(7), None] {
            let (tx, rx): (Sender<u64>, Receiver<u64>) =
                capacity.map_or_else(chan::unbounded, chan::bounded);
            let receivers: Vec<_> = (0..3)
                .map(|_| {
                    let stream = rx.clone().into_stream();
                    rt.spawn_async(async move {
                        let mut stream = pin!(stream);
                        let mut sum = 0;
                        while let Some(message) = next(&mut stream).await {
                            assert!(!stream.is_terminated());
                            sum += message;
                        }
                        assert!(stream.is_terminated());
                        assert_eq!(next(&mut stream).await, None);
                        sum
                    })
                })
                .collect();
            drop(rx);
            let goroutine = {
                let tx = tx.clone();
                rt.handle().spawn(move || (0..200).for_each(|i| tx.send(i).unwrap()))
            };
            let task = rt.spawn_async(async move {
                for i in 0..200 {
                    tx.send_async(i).await.unwrap();
                }
            });
            goroutine.join().unwrap();
            task.join().unwrap();
            let sum: u64 = receivers.into_iter().map(|task| task.join().unwrap()).sum();
            assert_eq!(sum, 2 * (0..200).sum::<u64>(), "{capacity:?}");
        }
    });
}

/// A stream that was told of a message and is dropped passes that on.
#[test]
fn a_dropped_stream_loses_no_message() {
    matrix::each(|_, rt| {
        rt.block_on(async {
            let (tx, rx) = chan::bounded(1);
            let mut first = Box::pin(rx.clone().into_stream());
            poll_fn(|cx| {
                assert!(first.as_mut().poll_next(cx).is_pending());
                Poll::Ready(())
            })
            .await;
            let second = spawn(async move { rx.recv_async().await });
            tx.send_async(5).await.unwrap();
            drop(first);
            assert_eq!(second.await.unwrap(), Ok(5));
        });
    });
}

#[test]
fn ticks_are_a_stream() {
    let rt = matrix::plain(2);
    rt.block_on(async {
        let mut ticks = pin!(chan::tick(Duration::from_millis(1)).into_stream());
        let mut last = next(&mut ticks).await.unwrap();
        for _ in 0..3 {
            let due = next(&mut ticks).await.unwrap();
            assert!(due >= last + Duration::from_millis(1));
            last = due;
        }
    });
}
