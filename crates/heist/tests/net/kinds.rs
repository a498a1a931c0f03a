//! The other kinds of descriptors: datagrams, sockets within the machine, pipes, anything that can
//! be polled; and the server that stops gracefully.

use crate::child;
use crate::matrix;
use crate::wire;

use heist::net::{
    PollFd, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream, pipe,
};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Datagrams to a socket that waits, from one that does not; and to one that is closed. In its own
/// process: otherwise a child of another test, between its fork and its exec, would still have that
/// socket open.
#[test]
fn datagrams_arrive() {
    child::run(|| matrix::run(exchange_datagrams)).succeeded();
}

fn exchange_datagrams() {
    let server = Arc::new(UdpSocket::bind("127.0.0.1:0").expect("binds"));
    let address = server.local_addr().expect("bound");
    let echo = {
        let server = Arc::clone(&server);
        heist::go(move || {
            let mut buffer = [0; 64];
            while let Ok((n, from)) = server.recv_from(&mut buffer) {
                server.send_to(&buffer[..n], from).expect("sends");
            }
        })
    };
    let client = UdpSocket::bind("127.0.0.1:0").expect("binds");
    client.connect(address).expect("connects");
    assert_eq!(client.peer_addr().expect("connected"), address);
    let mut buffer = [0; 64];
    for i in 0..20u8 {
        client.send(&[i; 10]).expect("sends");
        assert_eq!(client.peek(&mut buffer).expect("peeks"), 10);
        assert_eq!(client.recv(&mut buffer).expect("receives"), 10);
        assert_eq!(buffer[..10], [i; 10]);
    }
    server.close().expect("closes");
    echo.join().expect("ends well");
    // The other socket is closed: the system reports it at the next call.
    client.send(b"x").expect("sends");
    let refused = client.recv(&mut buffer).expect_err("refused");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
}

/// Connections and datagrams within the machine. In its own process, because a listener is closed.
#[test]
fn unix_sockets_exchange_bytes_and_datagrams() {
    child::run(use_unix_sockets).succeeded();
}

fn use_unix_sockets() {
    let folder = std::env::temp_dir().join(format!("heist-unix-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let n = AtomicUsize::new(0);
    matrix::run(|| {
        let path = folder.join(format!("{}.sock", n.fetch_add(1, Ordering::Relaxed)));
        let listener = Arc::new(UnixListener::bind(&path).expect("binds"));
        let server = {
            let listener = Arc::clone(&listener);
            heist::go(move || {
                for stream in listener.incoming() {
                    let mut stream = stream.expect("accepts");
                    heist::go(move || {
                        let mut line = [0; 5];
                        while stream.read_exact(&mut line).is_ok() {
                            stream.write_all(&line).expect("writes");
                        }
                    });
                }
            })
        };
        let mut stream = UnixStream::connect(&path).expect("connects");
        for _ in 0..10 {
            stream.write_all(b"hello").expect("writes");
            let mut answer = [0; 5];
            stream.read_exact(&mut answer).expect("reads");
            assert_eq!(&answer, b"hello");
        }
        stream.set_read_timeout(Some(Duration::from_millis(2))).expect("a time");
        assert_eq!(stream.read(&mut [0]).expect_err("late").kind(), ErrorKind::TimedOut);
        listener.close().expect("closes");
        server.join().expect("ends well");
        assert_eq!(
            UnixStream::connect(&path).expect_err("closed").kind(),
            ErrorKind::ConnectionRefused
        );
        std::fs::remove_file(&path).expect("was left behind");

        let (a, b) = UnixDatagram::pair().expect("a pair");
        let receiver = heist::go(move || {
            let mut buffer = [0; 16];
            let n = b.recv(&mut buffer).expect("receives");
            buffer[..n].to_vec()
        });
        heist::yield_now();
        a.send(b"datagram").expect("sends");
        assert_eq!(receiver.join().expect("ends well"), b"datagram");
    });
    std::fs::remove_dir_all(&folder).expect("empty");
}

/// More connects than the listener's queue holds wait for their turn.
#[test]
fn unix_connects_wait_for_a_full_queue() {
    let path = std::env::temp_dir().join(format!("heist-full-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let socket =
        socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None).expect("a socket");
    socket.bind(&socket2::SockAddr::unix(&path).expect("an address")).expect("binds");
    socket.listen(1).expect("listens");
    let listener = UnixListener::from_std(socket.into()).expect("ours");
    let rt = matrix::plain(2);
    let at = path.clone();
    rt.run(move || {
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let path = at.clone();
                heist::go(move || UnixStream::connect(path).map(drop).expect("connects"))
            })
            .collect();
        for _ in 0..8 {
            let (_, address) = listener.accept().expect("accepts");
            assert!(address.is_unnamed());
        }
        for client in clients {
            client.join().expect("ends well");
        }
    });
    std::fs::remove_file(&path).expect("was there");
}

/// NP-18: a descriptor that is always ready cannot be waited for, and is refused with an error.
#[test]
fn plain_files_are_refused() {
    let file = std::fs::File::open("/proc/self/exe").expect("opens");
    assert_eq!(PollFd::new(file).expect_err("a file").kind(), ErrorKind::Unsupported);
}

/// NP-17: any descriptor that can be polled: data, end of file, deadlines, and back.
#[test]
fn any_descriptor_may_be_waited_for() {
    matrix::run(|| {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let reader = Arc::new(PollFd::new(reader).expect("can be polled"));
        let waiting = {
            let reader = Arc::clone(&reader);
            heist::go(move || {
                reader.wait_readable().expect("ready");
                let mut buffer = [0; 8];
                reader.read_with(|mut pipe| pipe.read(&mut buffer)).expect("reads")
            })
        };
        heist::yield_now();
        writer.write_all(b"abc").expect("writes");
        assert_eq!(waiting.join().expect("ends well"), 3);
        // All data is read, but the end that the kernel reports has not been seen: it waits
        // nevertheless.
        reader.set_read_timeout(Some(Duration::from_millis(2))).expect("a time");
        assert_eq!(reader.wait_readable().expect_err("late").kind(), ErrorKind::TimedOut);
        reader.set_read_timeout(None).expect("no time");
        reader.set_read_deadline(Some(Instant::now())).expect("a deadline");
        assert_eq!((&*reader).read(&mut [0]).expect_err("late").kind(), ErrorKind::TimedOut);
        reader.set_read_deadline(None).expect("no deadline");
        drop(writer);
        assert_eq!((&*reader).read(&mut [0]).expect("the end"), 0);
        let reader = Arc::into_inner(reader).expect("no other reference is left");
        let mut reader = reader.into_inner().expect("std's");
        assert_eq!(reader.read(&mut [0]).expect("the end"), 0);
    });
}

/// NP-26: every descriptor of heist is non-blocking and closed on exec.
#[test]
fn descriptors_do_not_block_and_are_not_inherited() {
    fn flags(fd: RawFd) -> u32 {
        let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).expect("open");
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags");
        u32::from_str_radix(flags.trim(), 8).expect("a number")
    }
    const NONBLOCK: u32 = 0o4000;
    const CLOEXEC: u32 = 0o2_000_000;
    let (near, far) = wire::pair();
    let (reader, writer) = pipe().expect("a pipe");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("binds");
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let (unix, _other) = UnixStream::pair().expect("a pair");
    let all = [
        near.as_raw_fd(),
        far.as_raw_fd(),
        reader.as_raw_fd(),
        writer.as_raw_fd(),
        udp.as_raw_fd(),
        listener.as_raw_fd(),
        unix.as_raw_fd(),
    ];
    for fd in all {
        assert_eq!(flags(fd) & (NONBLOCK | CLOEXEC), NONBLOCK | CLOEXEC, "{fd}");
    }
    let std = near.into_std().expect("std's");
    assert_eq!(flags(std.as_raw_fd()) & (NONBLOCK | CLOEXEC), CLOEXEC);
}

/// NP-26: the descriptors that a runtime makes for itself are not inherited either.
#[test]
fn internal_descriptors_are_not_inherited() {
    fn inherited() -> usize {
        let fds = std::fs::read_dir("/proc/self/fdinfo").expect("proc is mounted").flatten();
        let infos = fds.filter_map(|entry| std::fs::read_to_string(entry.path()).ok());
        let is_inherited = |info: &String| {
            let flags = info.lines().find_map(|line| line.strip_prefix("flags:")).expect("flags");
            u32::from_str_radix(flags.trim(), 8).expect("a number") & 0o2_000_000 == 0
        };
        infos.filter(is_inherited).count()
    }
    let ended = child::run(|| {
        let before = (inherited(), wire::open_descriptors());
        let rt = matrix::plain(2);
        rt.run(heist::yield_now);
        assert!(wire::open_descriptors() > before.1, "the runtime has a poller");
        assert_eq!(inherited(), before.0);
    });
    ended.succeeded();
}

/// The internal descriptors of a runtime, and those of ended runtimes, are not left behind.
#[test]
fn runtimes_leave_no_descriptor_behind() {
    let ended = child::run(|| {
        let session = || {
            let rt = matrix::start(heist::Runtime::builder().procs(2));
            rt.run(|| {
                let (mut near, far) = wire::pair();
                let echo = heist::go(move || wire::echo(far));
                near.write_all(b"x").expect("writes");
                near.read_exact(&mut [0]).expect("reads");
                drop(near);
                echo.join().expect("ends well");
            });
            // Threads that are stopped by force open one each.
            let stopped =
                || rt.metrics().get("/heist/preempt/forced:events").is_some_and(|n| n > 2);
            let stop = Arc::new(AtomicBool::new(false));
            let hog = |_| {
                let stop = Arc::clone(&stop);
                rt.handle().spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            };
            let hogs: Vec<_> = (0..3).map(hog).collect();
            matrix::eventually("hogs are stopped", stopped);
            stop.store(true, Ordering::Relaxed);
            hogs.into_iter().for_each(|hog| hog.join().expect("ends well"));
        };
        session();
        let before = wire::open_descriptors();
        for _ in 0..10 {
            session();
        }
        assert_eq!(wire::open_descriptors(), before);
    });
    ended.succeeded();
}

/// A server stops accepting, lets connections end, and cancels those that do not.
#[test]
fn a_server_stops_gracefully() {
    matrix::run(|| {
        for slow in [false, true] {
            let (address, server, serving) = wire::serve(|stream, _| wire::echo(stream));
            let mut clients: Vec<_> =
                (0..4).map(|_| TcpStream::connect(address).expect("connects")).collect();
            for client in &mut clients {
                client.write_all(b"x").expect("writes");
                client.read_exact(&mut [0]).expect("reads");
            }
            assert_eq!(server.connections(), 4);
            let grace = if slow { Duration::from_millis(5) } else { Duration::from_secs(3600) };
            let stopping = {
                let server = server.clone();
                heist::go(move || server.shutdown(grace))
            };
            serving.join().expect("no panic").expect("no error");
            if !slow {
                // Open connections continue until they end.
                for mut client in clients.drain(..) {
                    client.write_all(b"x").expect("writes");
                    client.read_exact(&mut [0]).expect("reads");
                }
            }
            let left = stopping.join().expect("ends well");
            assert_eq!(left.cancelled, if slow { 4 } else { 0 });
            assert_eq!(server.connections(), 0);
        }
    });
}

/// A handler that panics ends its own connection and nothing else.
#[test]
fn a_server_survives_its_handlers() {
    matrix::run(|| {
        let (address, server, serving) = wire::serve(|mut stream, _| {
            let mut byte = [0];
            stream.read_exact(&mut byte).expect("reads");
            assert_ne!(&byte, b"!", "a test of panics");
            stream.write_all(&byte).expect("writes");
        });
        for message in [b"!", b"x", b"!", b"y"] {
            let mut client = TcpStream::connect(address).expect("connects");
            client.write_all(message).expect("writes");
            let mut answer = Vec::new();
            let _ = client.read_to_end(&mut answer);
            assert_eq!(answer.is_empty(), message == b"!");
        }
        server.shutdown(Duration::from_secs(3600));
        serving.join().expect("no panic").expect("no error");
    });
}

/// When there are no descriptors left, the server reports that once and continues when there are.
#[test]
fn a_server_survives_without_descriptors() {
    let ended = child::run(|| {
        let rt = matrix::plain(2);
        rt.run(|| {
            let (address, server, serving) = wire::serve(|stream, _| wire::echo(stream));
            let mut first = TcpStream::connect(address).expect("connects");
            first.write_all(b"x").expect("writes");
            first.read_exact(&mut [0]).expect("reads");
            // All but one descriptor of this process are taken; the client takes that one.
            let mut taken = Vec::new();
            while let Ok(file) = std::fs::File::open("/dev/null") {
                taken.push(file);
            }
            taken.pop();
            let mut client = TcpStream::connect(address).expect("connects");
            client.write_all(b"y").expect("writes");
            client.set_read_timeout(Some(Duration::from_millis(50))).expect("a time");
            assert_eq!(
                client.read(&mut [0]).expect_err("not accepted").kind(),
                ErrorKind::TimedOut
            );
            drop(taken);
            client.set_read_timeout(None).expect("no time");
            client.read_exact(&mut [0]).expect("it is served after all");
            drop((first, client));
            server.shutdown(Duration::from_secs(60));
            serving.join().expect("no panic").expect("no error");
        });
    });
    ended.succeeded();
    let said = ended.stderr.matches("cannot accept connections for now").count();
    assert_eq!(said, 1, "{}", ended.stderr);
}
