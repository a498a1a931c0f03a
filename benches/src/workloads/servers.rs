//! tcp_echo_*, http_raw and http: a server in this process under load from another one.
//!
//! The handling of bytes by a server is written once here and driven both by tasks that block and
//! by futures. `http_raw` is the same minimal server for all peers. `http` is the server that
//! programs of the peer's ecosystem use: a library where there is one, and for peers that block the
//! one of heist's examples.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use crate::contract::blocking::{Net, Tasks};
use crate::http1;
use crate::load::{self, EchoLoad};
use crate::reading::{Outcome, cannot};
use crate::wrk;

/// Larger than any request here; one read per request is the common case for all peers.
pub const BUFFER_BYTES: usize = 4096;
pub const HELLO: &[u8] = b"Hello, World!";
const HTTP_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\
    content-length: 13\r\n\r\nHello, World!";

pub const NO_HTTP_LIBRARY: &str = "no HTTP server of its own; see http_raw";

/// The server to run; the load depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    Echo {
        n_connections: usize,
    },
    /// The minimal server that keeps connections alive: it reads no header.
    HttpRaw,
    /// The server of the peer's ecosystem: it parses heads and writes dates.
    HttpLibrary,
    /// hyper, for peers with futures.
    HttpHyper,
}

impl Service {
    /// The service that a workload names.
    pub fn of(workload: &str) -> Option<Self> {
        match workload {
            "tcp_echo_64" => Some(Self::Echo { n_connections: 64 }),
            "tcp_echo_1000" => Some(Self::Echo { n_connections: 1000 }),
            "http_raw" => Some(Self::HttpRaw),
            "http" => Some(Self::HttpLibrary),
            "http_hyper" => Some(Self::HttpHyper),
            _ => None,
        }
    }
}

/// The bytes of one connection: those received, and those to be sent back for them.
struct Conversation {
    service: Service,
    buffer: [u8; BUFFER_BYTES],
    filled: usize,
}

impl Conversation {
    fn new(service: Service) -> Self {
        Self { service, buffer: [0; BUFFER_BYTES], filled: 0 }
    }

    /// Where the next bytes go.
    fn room(&mut self) -> &mut [u8] {
        &mut self.buffer[self.filled..]
    }

    /// Takes in `n` bytes that were read into the room.
    fn came(&mut self, n: usize) {
        self.filled += n;
    }

    /// The bytes to send back now, and how many of the received bytes they answer.
    fn answer(&self) -> Option<(&[u8], usize)> {
        let came = &self.buffer[..self.filled];
        match self.service {
            Service::Echo { .. } => (!came.is_empty()).then_some((came, came.len())),
            Service::HttpRaw | Service::HttpLibrary | Service::HttpHyper => {
                request_end(came).map(|end| (HTTP_ANSWER, end))
            }
        }
    }

    fn settle(&mut self, n: usize) {
        self.buffer.copy_within(n..self.filled, 0);
        self.filled -= n;
    }
}

/// Where the first complete request ends.
fn request_end(bytes: &[u8]) -> Option<usize> {
    const END: &[u8] = b"\r\n\r\n";
    bytes.windows(END.len()).position(|window| window == END).map(|at| at + END.len())
}

/// Tells the load generator where the server listens.
pub type Listening = mpsc::Sender<SocketAddr>;

/// Starts the server on its own thread and puts it under load. The server is left running: the
/// process ends next.
pub fn under_load(service: Service, server: impl FnOnce(Listening) + Send + 'static) -> Outcome {
    if !matches!(service, Service::Echo { .. }) && !wrk::is_on_path() {
        return cannot(wrk::MISSING);
    }
    let (listening, address) = mpsc::channel();
    thread::spawn(move || server(listening));
    let address = address.recv().expect("the server did not start");
    match service {
        Service::Echo { n_connections } => load::measure(&EchoLoad::new(address, n_connections)),
        Service::HttpRaw | Service::HttpLibrary | Service::HttpHyper => wrk::measure(address),
    }
}

pub fn blocking<R: Net>(procs: usize, service: Service) -> Outcome {
    let outcome = under_load(service, move |listening| {
        R::run(procs, move || serve::<R>(service, &listening));
    });
    match service {
        Service::HttpLibrary => outcome.map(|figures| figures.with_note(Some("httparse"))),
        _ => outcome,
    }
}

/// Serves until the process ends.
pub fn serve<R: Tasks + Net>(service: Service, listening: &Listening) {
    let (listener, address) = R::listen().expect("cannot listen");
    listening.send(address).expect("the load generator is gone");
    loop {
        let stream = R::accept(&listener).expect("cannot accept");
        // A connection that breaks ends its task, as in any server.
        R::spawn(move || {
            let _ = match service {
                Service::HttpLibrary => {
                    http1::serve(Plain(stream), |_| http1::Response::text(HELLO))
                }
                _ => converse(service, stream),
            };
        });
    }
}

/// A stream without limits of time.
struct Plain<S>(S);

impl<S: Read> Read for Plain<S> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl<S: Write> Write for Plain<S> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.0.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl<S: Read + Write> http1::Connection for Plain<S> {}

fn converse(service: Service, mut stream: impl Read + Write) -> io::Result<()> {
    let mut conversation = Conversation::new(service);
    loop {
        let n = stream.read(conversation.room())?;
        if n == 0 {
            return Ok(());
        }
        conversation.came(n);
        while let Some((answer, settled)) = conversation.answer() {
            stream.write_all(answer)?;
            conversation.settle(settled);
        }
    }
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub use stackless::{converse as converse_futures, futures, futures_with, run as run_futures};

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
mod stackless {
    use super::*;
    use crate::contract::futures::Net;

    pub fn futures<R: Net>(procs: usize, service: Service) -> Outcome {
        futures_with::<R, _>(procs, service, move |stream| async move {
            // A connection that breaks ends its task, as in any server.
            let _ = converse::<R>(service, stream).await;
        })
    }

    /// Uses the peer's own way to serve a connection.
    pub fn futures_with<R: Net, F: Future<Output = ()> + Send + 'static>(
        procs: usize,
        service: Service,
        connection: impl Fn(R::Stream) -> F + Send + 'static,
    ) -> Outcome {
        under_load(service, move |listening| run::<R, F>(procs, listening, connection))
    }

    /// Serves until the process ends.
    pub fn run<R: Net, F: Future<Output = ()> + Send + 'static>(
        procs: usize,
        listening: Listening,
        connection: impl Fn(R::Stream) -> F + Send + 'static,
    ) {
        R::run(procs, async move {
            let (listener, address) = R::listen().await.expect("cannot listen");
            listening.send(address).expect("the load generator is gone");
            loop {
                let stream = R::accept(&listener).await.expect("cannot accept");
                R::spawn(connection(stream));
            }
        });
    }

    pub async fn converse<R: Net>(service: Service, mut stream: R::Stream) -> io::Result<()> {
        let mut conversation = Conversation::new(service);
        loop {
            let n = R::read(&mut stream, conversation.room()).await?;
            if n == 0 {
                return Ok(());
            }
            conversation.came(n);
            while let Some((answer, settled)) = conversation.answer() {
                R::write_all(&mut stream, answer).await?;
                conversation.settle(settled);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The response to bytes that are sent in these pieces.
    fn answers(service: Service, pieces: &[&[u8]]) -> Vec<u8> {
        let mut conversation = Conversation::new(service);
        let mut sent = Vec::new();
        for piece in pieces {
            conversation.room()[..piece.len()].copy_from_slice(piece);
            conversation.came(piece.len());
            while let Some((answer, settled)) = conversation.answer() {
                sent.extend_from_slice(answer);
                conversation.settle(settled);
            }
        }
        sent
    }

    #[test]
    fn an_echo_gives_back_what_came() {
        let service = Service::Echo { n_connections: 1 };
        assert_eq!(answers(service, &[b"one ", b"two"]), b"one two");
    }

    #[test]
    fn every_complete_request_is_answered_once() {
        let request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        let two = [request.as_slice(), request].concat();
        assert_eq!(answers(Service::HttpRaw, &[&two]), HTTP_ANSWER.repeat(2));
        assert_eq!(answers(Service::HttpRaw, &[&two[..20]]), b"");
        assert_eq!(answers(Service::HttpRaw, &[&two[..20], &two[20..]]), HTTP_ANSWER.repeat(2));
    }

    /// The status, the names of the headers and the body of a server's response to a GET.
    fn hello_of(server: impl FnOnce(Listening) + Send + 'static) -> (u16, Vec<String>, Vec<u8>) {
        let (listening, address) = mpsc::channel();
        thread::spawn(move || server(listening));
        let mut stream = std::net::TcpStream::connect(address.recv().unwrap()).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(HELLO) {
            let mut piece = [0; 512];
            let n = stream.read(&mut piece).unwrap();
            assert!(n > 0, "{}", String::from_utf8_lossy(&answer));
            answer.extend_from_slice(&piece[..n]);
        }
        let mut headers = [httparse::EMPTY_HEADER; 16];
        let mut parsed = httparse::Response::new(&mut headers);
        let httparse::Status::Complete(head) = parsed.parse(&answer).unwrap() else {
            panic!("the head is cut off");
        };
        let code = parsed.code.unwrap();
        let mut names: Vec<_> =
            parsed.headers.iter().map(|header| header.name.to_lowercase()).collect();
        names.sort();
        (code, names, answer[head..].to_vec())
    }

    fn hello() -> (u16, Vec<String>, Vec<u8>) {
        let names = ["content-length", "content-type", "date"].map(str::to_owned).to_vec();
        (200, names, HELLO.to_vec())
    }

    #[test]
    fn http_says_what_every_peer_says() {
        use crate::peers::heist::Heist;
        let served = hello_of(|listening| {
            Heist::run(2, move || serve::<Heist>(Service::HttpLibrary, &listening));
        });
        assert_eq!(served, hello());
    }

    #[cfg(feature = "peer-tokio")]
    #[test]
    fn hyper_says_what_every_peer_says() {
        use crate::peers::heist_tasks::HeistTasks;
        use crate::peers::tokio::{Tokio, serve_with_hyper};
        use crate::workloads::hyper_hello;
        let served =
            hello_of(|listening| stackless::run::<Tokio, _>(2, listening, serve_with_hyper));
        assert_eq!(served, hello());
        let served =
            hello_of(|listening| stackless::run::<HeistTasks, _>(2, listening, hyper_hello::serve));
        assert_eq!(served, hello());
    }

    #[test]
    fn the_answer_announces_its_length() {
        let text = std::str::from_utf8(HTTP_ANSWER).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())));
    }
}
