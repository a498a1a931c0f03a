//! The sending end as a `Sink` (feature `futures-sink`).

use crate::matrix;

use futures_sink::Sink;
use heist::chan::{self, Receiver, SendError, Sender};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

async fn feed<T, S: Sink<T>>(sink: &mut Pin<&mut S>, message: T) -> Result<(), S::Error> {
    poll_fn(|cx| sink.as_mut().poll_ready(cx)).await?;
    sink.as_mut().start_send(message)
}

async fn flush<T, S: Sink<T>>(sink: &mut Pin<&mut S>) -> Result<(), S::Error> {
    poll_fn(|cx| sink.as_mut().poll_flush(cx)).await
}

async fn close<T, S: Sink<T>>(sink: &mut Pin<&mut S>) -> Result<(), S::Error> {
    poll_fn(|cx| sink.as_mut().poll_close(cx)).await
}

#[test]
fn a_sink_sends_every_message_and_closes() {
    matrix::each(|_, rt| {
        for capacity in [Some(0), Some(1), Some(7), None] {
            let (tx, rx): (Sender<u64>, Receiver<u64>) =
                capacity.map_or_else(chan::unbounded, chan::bounded);
            let senders: Vec<_> = (0..3)
                .map(|_| {
                    let sink = tx.clone().into_sink();
                    rt.spawn_async(async move {
                        let mut sink = pin!(sink);
                        for i in 0..100 {
                            feed(&mut sink, i).await.unwrap();
                        }
                        close(&mut sink).await.unwrap();
                        assert_eq!(feed(&mut sink, 1).await, Err(SendError(None)));
                        assert_eq!(sink.as_mut().start_send(2), Err(SendError(Some(2))));
                        close(&mut sink).await.unwrap();
                    })
                })
                .collect();
            drop(tx);
            // Ends only because each sink has dropped its sender.
            let sum = rt.handle().spawn(move || rx.iter().sum::<u64>()).join().unwrap();
            assert_eq!(sum, 3 * (0..100).sum::<u64>(), "{capacity:?}");
            senders.into_iter().for_each(|task| task.join().unwrap());
        }
    });
}

#[test]
fn the_error_of_a_sink_holds_the_message() {
    let rt = matrix::plain(2);
    rt.block_on(async {
        let (tx, rx) = chan::bounded(0);
        let mut sink = pin!(tx.into_sink());
        feed(&mut sink, 5).await.unwrap();
        // Waits in the queue of the channel.
        poll_fn(|cx| {
            assert!(sink.as_mut().poll_flush(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        drop(rx);
        assert_eq!(flush(&mut sink).await, Err(SendError(Some(5))));
        assert_eq!(flush(&mut sink).await, Ok(()), "nothing is left to be sent");
    });
}

/// The message of a sink that is dropped is dropped once, whether it waits in a queue or not.
#[test]
fn a_dropped_sink_drops_its_message() {
    let rt = matrix::plain(2);
    rt.block_on(async {
        for is_queued in [false, true] {
            let (tx, rx) = chan::bounded(0);
            let message = Arc::new(());
            let mut sink = Box::pin(tx.into_sink());
            feed(&mut sink.as_mut(), Arc::clone(&message)).await.unwrap();
            if is_queued {
                poll_fn(|cx| {
                    assert!(sink.as_mut().poll_flush(cx).is_pending());
                    Poll::Ready(())
                })
                .await;
            }
            let refused =
                catch_unwind(AssertUnwindSafe(|| sink.as_mut().start_send(Arc::default())));
            assert!(refused.is_err(), "it is not ready");
            drop(sink);
            assert_eq!(Arc::strong_count(&message), 1);
            assert!(rx.recv().is_err());
        }
    });
}
