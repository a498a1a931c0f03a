//! The servers among the examples, with clients that do not wait for answers and cut their requests
//! at odd places.

use crate::matrix;
use crate::wire;

#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/echo_server.rs"]
mod echo_server;
#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/http_server/main.rs"]
mod http_server;

use heist::net::{Server, TcpListener, TcpStream};
use http_server::http1;
use proptest::prelude::*;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn few() -> Vec<matrix::Case> {
    matrix::cases_with(&[1, 4]).into_iter().step_by(3).collect()
}

/// Sends `bytes` in pieces of the sizes that `sizes` repeats, while another goroutine reads the
/// answers to their end.
fn talk(serve: fn(TcpStream) -> io::Result<()>, bytes: Vec<u8>, sizes: &[usize]) -> Vec<u8> {
    let (near, far) = wire::pair();
    near.set_nodelay(true).expect("an option");
    let server = heist::go(move || serve(far));
    let near = Arc::new(near);
    let reader = {
        let near = Arc::clone(&near);
        heist::go(move || {
            let mut answers = Vec::new();
            (&*near).read_to_end(&mut answers).expect("reads");
            answers
        })
    };
    let mut rest = &bytes[..];
    for &size in sizes.iter().cycle() {
        let (piece, left) = rest.split_at(size.min(rest.len()));
        (&*near).write_all(piece).expect("writes");
        rest = left;
        if rest.is_empty() {
            break;
        }
        heist::yield_now();
    }
    near.shutdown(Shutdown::Write).expect("half close");
    let answers = reader.join().expect("ends well");
    server.join().expect("ends well").expect("serves to the end");
    answers
}

fn serve_http(stream: TcpStream) -> io::Result<()> {
    http_server::Client::new(stream, &heist::context::background())?.serve()
}

/// Status lines and bodies.
fn parse_answers(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut answers = Vec::new();
    while !bytes.is_empty() {
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut answer = httparse::Response::new(&mut headers);
        let head = match answer.parse(bytes).expect("an answer") {
            httparse::Status::Complete(head) => head,
            httparse::Status::Partial => panic!("an answer is cut off"),
        };
        let header = |name: &str| {
            let header = answer.headers.iter().find(|header| header.name == name);
            header.map(|header| std::str::from_utf8(header.value).expect("text").to_owned())
        };
        let code = answer.code.expect("a code");
        let mut len = 0;
        if code != 100 {
            len = header("content-length").expect("a length").parse().expect("a number");
            let date = header("date").expect("a date");
            assert!(httpdate::parse_http_date(&date).is_ok(), "{date}");
        }
        answers.push((code, bytes[head..head + len].to_vec()));
        bytes = &bytes[head + len..];
    }
    answers
}

const ODD: &[&[usize]] = &[&[usize::MAX], &[1], &[7, 1, 2], &[37], &[1000, 3], &[4096], &[4095, 2]];

/// The echo server gives back the same bytes, however they come.
#[test]
fn echo_keeps_what_is_pipelined() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            for &sizes in ODD {
                let n = if sizes.iter().sum::<usize>() < 50 { 100 } else { 2000 };
                let lines: String = (0..n).map(|i| format!("message {i}\r\n")).collect();
                let answers = talk(echo_server::echo, lines.clone().into_bytes(), sizes);
                assert!(answers == lines.as_bytes(), "pieces of {sizes:?}");
            }
        });
    });
}

/// Every request is answered, once and in order, however many come in one piece and wherever the
/// pieces end.
#[test]
fn pipelined_requests_are_answered_in_order() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            for &sizes in ODD {
                let n = if sizes.iter().sum::<usize>() < 50 { 30 } else { 500 };
                let mut requests = Vec::new();
                for i in 0..n {
                    let body = format!("{i}").repeat(i % 5);
                    let request = if i % 3 == 0 {
                        "GET / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()
                    } else {
                        let len = body.len();
                        format!(
                            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {len}\r\n\r\n{body}"
                        )
                    };
                    requests.extend_from_slice(request.as_bytes());
                }
                let answers = parse_answers(&talk(serve_http, requests, sizes));
                assert_eq!(answers.len(), n, "pieces of {sizes:?}");
                for (i, (code, body)) in answers.into_iter().enumerate() {
                    assert_eq!(code, 200);
                    if i % 3 == 0 {
                        assert_eq!(body, b"Hello, World!");
                    } else {
                        assert_eq!(body, format!("{i}").repeat(i % 5).as_bytes());
                    }
                }
            }
        });
    });
}

/// The same holds if the answers to one piece exceed the buffer, and the client sends nothing more
/// before it has them all.
#[test]
fn a_client_that_waits_for_many_answers_gets_them() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            const N: usize = 3000;
            const REQUEST: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
            let (mut near, far) = wire::pair();
            let server = heist::go(move || serve_http(far));
            let writer = {
                let near = near.try_clone().expect("a descriptor");
                heist::go(move || (&near).write_all(REQUEST.repeat(N).as_bytes()).expect("writes"))
            };
            near.set_read_timeout(Some(Duration::from_secs(5))).expect("an option");
            let mut answers = Vec::new();
            let mut n_answers = 0;
            while n_answers < N {
                let mut buffer = [0; 16 << 10];
                let n = near.read(&mut buffer).expect("an answer to everything");
                answers.extend_from_slice(&buffer[..n]);
                n_answers = answers.windows(5).filter(|&window| window == b"World").count();
            }
            writer.join().expect("ends well");
            near.shutdown(Shutdown::Write).expect("half close");
            near.read_to_end(&mut answers).expect("reads");
            assert_eq!(parse_answers(&answers).len(), N);
            server.join().expect("ends well").expect("serves to the end");
        });
    });
}

/// A client that asks for megabytes and reads them late gets all of them: the server waits for it.
#[test]
fn a_slow_reader_gets_everything() {
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            const LEN: usize = 100_000;
            let (near, far) = wire::pair();
            let server = heist::go(move || serve_http(far));
            let near = Arc::new(near);
            let writer = {
                let near = Arc::clone(&near);
                heist::go(move || {
                    let head =
                        format!("POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: {LEN}\r\n\r\n");
                    for i in 0..100u8 {
                        (&*near).write_all(head.as_bytes()).expect("writes");
                        (&*near).write_all(&[i; LEN]).expect("writes");
                    }
                    near.shutdown(Shutdown::Write).expect("half close");
                })
            };
            // Until both directions are full and both sides wait.
            for _ in 0..1000 {
                heist::yield_now();
            }
            let mut answers = Vec::new();
            (&*near).read_to_end(&mut answers).expect("reads");
            writer.join().expect("ends well");
            server.join().expect("ends well").expect("serves");
            let answers = parse_answers(&answers);
            assert_eq!(answers.len(), 100);
            for (i, (code, body)) in answers.iter().enumerate() {
                assert_eq!(*code, 200);
                assert!(body.len() == LEN && body.iter().all(|&byte| usize::from(byte) == i));
            }
        });
    });
}

/// The answer to bytes that are sent at once; the server ends the connection.
fn ask(request: &[u8]) -> (Vec<u8>, io::Result<()>) {
    let (mut near, far) = wire::pair();
    let server = heist::go(move || serve_http(far));
    near.write_all(request).expect("writes");
    near.shutdown(Shutdown::Write).expect("half close");
    let mut answers = Vec::new();
    near.read_to_end(&mut answers).expect("reads");
    (answers, server.join().expect("ends well"))
}

/// An invalid request is refused with the right status, and the bytes after it are not treated as a
/// request.
#[test]
fn bad_requests_are_refused() {
    matrix::plain(2).run(|| {
        let long = format!("GET / HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(20_000));
        let many = format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "x: y\r\n".repeat(100));
        let cases: &[(&str, u16)] = &[
            ("\x16\x03\x01 this is not HTTP\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400),
            ("GET nowhere HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET http:///x HTTP/1.1\r\nHost: a\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: +1\r\n\r\nx", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", 400),
            ("GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n", 413),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 501),
            (&long, 431),
            (&many, 431),
        ];
        for (request, status) in cases {
            let text = format!("{request}GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let (near, far) = wire::pair();
            let server = heist::go(move || serve_http(far));
            // The server may close before it has read everything.
            let _ = (&near).write_all(text.as_bytes());
            let mut answer = [0; 4096];
            let n = (&near).read(&mut answer).expect("reads");
            let answers = parse_answers(&answer[..n]);
            assert_eq!(answers, [(*status, vec![])], "{request:.60}");
            server.join().expect("ends well").expect("serves");
        }
    });
}

/// HEAD, other paths, old versions, `Connection: close`, `Expect: 100-continue`, an early end.
#[test]
fn other_methods_versions_and_headers_are_answered() {
    matrix::plain(2).run(|| {
        let (answer, _) = ask(b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
        let text = String::from_utf8(answer).expect("text");
        assert!(text.contains("content-length: 13\r\n") && text.ends_with("\r\n\r\n"), "{text}");

        let (answer, _) = ask(b"GET /other HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(parse_answers(&answer)[0].0, 404);

        let request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: x, Close\r\n\r\n".repeat(2);
        let (answer, _) = ask(&request);
        assert!(String::from_utf8_lossy(&answer).contains("connection: close\r\n"));
        assert_eq!(parse_answers(&answer).len(), 1, "it was to be the last one");

        let both =
            b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nConnection: keep-alive\r\n\r\n";
        assert_eq!(parse_answers(&ask(&both.repeat(2)).0).len(), 1, "close wins");
        for target in ["http://a/", "HTTP://a:80", "https://a/?x", "http://a/other"] {
            let request = format!("GET {target} HTTP/1.1\r\nHost: b\r\n\r\n");
            let status = if target.ends_with('r') || target.ends_with('x') { 404 } else { 200 };
            assert_eq!(parse_answers(&ask(request.as_bytes()).0)[0].0, status, "{target}");
        }

        assert_eq!(parse_answers(&ask(&b"GET / HTTP/1.0\r\n\r\n".repeat(2)).0).len(), 1);
        let kept = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".repeat(2);
        assert_eq!(parse_answers(&ask(&kept).0).len(), 2);

        let (near, far) = wire::pair();
        let server = heist::go(move || serve_http(far));
        let head =
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
        (&near).write_all(head.as_bytes()).expect("writes");
        let mut go_on = [0; 25];
        (&near).read_exact(&mut go_on).expect("reads");
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        (&near).write_all(b"ok").expect("writes");
        near.shutdown(Shutdown::Write).expect("half close");
        let mut answer = Vec::new();
        (&near).read_to_end(&mut answer).expect("reads");
        assert_eq!(parse_answers(&answer), [(200, b"ok".to_vec())]);
        server.join().expect("ends well").expect("serves");

        let (answer, ended) = ask(b"GET / HTTP/1.1\r\nHost");
        assert_eq!(answer, b"");
        assert_eq!(ended.expect_err("cut off").kind(), io::ErrorKind::UnexpectedEof);
    });
}

/// When the server stops, an idle connection ends at once, and one with a request on the way is
/// answered with `connection: close`: no request is lost, and no client waits for the end of the
/// grace period.
#[test]
fn a_stopping_server_loses_no_request() {
    const GRACE: Duration = Duration::from_secs(60);
    matrix::each_of(&few(), |_, rt| {
        rt.run(|| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("binds");
            let address = listener.local_addr().expect("bound");
            let server = Server::new();
            let serving = {
                let (server, running) = (server.clone(), server.context());
                heist::go(move || {
                    server.serve(listener, move |stream, _| {
                        let _ = http_server::Client::new(stream, &running).expect("open").serve();
                    })
                })
            };
            let connect = || TcpStream::connect(address).expect("connects");
            let (mut idle, mut busy, mut fresh) = (connect(), connect(), connect());
            for stream in [&mut idle, &mut busy] {
                stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("writes");
                let mut answer = [0; 1024];
                let n = stream.read(&mut answer).expect("reads");
                assert_eq!(parse_answers(&answer[..n]).len(), 1);
            }
            busy.write_all(b"POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
                .expect("writes");
            busy.read_exact(&mut [0; 25]).expect("it was read");
            while server.connections() < 3 {
                heist::yield_now();
            }
            let began = Instant::now();
            let stopping = {
                let server = server.clone();
                heist::go(move || server.shutdown(GRACE))
            };
            let mut nothing = Vec::new();
            idle.read_to_end(&mut nothing).expect("ends");
            fresh.read_to_end(&mut nothing).expect("ends");
            assert!(nothing.is_empty());
            busy.write_all(b"ok").expect("writes");
            let mut answer = Vec::new();
            busy.read_to_end(&mut answer).expect("ends");
            assert!(String::from_utf8_lossy(&answer).contains("connection: close\r\n"));
            assert_eq!(parse_answers(&answer), [(200, b"ok".to_vec())]);
            assert_eq!(stopping.join().expect("ends well").cancelled, 0);
            assert!(began.elapsed() < GRACE);
            serving.join().expect("ends well").expect("serves");
        });
    });
}

/// A stream of bytes that come in pieces, and the answers.
struct Script<'a> {
    left: &'a [u8],
    sizes: std::iter::Cycle<std::slice::Iter<'a, usize>>,
    answers: Vec<u8>,
}

impl Read for Script<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let size = self.sizes.next().map_or(1, |&size| size);
        let n = size.min(buf.len()).min(self.left.len());
        buf[..n].copy_from_slice(&self.left[..n]);
        self.left = &self.left[n..];
        Ok(n)
    }
}

impl Write for Script<'_> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.answers.extend_from_slice(buf);
        Ok(buf.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl http1::Connection for Script<'_> {}

/// The answers to bytes that come in pieces of these sizes, without the dates, and how the
/// connection ended.
fn answers_to(bytes: &[u8], sizes: &[usize]) -> (Vec<String>, Option<io::ErrorKind>) {
    let mut script = Script { left: bytes, sizes: sizes.iter().cycle(), answers: Vec::new() };
    let ended = http1::serve(&mut script, http_server::respond).err().map(|error| error.kind());
    let text = String::from_utf8_lossy(&script.answers).into_owned();
    let lines = text
        .split("\r\n")
        .filter(|line| !line.starts_with("date: ") && *line != "HTTP/1.1 100 Continue");
    (lines.map(str::to_owned).filter(|line| !line.is_empty()).collect(), ended)
}

fn piece() -> impl Strategy<Value = Vec<u8>> {
    let words = [
        "GET ",
        "POST ",
        "HEAD ",
        "/",
        "/echo",
        "http://a/echo",
        " HTTP/1.1\r\n",
        " HTTP/1.0\r\n",
        "Host: a\r\n",
        "Connection: close\r\n",
        "Connection: keep-alive\r\n",
        "Content-Length: 3\r\n",
        "Content-Length: 70000\r\n",
        "Expect: 100-continue\r\n",
        "Transfer-Encoding: chunked\r\n",
        "\r\n",
        "\n",
        "abc",
        "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
    ];
    prop_oneof![
        8 => prop::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..20),
        1 => (1000usize..20_000).prop_map(|n| vec![b'x'; n]),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// For any bytes, the server does not panic, and its answers do not depend on how the bytes are
    /// cut.
    #[test]
    fn answers_do_not_depend_on_the_pieces(
        pieces in prop::collection::vec(piece(), 0..30),
        sizes in prop::collection::vec(20usize..3000, 1..8),
    ) {
        let bytes = pieces.concat();
        let whole = answers_to(&bytes, &[usize::MAX]);
        prop_assert_eq!(&answers_to(&bytes, &sizes), &whole);
        // The head is parsed anew whenever more has come.
        if bytes.len() < 1000 {
            prop_assert_eq!(&answers_to(&bytes, &[1]), &whole);
        }
    }
}
