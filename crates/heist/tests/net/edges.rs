//! The edges of the network: large and empty transfers, modes, queues that are full, the end of a
//! server.

use crate::child;
use crate::matrix;
use crate::wire;

use heist::net::{
    PollFd, Server, TcpListener, TcpStream, UnixDatagram, UnixListener, UnixStream, is_closed,
};
use std::io::{BufWriter, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(60);

/// The configurations of tests that wait for time to pass.
fn few() -> Vec<matrix::Case> {
    matrix::cases_with(&[1, 4]).into_iter().step_by(3).collect()
}

/// A path for a socket that no other test uses.
fn path() -> PathBuf {
    static N_PATHS: AtomicU32 = AtomicU32::new(0);
    let name = format!("heist-{}-{}", std::process::id(), N_PATHS.fetch_add(1, Ordering::Relaxed));
    std::env::temp_dir().join(name)
}

/// CPU time that the calling thread's process has used.
fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: room for one answer.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Both ends of a connection whose directions have been waited for, so that events come.
fn attached() -> (TcpStream, TcpStream) {
    let (near, far) = wire::pair();
    for stream in [&near, &far] {
        stream.set_read_deadline(Some(Instant::now() + MS)).expect("a deadline");
        let error = (&*stream).read(&mut [0]).expect_err("nothing comes");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        stream.set_read_deadline(None).expect("none");
    }
    (near, far)
}

/// A call takes 1024 slices; a short result does not mean that it has seen the end.
#[test]
fn more_slices_than_a_call_takes_are_transferred() {
    const N: usize = 2000;
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let (mut near, mut far) = attached();
            far.set_read_timeout(Some(LONG)).expect("a time");
            near.set_write_timeout(Some(LONG)).expect("a time");
            let bytes = [7; N];
            let slices: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
            let n_written = near.write_vectored(&slices).expect("writes");
            assert!((1..=N).contains(&n_written));
            near.write_all(&bytes[n_written..]).expect("there is room for the rest");
            let mut into = [0; N];
            let mut slices: Vec<_> = into.chunks_mut(1).map(IoSliceMut::new).collect();
            let n_read = far.read_vectored(&mut slices).expect("reads");
            far.read_exact(&mut into[n_read..]).expect("the rest is there");
            assert_eq!(into, bytes);
        });
    });
}

/// Empty reads and writes do not wait, but fail on a closed descriptor.
#[test]
fn empty_transfers_do_not_wait() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let (mut near, far) = attached();
            near.set_write_timeout(Some(50 * MS)).expect("a time");
            while near.write(&[0; 1 << 16]).is_ok() {}
            assert_eq!(near.write(&[]).expect("does not wait"), 0);
            assert_eq!(near.read(&mut []).expect("does not wait"), 0);
            assert_eq!(near.peek(&mut []).expect("does not wait"), 0);
            near.close().expect("closes");
            assert!(is_closed(&near.read(&mut []).expect_err("closed")));
            assert!(is_closed(&near.write(&[]).expect_err("closed")));
            assert!(is_closed(&near.peek(&mut []).expect_err("closed")));
            drop(far);

            let (reader, writer) = std::io::pipe().expect("a pipe");
            let (mut reader, mut writer) =
                (PollFd::new(reader).expect("pollable"), PollFd::new(writer).expect("pollable"));
            assert_eq!(reader.read(&mut []).expect("does not wait"), 0);
            let mut none = [IoSliceMut::new(&mut [])];
            assert_eq!(reader.read_vectored(&mut none).expect("does not wait"), 0);
            writer.set_write_timeout(Some(50 * MS)).expect("a time");
            while writer.write(&[0; 1 << 16]).is_ok() {}
            assert_eq!(writer.write(&[]).expect("does not wait"), 0);
            reader.close().expect("closes");
            assert!(is_closed(&reader.read(&mut []).expect_err("closed")));
        });
    });
}

/// A timeout bounds the whole operation, including the time in the queue; data that is there is
/// taken even if the time is over.
#[test]
fn timeouts_count_from_the_call() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let (near, far) = attached();
            far.set_read_timeout(Some(100 * MS)).expect("a time");
            let began = Instant::now();
            heist::scope(|scope| {
                for _ in 0..20 {
                    scope.go(|| {
                        let error = (&far).read(&mut [0]).expect_err("nothing comes");
                        assert_eq!(error.kind(), ErrorKind::TimedOut);
                    });
                }
            });
            // One after the other would be two seconds.
            assert!(began.elapsed() < 1500 * MS, "{:?}", began.elapsed());

            (&near).write_all(b"x").expect("writes");
            far.set_read_timeout(None).expect("no time");
            far.peek(&mut [0]).expect("it has come");
            far.set_read_timeout(Some(Duration::from_nanos(1))).expect("a time");
            assert_eq!((&far).read(&mut [0; 2]).expect("it is there"), 1);
        });
    });
}

/// The timeout of an operation counts while it queues behind one that has none, for goroutines and
/// for plain threads; it leaves nothing in the queue.
#[test]
fn timeouts_count_in_the_queue() {
    matrix::plain(1).run(|| {
        let (near, far) = attached();
        let far = Arc::new(far);
        let read = |far: &Arc<TcpStream>| {
            let far = Arc::clone(far);
            move || (&*far).read(&mut [0; 2])
        };
        let first = heist::go(read(&far));
        // The only processor: it runs until it waits.
        heist::yield_now();
        far.set_read_timeout(Some(50 * MS)).expect("a time");
        let began = Instant::now();
        let queued = heist::go(read(&far));
        let thread = std::thread::spawn(read(&far));
        let thread = heist::blocking(|| thread.join());
        for late in [queued.join().expect("ends well"), thread.expect("ends well")] {
            assert_eq!(late.expect_err("nothing comes").kind(), ErrorKind::TimedOut);
        }
        assert!(began.elapsed() >= 50 * MS);
        (&near).write_all(b"x").expect("writes");
        assert_eq!(first.join().expect("ends well").expect("reads"), 1);
        (&near).write_all(b"y").expect("writes");
        assert_eq!((&*far).read(&mut [0; 2]).expect("no reader is before it"), 1);
    });
}

/// Timeouts are those of the socket of std that was taken over, and go back with it; a second
/// handle has those of the first.
#[test]
fn timeouts_survive_conversions() {
    let (stream, _far) = wire::pair();
    let stream = stream.into_std().expect("std's");
    stream.set_read_timeout(Some(300 * MS)).expect("a time");
    let stream = TcpStream::from_std(stream).expect("ours");
    assert_eq!(stream.read_timeout().expect("a time"), Some(300 * MS));
    assert_eq!(stream.write_timeout().expect("none"), None);
    stream.set_write_timeout(Some(20 * MS)).expect("a time");
    let clone = stream.try_clone().expect("another");
    assert_eq!(clone.read_timeout().expect("a time"), Some(300 * MS));
    clone.set_read_timeout(None).expect("no time");
    drop(clone);
    let stream = stream.into_std().expect("std's");
    assert_eq!(stream.read_timeout().expect("a time"), Some(300 * MS));
    assert_eq!(stream.write_timeout().expect("a time"), Some(20 * MS));
}

/// Times that the system counts in seconds are rounded up, and a refused value changes nothing.
#[test]
fn seconds_are_rounded_up() {
    let (stream, _far) = wire::pair();
    stream.set_linger(Some(500 * MS)).expect("a time");
    assert_eq!(stream.linger().expect("a time"), Some(Duration::from_secs(1)));
    stream.set_linger(Some(Duration::ZERO)).expect("a time");
    assert_eq!(stream.linger().expect("a time"), Some(Duration::ZERO));
    stream.set_keepalive(Some(1500 * MS)).expect("a time");
    assert_eq!(stream.keepalive().expect("a time"), Some(Duration::from_secs(2)));
    stream.set_keepalive(None).expect("off");
    for bad in [Duration::ZERO, Duration::from_secs(1 << 20)] {
        stream.set_keepalive(Some(bad)).expect_err("not a time");
        assert_eq!(stream.keepalive().expect("off"), None);
    }
}

/// A path with a zero byte is refused, as by std: the rest of it would be ignored.
#[test]
fn paths_have_no_zero_bytes() {
    let at = path();
    let _listener = UnixListener::bind(&at).expect("listens");
    let mut longer = at.clone().into_os_string();
    longer.push("\0.more");
    let refused = |error: std::io::Error| assert_eq!(error.kind(), ErrorKind::InvalidInput);
    refused(UnixStream::connect(&longer).expect_err("a zero byte"));
    refused(UnixStream::connect("\0name").expect_err("a zero byte"));
    refused(UnixDatagram::unbound().expect("a socket").send_to(b"x", &longer).expect_err("so"));
    std::fs::remove_file(&at).expect("it is there");
}

/// Addresses without a path.
#[test]
fn abstract_addresses_work() {
    let name = format!("heist-edges-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).expect("a name");
    matrix::plain(2).run(|| {
        let listener = UnixListener::bind_addr(&address).expect("listens");
        let mut near = UnixStream::connect_addr(&address).expect("connects");
        near.write_all(b"hello").expect("writes");
        drop(near);
        let mut text = String::new();
        let mut far = listener.into_iter().next().expect("one").expect("accepts");
        far.read_to_string(&mut text).expect("reads");
        assert_eq!(text, "hello");
        assert!(listener.take_error().expect("open").is_none());
        drop(listener);

        let receiver = UnixDatagram::bind_addr(&address).expect("binds");
        let sender = UnixDatagram::unbound().expect("a socket");
        sender.send_to_addr(b"one", &address).expect("sends");
        sender.connect_addr(&address).expect("connects");
        sender.send(b"two").expect("sends");
        let mut buffer = [0; 8];
        for word in [b"one", b"two"] {
            assert_eq!(receiver.recv(&mut buffer).expect("receives"), 3);
            assert_eq!(&buffer[..3], word);
        }
        assert!(receiver.take_error().expect("open").is_none());
    });
}

/// A receiver whose queue is full is waited for without a busy loop, and not for longer than a
/// timeout says.
#[test]
fn a_full_receiver_is_waited_for() {
    let ended = child::run(|| {
        matrix::plain(2).run(|| {
            let at = path();
            let receiver = UnixDatagram::bind(&at).expect("binds");
            let sender = UnixDatagram::unbound().expect("a socket");
            sender.set_write_timeout(Some(20 * MS)).expect("a time");
            while sender.send_to(b"x", &at).is_ok() {}
            sender.set_write_timeout(Some(600 * MS)).expect("a time");
            let (began, cpu) = (Instant::now(), cpu_time());
            let error = sender.send_to(b"x", &at).expect_err("full");
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            assert!(began.elapsed() >= 600 * MS);
            let cpu = cpu_time() - cpu;
            assert!(cpu < 200 * MS, "{cpu:?} of CPU in {:?}", began.elapsed());
            sender.set_write_timeout(None).expect("no time");
            let waits = heist::go({
                let at = at.clone();
                move || sender.send_to(b"y", at).expect("sends")
            });
            receiver.recv(&mut [0]).expect("receives");
            waits.join().expect("ends well");
            std::fs::remove_file(&at).expect("it is there");
        });
    });
    ended.succeeded();
}

/// A connect to a listener that does not accept can be cancelled.
#[test]
fn a_full_listener_is_waited_for() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let at = path();
            let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
            let socket = socket.expect("a socket");
            socket.bind(&socket2::SockAddr::unix(&at).expect("a path")).expect("binds");
            socket.listen(0).expect("listens");
            let connect = || {
                let at = at.clone();
                heist::go(move || UnixStream::connect(at).map(drop))
            };
            let first = UnixStream::connect(&at).expect("there is room for one");
            let (waits, cancelled) = (connect(), connect());
            heist::time::sleep(20 * MS);
            assert!(!waits.is_finished() && !cancelled.is_finished());
            cancelled.cancel();
            assert!(cancelled.join().expect_err("cancelled").is_cancelled());
            let listener = UnixListener::from_std(std::os::fd::OwnedFd::from(socket).into());
            let listener = listener.expect("ours");
            for _ in 0..2 {
                listener.accept().expect("accepts");
            }
            waits.join().expect("no panic").expect("connects");
            drop(first);
            std::fs::remove_file(&at).expect("it is there");
        });
    });
}

/// A plain thread that waits does not spin while the kernel reports an error that no read clears.
#[test]
fn a_thread_sleeps_while_an_error_is_pending() {
    let ended = child::run(|| {
        let socket = heist::net::UdpSocket::bind("127.0.0.1:0").expect("binds");
        let on: libc::c_int = 1;
        // SAFETY: reads one int.
        let set = unsafe {
            let fd = std::os::fd::AsRawFd::as_raw_fd(&socket);
            let len = size_of::<libc::c_int>() as libc::socklen_t;
            libc::setsockopt(fd, libc::SOL_IP, libc::IP_RECVERR, (&raw const on).cast(), len)
        };
        assert_eq!(set, 0);
        let (_taken, nobody) = wire::refusing();
        socket.connect(nobody).expect("an address");
        socket.set_read_timeout(Some(300 * MS)).expect("a time");
        socket.send(b"x").expect("sends");
        socket.recv(&mut [0]).expect_err("refused");
        let cpu = cpu_time();
        assert_eq!(socket.recv(&mut [0]).expect_err("nothing").kind(), ErrorKind::TimedOut);
        let cpu = cpu_time() - cpu;
        assert!(cpu < 100 * MS, "{cpu:?} of CPU in 300 ms");
    });
    ended.succeeded();
}

/// One close without a descriptor to spare does its work as well as it can, and the next ones do it
/// well.
#[test]
fn closing_works_without_descriptors() {
    let ended = child::run(|| {
        let pairs = [wire::pair(), wire::pair()];
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = listener.local_addr().expect("an address");
        let mut taken = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            taken.push(file);
        }
        let [(near, mut far), (other, mut other_far)] = pairs;
        near.close().expect("closes");
        assert_eq!(far.read(&mut [0]).expect("the end"), 0);
        drop(taken);
        other.close().expect("closes");
        assert_eq!(other_far.read(&mut [0]).expect("the end"), 0);
        listener.close().expect("closes");
        TcpStream::connect(address).expect_err("there is no listener");
    });
    ended.succeeded();
}

/// When `serve` returns, for whatever reason, its listener is closed.
#[test]
fn a_listener_ends_with_its_server() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let serve = |server: &Server| {
                let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
                let address = listener.local_addr().expect("an address");
                listener.set_read_timeout(Some(20 * MS)).expect("a time");
                let server = server.clone();
                (address, heist::go(move || server.serve(listener, |stream, _| drop(stream))))
            };
            let server = Server::new();
            let (address, fails) = serve(&server);
            let error = fails.join().expect("no panic").expect_err("nobody came");
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            TcpStream::connect(address).expect_err("there is no listener");

            let (address, cancelled) = serve(&server);
            cancelled.cancel();
            let _ = cancelled.join();
            TcpStream::connect(address).expect_err("there is no listener");
            server.shutdown(Duration::ZERO);
        });
    });
}

/// A handler that is cancelled with something left to be written, to a client that does not read,
/// does not keep the server from ending.
#[test]
fn a_flush_on_the_way_out_does_not_wait() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let (address, server, serving) = wire::serve(|stream, _| {
                let mut writer = BufWriter::with_capacity(1 << 20, &stream);
                loop {
                    writer.write_all(&[0; 1 << 16]).expect("it waits");
                }
            });
            let client = TcpStream::connect(address).expect("connects");
            while server.connections() == 0 {
                heist::yield_now();
            }
            let began = Instant::now();
            let left = server.shutdown(50 * MS);
            assert_eq!(left.cancelled, 1);
            assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
            serving.join().expect("no panic").expect("no error");
            drop(client);
        });
    });
}

/// An error is recognised however often it was wrapped.
#[test]
fn a_wrapped_error_is_still_closed() {
    let (near, _far) = wire::pair();
    near.close().expect("closes");
    let error = near.peer_addr().expect_err("closed");
    let wrapped = std::io::Error::other(std::io::Error::other(error));
    assert!(is_closed(&wrapped));
    assert!(!is_closed(&std::io::Error::other("something else")));
}

/// A descriptor whose runtime has ended belongs to the next runtime that waits for it: its waits
/// park, and can be cancelled.
#[test]
fn a_descriptor_outlives_its_runtime() {
    let ended = child::run(|| {
        let (mut near, far) = wire::pair();
        let far = std::sync::Arc::new(far);
        for round in 0..20 {
            let rt = matrix::plain(2);
            let reads = || {
                let far = std::sync::Arc::clone(&far);
                move || (&*far).read(&mut [0; 8])
            };
            let waits = rt.handle().spawn(reads());
            let queues = rt.handle().spawn(reads());
            while rt.metrics().get("/heist/poll/waiters:goroutines") != Some(1) {
                std::thread::yield_now();
            }
            if round % 2 == 0 {
                near.write_all(b"x").expect("writes");
                while !waits.is_finished() && !queues.is_finished() {
                    std::thread::yield_now();
                }
            }
            let began = Instant::now();
            drop(rt);
            assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
            let outcomes = [waits.join(), queues.join()];
            let n_read = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
            assert_eq!(n_read, usize::from(round % 2 == 0), "{outcomes:?}");
        }
        // All of their pollers are closed again, but for what the process keeps.
        drop((near, far));
        assert!(wire::open_descriptors() < 40, "{}", wire::open_descriptors());
    });
    ended.succeeded();
    assert!(!ended.stderr.contains("left behind"), "{}", ended.stderr);
}

/// Handlers that end by themselves while they are being cancelled, and goroutines that ask
/// meanwhile how many there are, do not keep a server from ending.
#[test]
fn a_crowded_shutdown_ends() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            for _ in 0..5 {
                let (address, server, serving) = wire::serve(|mut stream, _| {
                    let _ = stream.read(&mut [0]);
                    for _ in 0..100 {
                        std::hint::spin_loop();
                    }
                });
                let clients: Vec<_> =
                    (0..20).map(|_| TcpStream::connect(address).expect("connects")).collect();
                let over = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
                let asks = {
                    let (server, over) = (server.clone(), std::sync::Arc::clone(&over));
                    std::thread::spawn(move || {
                        while !over.load(Ordering::Relaxed) {
                            std::hint::black_box(server.connections());
                        }
                    })
                };
                let leaves = heist::go(move || drop(clients));
                server.shutdown(Duration::ZERO);
                over.store(true, Ordering::Relaxed);
                leaves.join().expect("ends");
                serving.join().expect("no panic").expect("no error");
                heist::blocking(|| asks.join().expect("ends"));
            }
        });
    });
}

/// A value that lends one descriptor, and names another when it is asked for the number again.
struct TwoFaced {
    lent: std::io::PipeReader,
    named: AtomicI32,
}

impl AsFd for TwoFaced {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lent.as_fd()
    }
}

impl AsRawFd for TwoFaced {
    fn as_raw_fd(&self) -> RawFd {
        match self.named.swap(-1, Ordering::Relaxed) {
            -1 => libc::STDERR_FILENO,
            first => first,
        }
    }
}

/// What a [`PollFd`] lends is what its value lends, whatever number that names later.
#[test]
fn a_value_that_names_two_descriptors_has_the_one_that_it_lends() {
    let (lent, mut writer) = std::io::pipe().expect("a pipe");
    let number = lent.as_raw_fd();
    let value = TwoFaced { lent, named: AtomicI32::new(number) };
    let ours = PollFd::new(value).expect("can be polled");
    assert_eq!((ours.as_raw_fd(), ours.as_fd().as_raw_fd()), (number, number));
    writer.write_all(b"x").expect("there is room");
    ours.wait_readable().expect("it is there");
    let mut inner = ours.into_inner().expect("open");
    assert_eq!(inner.lent.read(&mut [0; 2]).expect("it is there"), 1);
}

/// The goroutines of a server's connections are described by where it was told to serve.
#[test]
fn connections_are_described_by_where_they_are_served() {
    matrix::run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
        let address = listener.local_addr().expect("bound");
        let (tell, told) = heist::chan::bounded(1);
        let server = Server::new();
        let serving = {
            let server = server.clone();
            heist::go(move || {
                server.serve(listener, move |_, _| tell.send(heist::dump_goroutines()).unwrap())
            })
        };
        let client = TcpStream::connect(address).expect("connects");
        let dump = told.recv().expect("it is served");
        // The acceptor itself may be inside the server.
        let lines: Vec<_> = dump.lines().collect();
        let mut origins = lines.windows(2).filter(|lines| lines[0].starts_with("created"));
        assert!(origins.all(|origin| !origin[1].contains("server.rs")), "{dump}");
        drop(client);
        server.shutdown(LONG);
        serving.join().expect("ends well").expect("it served");
    });
}

/// A handler that panics with something left to be written, to a client that does not read, waits
/// in the destructor. It does not keep the server from ending: when the grace is over, the wait
/// fails.
#[test]
fn a_flush_of_a_panic_ends_with_the_grace() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            /// More than the buffers of both sockets hold.
            const MUCH: usize = 32 << 20;
            let (address, server, serving) = wire::serve(|stream, _| {
                let mut writer = BufWriter::with_capacity(MUCH, &stream);
                writer.write_all(&vec![0; MUCH - 1]).expect("it is kept");
                std::panic::resume_unwind(Box::new("a panic without a report"));
            });
            let client = TcpStream::connect(address).expect("connects");
            // The one that accepts, and the one that flushes.
            matrix::until_parked(2, "IO wait");
            let began = Instant::now();
            assert_eq!(server.shutdown(50 * MS).cancelled, 1);
            assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
            serving.join().expect("no panic").expect("no error");
            drop(client);
        });
    });
}

/// Does something when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// What `op` returns in a destructor of a goroutine that is cancelled.
fn on_the_way_out<T: Send + 'static>(
    mut op: impl FnMut() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    let (tell, told) = heist::chan::bounded(1);
    let goroutine = heist::go(move || {
        let _tells = OnDrop(|| tell.send(op()).expect("it is asked for"));
        heist::time::sleep(LONG);
    });
    matrix::until_parked(1, "sleep");
    goroutine.cancel();
    assert!(goroutine.join().expect_err("cancelled").is_cancelled());
    told.recv().expect("it was told")
}

/// Whatever a destructor of a cancelled goroutine would have to wait for, it fails instead: also
/// where a queue is full, and where others have their turn.
#[test]
fn nothing_waits_on_the_way_out() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let is_cancelled = |error: std::io::Error| error.kind() == ErrorKind::ConnectionAborted;
            let at = path();
            let receiver = UnixDatagram::bind(&at).expect("binds");
            let sender = UnixDatagram::unbound().expect("a socket");
            sender.set_write_timeout(Some(5 * MS)).expect("a time");
            while sender.send_to(b"x", &at).is_ok() {}
            sender.set_write_timeout(None).expect("no time");
            let to = at.clone();
            assert!(is_cancelled(on_the_way_out(move || sender.send_to(b"x", &to)).unwrap_err()));
            drop(receiver);
            std::fs::remove_file(&at).expect("it is there");

            let at = path();
            let socket = socket2::Socket::new(socket2::Domain::UNIX, socket2::Type::STREAM, None);
            let socket = socket.expect("a socket");
            socket.bind(&socket2::SockAddr::unix(&at).expect("a path")).expect("binds");
            socket.listen(0).expect("listens");
            let first = UnixStream::connect(&at).expect("there is room for one");
            let to = at.clone();
            assert!(is_cancelled(on_the_way_out(move || UnixStream::connect(&to)).unwrap_err()));
            drop(first);
            std::fs::remove_file(&at).expect("it is there");

            let (near, far) = UnixStream::pair().expect("a pair");
            let near = Arc::new(near);
            let other = Arc::clone(&near);
            let reads = heist::go(move || (&*other).read(&mut [0]));
            matrix::until_parked(1, "IO wait");
            let error = on_the_way_out(move || (&*near).read(&mut [0])).unwrap_err();
            assert!(is_cancelled(error));
            (&far).write_all(b"x").expect("there is room");
            assert_eq!(reads.join().expect("ends well").expect("it came"), 1);
        });
    });
}
