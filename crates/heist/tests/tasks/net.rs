//! Sockets as futures.

use crate::matrix;

use heist::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};
use heist::{Runtime, spawn, task};
use std::future::{Future, poll_fn};
use std::io::{Read, Write};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

async fn echo(stream: TcpStream) {
    let mut buf = [0; 64];
    loop {
        match stream.read_async(&mut buf).await.unwrap() {
            0 => return,
            n => stream.write_all_async(&buf[..n]).await.unwrap(),
        }
    }
}

/// Sends `message` and waits until it has come back.
async fn ask(stream: &TcpStream, message: &[u8]) {
    stream.write_all_async(message).await.unwrap();
    let mut back = vec![0; message.len()];
    let mut n = 0;
    while n < back.len() {
        n += stream.read_async(&mut back[n..]).await.unwrap();
    }
    assert_eq!(back, message);
}

/// Tasks serve and ask; a goroutine and a plain thread ask as well.
#[test]
fn tasks_serve_tasks_goroutines_and_threads() {
    matrix::each(|_, rt| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = rt.spawn_async(async move {
            for _ in 0..12 {
                let (stream, _) = listener.accept_async().await.unwrap();
                spawn(echo(stream));
            }
        });
        let clients: Vec<_> = (0..10_u8)
            .map(|i| {
                rt.spawn_async(async move {
                    let stream = TcpStream::connect_async(address).await.unwrap();
                    for round in 0..20 {
                        ask(&stream, &[i, round, 7]).await;
                    }
                })
            })
            .collect();
        let blocking = move || {
            let mut stream = TcpStream::connect(address).unwrap();
            for round in 0..20 {
                let mut back = [0; 2];
                stream.write_all(&[round, 9]).unwrap();
                stream.read_exact(&mut back).unwrap();
                assert_eq!(back, [round, 9]);
            }
        };
        let goroutine = rt.handle().spawn(blocking);
        std::thread::spawn(blocking).join().unwrap();
        goroutine.join().unwrap();
        clients.into_iter().for_each(|client| client.join().unwrap());
        server.join().unwrap();
    });
}

/// Several tasks accept from one listener, and readers of one stream take turns.
#[test]
fn operations_in_one_direction_take_turns() {
    matrix::each(|_, rt| {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
        let address = listener.local_addr().unwrap();
        let acceptors: Vec<_> = (0..4)
            .map(|_| {
                let listener = Arc::clone(&listener);
                rt.spawn_async(async move { listener.accept_async().await.unwrap().0 })
            })
            .collect();
        let near: Vec<_> = (0..4).map(|_| TcpStream::connect(address).unwrap()).collect();
        let far: Vec<_> = acceptors.into_iter().map(|task| task.join().unwrap()).collect();
        let stream = Arc::new(far.into_iter().next().unwrap());
        let peer = near
            .into_iter()
            .find(|near| near.local_addr().unwrap() == stream.peer_addr().unwrap())
            .unwrap();
        let readers: Vec<_> = (0..6)
            .map(|i| {
                let stream = Arc::clone(&stream);
                rt.spawn_async(async move {
                    let mut byte = [0];
                    if i % 2 == 0 {
                        // Given up after one poll, before the real read.
                        let mut tried = pin!(stream.read_async(&mut byte));
                        let n = poll_fn(|cx| Poll::Ready(tried.as_mut().poll(cx))).await;
                        if let Poll::Ready(n) = n {
                            return n.unwrap();
                        }
                    }
                    task::yield_now().await;
                    stream.read_async(&mut byte).await.unwrap()
                })
            })
            .collect();
        for _ in 0..6 {
            (&peer).write_all(&[1]).unwrap();
        }
        assert_eq!(readers.into_iter().map(|reader| reader.join().unwrap()).sum::<usize>(), 6);
    });
}

/// A read is aborted again and again; the bytes go to the one that stays.
#[test]
fn an_aborted_read_takes_nothing() {
    matrix::each(|_, rt| {
        let (near, far) = UnixStream::pair().unwrap();
        let far = Arc::new(far);
        for i in 0..20_u8 {
            let read = || {
                let far = Arc::clone(&far);
                rt.spawn_async(async move {
                    let mut byte = [0];
                    far.read_async(&mut byte).await.unwrap();
                    byte[0]
                })
            };
            let goes = read();
            std::thread::yield_now();
            goes.abort();
            let taken = goes.join();
            assert!(taken.unwrap_err().is_cancelled());
            let stays = read();
            (&near).write_all(&[i]).unwrap();
            assert_eq!(stays.join().unwrap(), i);
        }
    });
}

#[test]
fn a_closed_socket_ends_the_wait() {
    matrix::each(|_, rt| {
        let (_near, far) = UnixStream::pair().unwrap();
        let far = Arc::new(far);
        let reads = Arc::clone(&far);
        let task = rt.spawn_async(async move { reads.read_async(&mut [0]).await });
        std::thread::yield_now();
        far.close().unwrap();
        assert!(heist::net::is_closed(&task.join().unwrap().unwrap_err()));
    });
}

/// A socket that was awaited in a runtime that has ended is used in the next.
#[test]
fn a_socket_outlives_its_runtime() {
    let (near, far) = UnixStream::pair().unwrap();
    let far = Arc::new(far);
    for round in 0..5 {
        let rt = matrix::plain(2);
        let left = Arc::clone(&far);
        // It waits until the runtime ends.
        drop(rt.spawn_async(async move { left.read_async(&mut [0]).await }));
        let reads = Arc::clone(&far);
        if round % 2 == 0 {
            let task = rt.spawn_async(async move {
                // Behind the one that waits, or ahead of it: one of them gets the byte.
                task::yield_now().await;
                drop(reads);
            });
            task.join().unwrap();
        }
        drop(rt);
    }
    let rt = matrix::plain(1);
    let task = rt.spawn_async(async move {
        let mut byte = [0];
        far.read_async(&mut byte).await.unwrap();
        byte[0]
    });
    (&near).write_all(&[9]).unwrap();
    assert_eq!(task.join().unwrap(), 9);
}

#[test]
fn block_on_and_foreign_wakers_await_sockets() {
    struct Relay(std::task::Waker);
    impl std::task::Wake for Relay {
        fn wake(self: Arc<Self>) {
            self.0.wake_by_ref();
        }
    }
    matrix::each(|_, rt| {
        rt.run(|| {
            let (near, far) = UnixStream::pair().unwrap();
            let writer = heist::go(move || {
                for i in 0..10_u8 {
                    heist::time::sleep(Duration::from_micros(200));
                    (&near).write_all(&[i]).unwrap();
                }
                near
            });
            heist::block_on(async {
                for i in 0..10_u8 {
                    let mut byte = [0];
                    {
                        let mut read = pin!(far.read_async(&mut byte));
                        poll_fn(|cx| {
                            if i % 2 == 0 {
                                return read.as_mut().poll(cx);
                            }
                            // A waker that is not heist's, a new one for each poll.
                            let foreign = Arc::new(Relay(cx.waker().clone())).into();
                            read.as_mut().poll(&mut std::task::Context::from_waker(&foreign))
                        })
                        .await
                        .unwrap();
                    }
                    assert_eq!(byte[0], i);
                }
            });
            writer.join().unwrap();
        });
    });
}

#[test]
fn datagrams_and_unix_sockets_are_awaited() {
    matrix::each(|_, rt| {
        let path = std::env::temp_dir().join(format!("heist-tasks-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let server = rt.spawn_async(async move {
            let (stream, _) = listener.accept_async().await.unwrap();
            stream.write_all_async(b"hello").await.unwrap();
        });
        let mut text = String::new();
        UnixStream::connect(&path).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "hello");
        server.join().unwrap();
        let a = UdpSocket::bind("127.0.0.1:0").unwrap();
        let b = UdpSocket::bind("127.0.0.1:0").unwrap();
        let to = a.local_addr().unwrap();
        let receiver = rt.spawn_async(async move {
            let mut buf = [0; 8];
            let (n, from) = a.recv_from_async(&mut buf).await.unwrap();
            (buf[..n].to_vec(), from)
        });
        let from = b.local_addr().unwrap();
        rt.spawn_async(async move { b.send_to_async(b"hi", to).await.unwrap() }).join().unwrap();
        assert_eq!(receiver.join().unwrap(), (b"hi".to_vec(), from));
        std::fs::remove_file(&path).unwrap();
    });
}

#[test]
fn sockets_work_without_a_promise() {
    let rt = Runtime::builder().procs(2).build_async().unwrap();
    rt.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        spawn(async move { echo(listener.accept_async().await.unwrap().0).await });
        let stream = TcpStream::connect_async(address).await.unwrap();
        for _ in 0..10 {
            ask(&stream, b"hello").await;
        }
    });
}
