//! An HTTP/1.1 server that says hello, keeps connections alive, and stops gracefully on Ctrl-C.
//!
//! `cargo run --release -p heist --example http_server -- 127.0.0.1:8000`, then
//! `curl http://127.0.0.1:8000/`.

pub mod http1;

use heist::context::Context;
use heist::net::{Server, TcpListener, TcpStream};
use heist::signal;
use http1::{Connection, Request, Response, Waiting};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a connection may say nothing.
const IDLE: Duration = Duration::from_secs(60);
/// How long a request may take from its first byte to its last, and one write of an answer.
const SLOW: Duration = Duration::from_secs(20);

#[heist::main(unsafe)]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8000".to_owned());
    let listener = TcpListener::bind(&address)?;
    println!("listening at {}", listener.local_addr()?);

    let server = Server::new();
    let interrupted = signal::notify(&[signal::INTERRUPT, signal::TERMINATE])?;
    let stopping = server.clone();
    let stopper = heist::go(move || {
        if interrupted.recv().is_err() {
            return;
        }
        println!("stopping; once more to end at once");
        heist::go(move || {
            if interrupted.recv().is_ok() {
                std::process::exit(130);
            }
        });
        let left = stopping.shutdown(Duration::from_secs(5));
        println!("{} connections had to be cancelled", left.cancelled);
    });
    let running = server.context();
    server.serve(listener, move |stream, address| answer(stream, address, &running))?;
    // Serving ends when the stopper begins to stop.
    let _ = stopper.join();
    Ok(())
}

fn answer(stream: TcpStream, address: SocketAddr, running: &Context) {
    match Client::new(stream, running).and_then(|client| client.serve()) {
        Ok(()) => {}
        // Clients that go away without a word, or with one too many, are no news.
        Err(error) if matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::ConnectionReset) => {}
        Err(error) => eprintln!("{address}: {error}"),
    }
}

/// A client, with the limits of the server: it must be quick, and its connection ends when the
/// server stops.
pub struct Client {
    shared: Arc<Shared>,
    running: Context,
}

struct Shared {
    stream: TcpStream,
    /// Nothing of a request has come: the connection may be ended without a loss.
    is_idle: AtomicBool,
}

impl Client {
    /// # Errors
    /// If the stream is closed.
    pub fn new(stream: TcpStream, running: &Context) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(SLOW))?;
        let shared = Arc::new(Shared { stream, is_idle: AtomicBool::new(false) });
        Ok(Self { shared, running: running.clone() })
    }

    /// Serves until the client closes the connection or is too slow, or the server stops.
    ///
    /// # Errors
    /// The errors of the stream.
    pub fn serve(self) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let hang_up = self.running.after_func(move || {
            // ORDERING: SeqCst, as in `before_read`: either this sees that it is idle, or that one
            // sees that the server stops.
            if shared.is_idle.load(Ordering::SeqCst) {
                let _ = shared.stream.set_read_deadline(Some(Instant::now()));
            }
        });
        let served = http1::serve(self, respond);
        hang_up.stop();
        served
    }
}

impl Connection for Client {
    fn before_read(&mut self, waiting: Waiting) -> io::Result<()> {
        let Shared { stream, is_idle } = &*self.shared;
        // ORDERING: SeqCst: see `serve`.
        is_idle.store(waiting == Waiting::ForRequest, Ordering::SeqCst);
        let deadline = match waiting {
            Waiting::ForRequest => Instant::now() + IDLE,
            Waiting::ForRest(began) => began + SLOW,
        };
        stream.set_read_deadline(Some(deadline))?;
        if waiting == Waiting::ForRequest && self.is_ending() {
            // It may have begun to stop before this set the deadline.
            stream.set_read_deadline(Some(Instant::now()))?;
        }
        Ok(())
    }

    fn is_ending(&self) -> bool {
        self.running.is_cancelled()
    }
}

impl Read for Client {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&self.shared.stream).read(buf)
    }
}

impl Write for Client {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&self.shared.stream).write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        (&self.shared.stream).flush()
    }
}

/// The answers of this server.
pub fn respond<'a>(request: &Request<'a>) -> Response<'a> {
    match (request.method, request.target) {
        ("GET" | "HEAD", "/") => Response::text(b"Hello, World!"),
        ("POST", "/echo") => Response::text(request.body),
        _ => Response { status: "404 Not Found", ..Response::text(b"there is nothing here\n") },
    }
}
