//! The debug server and clients that mean harm: slow, huge, malformed, cross-site, and very many.

use crate::debug_server::{ask, get, start};

use heist::debug::Options;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

fn runtime() -> heist::Runtime {
    // SAFETY: the goroutines of these tests keep nothing across a park that is bound to a thread.
    unsafe { heist::Runtime::builder().procs(2).build() }.expect("it starts")
}

fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream
}

/// Reads until the server closes; a reset counts as that.
fn rest_of(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("it hangs: {error}"),
        _ => bytes,
    }
}

/// A client that never ends its head is cut off after the deadline, however busily it sends; others
/// are served meanwhile.
#[test]
fn a_client_that_dribbles_is_cut_off() {
    let rt = runtime();
    let limit = Duration::from_millis(300);
    let (_server, addr) = start(&rt, Options::new().head_timeout(limit));
    let (mut silent, mut busy) = (connect(addr), connect(addr));
    let begun = Instant::now();
    busy.write_all(b"GET / HTTP/1.1\r\n").expect("it takes the beginning");
    while busy.write_all(b"X-A: b\r\n").is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is never cut off");
        assert_eq!(get(addr, "/metrics").0, 200);
    }
    let answer = rest_of(&mut silent);
    assert!(answer.is_empty(), "{answer:?}");
    assert!(begun.elapsed() >= limit);
}

/// A client that does not read its answer is cut off when it makes no progress.
#[test]
fn a_client_that_does_not_read_is_cut_off() {
    let rt = runtime();
    let (_keep, wait) = heist::chan::bounded::<()>(0);
    // The answer is larger than what the kernel buffers.
    rt.run(|| {
        for _ in 0..30_000 {
            let wait = wait.clone();
            drop(heist::go(move || wait.recv()));
        }
    });
    let (_server, addr) = start(&rt, Options::new().write_timeout(Duration::from_millis(300)));
    let mut lazy = connect(addr);
    lazy.write_all(b"GET /debug/goroutines?debug=2 HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut first = [0; 1];
    lazy.read_exact(&mut first).expect("the answer begins");
    // The server stays responsive, and after its deadline the connection is gone: what was
    // buffered can still be read, the rest is missing.
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        assert_eq!(get(addr, "/debug/nothing").0, 404);
    }
    let rest = rest_of(&mut lazy);
    let head = String::from_utf8_lossy(&rest[..400.min(rest.len())]).into_owned();
    let promised: usize = head
        .split("Content-Length: ")
        .nth(1)
        .and_then(|rest| rest.split("\r\n").next())
        .and_then(|n| n.parse().ok())
        .expect("a length");
    assert!(rest.len() < promised, "all {promised} bytes came");
    drop(_keep);
}

/// Heads that are too large, or are no HTTP at all, are refused, and the server lives.
#[test]
fn wrong_requests_are_refused() {
    let rt = runtime();
    let (_server, addr) = start(&rt, Options::new());
    let huge = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "a".repeat(1 << 20));
    let mut stream = connect(addr);
    // The server may close before it has read everything.
    let _ = stream.write_all(huge.as_bytes());
    let answer = rest_of(&mut stream);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 431 "), "{answer:?}");
    let with = |line: &str| format!("GET /metrics HTTP/1.1\r\n{line}\r\n\r\n");
    for (request, status) in [
        ("\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n".to_owned(), 400),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), 400),
        ("DELETE / HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 405),
        ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc".to_owned(), 405),
        (with("Host: localhost\r\nContent-Length: 3"), 413),
        (with("Host: localhost\r\nTransfer-Encoding: chunked"), 413),
        (with("Accept: */*"), 400),
        (with("Host: attacker.example"), 403),
        (with("Host: localhost\r\nSec-Fetch-Site: cross-site"), 403),
        (with("Host: localhost\r\nOrigin: https://attacker.example"), 403),
        ("GET /debug/rates?seconds=0 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
        ("GET /debug/rates?seconds=1e9 HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(), 400),
    ] {
        let (got, body) = ask(addr, &request);
        assert_eq!(got, status, "{request:?}: {body}");
    }
    assert_eq!(get(addr, "/metrics").0, 200);
}

/// HEAD has the head of GET and no body; bytes after the head do no harm.
#[test]
fn head_has_no_body() {
    let rt = runtime();
    let (_server, addr) = start(&rt, Options::new());
    let (status, body) = ask(addr, "HEAD /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!((status, &*body), (200, ""));
    let twice = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(2);
    let (status, body) = ask(addr, &twice);
    assert_eq!((status, body.matches("# TYPE heist_sched_gomaxprocs_threads ").count()), (200, 1));
}

/// What costs needs the token; a wrong one is refused.
#[test]
fn costly_answers_need_the_token() {
    let rt = runtime();
    let (_server, addr) = start(&rt, Options::new().token("sesame"));
    assert_eq!(get(addr, "/metrics").0, 200);
    assert_eq!(get(addr, "/debug/goroutines").0, 401);
    assert_eq!(get(addr, "/debug/goroutines?token=sesame").0, 200);
    assert_eq!(get(addr, "/debug/rates?seconds=1").0, 401);
    assert_eq!(get(addr, "/debug/rates?seconds=1&token=sesam").0, 401);
    assert_eq!(get(addr, "/debug/rates?seconds=1&token=sesame").0, 200);
}

/// A thousand connections at once that send nothing: the goroutines make progress, a real client is
/// served, and the server keeps few connections.
#[test]
fn a_flood_of_connections_stalls_nothing() {
    const FLOOD: usize = 1000;
    let rt = runtime();
    let (_server, addr) = start(&rt, Options::new().head_timeout(Duration::from_secs(600)));
    let worker = rt.handle().spawn(|| {
        let mut rounds = 0_u64;
        while !heist::goroutine::is_cancelled() {
            heist::yield_now();
            rounds += 1;
        }
        rounds
    });
    let mut flood = Vec::new();
    for i in 0..FLOOD {
        match TcpStream::connect(addr) {
            Ok(stream) => flood.push(stream),
            // The limit of descriptors of this process.
            Err(error) => {
                assert!(i > 100, "{error}");
                break;
            }
        }
        if i % 100 == 99 {
            assert_eq!(get(addr, "/debug/sched.json").0, 200, "after {i}");
        }
    }
    // All but the newest were closed to make room.
    let n_closed = flood
        .iter_mut()
        .map(|stream| {
            stream.set_nonblocking(true).expect("a socket");
            !matches!(stream.read(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
        })
        .filter(|&closed| closed)
        .count();
    assert!(n_closed >= flood.len() - 64, "{n_closed} of {}", flood.len());
    for stream in &flood {
        let _ = stream.shutdown(Shutdown::Both);
    }
    assert_eq!(get(addr, "/metrics").0, 200);
    let before = rt.metrics().get("/heist/sched/yields:events");
    while rt.metrics().get("/heist/sched/yields:events") == before {
        std::thread::yield_now();
    }
    worker.cancel();
    drop(worker.join());
}

/// Only a few costly answers are made at a time.
#[test]
fn too_many_costly_answers_are_refused() {
    let rt = runtime();
    let (_server, addr) = start(&rt, Options::new());
    let request = b"GET /debug/rates?seconds=300 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let mut streams: Vec<_> = (0..5).map(|_| connect(addr)).collect();
    for stream in &mut streams {
        stream.write_all(request).expect("it takes the request");
    }
    // Which of them is refused is not certain.
    let mut refused = Vec::new();
    while refused.is_empty() {
        for stream in &mut streams {
            stream.set_nonblocking(true).expect("a socket");
            let mut bytes = [0; 64];
            if let Ok(n @ 1..) = stream.read(&mut bytes) {
                refused.push(String::from_utf8_lossy(&bytes[..n]).into_owned());
            }
        }
        std::thread::yield_now();
    }
    assert!(refused[0].starts_with("HTTP/1.1 503 "), "{refused:?}");
    // A client that goes away frees its place.
    drop(streams);
    while get(addr, "/debug/rates?seconds=1").0 != 200 {
        std::thread::yield_now();
    }
}
