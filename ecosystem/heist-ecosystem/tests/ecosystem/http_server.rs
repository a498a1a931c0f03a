//! The HTTP server to start from: what it answers, what it refuses, how it stops.

use crate::Serving;
use bytes::Bytes;
use heist::net::TcpStream;
use heist_ecosystem::client;
use heist_ecosystem::serve::Limits;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::service::service_fn;
use std::io::{Read, Write};
use std::time::Duration;

#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/http_server.rs"]
mod example;

fn start(limits: Limits) -> Serving {
    Serving::start(service_fn(example::answer), limits)
}

fn connect(server: &Serving) -> TcpStream {
    TcpStream::connect(server.address).unwrap()
}

/// What comes back for these bytes, sent at once, until the server closes.
fn talk(server: &Serving, bytes: &[u8]) -> String {
    let mut stream = connect(server);
    // The server may close before it has read everything.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// Reads until `n` answers with this end are there.
fn read_answers(stream: &mut TcpStream, end: &str, n: usize) -> String {
    let mut text = String::new();
    let mut bytes = [0; 4096];
    while text.matches(end).count() < n {
        let len = stream.read(&mut bytes).unwrap();
        assert!(len > 0, "ended after {text}");
        text.push_str(std::str::from_utf8(&bytes[..len]).unwrap());
    }
    text
}

async fn request(server: &Serving, method: &str, path: &str, body: &str) -> (StatusCode, Bytes) {
    let request = Request::builder()
        .method(method)
        .uri(server.url(path))
        .body(Full::new(Bytes::copy_from_slice(body.as_bytes())))
        .unwrap();
    let response = client::http1().request(request).await.unwrap();
    let status = response.status();
    (status, response.into_body().collect().await.unwrap().to_bytes())
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn requests_are_answered() {
    let server = start(Limits::default());
    heist::block_on(async {
        let hello = request(&server, "GET", "/", "").await;
        assert_eq!(hello, (StatusCode::OK, "Hello, World!".into()));
        assert_eq!(request(&server, "HEAD", "/", "").await, (StatusCode::OK, Bytes::new()));
        let echo = request(&server, "POST", "/echo", "abc").await;
        assert_eq!(echo, (StatusCode::OK, "abc".into()));
        assert_eq!(request(&server, "GET", "/load", "").await.0, StatusCode::OK);
        assert_eq!(request(&server, "GET", "/other", "").await.0, StatusCode::NOT_FOUND);
    });
    assert_eq!(server.stop().cut_off, 0);
}

#[heist::test(unsafe, procs = [1, 4])]
fn pipelined_requests_are_answered_in_order_however_they_are_cut() {
    let server = start(Limits::default());
    for size in [1, 7, 37, 4096] {
        let n = if size == 1 { 20 } else { 200 };
        let requests: String = (0..n)
            .map(|i| {
                let body = format!("<{i}>");
                let len = body.len();
                format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n{body}")
            })
            .collect();
        let mut stream = connect(&server);
        stream.set_nodelay(true).unwrap();
        let answers = heist::scope(|scope| {
            let mut reader = stream.try_clone().unwrap();
            let answers = scope.go(move || read_answers(&mut reader, ">", n));
            for piece in requests.as_bytes().chunks(size) {
                stream.write_all(piece).unwrap();
            }
            answers.join().unwrap()
        });
        assert_eq!(answers.matches("HTTP/1.1 200 OK\r\n").count(), n);
        let bodies: Vec<&str> =
            answers.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()).collect();
        let expected: Vec<String> = (0..n).map(|i| i.to_string()).collect();
        assert_eq!(bodies, expected, "pieces of {size} bytes");
    }
    assert_eq!(server.stop().cut_off, 0);
}

#[heist::test(unsafe, procs = [2])]
fn bad_requests_are_refused_and_end_the_connection() {
    let server = start(Limits { buffer: 16 << 10, ..Limits::default() });
    let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(100_000));
    let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "x: y\r\n".repeat(200));
    let two = "GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx";
    let cases = [
        ("GET nowhere at all HTTP/1.1\r\nHost: a\r\n\r\n", "400"),
        ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", "400"),
        (two, "400"),
        (&long, "431"),
        (&many, "431"),
    ];
    for (request, status) in cases {
        let answer =
            talk(&server, format!("{request}GET / HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes());
        let expected = format!("HTTP/1.1 {status} ");
        // The end may overtake the answer if the client still sends.
        let is_cut_off = request.len() > 10_000 && answer.is_empty();
        assert!(is_cut_off || answer.starts_with(&expected), "{request:.60}: {answer}");
        assert!(!answer.contains("Hello"), "{request:.60}: {answer}");
    }
    server.stop();
}

#[heist::test(unsafe, procs = [1, 2])]
fn a_body_above_the_limit_is_refused() {
    let server = start(Limits::default());
    let head = "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n";
    let mut stream = connect(&server);
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(&vec![b'x'; 1_200_000]).unwrap();
    assert!(read_answers(&mut stream, "at most", 1).starts_with("HTTP/1.1 413 "));
    drop(stream);
    server.stop();
}

#[heist::test(unsafe, procs = [1, 2])]
fn a_silent_client_is_sent_away() {
    let server = start(Limits { head: Duration::from_millis(20), ..Limits::default() });
    let mut never = connect(&server);
    let mut preface = connect(&server);
    preface.write_all(b"PRI * HT").unwrap();
    let mut half = connect(&server);
    half.write_all(b"GET / HTTP/1.1\r\nHo").unwrap();
    let mut kept = connect(&server);
    kept.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    read_answers(&mut kept, "World!", 1);
    for stream in [&mut never, &mut preface, &mut half, &mut kept] {
        // Ends; there may be a last answer before.
        stream.read_to_end(&mut Vec::new()).unwrap();
    }
    assert_eq!(server.stop().cut_off, 0);
}

#[heist::test(unsafe, procs = [1, 2])]
fn connections_above_the_limit_wait_for_others_to_end() {
    let server = start(Limits { connections: 2, ..Limits::default() });
    let hello = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
    let mut kept: Vec<_> = (0..2).map(|_| connect(&server)).collect();
    for stream in &mut kept {
        stream.write_all(hello).unwrap();
        read_answers(stream, "World!", 1);
    }
    let mut third = connect(&server);
    third.write_all(hello).unwrap();
    third.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    third.read(&mut [0; 1]).unwrap_err();
    drop(kept.pop());
    third.set_read_timeout(None).unwrap();
    read_answers(&mut third, "World!", 1);
    drop((kept, third));
    server.stop();
}

/// An idle connection ends at once; one with a request on the way is answered first.
#[heist::test(unsafe, procs = [1, 2, 4])]
fn a_stopping_server_loses_no_request() {
    let server = start(Limits { grace: Duration::from_secs(60), ..Limits::default() });
    let mut idle = connect(&server);
    let mut busy = connect(&server);
    for stream in [&mut idle, &mut busy] {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        read_answers(stream, "World!", 1);
    }
    let head =
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    busy.write_all(head.as_bytes()).unwrap();
    read_answers(&mut busy, "100 Continue", 1);
    server.canceller.cancel();
    let mut nothing = Vec::new();
    idle.read_to_end(&mut nothing).unwrap();
    assert!(nothing.is_empty());
    busy.write_all(b"ok").unwrap();
    let mut answer = String::new();
    busy.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("connection: close\r\n") && answer.ends_with("ok"), "{answer}");
    assert_eq!(server.stop().cut_off, 0);
}

/// A request that never ends does not keep the server from stopping.
#[heist::test(unsafe, procs = [1, 2])]
fn the_grace_period_ends() {
    let server = start(Limits { grace: Duration::from_millis(20), ..Limits::default() });
    let mut slow = connect(&server);
    let head =
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    slow.write_all(head.as_bytes()).unwrap();
    read_answers(&mut slow, "100 Continue", 1);
    assert_eq!(server.stop().cut_off, 1);
    let mut rest = Vec::new();
    let _ = slow.read_to_end(&mut rest);
    assert!(!String::from_utf8_lossy(&rest).contains("200"));
}
