//! An HTTP/1.1 server that says hello, keeps connections alive, and stops gracefully on Ctrl-C.
//!
//! `cargo run --release -p heist --example http_server -- 127.0.0.1:8000`, then
//! `curl http://127.0.0.1:8000/`.

pub mod http1;

use heist::net::{Server, TcpListener, TcpStream};
use heist::signal;
use http1::{Request, Response};
use std::io::{self, ErrorKind};
use std::time::Duration;

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
        if let Err(error) = answer(&stream) {
            eprintln!("{address}: {error}");
        }
    })?;
    // Serving ends when the stopper begins to stop.
    let _ = stopper.join();
    Ok(())
}

fn answer(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    match http1::serve(stream, respond) {
        // Clients that go away without a word, or with one too many, are no news.
        Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::ConnectionReset) => {
            Ok(())
        }
        other => other,
    }
}

/// What this server has to say.
pub fn respond<'a>(request: &Request<'a>) -> Response<'a> {
    match (request.method, request.target) {
        ("GET" | "HEAD", "/") => Response::text(b"Hello, World!"),
        ("POST", "/echo") => Response::text(request.body),
        _ => Response { status: "404 Not Found", ..Response::text(b"there is nothing here\n") },
    }
}
