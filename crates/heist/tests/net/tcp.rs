//! TCP connections of goroutines: data in both directions, half close, resets, many at once.

use crate::matrix;
use crate::wire;

use heist::net::{TcpListener, TcpStream};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

/// NP-21: two connections, many messages each.
#[test]
fn many_messages_are_echoed() {
    matrix::run(|| {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").expect("listens"));
        let address = listener.local_addr().expect("an address");
        let server = {
            let listener = Arc::clone(&listener);
            heist::go(move || wire::echo_server(&listener))
        };
        let clients: Vec<_> = (0..2u8)
            .map(|client| {
                heist::go(move || {
                    let mut stream = TcpStream::connect(address).expect("connects");
                    let mut buffer = [0; 512];
                    for message in 0..200 {
                        let sent = [client ^ message; 512];
                        stream.write_all(&sent).expect("writes");
                        stream.read_exact(&mut buffer).expect("reads");
                        assert_eq!(buffer, sent);
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().expect("the client ends well");
        }
        listener.close().expect("closes");
        server.join().expect("the server ends well");
    });
}

/// NP-21: a transfer that is larger than every buffer, against a slow reader.
#[test]
fn large_transfers_arrive_whole() {
    matrix::each_of(&matrix::cases_with(&[1, 2]), |_, rt| {
        rt.run(|| {
            const LEN: usize = 8 << 20;
            let (mut near, mut far) = wire::pair();
            let writer = heist::go(move || {
                let data: Vec<u8> = (0..LEN).map(|i| (i / 251) as u8).collect();
                near.write_all(&data).expect("writes");
            });
            let mut data = Vec::new();
            let mut buffer = vec![0; 100_000];
            loop {
                let n = far.read(&mut buffer).expect("reads");
                if n == 0 {
                    break;
                }
                data.extend_from_slice(&buffer[..n]);
                heist::yield_now();
            }
            assert_eq!(data.len(), LEN);
            assert!(data.iter().enumerate().all(|(i, &byte)| byte == (i / 251) as u8));
            writer.join().expect("the writer ends well");
        });
    });
}

/// One goroutine reads while another writes, through shared references.
#[test]
fn a_stream_is_read_and_written_at_the_same_time() {
    matrix::run(|| {
        let (near, far) = wire::pair();
        let echo = heist::go(move || wire::echo(far));
        let near = Arc::new(near);
        let writer = {
            let near = Arc::clone(&near);
            heist::go(move || {
                for i in 0..1000u32 {
                    (&*near).write_all(&i.to_le_bytes()).expect("writes");
                }
                near.shutdown(Shutdown::Write).expect("half close");
            })
        };
        for i in 0..1000u32 {
            let mut number = [0; 4];
            (&*near).read_exact(&mut number).expect("reads");
            assert_eq!(u32::from_le_bytes(number), i);
        }
        assert_eq!((&*near).read(&mut [0]).expect("the end"), 0);
        writer.join().expect("ends well");
        echo.join().expect("ends well");
    });
}

/// NP-14: half close in both directions.
#[test]
fn half_close_works_in_both_directions() {
    matrix::run(|| {
        let (mut near, mut far) = wire::pair();
        near.write_all(b"last words").expect("writes");
        near.shutdown(Shutdown::Write).expect("half close");
        assert_eq!(near.write(b"x").expect_err("no more").kind(), ErrorKind::BrokenPipe);
        let mut text = String::new();
        far.read_to_string(&mut text).expect("reads to the end");
        assert_eq!(text, "last words");
        far.write_all(b"answer").expect("the other direction works");
        drop(far);
        text.clear();
        near.read_to_string(&mut text).expect("reads to the end");
        assert_eq!(text, "answer");
        // A reader that waits ends when its own direction is shut down.
        let (near, _far) = wire::pair();
        let near = Arc::new(near);
        let reader = {
            let near = Arc::clone(&near);
            heist::go(move || (&*near).read(&mut [0; 8]))
        };
        heist::yield_now();
        near.shutdown(Shutdown::Read).expect("half close");
        assert_eq!(reader.join().expect("no panic").expect("the end"), 0);
    });
}

/// The end comes with the last data, in one event: it is not waited for a second time.
#[test]
fn the_end_right_after_data_is_seen() {
    matrix::run(|| {
        for round in 0..50 {
            let (mut near, mut far) = wire::pair();
            let reader = heist::go(move || {
                let mut all = Vec::new();
                let mut buffer = [0; 64];
                loop {
                    match far.read(&mut buffer).expect("reads") {
                        0 => return all,
                        n => all.extend_from_slice(&buffer[..n]),
                    }
                }
            });
            if round % 2 == 0 {
                heist::yield_now();
            }
            near.write_all(b"abc").expect("writes");
            if round % 3 == 0 {
                heist::yield_now();
            }
            drop(near);
            assert_eq!(reader.join().expect("ends well"), b"abc");
        }
    });
}

/// NP-15: reads of nothing return at once; a reset is an error that stays one.
#[test]
fn empty_reads_return_and_resets_stay() {
    matrix::run(|| {
        let (mut near, mut far) = wire::pair();
        assert_eq!(near.read(&mut []).expect("nothing"), 0);
        far.write_all(b"x").expect("writes");
        near.read_exact(&mut [0]).expect("reads");
        near.set_linger(Some(Duration::ZERO)).expect("an option");
        drop(near);
        let error = far.read(&mut [0]).expect_err("reset");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
        let error = far.write(b"x").expect_err("no connection");
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

/// A reset wakes a waiting reader.
#[test]
fn a_reset_wakes_a_reader() {
    matrix::run(|| {
        let (near, mut far) = wire::pair();
        let reader = heist::go(move || far.read(&mut [0]).expect_err("reset").kind());
        heist::yield_now();
        near.set_linger(Some(Duration::ZERO)).expect("an option");
        drop(near);
        assert_eq!(reader.join().expect("ends well"), ErrorKind::ConnectionReset);
    });
}

/// Options read back as they were set; vectored calls, peeking, conversions to std and back.
#[test]
fn options_and_conversions_work() {
    matrix::run(|| {
        let (near, mut far) = wire::pair();
        near.set_nodelay(true).expect("an option");
        assert!(near.nodelay().expect("an option"));
        near.set_ttl(42).expect("an option");
        assert_eq!(near.ttl().expect("an option"), 42);
        near.set_linger(Some(Duration::from_secs(3))).expect("an option");
        assert_eq!(near.linger().expect("an option"), Some(Duration::from_secs(3)));
        near.set_keepalive(Some(Duration::from_secs(30))).expect("an option");
        assert_eq!(near.keepalive().expect("an option"), Some(Duration::from_secs(30)));
        near.set_keepalive(None).expect("an option");
        assert_eq!(near.keepalive().expect("an option"), None);
        assert!(near.take_error().expect("an option").is_none());
        assert_eq!(near.peer_addr().expect("connected"), far.local_addr().expect("bound"));

        let parts = [IoSlice::new(b"ab"), IoSlice::new(b"cde")];
        assert_eq!((&near).write_vectored(&parts).expect("writes"), 5);
        let mut seen = [0; 5];
        assert_eq!(far.peek(&mut seen).expect("peeks"), 5);
        let (mut a, mut b) = ([0; 3], [0; 8]);
        let mut parts = [IoSliceMut::new(&mut a), IoSliceMut::new(&mut b)];
        assert_eq!(far.read_vectored(&mut parts).expect("reads"), 5);
        assert_eq!((&a, &b[..2], &seen), (b"abc", &b"de"[..], b"abcde"));

        let clone = near.try_clone().expect("clones");
        let mut near = near.into_std().expect("std's");
        near.write_all(b"std").expect("writes");
        drop(near);
        let near = TcpStream::from_std(clone.into_std().expect("std's")).expect("ours");
        (&near).write_all(b"!").expect("writes");
        drop(near);
        let mut text = String::new();
        far.read_to_string(&mut text).expect("reads");
        assert_eq!(text, "std!");
        assert_eq!(
            TcpStream::connect_timeout(&far.local_addr().expect("bound"), Duration::ZERO)
                .expect_err("zero is no time")
                .kind(),
            ErrorKind::InvalidInput
        );
    });
}

/// A refusal by the system is an error of the right kind.
#[test]
fn errors_have_their_kinds() {
    matrix::run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = listener.local_addr().expect("an address");
        let taken = TcpListener::bind(address).expect_err("taken");
        assert_eq!(taken.kind(), ErrorKind::AddrInUse);
        let (_taken, nobody) = wire::refusing();
        let refused = TcpStream::connect(nobody).expect_err("there is no listener");
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
        let far_away = TcpListener::bind("192.0.2.1:0").expect_err("not ours");
        assert_eq!(far_away.kind(), ErrorKind::AddrNotAvailable);
        assert!(TcpStream::connect("no-such-host.invalid:80").is_err());
        assert_eq!(
            TcpStream::connect("nonsense").expect_err("no port").kind(),
            ErrorKind::InvalidInput
        );
    });
}

/// The addresses of a host are tried one after the other.
#[test]
fn connect_tries_every_address() {
    matrix::run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let good = listener.local_addr().expect("an address");
        let (_taken, bad) = wire::refusing();
        let stream = TcpStream::connect(&[bad, good][..]).expect("the second");
        assert_eq!(stream.peer_addr().expect("connected"), good);
        assert_eq!(
            TcpStream::connect(&[bad, bad][..]).expect_err("none").kind(),
            ErrorKind::ConnectionRefused
        );
    });
}

/// NP-27, IN-23: after an echo session and all closes no waiter is counted.
#[test]
fn no_poll_waiter_is_left_over() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let (mut near, far) = wire::pair();
            let echo = heist::go(move || wire::echo(far));
            for i in 0..10 {
                near.write_all(&[i]).expect("writes");
                near.read_exact(&mut [0]).expect("reads");
            }
            drop(near);
            echo.join().expect("ends well");
        });
        assert_eq!(heist::testing::poll_waiters(rt), 0);
    });
}

/// From a plain thread everything works as well, and blocks the thread.
#[test]
fn plain_threads_take_part() {
    matrix::each(|_, rt| {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").expect("listens"));
        let address = listener.local_addr().expect("an address");
        let serving = Arc::clone(&listener);
        let server = rt.handle().spawn(move || wire::echo_server(&serving));
        let mut stream = TcpStream::connect(address).expect("connects");
        for i in 0..20u8 {
            stream.write_all(&[i]).expect("writes");
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("reads");
            assert_eq!(byte, [i]);
        }
        // A goroutine continues to use a descriptor that a thread made and used.
        rt.run(move || {
            stream.write_all(b"x").expect("writes");
            stream.read_exact(&mut [0]).expect("reads");
        });
        listener.close().expect("closes");
        server.join().expect("ends well");
    });
}

/// A descriptor of one runtime is used by goroutines of another.
#[test]
fn another_runtime_may_use_a_descriptor() {
    matrix::each_of(&matrix::cases_with(&[1, 2]), |_, rt| {
        let (mut near, far) = rt.run(wire::pair);
        // It waits here, so it belongs here.
        let (far, near) = rt.run(move || {
            let far = heist::go(move || {
                let mut far = far;
                far.read_exact(&mut [0]).expect("reads");
                far
            });
            heist::yield_now();
            near.write_all(b"x").expect("writes");
            (far.join().expect("ends well"), near)
        });
        let other = matrix::plain(1);
        let mut far = far;
        let reader = other.handle().spawn(move || {
            let mut byte = [0];
            far.read_exact(&mut byte).expect("reads");
            byte
        });
        let mut near = near;
        near.write_all(b"y").expect("writes");
        assert_eq!(reader.join().expect("ends well"), *b"y");
    });
}
