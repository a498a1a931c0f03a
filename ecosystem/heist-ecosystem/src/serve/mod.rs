//! A listener whose connections hyper serves, HTTP/1 and HTTP/2, each in a task.
//!
//! A request may be answered by anything that is a `Service` of hyper: a function (`service_fn`),
//! an axum `Router` or a tonic service (`hyper_util::service::TowerToHyperService`).

mod first_bytes;

use first_bytes::FirstBytes;
use heist::context::Context;
use heist::hyper::{Executor, Timer};
use heist::net::{self, TcpListener, TcpStream};
use heist::sync::Semaphore;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::GracefulShutdown;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// How long accepting pauses when there is no descriptor left.
const PAUSE: Duration = Duration::from_millis(20);
/// "Too many open files", in the process and in the system.
const EMFILE: i32 = 24;
const ENFILE: i32 = 23;

/// What a client may cost.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at the same time. Further ones wait in the system's queue.
    pub connections: usize,
    /// How long a connection may be silent before a request, and a request's head may take.
    pub head: Duration,
    /// Headers of a request.
    pub headers: usize,
    /// How much of a connection is buffered, and so the longest head, in bytes.
    pub buffer: usize,
    /// Requests at the same time on one connection, HTTP/2 only.
    pub streams: u32,
    /// How long requests may take that run when the server stops.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            head: Duration::from_secs(30),
            headers: 100,
            buffer: 64 << 10,
            streams: 200,
            grace: Duration::from_secs(10),
        }
    }
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// Connections that had a request when the grace period was over. They were cut off.
    pub cut_off: usize,
}

/// Serves until the context is done. Then it accepts nothing more, ends idle connections, and lets
/// running requests finish for as long as the grace period lasts.
///
/// # Errors
/// If accepting fails for another reason than the lack of descriptors.
pub fn serve<S, B>(
    listener: TcpListener,
    service: S,
    limits: &Limits,
    stop: &Context,
) -> io::Result<Left>
where
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send + 'static,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
{
    let http = builder(limits);
    let graceful = GracefulShutdown::new();
    let room = Arc::new(Semaphore::new(limits.connections));
    let (running, cut) = heist::context::background().with_cancel();
    let bound = stop.bind(&listener);
    while let Ok(permit) = room.acquire_owned_context(stop, 1) {
        let stream = match accept(&listener) {
            Ok(stream) => stream,
            Err(error) if net::context_error(&error).is_some() => break,
            Err(error) => return Err(error),
        };
        let stream = FirstBytes::new(stream, limits.head);
        let connection = http.serve_connection_with_upgrades(stream, service.clone());
        let served = graceful.watch(connection.into_owned());
        let running = running.clone();
        heist::spawn(async move {
            // A client that breaks off or breaks the rules is no news.
            let _ = either(served, running.cancelled()).await;
            drop(permit);
        });
    }
    drop(bound);
    drop(listener);
    let finished = heist::block_on(within(limits.grace, graceful.shutdown()));
    let cut_off = if finished.is_some() { 0 } else { limits.connections - room.available() };
    cut.cancel();
    // Until every connection is closed.
    let _ = room.acquire(limits.connections);
    Ok(Left { cut_off })
}

fn builder(limits: &Limits) -> auto::Builder<Executor> {
    let mut http = auto::Builder::new(Executor);
    http.http1()
        .timer(Timer)
        .header_read_timeout(limits.head)
        .max_headers(limits.headers)
        .max_buf_size(limits.buffer);
    http.http2()
        .timer(Timer)
        .keep_alive_interval(limits.head)
        .max_concurrent_streams(limits.streams)
        .max_header_list_size(u32::try_from(limits.buffer).unwrap_or(u32::MAX));
    http
}

/// Accepts a connection. Waits if there is no descriptor left: others will end.
fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                // One that has ended already is seen by its first read.
                let _ = stream.set_nodelay(true);
                return Ok(stream);
            }
            Err(error) if matches!(error.raw_os_error(), Some(EMFILE | ENFILE)) => {
                heist::time::sleep(PAUSE);
            }
            Err(error) => return Err(error),
        }
    }
}

/// The result of a future, or None when the time is over.
pub async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    either(future, heist::time::sleep_async(limit)).await
}

/// The result of a future, or None when the other one ends first.
async fn either<F: Future>(future: F, other: impl Future) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut other = pin!(other);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(result) => Poll::Ready(Some(result)),
        Poll::Pending => other.as_mut().poll(cx).map(|_| None),
    })
    .await
}
