//! Futures of tokio on heist: what is entered, when, and on which thread.

use heist::chan;
use heist_tokio::TokioContext;
use std::collections::HashSet;
use std::future::poll_fn;
use std::task::Poll;
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Handle;

fn is_entered() -> bool {
    Handle::try_current().is_ok()
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn sockets_and_timers_of_tokio_work_in_tasks_of_heist() {
    let tokio = TokioContext::new(1).unwrap();
    let listener = tokio.block_on(async { TcpListener::bind("127.0.0.1:0").await }).unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio.spawn(async move {
        for _ in 0..20 {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
            stream.write_all(&[byte[0] + 1]).await.unwrap();
        }
    });
    let clients: Vec<_> = (0..20u8)
        .map(|i| {
            tokio.spawn(async move {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(&[i]).await.unwrap();
                stream.read_u8().await.unwrap()
            })
        })
        .collect();
    for (i, client) in (0..20).zip(clients) {
        assert_eq!(client.join().unwrap(), i + 1);
    }
    server.join().unwrap();
}

/// Between two polls a thread runs other goroutines, which must not see the context.
#[heist::test(unsafe, procs = [1, 2, 4])]
fn the_context_is_left_after_each_poll() {
    let tokio = TokioContext::new(1).unwrap();
    let waiting: Vec<_> = (0..50)
        .map(|_| {
            tokio.spawn(async {
                for _ in 0..20 {
                    assert!(is_entered());
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    let others: Vec<_> = (0..50)
        .map(|_| {
            heist::go(|| {
                for _ in 0..20 {
                    assert!(!is_entered());
                    heist::yield_now();
                }
            })
        })
        .collect();
    waiting.into_iter().for_each(|task| task.join().unwrap());
    others.into_iter().for_each(|other| other.join().unwrap());
    assert!(!is_entered());
}

/// A poll that waits in blocking style ends on the thread where it began, and the context with it.
#[heist::test(unsafe, procs = [1, 2, 4])]
fn a_poll_that_waits_keeps_its_thread() {
    let tokio = TokioContext::new(1).unwrap();
    let tasks: Vec<_> = (0..20)
        .map(|_| {
            let (tx, rx) = chan::bounded(0);
            let other = heist::go(move || (0..10).for_each(|i| tx.send(i).unwrap()));
            let task = tokio.spawn(async move {
                let before = thread::current().id();
                let sum: i32 = rx.iter().sum();
                assert_eq!(thread::current().id(), before);
                assert!(is_entered());
                sum
            });
            (task, other)
        })
        .collect();
    for (task, other) in tasks {
        assert_eq!(task.join().unwrap(), 45);
        other.join().unwrap();
        assert!(!is_entered());
    }
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn a_future_is_dropped_inside_the_context() {
    struct Spawns(chan::Sender<u8>);
    impl Drop for Spawns {
        fn drop(&mut self) {
            let tx = self.0.clone();
            tokio::spawn(async move { tx.send(1).unwrap() });
        }
    }
    let tokio = TokioContext::new(1).unwrap();
    let (tx, rx) = chan::bounded(4);
    // One that ends, one that is cancelled while it waits, one that is never polled.
    let value = Spawns(tx.clone());
    tokio.block_on(async move { drop(value) });
    assert_eq!(rx.recv(), Ok(1));
    let value = Spawns(tx.clone());
    let task = tokio.spawn(async move {
        let _value = value;
        std::future::pending::<()>().await;
    });
    task.abort();
    assert!(task.join().is_err());
    assert_eq!(rx.recv(), Ok(1));
    let value = Spawns(tx.clone());
    drop(tokio.wrap(async move { drop(value) }));
    assert_eq!(rx.recv(), Ok(1));
    assert_eq!(tokio.metrics().wrapped, 0);
}

#[heist::test(unsafe, procs = [1, 2])]
fn a_panic_leaves_the_context() {
    let tokio = TokioContext::new(1).unwrap();
    let error = tokio.spawn(async { panic!("no luck") }).join().unwrap_err();
    assert_eq!(error.panic_message(), Some("no luck"));
    let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        tokio.block_on(async { panic!("again") });
    }));
    assert!(caught.is_err());
    assert!(!is_entered());
    assert_eq!(tokio.metrics().wrapped, 0);
}

#[heist::test(unsafe, procs = [2])]
fn tokio_spawn_uses_as_many_workers_as_asked_for() {
    for n in [1, 3] {
        let tokio = TokioContext::new(n).unwrap();
        let threads = tokio.block_on(async {
            let tasks: Vec<_> =
                (0..100).map(|_| tokio::spawn(async { thread::current().id() })).collect();
            let mut threads = HashSet::new();
            for task in tasks {
                threads.insert(task.await.unwrap());
            }
            threads
        });
        assert!((1..=n).contains(&threads.len()), "{threads:?}");
        assert_eq!(tokio.metrics().workers, n);
    }
}

#[heist::test(unsafe, procs = [2])]
fn metrics_count_what_is_alive() {
    let tokio = TokioContext::new(1).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (begun, has_begun) = chan::bounded(1);
    let task = tokio.spawn(async move {
        let inner = tokio::spawn(stopped);
        begun.send(()).unwrap();
        inner.await.unwrap().unwrap();
    });
    has_begun.recv().unwrap();
    let now = tokio.metrics();
    assert_eq!((now.tasks, now.wrapped), (1, 1));
    stop.send(()).unwrap();
    task.join().unwrap();
    // tokio wakes the joiner before it forgets the task.
    while tokio.metrics().tasks != 0 {
        heist::yield_now();
    }
    let then = tokio.metrics();
    assert_eq!(then.wrapped, 0);
    assert!(then.polls > now.polls);
}

/// The last owner of the runtime may be a task of that runtime.
#[heist::test(unsafe, procs = [1, 2])]
fn the_last_context_may_be_dropped_anywhere() {
    let tokio = TokioContext::new(1).unwrap();
    let handle = tokio.handle().clone();
    let (tx, rx) = chan::bounded(1);
    handle.spawn(async move {
        drop(tokio);
        tx.send(1).unwrap();
    });
    assert_eq!(rx.recv(), Ok(1));

    let tokio = TokioContext::new(1).unwrap();
    let inner = tokio.clone();
    tokio.block_on(async move { drop(inner) });
    let mut left = Some(tokio.clone());
    let wrapped = tokio.wrap(poll_fn(move |_| {
        drop(left.take());
        Poll::Ready(())
    }));
    drop(tokio);
    heist::block_on(wrapped);
    assert!(!is_entered());
}
