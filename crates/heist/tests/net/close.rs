//! Closing while others use a descriptor, taking turns, cancelling.

use crate::matrix;
use crate::wire;

use heist::net::{PipeReader, PipeWriter, PollFd, TcpListener, UdpSocket, is_closed, pipe};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Lets ready goroutines run, so that most of them wait afterwards.
fn let_others_wait() {
    for _ in 0..3 {
        heist::yield_now();
    }
}

/// NP-13: the peer's close is the end of the file, the own one an error.
#[test]
fn close_wakes_a_reader() {
    matrix::run(|| {
        let (near, mut far) = wire::pair();
        let reader = heist::go(move || far.read(&mut [0]).expect("the end"));
        let_others_wait();
        drop(near);
        assert_eq!(reader.join().expect("ends well"), 0);

        let socket = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("binds"));
        let reader = {
            let socket = Arc::clone(&socket);
            heist::go(move || socket.recv_from(&mut [0]).expect_err("closed"))
        };
        let_others_wait();
        socket.close().expect("closes");
        assert!(is_closed(&reader.join().expect("ends well")));
    });
}

/// NP-14: after a close every call fails with the same error, and the other end sees the end.
#[test]
fn after_close_every_call_fails() {
    matrix::run(|| {
        let (mut near, mut far) = wire::pair();
        near.close().expect("closes");
        let errors = [
            near.read(&mut [0]).expect_err("closed"),
            near.write(b"x").expect_err("closed"),
            near.peek(&mut [0]).expect_err("closed"),
            near.set_deadline(None).expect_err("closed"),
            near.set_nodelay(true).expect_err("closed"),
            near.peer_addr().expect_err("closed"),
            near.shutdown(std::net::Shutdown::Both).expect_err("closed"),
            near.try_clone().expect_err("closed"),
            near.close().expect_err("closed"),
        ];
        for error in errors {
            assert!(is_closed(&error), "{error:?}");
            assert_eq!(error.kind(), ErrorKind::NotConnected);
            assert_eq!(error.to_string(), "use of closed network connection");
        }
        assert_eq!(format!("{near:?}"), "Closed");
        assert!(is_closed(&near.into_std().expect_err("closed")));
        assert_eq!(far.read(&mut [0]).expect("the end"), 0);

        let udp = UdpSocket::bind("127.0.0.1:0").expect("binds");
        let own = udp.local_addr().expect("bound");
        udp.close().expect("closes");
        let errors = [
            udp.recv_from(&mut [0]).expect_err("closed"),
            udp.send_to(b"x", own).expect_err("closed"),
            udp.local_addr().expect_err("closed"),
            udp.connect(own).expect_err("closed"),
        ];
        assert!(errors.iter().all(is_closed), "{errors:?}");

        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        listener.close().expect("closes");
        assert!(is_closed(&listener.accept().expect_err("closed")));
        assert!(listener.incoming().next().is_none());
        let fd = format!("/proc/self/fd/{}", listener.as_raw_fd());
        let left = std::fs::read_link(fd).expect("the number is taken");
        assert!(!left.to_string_lossy().starts_with("socket:"), "the socket is open: {left:?}");
    });
}

/// The number of a closed descriptor is not given to another while the value lives.
#[test]
fn a_closed_descriptor_keeps_its_number() {
    let (near, _far) = wire::pair();
    let borrowed = near.as_fd();
    near.close().expect("closes");
    let others: Vec<_> = (0..10).map(|_| pipe().expect("a pipe")).collect();
    for (reader, writer) in &others {
        assert_ne!(reader.as_raw_fd(), borrowed.as_raw_fd());
        assert_ne!(writer.as_raw_fd(), borrowed.as_raw_fd());
    }
}

/// NP-16: closing an end of a pipe ends the waits there, reading or writing, of goroutines and of
/// threads.
#[test]
fn close_ends_a_blocked_pipe() {
    fn read(reader: &Arc<PipeReader>) -> impl FnOnce() -> std::io::Error + Send + 'static {
        let reader = Arc::clone(reader);
        move || (&*reader).read(&mut [0]).expect_err("closed")
    }
    fn fill(writer: &Arc<PipeWriter>) -> impl FnOnce() -> std::io::Error + Send + 'static {
        let writer = Arc::clone(writer);
        move || (&*writer).write_all(&vec![0; 1 << 20]).expect_err("closed")
    }
    matrix::run(|| {
        let (reader, writer) = pipe().expect("a pipe");
        let (reader, writer) = (Arc::new(reader), Arc::new(writer));
        let blocked = heist::go(read(&reader));
        let_others_wait();
        reader.close().expect("closes");
        assert!(is_closed(&blocked.join().expect("ends well")));
        drop(writer);

        let (reader, writer) = pipe().expect("a pipe");
        let writer = Arc::new(writer);
        let blocked = heist::go(fill(&writer));
        let_others_wait();
        writer.close().expect("closes");
        assert!(is_closed(&blocked.join().expect("ends well")));
        drop(reader);
    });
    for round in 0..20 {
        let (reader, _writer) = pipe().expect("a pipe");
        let reader = Arc::new(reader);
        let blocked = std::thread::spawn(read(&reader));
        if round % 2 == 0 {
            std::thread::yield_now();
        }
        reader.close().expect("closes");
        assert!(is_closed(&blocked.join().expect("ends well")));
        let (_reader, writer) = pipe().expect("a pipe");
        let writer = Arc::new(writer);
        let blocked = std::thread::spawn(fill(&writer));
        writer.close().expect("closes");
        assert!(is_closed(&blocked.join().expect("ends well")));
    }
}

/// NP-16: the same holds for pipes that were in blocking mode before, in every wrapper.
#[test]
fn close_ends_pipes_that_were_blocking() {
    matrix::run(|| {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        let reader = Arc::new(PipeReader::from_std(reader).expect("ours"));
        let blocked = {
            let reader = Arc::clone(&reader);
            heist::go(move || (&*reader).read(&mut [0]).expect_err("closed"))
        };
        let_others_wait();
        reader.close().expect("closes");
        assert!(is_closed(&blocked.join().expect("ends well")));
        drop(writer);

        let (reader, writer) = std::io::pipe().expect("a pipe");
        let writer = Arc::new(PollFd::new(writer).expect("ours"));
        let blocked = {
            let writer = Arc::clone(&writer);
            heist::go(move || (&*writer).write_all(&vec![0; 1 << 20]).expect_err("closed"))
        };
        let_others_wait();
        writer.close().expect("closes");
        assert!(is_closed(&blocked.join().expect("ends well")));
        drop(reader);
    });
}

/// NP-16: other code puts a pipe into blocking mode. A goroutine that reads or writes then blocks
/// its own thread only: closing the end does not wait for it and refuses later uses, and the call
/// returns when the other end is closed, with the result of that.
#[test]
fn close_does_not_wait_for_a_pipe_in_blocking_mode() {
    matrix::each_of(&matrix::cases_with(&[1, 2]), |_, rt| {
        rt.run(|| {
            let (reader, writer) = pipe().expect("a pipe");
            socket2::SockRef::from(&reader).set_nonblocking(false).expect("a mode");
            let reader = Arc::new(reader);
            let entered = Arc::new(AtomicBool::new(false));
            let blocked = {
                let (reader, entered) = (Arc::clone(&reader), Arc::clone(&entered));
                heist::go(move || {
                    entered.store(true, Ordering::Relaxed);
                    (&*reader).read(&mut [0])
                })
            };
            matrix::yield_until("it reads", || entered.load(Ordering::Relaxed));
            reader.close().expect("closes");
            assert!(is_closed(&(&*reader).read(&mut [0]).expect_err("closed")));
            drop(writer);
            match blocked.join().expect("ends well") {
                Ok(n) => assert_eq!(n, 0),
                Err(error) => assert!(is_closed(&error), "{error:?}"),
            }

            let (reader, writer) = pipe().expect("a pipe");
            socket2::SockRef::from(&writer).set_nonblocking(false).expect("a mode");
            let writer = Arc::new(writer);
            let entered = Arc::new(AtomicBool::new(false));
            let blocked = {
                let (writer, entered) = (Arc::clone(&writer), Arc::clone(&entered));
                heist::go(move || {
                    entered.store(true, Ordering::Relaxed);
                    (&*writer).write_all(&vec![0; 1 << 20])
                })
            };
            matrix::yield_until("it writes", || entered.load(Ordering::Relaxed));
            writer.close().expect("closes");
            assert!(is_closed(&(&*writer).write(b"x").expect_err("closed")));
            drop(reader);
            let error = blocked.join().expect("ends well").expect_err("there is no reader");
            assert!(is_closed(&error) || error.kind() == ErrorKind::BrokenPipe, "{error:?}");
        });
    });
}

/// NP-17: querying the number or the kind of a descriptor is safe while others read from it with
/// deadlines that pass, and after it is closed.
#[test]
fn queries_race_with_reads() {
    matrix::each_of(&matrix::cases_with(&[1, 4]), |_, rt| {
        rt.run(|| {
            let (reader, writer) = pipe().expect("a pipe");
            let reader = Arc::new(reader);
            let fd = reader.as_raw_fd();
            let asking: Vec<_> = (0..10)
                .map(|_| {
                    let reader = Arc::clone(&reader);
                    heist::go(move || {
                        for _ in 0..100 {
                            assert_eq!(reader.as_raw_fd(), fd);
                            assert_eq!(reader.as_fd().as_raw_fd(), fd);
                            assert!(!format!("{reader:?}").is_empty());
                            heist::yield_now();
                        }
                    })
                })
                .collect();
            let reading = {
                let reader = Arc::clone(&reader);
                heist::go(move || {
                    for _ in 0..10 {
                        let soon = std::time::Instant::now() + Duration::from_micros(100);
                        reader.set_read_deadline(Some(soon)).expect("open");
                        let error = (&*reader).read(&mut [0]).expect_err("nothing comes");
                        assert_eq!(error.kind(), ErrorKind::TimedOut);
                    }
                })
            };
            reading.join().expect("ends well");
            reader.close().expect("closes");
            for asking in asking {
                asking.join().expect("ends well");
            }
            drop(writer);
        });
    });
}

/// NP-17: every write to a pipe without a reader is an error, not a signal and not a wait.
#[test]
fn broken_pipes_stay_broken() {
    matrix::run(|| {
        let (reader, mut writer) = pipe().expect("a pipe");
        drop(reader);
        for _ in 0..100 {
            let error = writer.write(b"hello").expect_err("there is no reader");
            assert_eq!(error.kind(), ErrorKind::BrokenPipe);
        }
    });
}

/// NP-17: the end of a pipe in both directions.
#[test]
fn each_end_of_a_pipe_sees_the_other_close() {
    matrix::run(|| {
        let (mut reader, mut writer) = pipe().expect("a pipe");
        // Written data can be read at once, not only at the end.
        let mut line = [0; 5];
        for _ in 0..3 {
            let_others_wait();
            writer.write_all(b"line\n").expect("writes");
            reader.read_exact(&mut line).expect("reads");
            assert_eq!(&line, b"line\n");
        }
        let waiting = heist::go(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).expect("reads");
            text
        });
        let_others_wait();
        writer.write_all(b"abc").expect("writes");
        let_others_wait();
        drop(writer);
        assert_eq!(waiting.join().expect("ends well"), "abc");

        let (reader, mut writer) = pipe().expect("a pipe");
        let waiting = heist::go(move || writer.write_all(&vec![0; 1 << 20]).expect_err("broken"));
        let_others_wait();
        drop(reader);
        assert_eq!(waiting.join().expect("ends well").kind(), ErrorKind::BrokenPipe);
    });
}

/// NP-19: several readers take turns; closing wakes the reader that waits and those that queue.
#[test]
fn close_wakes_all_queued_readers() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let (near, far) = wire::pair();
            let near = Arc::new(near);
            let readers: Vec<_> = (0..5)
                .map(|_| {
                    let near = Arc::clone(&near);
                    heist::go(move || (&*near).read(&mut [0]).expect_err("closed"))
                })
                .collect();
            let_others_wait();
            near.close().expect("closes");
            for reader in readers {
                assert!(is_closed(&reader.join().expect("ends well")));
            }
            drop(far);
        });
        assert_eq!(heist::testing::poll_waiters(rt), 0);
    });
}

/// NP-19: readers in turn lose nothing and tear nothing, whether goroutines or threads.
#[test]
fn readers_and_writers_take_turns() {
    matrix::each_of(&matrix::cases_with(&[1, 2, 4]), |_, rt| {
        let (near, far) = wire::pair();
        let (near, far) = (Arc::new(near), Arc::new(far));
        let writer = {
            let far = Arc::clone(&far);
            move || {
                for _ in 0..50 {
                    (&*far).write_all(b"x").expect("writes");
                }
            }
        };
        let reader = {
            let near = Arc::clone(&near);
            move || {
                let mut n = 0;
                loop {
                    match (&*near).read(&mut [0; 3]) {
                        Ok(0) => return n,
                        Ok(more) => n += more,
                        Err(error) => panic!("{error}"),
                    }
                }
            }
        };
        let mut writers: Vec<_> = (0..4).map(|_| rt.handle().spawn(writer.clone())).collect();
        let readers: Vec<_> = (0..4).map(|_| rt.handle().spawn(reader.clone())).collect();
        let thread = std::thread::spawn(reader);
        let thread_writer = std::thread::spawn(writer);
        for writer in writers.drain(..) {
            writer.join().expect("ends well");
        }
        thread_writer.join().expect("ends well");
        far.shutdown(std::net::Shutdown::Write).expect("half close");
        let n: usize = readers.into_iter().map(|reader| reader.join().expect("ends well")).sum();
        assert_eq!(n + thread.join().expect("ends well"), 250);
    });
}

/// A goroutine that is cancelled while it waits, or queues, leaves the descriptor to the others.
#[test]
fn cancelling_leaves_the_descriptor_in_order() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let (near, mut far) = wire::pair();
            let near = Arc::new(near);
            let read = || {
                let near = Arc::clone(&near);
                heist::go(move || {
                    let mut byte = [0];
                    (&*near).read_exact(&mut byte).expect("reads");
                    byte[0]
                })
            };
            let readers: Vec<_> = (0..6).map(|_| read()).collect();
            let_others_wait();
            for reader in readers.iter().step_by(2) {
                reader.cancel();
            }
            let_others_wait();
            far.write_all(b"abc").expect("writes");
            let mut seen = Vec::new();
            for (i, reader) in readers.into_iter().enumerate() {
                match reader.join() {
                    Ok(byte) => seen.push(byte),
                    Err(error) => {
                        assert!(error.is_cancelled());
                        assert_eq!(i % 2, 0, "it was not cancelled");
                    }
                }
            }
            // One that had its byte before it was cancelled is no loss.
            let mut rest = vec![0; 3 - seen.len()];
            (&*near).read_exact(&mut rest).expect("reads");
            seen.append(&mut rest);
            seen.sort_unstable();
            assert_eq!(seen, b"abc");
        });
        assert_eq!(heist::testing::poll_waiters(rt), 0);
    });
}

/// The end of a runtime unwinds goroutines that wait for descriptors.
#[test]
fn shutdown_unwinds_waiting_goroutines() {
    struct Tell(std::sync::mpsc::Sender<()>);
    impl Drop for Tell {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }
    for case in matrix::cases() {
        let rt = case.runtime();
        let (told, dropped) = std::sync::mpsc::channel();
        let (near, _far) = wire::pair();
        rt.run(move || {
            let tell = Tell(told);
            heist::go(move || {
                let _tell = tell;
                let mut near = near;
                let _ = near.read(&mut [0]);
            });
            let_others_wait();
        });
        drop(rt);
        dropped.recv().expect("its destructor ran");
    }
}

/// Closing and using from all sides at once: nothing hangs, and only the known errors occur.
#[test]
fn close_races_with_everything() {
    matrix::each_of(&matrix::cases_with(&[2, 4]), |_, rt| {
        let mut seed = 1u64;
        matrix::stress(20, |_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let turns = seed >> 60;
            rt.run(|| {
                let (near, far) = wire::pair();
                let near = Arc::new(near);
                let echo = heist::go(move || wire::echo(far));
                let users: Vec<_> = (0..3)
                    .map(|kind| {
                        let near = Arc::clone(&near);
                        heist::go(move || {
                            loop {
                                let used = match kind {
                                    0 => (&*near).read(&mut [0; 8]).map(drop),
                                    1 => (&*near).write(b"xy").map(drop),
                                    _ => near.set_deadline(
                                        std::time::Instant::now()
                                            .checked_add(Duration::from_secs(3600)),
                                    ),
                                };
                                if let Err(error) = used {
                                    assert!(is_closed(&error), "{error:?}");
                                    return;
                                }
                                heist::yield_now();
                            }
                        })
                    })
                    .collect();
                for _ in 0..turns {
                    heist::yield_now();
                }
                near.close().expect("closes");
                for user in users {
                    user.join().expect("ends well");
                }
                echo.join().expect("ends well");
            });
        });
        assert_eq!(heist::testing::poll_waiters(rt), 0);
    });
}
