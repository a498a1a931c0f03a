//! An HTTP/1.1 server that says hello, keeps connections alive, and stops gracefully on Ctrl-C.
//!
//! `cargo run --release --example http_server -- 127.0.0.1:8000`, then `curl http://127.0.0.1:8000/`.

use heist::net::{Server, TcpListener, TcpStream};
use heist::signal;
use std::io::{self, Read, Write};
use std::time::Duration;

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\
    content-length: 13\r\n\r\nHello, World!";
/// How long a connection may say nothing.
const IDLE: Duration = Duration::from_secs(60);

#[heist::main(unsafe)]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8000".to_owned());
    let listener = TcpListener::bind(&address)?;
    println!("listening at {}", listener.local_addr()?);

    let server = Server::new();
    let interrupted = signal::notify(&[signal::INTERRUPT, signal::TERMINATE])?;
    let stopping = server.clone();
    let stopper = heist::go(move || {
        if interrupted.recv().is_ok() {
            println!("stopping");
            let left = stopping.shutdown(Duration::from_secs(5));
            println!("{} connections had to be cancelled", left.cancelled);
        }
    });
    server.serve(listener, |stream, address| {
        if let Err(error) = answer(stream) {
            eprintln!("{address}: {error}");
        }
    })?;
    // Serving ends when the stopper begins to stop.
    let _ = stopper.join();
    Ok(())
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    let mut buffer = [0; 8192];
    let mut filled = 0;
    loop {
        let n = match stream.read(&mut buffer[filled..]) {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(()),
            Err(error) => return Err(error),
        };
        if n == 0 {
            return Ok(());
        }
        filled += n;
        while let Some(head) = request_head(&buffer[..filled])? {
            stream.write_all(ANSWER)?;
            buffer.copy_within(head..filled, 0);
            filled -= head;
        }
        if filled == buffer.len() {
            return stream.write_all(b"HTTP/1.1 431 Request Header Fields Too Large\r\n\r\n");
        }
    }
}

/// The length of a complete request head at the start of `bytes`, if there is one.
fn request_head(bytes: &[u8]) -> io::Result<Option<usize>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    match httparse::Request::new(&mut headers).parse(bytes) {
        Ok(httparse::Status::Complete(head)) => Ok(Some(head)),
        Ok(httparse::Status::Partial) => Ok(None),
        Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
    }
}
