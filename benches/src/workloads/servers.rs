//! tcp_echo_* and http: a server in this process under load from another one.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use crate::contract::blocking::{Net, Tasks};
use crate::load::{self, EchoLoad};
use crate::reading::{Outcome, cannot};
use crate::wrk;

/// Larger than any request here; one read a request is the common case for everyone.
pub const BUFFER_BYTES: usize = 4096;
pub const HTTP_ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\
    content-length: 13\r\n\r\nHello, World!";

/// What to serve; the load that goes with it follows.
#[derive(Clone, Copy, Debug)]
pub enum Service {
    Echo { n_connections: usize },
    Http,
}

/// Tells the load generator where the server listens.
pub type Listening = mpsc::Sender<SocketAddr>;

/// Starts the server on a thread of its own and puts it under load. The server is left
/// running: the process ends next.
pub fn under_load(service: Service, server: impl FnOnce(Listening) + Send + 'static) -> Outcome {
    if matches!(service, Service::Http) && !wrk::is_on_path() {
        return cannot(wrk::MISSING);
    }
    let (listening, address) = mpsc::channel();
    thread::spawn(move || server(listening));
    let Ok(address) = address.recv() else {
        return cannot("the server did not start");
    };
    match service {
        Service::Echo { n_connections } => load::measure(&EchoLoad::new(address, n_connections)),
        Service::Http => wrk::measure(address),
    }
}

pub fn blocking<R: Net>(procs: usize, service: Service) -> Outcome {
    under_load(service, move |listening| {
        R::run(procs, move || serve::<R>(service, &listening));
    })
}

fn serve<R: Tasks + Net>(service: Service, listening: &Listening) {
    let (listener, address) = R::listen().expect("cannot listen");
    listening.send(address).expect("the load generator is gone");
    loop {
        let stream = R::accept(&listener).expect("cannot accept");
        // A connection that breaks ends its task, as in any server.
        R::spawn(move || {
            let _ = match service {
                Service::Echo { .. } => echo(stream),
                Service::Http => http(stream),
            };
        });
    }
}

fn echo(mut stream: impl Read + Write) -> io::Result<()> {
    let mut buffer = [0; BUFFER_BYTES];
    loop {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..n])?;
    }
}

fn http(mut stream: impl Read + Write) -> io::Result<()> {
    let mut buffer = [0; BUFFER_BYTES];
    let mut filled = 0;
    loop {
        let n = stream.read(&mut buffer[filled..])?;
        if n == 0 {
            return Ok(());
        }
        filled += n;
        while let Some(head_bytes) = request_head(&buffer[..filled])? {
            stream.write_all(HTTP_ANSWER)?;
            buffer.copy_within(head_bytes..filled, 0);
            filled -= head_bytes;
        }
    }
}

/// The length of a complete request head at the start of `bytes`, if there is one.
pub fn request_head(bytes: &[u8]) -> io::Result<Option<usize>> {
    let mut headers = [httparse::EMPTY_HEADER; 16];
    match httparse::Request::new(&mut headers).parse(bytes) {
        Ok(httparse::Status::Complete(head_bytes)) => Ok(Some(head_bytes)),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(e) => Err(io::Error::new(io::ErrorKind::InvalidData, e)),
    }
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub fn futures<R: crate::contract::futures::Net>(procs: usize, service: Service) -> Outcome {
    use crate::contract::futures::Net;

    async fn echo<R: Net>(mut stream: R::Stream) -> io::Result<()> {
        let mut buffer = [0; BUFFER_BYTES];
        loop {
            let n = R::read(&mut stream, &mut buffer).await?;
            if n == 0 {
                return Ok(());
            }
            R::write_all(&mut stream, &buffer[..n]).await?;
        }
    }
    async fn serve<R: Net>(service: Service, listening: Listening) {
        let (listener, address) = R::listen().await.expect("cannot listen");
        listening.send(address).expect("the load generator is gone");
        loop {
            let stream = R::accept(&listener).await.expect("cannot accept");
            match service {
                Service::Echo { .. } => R::spawn(async move {
                    // A connection that breaks ends its task, as in any server.
                    let _ = echo::<R>(stream).await;
                }),
                Service::Http => R::spawn(R::serve_http(stream)),
            }
        }
    }
    under_load(service, move |listening| R::run(procs, serve::<R>(service, listening)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_found_only_when_complete() {
        assert_eq!(request_head(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET").unwrap(), Some(27));
        assert_eq!(request_head(b"GET / HTTP/1.1\r\nHo").unwrap(), None);
        assert!(request_head(b"\x00\x01 nonsense").is_err());
    }

    #[test]
    fn the_answer_announces_its_length() {
        let text = std::str::from_utf8(HTTP_ANSWER).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("content-length: {}", body.len())));
    }
}
