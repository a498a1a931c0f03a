//! Deadlines and timeouts of descriptors.
//!
//! Lower bounds are strict. Upper bounds are generous, or tried again where time itself is tested.

use crate::matrix;
use crate::wire;

use heist::net::{TcpListener, TcpStream, UdpSocket};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// The configurations of tests that wait for time to pass.
fn few() -> Vec<matrix::Case> {
    matrix::cases_with(&[1, 4]).into_iter().step_by(3).collect()
}

fn past() -> Option<Instant> {
    Instant::now().checked_sub(Duration::from_secs(5))
}

fn after(wait: Duration) -> Option<Instant> {
    Instant::now().checked_add(wait)
}

fn is_timeout(error: &std::io::Error) -> bool {
    assert_eq!(error.to_string(), "i/o timeout");
    error.kind() == ErrorKind::TimedOut
}

/// An address where connects neither succeed nor fail: a listener whose queue is full.
struct BlackHole {
    listener: socket2::Socket,
    address: SocketAddr,
    fill: Vec<TcpStream>,
}

impl BlackHole {
    fn new() -> Self {
        let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None)
            .expect("a socket");
        let any: SocketAddr = ([127, 0, 0, 1], 0).into();
        listener.bind(&any.into()).expect("binds");
        listener.listen(0).expect("listens");
        let address = listener.local_addr().expect("bound").as_socket().expect("an address");
        let mut fill = Vec::new();
        while let Ok(stream) = TcpStream::connect_timeout(&address, 30 * MS) {
            fill.push(stream);
        }
        Self { listener, address, fill }
    }
}

/// NP-01: a connect that is not answered fails in time and not before; one whose time is over
/// fails at once.
#[test]
fn connect_honours_its_limits() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let hole = BlackHole::new();
            assert!(!hole.fill.is_empty() && hole.listener.local_addr().is_ok());
            for limit in [MS, 20 * MS] {
                let began = Instant::now();
                let error =
                    TcpStream::connect_timeout(&hole.address, limit).expect_err("no answer");
                assert!(is_timeout(&error));
                assert!(began.elapsed() >= limit, "early: {:?} < {limit:?}", began.elapsed());
            }
            let past = past().expect("the machine is up for longer");
            let error = TcpStream::connect_deadline(hole.address, past).expect_err("too late");
            assert!(is_timeout(&error));
            // A connect that succeeds has no deadline left over.
            let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
            let address = listener.local_addr().expect("an address");
            let mut near = TcpStream::connect_timeout(&address, 200 * MS).expect("connects");
            let (mut far, _) = listener.accept().expect("accepts");
            heist::time::sleep(250 * MS);
            near.write_all(b"x").expect("writes");
            far.read_exact(&mut [0]).expect("reads");
        });
    });
}

/// NP-02: the longest times do not overflow into short ones.
#[test]
fn longest_times_do_not_overflow() {
    matrix::run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = listener.local_addr().expect("an address");
        let near = TcpStream::connect_timeout(&address, Duration::MAX).expect("connects");
        let (mut far, _) = listener.accept().expect("accepts");
        near.set_read_timeout(Some(Duration::MAX)).expect("a time");
        let centuries = Duration::from_secs(1 << 36);
        near.set_read_deadline(Instant::now().checked_add(centuries)).expect("a deadline");
        let near = Arc::new(near);
        let reader = {
            let near = Arc::clone(&near);
            heist::go(move || (&*near).read(&mut [0]).expect("reads"))
        };
        heist::yield_now();
        far.write_all(b"x").expect("writes");
        assert_eq!(reader.join().expect("ends well"), 1);
        assert_eq!(
            near.set_read_timeout(Some(Duration::ZERO)).expect_err("no time").kind(),
            ErrorKind::InvalidInput
        );
    });
}

/// NP-03: accept fails when its deadline is over, and waits again when that is cleared.
#[test]
fn accept_honours_its_deadline() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let listener = Arc::new(TcpListener::bind("127.0.0.1:0").expect("listens"));
            for deadline in [past(), after(10 * MS)] {
                listener.set_read_deadline(deadline).expect("a deadline");
                assert!(is_timeout(&listener.accept().expect_err("no connection comes")));
                assert!(Instant::now() >= deadline.expect("a moment"));
                assert!(is_timeout(&listener.accept().expect_err("and again")));
            }
            listener.set_read_deadline(None).expect("no deadline");
            let done = Arc::new(AtomicBool::new(false));
            let accepting = {
                let (listener, done) = (Arc::clone(&listener), Arc::clone(&done));
                heist::go(move || {
                    let error = listener.accept().expect_err("closed");
                    done.store(true, Ordering::Relaxed);
                    error
                })
            };
            heist::time::sleep(100 * MS);
            assert!(!done.load(Ordering::Relaxed), "it did not wait");
            listener.close().expect("closes");
            assert!(heist::net::is_closed(&accepting.join().expect("ends well")));
        });
    });
}

/// NP-04: a deadline in the past fails every read, data or not; one ahead lets data through and
/// then fails, again and again, with nothing read.
#[test]
fn read_deadlines_are_sticky() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let (mut near, mut far) = wire::pair();
            far.write_all(b"data").expect("writes");
            let mut buffer = [0; 4];
            near.set_read_deadline(past()).expect("a deadline");
            for _ in 0..3 {
                assert!(is_timeout(&near.read(&mut buffer).expect_err("too late")));
            }
            assert_eq!(buffer, [0; 4]);
            let deadline = after(50 * MS);
            near.set_read_deadline(deadline).expect("a deadline");
            near.read_exact(&mut buffer).expect("reads");
            assert_eq!(&buffer, b"data");
            for _ in 0..3 {
                assert!(is_timeout(&near.read(&mut buffer).expect_err("too late")));
                assert!(Instant::now() >= deadline.expect("a moment"));
            }
            near.set_read_deadline(None).expect("no deadline");
            far.write_all(b"more").expect("writes");
            near.read_exact(&mut buffer).expect("reads");
            assert_eq!(&buffer, b"more");

            let udp = UdpSocket::bind("127.0.0.1:0").expect("binds");
            udp.send_to(b"x", udp.local_addr().expect("bound")).expect("sends");
            udp.set_read_deadline(past()).expect("a deadline");
            assert!(is_timeout(&udp.recv_from(&mut buffer).expect_err("too late")));
            udp.set_read_deadline(after(20 * MS)).expect("a deadline");
            assert_eq!(udp.recv_from(&mut buffer).expect("receives").0, 1);
            assert!(is_timeout(&udp.recv_from(&mut buffer).expect_err("too late")));
        });
    });
}

/// NP-05: the deadline of one direction does not end the other.
#[test]
fn deadlines_of_the_directions_are_independent() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let (near, _far) = wire::pair();
            let near = Arc::new(near);
            near.set_write_deadline(past()).expect("a deadline");
            let reader = blocked(&near, |mut near| near.read(&mut [0]));
            assert!(is_timeout(&(&*near).write(b"x").expect_err("too late")));
            near.close().expect("closes");
            assert!(heist::net::is_closed(&reader.join().expect("ends well")));

            let (near, _far) = wire::pair();
            let near = Arc::new(near);
            near.set_read_deadline(past()).expect("a deadline");
            let writer = blocked(&near, |mut near| near.write_all(&vec![0; 64 << 20]).map(|()| 0));
            near.close().expect("closes");
            assert!(heist::net::is_closed(&writer.join().expect("ends well")));
        });
    });
}

/// A goroutine in `op`, which was seen to wait for a while, and ends with an error.
fn blocked(
    stream: &Arc<TcpStream>,
    op: impl FnOnce(&TcpStream) -> std::io::Result<usize> + Send + 'static,
) -> heist::JoinHandle<std::io::Error> {
    let done = Arc::new(AtomicBool::new(false));
    let handle = {
        let (stream, done) = (Arc::clone(stream), Arc::clone(&done));
        heist::go(move || {
            let error = op(&stream).expect_err("it is ended");
            done.store(true, Ordering::Relaxed);
            error
        })
    };
    heist::time::sleep(100 * MS);
    assert!(!done.load(Ordering::Relaxed), "it did not wait");
    handle
}

/// NP-06: writes likewise: they fail with nothing written when the time is over.
#[test]
fn write_deadlines_are_kept() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let (mut near, _far) = wire::pair();
            near.set_write_deadline(past()).expect("a deadline");
            assert!(is_timeout(&near.write(b"x").expect_err("too late")));
            let chunk = vec![0; 1 << 20];
            let deadline = after(10 * MS);
            near.set_write_deadline(deadline).expect("a deadline");
            let error = loop {
                if let Err(error) = near.write(&chunk) {
                    break error;
                }
            };
            assert!(is_timeout(&error));
            assert!(Instant::now() >= deadline.expect("a moment"));
            assert!(is_timeout(&near.write(&chunk).expect_err("and again")));
            let udp = UdpSocket::bind("127.0.0.1:0").expect("binds");
            udp.set_write_deadline(past()).expect("a deadline");
            let own = udp.local_addr().expect("bound");
            assert!(is_timeout(&udp.send_to(b"x", own).expect_err("too late")));
        });
    });
}

/// NP-07: with a free processor a timeout is accurate within a tenth, for some time up to 4 s:
/// of reads, of datagrams, of writes.
#[test]
fn timeouts_are_accurate() {
    let rt = matrix::plain(2);
    rt.run(|| {
        let (near, _far) = wire::pair();
        near.set_write_timeout(Some(MS)).expect("a time");
        while (&near).write(&[0; 1 << 16]).is_ok() {}
        let udp = UdpSocket::bind("127.0.0.1:0").expect("binds");
        is_accurate(|wait| {
            near.set_read_timeout(wait).expect("a time");
            (&near).read(&mut [0]).map(drop)
        });
        is_accurate(|wait| {
            near.set_write_timeout(wait).expect("a time");
            (&near).write(&[0]).map(drop)
        });
        is_accurate(|wait| {
            udp.set_read_timeout(wait).expect("a time");
            udp.recv_from(&mut [0]).map(drop)
        });
    });
}

fn is_accurate(mut op: impl FnMut(Option<Duration>) -> std::io::Result<()>) {
    let mut wait = MS;
    loop {
        let began = Instant::now();
        assert!(is_timeout(&op(Some(wait)).expect_err("nothing comes")));
        let took = began.elapsed();
        assert!(took >= wait, "early: {took:?} < {wait:?}");
        if took <= wait + wait / 10 {
            return;
        }
        wait = took + took / 4;
        assert!(wait <= Duration::from_secs(4), "late by more than a tenth at {took:?}");
    }
}

/// NP-09: deadlines that are pushed ahead before each call never fire.
#[test]
fn deadlines_pushed_ahead_never_fire() {
    matrix::run(|| {
        let hour = Duration::from_secs(3600);
        let (mut near, mut far) = wire::pair();
        let echo = heist::go(move || {
            let mut byte = [0];
            loop {
                far.set_deadline(after(hour)).expect("a deadline");
                match far.read(&mut byte).expect("reads") {
                    0 => return,
                    _ => far.write_all(&byte).expect("writes"),
                }
            }
        });
        for i in 0..300 {
            near.set_deadline(after(hour)).expect("a deadline");
            near.write_all(&[i as u8]).expect("writes");
            near.read_exact(&mut [0]).expect("reads");
        }
        drop(near);
        echo.join().expect("ends well");
    });
}

/// NP-11: many set the deadlines of many connections at once.
#[test]
fn deadlines_may_be_set_by_many_at_once() {
    matrix::run(|| {
        let pairs: Arc<Vec<_>> = Arc::new((0..10).map(|_| wire::pair()).collect());
        let readers: Vec<_> = (0..10)
            .map(|i| {
                let pairs = Arc::clone(&pairs);
                heist::go(move || {
                    let error = (&pairs[i].0).read(&mut [0]).expect_err("nothing comes");
                    assert!(is_timeout(&error));
                })
            })
            .collect();
        let setters: Vec<_> = (0..8)
            .map(|_| {
                let pairs = Arc::clone(&pairs);
                heist::go(move || {
                    for n in 0..100 {
                        let stream = &pairs[n % 10].0;
                        stream.set_deadline(after(Duration::from_secs(3600))).expect("a deadline");
                    }
                })
            })
            .collect();
        for setter in setters {
            setter.join().expect("ends well");
        }
        for (near, _) in &*pairs {
            near.set_deadline(past()).expect("a deadline");
        }
        for reader in readers {
            reader.join().expect("ends well");
        }
    });
}

/// NP-12: a past deadline wakes a read that waits, of a goroutine or of a plain thread.
#[test]
fn a_past_deadline_wakes_a_reader() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let (near, _far) = wire::pair();
            let near = Arc::new(near);
            let reader = {
                let near = Arc::clone(&near);
                heist::go(move || (&*near).read(&mut [0]).expect_err("too late"))
            };
            for _ in 0..3 {
                heist::yield_now();
            }
            near.set_read_deadline(past()).expect("a deadline");
            assert!(is_timeout(&reader.join().expect("ends well")));
        });
        assert_eq!(heist::testing::poll_waiters(rt), 0);
    });
    for round in 0..20 {
        let (near, _far) = wire::pair();
        let near = Arc::new(near);
        let reader = {
            let near = Arc::clone(&near);
            std::thread::spawn(move || (&*near).read(&mut [0]).expect_err("too late"))
        };
        if round % 2 == 0 {
            std::thread::yield_now();
        }
        near.set_read_deadline(past()).expect("a deadline");
        assert!(is_timeout(&reader.join().expect("ends well")));
    }
}

/// NP-18: a buffer belongs to the caller again when a read has failed.
#[test]
fn buffers_are_left_alone_after_a_timeout() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let (near, far) = wire::pair();
            let near = Arc::new(near);
            let stop = Arc::new(AtomicBool::new(false));
            let writer = {
                let stop = Arc::clone(&stop);
                heist::go(move || {
                    let mut far = far;
                    while !stop.load(Ordering::Relaxed) {
                        far.write_all(b"x").expect("writes");
                        heist::time::sleep(MS / 2);
                    }
                })
            };
            let readers: Vec<_> = (0..10)
                .map(|_| {
                    let near = Arc::clone(&near);
                    heist::go(move || {
                        for _ in 0..20 {
                            near.set_read_deadline(after(MS)).expect("a deadline");
                            let mut byte = [b'-'];
                            let read = (&*near).read(&mut byte);
                            let expected = match read {
                                Ok(n) => {
                                    assert_eq!(n, 1);
                                    b"x"
                                }
                                Err(error) => {
                                    assert!(is_timeout(&error));
                                    b"-"
                                }
                            };
                            heist::yield_now();
                            assert_eq!(&byte, expected);
                        }
                    })
                })
                .collect();
            for reader in readers {
                reader.join().expect("ends well");
            }
            stop.store(true, Ordering::Relaxed);
            writer.join().expect("ends well");
        });
    });
}

/// NP-22: a context that is cancelled after 5 ticks of 10 ms ends a connect to a black hole before
/// tick 100, and leaves no waiter.
#[test]
fn a_connect_may_be_cancelled() {
    matrix::each_of(&few(), |_, rt| {
        let taken = rt.run(|| {
            let hole = BlackHole::new();
            let address = hole.address;
            // Upper bounds of time are tried again: the machine may be busy with something else.
            let taken = (0..3).map(|_| {
                let began = Instant::now();
                let (ctx, canceller) = heist::context::background().with_cancel();
                let connecting = heist::go(move || TcpStream::connect(address).map(drop));
                let ticker = heist::go(move || {
                    for _ in 0..5 {
                        heist::time::sleep(10 * MS);
                    }
                    canceller.cancel();
                });
                ctx.wait();
                connecting.cancel();
                assert!(connecting.join().expect_err("cancelled").is_cancelled());
                ticker.join().expect("ends well");
                began.elapsed()
            });
            taken.min().expect("several")
        });
        assert!(taken >= 50 * MS && taken < 1000 * MS, "{taken:?}");
        assert_eq!(heist::testing::poll_waiters(rt), 0);
    });
}

/// NP-22: cancelling a connect that succeeded does not harm the connection, nor does a cancellation
/// at that very moment: the connection is either made and usable, or not made.
#[test]
fn a_connection_survives_a_late_cancel() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
            let address = listener.local_addr().expect("an address");
            let check = |mut near: TcpStream| {
                let (mut far, _) = listener.accept().expect("accepts");
                while far.peer_addr().ok() != near.local_addr().ok() {
                    // One that was given up is in the queue before it.
                    far = listener.accept().expect("accepts").0;
                }
                far.write_all(b"x").expect("writes");
                near.read_exact(&mut [0]).expect("reads");
            };
            let connecting = heist::go(move || TcpStream::connect(address));
            matrix::yield_until("the connect has ended", || connecting.is_finished());
            connecting.cancel();
            check(connecting.join().expect("it had ended").expect("connects"));
            for turns in 0..20 {
                let connecting = heist::go(move || TcpStream::connect(address));
                for _ in 0..turns % 4 {
                    heist::yield_now();
                }
                connecting.cancel();
                match connecting.join() {
                    Ok(near) => check(near.expect("connects")),
                    Err(error) => assert!(error.is_cancelled()),
                }
            }
        });
        assert_eq!(heist::testing::poll_waiters(rt), 0);
    });
}

/// NP-22: of several connects that race, the first is kept and the others are closed.
#[test]
fn racing_connects_keep_the_first() {
    fn race(addresses: [SocketAddr; 2]) -> TcpStream {
        let (tx, rx) = heist::chan::bounded(1);
        let racers = addresses.map(|address| {
            let tx = tx.clone();
            heist::go(move || {
                let stream = TcpStream::connect(address).expect("connects");
                // The second one finds no room; its connection is dropped.
                let _ = tx.try_send(stream);
            })
        });
        let first = rx.recv().expect("one arrives");
        for racer in racers {
            racer.cancel();
            // One that had ended before is no loss.
            let _ = racer.join();
        }
        first
    }
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let hole = BlackHole::new();
            let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
            let address = listener.local_addr().expect("an address");
            for addresses in [[hole.address, address], [address, hole.address]] {
                let mut near = race(addresses);
                assert_eq!(near.peer_addr().expect("connected"), address);
                let (mut far, _) = listener.accept().expect("accepts");
                far.write_all(b"x").expect("writes");
                near.read_exact(&mut [0]).expect("reads");
            }
            // Both answer: one connection remains, and the other, if it was made, has ended.
            for _ in 0..10 {
                // New ones for each race: a loser that is accepted too late stays in its queue.
                let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
                let other = TcpListener::bind("127.0.0.1:0").expect("listens");
                let address = listener.local_addr().expect("an address");
                let mut near = race([address, other.local_addr().expect("an address")]);
                let won = near.peer_addr().expect("connected") == address;
                let (winner, loser) = if won { (&listener, &other) } else { (&other, &listener) };
                let (mut far, _) = winner.accept().expect("accepts");
                far.write_all(b"x").expect("writes");
                near.read_exact(&mut [0]).expect("reads");
                loser.set_read_deadline(after(MS)).expect("open");
                if let Ok((mut far, _)) = loser.accept() {
                    assert_eq!(far.read(&mut [0]).expect("the end"), 0);
                }
            }
        });
        assert_eq!(heist::testing::poll_waiters(rt), 0);
    });
}
