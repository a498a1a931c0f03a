//! An HTTP server to start from: hyper on heist, with limits, timeouts and a graceful stop on
//! Ctrl-C.
//!
//! ```console
//! cargo run --release --manifest-path ecosystem/Cargo.toml -p heist-ecosystem \
//!     --example http_server -- 127.0.0.1:8000
//! ```
//!
//! Then `curl http://127.0.0.1:8000/` or `curl --data hello http://127.0.0.1:8000/echo`.
//!
//! The accept loop and the limits of connections are in `src/serve`; those of a request are here.

use bytes::Bytes;
use heist::net::TcpListener;
use heist::{context, signal};
use heist_ecosystem::serve::{Limits, serve, within};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::Body;
use hyper::service::service_fn;
use std::convert::Infallible;
use std::error::Error;
use std::io;
use std::time::Duration;

/// The longest body of a request, in bytes.
const BODY_MAX: usize = 1 << 20;
/// How long a request may take, from its head to the answer.
const SLOW: Duration = Duration::from_secs(20);

#[heist::main(unsafe)]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8000".to_owned());
    let listener = TcpListener::bind(&address)?;
    println!("listening at {}", listener.local_addr()?);

    let (stop, canceller) = context::background().with_cancel();
    let interrupted = signal::notify(&[signal::INTERRUPT, signal::TERMINATE])?;
    heist::go(move || {
        if interrupted.recv().is_err() {
            return;
        }
        println!("stopping; once more to end at once");
        canceller.cancel();
        if interrupted.recv().is_ok() {
            std::process::exit(130);
        }
    });
    let left = serve(listener, service_fn(answer), &Limits::default(), &stop)?;
    println!("{} connections were cut off", left.cut_off);
    Ok(())
}

/// Answers a request, or says what is wrong with it.
pub async fn answer<B>(request: Request<B>) -> Result<Response<Full<Bytes>>, Infallible>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    let answered = within(SLOW, respond(request)).await;
    Ok(answered.unwrap_or_else(|| text(StatusCode::REQUEST_TIMEOUT, "too slow\n")))
}

async fn respond<B>(request: Request<B>) -> Response<Full<Bytes>>
where
    B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>>,
{
    match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/") => text(StatusCode::OK, "Hello, World!"),
        (&Method::POST, "/echo") => {
            match Limited::new(request.into_body(), BODY_MAX).collect().await {
                Ok(body) => text(StatusCode::OK, body.to_bytes()),
                Err(error) if error.is::<LengthLimitError>() => {
                    text(StatusCode::PAYLOAD_TOO_LARGE, "at most 1 MiB\n")
                }
                Err(_) => text(StatusCode::BAD_REQUEST, "the body is cut off\n"),
            }
        }
        // The answer blocks its thread. heist gives the processor to other tasks meanwhile.
        (&Method::GET, "/load") => match std::fs::read_to_string("/proc/loadavg") {
            Ok(load) => text(StatusCode::OK, load),
            Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        },
        _ => text(StatusCode::NOT_FOUND, "there is nothing here\n"),
    }
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response
}
