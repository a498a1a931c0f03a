//! The debug servers that the environment asks for: at a Unix socket, and at an address.

use crate::child;

use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;

fn runtime() -> heist::Runtime {
    // SAFETY: there are no goroutines.
    unsafe { heist::Runtime::builder().procs(1).build() }.expect("it starts")
}

/// A folder of its own for a test.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("heist-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    folder
}

fn ask(path: &PathBuf) -> String {
    let mut stream = UnixStream::connect(path).expect("it listens");
    stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").expect("it takes the request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// `HEIST_DEBUG=socket` opens a socket for this user only, under the number of the process, a
/// second runtime another one. Sockets of processes that were killed are removed, and those of
/// others are not.
#[test]
fn a_socket_is_found_by_the_process_id() {
    let folder = folder("socket");
    let ended = child::run_with(
        |command| {
            command.env("HEIST_DEBUG", "socket").env("XDG_RUNTIME_DIR", &folder);
        },
        || {
            let (first, dir) = (runtime(), heist::debug::socket_dir());
            let mode = |path: &PathBuf| {
                std::fs::metadata(path).expect("it exists").permissions().mode() & 0o777
            };
            let own = dir.join(format!("{}.sock", std::process::id()));
            assert_eq!((mode(&dir), mode(&own)), (0o700, 0o600));
            assert!(ask(&own).starts_with("HTTP/1.1 200 OK\r\n"), "{}", ask(&own));
            let (stale, alive) = (dir.join("1.sock"), dir.join("2.sock"));
            drop(UnixListener::bind(&stale).expect("a socket"));
            let _listens = UnixListener::bind(&alive).expect("a socket");
            assert!(stale.exists());
            let second = runtime();
            assert!(!stale.exists() && alive.exists());
            let other = dir.join(format!("{}.2.sock", std::process::id()));
            assert!(ask(&other).contains("heist_sched_gomaxprocs_threads"));
            drop((first, second));
            assert!(!own.exists() && !other.exists(), "they are removed");
        },
    );
    let _ = std::fs::remove_dir_all(folder);
    ended.succeeded();
}

/// A process that is stopped and has a full queue of connections does not keep others from
/// starting.
#[test]
fn a_full_queue_delays_nobody() {
    let folder = folder("full");
    let inner = folder.join("heist");
    std::fs::create_dir_all(&inner).expect("a folder");
    std::fs::set_permissions(&inner, PermissionsExt::from_mode(0o700)).expect("its owner");
    let path = inner.join("1.sock");
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
    let address = SockAddr::unix(&path).expect("a path");
    socket.bind(&address).and_then(|()| socket.listen(0)).expect("it listens");
    let clients: Vec<_> = (0..4)
        .map(|_| {
            let client = Socket::new(Domain::UNIX, Type::STREAM, None).expect("a socket");
            client.set_nonblocking(true).expect("a socket can be");
            let full = client.connect(&address).is_err();
            (client, full)
        })
        .collect();
    assert!(clients.iter().any(|(_, full)| *full), "the queue is full");
    let ended = child::run_with(
        |command| {
            command.env("HEIST_DEBUG", "socket").env("XDG_RUNTIME_DIR", &folder);
        },
        || assert_eq!(runtime().run(|| 1), 1),
    );
    assert!(path.exists(), "it is not stale");
    let _ = std::fs::remove_dir_all(folder);
    ended.succeeded();
}

/// A folder that others can use is refused, and the program runs on.
#[test]
fn a_folder_of_others_is_refused() {
    let folder = folder("open");
    let inner = folder.join("heist");
    std::fs::create_dir_all(&inner).expect("a folder");
    std::fs::set_permissions(&inner, PermissionsExt::from_mode(0o777)).expect("its owner");
    let ended = child::run_with(
        |command| {
            command.env("HEIST_DEBUG", "socket").env("XDG_RUNTIME_DIR", &folder);
        },
        || assert_eq!(runtime().run(|| 1), 1),
    );
    let _ = std::fs::remove_dir_all(folder);
    ended.succeeded();
    ended.said("does not start");
}

/// `HEIST_DEBUG=server=` starts a server; a second runtime of the process cannot have the same
/// address, says so and runs.
#[test]
fn a_server_starts_at_an_address_of_the_environment() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|it| it.local_addr());
    let addr = free.expect("a port");
    let ended = child::run_with(
        |command| {
            command.env("HEIST_DEBUG", format!("server={addr}"));
        },
        || {
            let list = std::env::var("HEIST_DEBUG").expect("it is set");
            let addr = list.strip_prefix("server=").and_then(|addr| addr.parse().ok());
            let addr = addr.expect("an address");
            let first = runtime();
            assert_eq!(crate::debug_server::get(addr, "/metrics").0, 200);
            assert_eq!(runtime().run(|| 1), 1);
            drop(first);
        },
    );
    ended.succeeded();
    ended.said("does not start");
}

/// The environment cannot ask for an address that other machines can reach.
#[test]
fn an_address_that_others_can_reach_is_an_error() {
    let ended = child::run_with(
        |command| {
            command.env("HEIST_DEBUG", "server=0.0.0.0:6060");
        },
        || {
            // SAFETY: there are no goroutines.
            let error = unsafe { heist::Runtime::builder().build() }.expect_err("it is reachable");
            assert!(error.to_string().contains("loopback"), "{error}");
        },
    );
    ended.succeeded();
}
