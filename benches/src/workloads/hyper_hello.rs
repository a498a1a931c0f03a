//! The server of `http_hyper`, and of `http` for tokio: hyper on the sockets of a peer.

use std::convert::Infallible;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::rt::{Read, Write};
use hyper::{Request, Response};

use super::servers::HELLO;

/// Serves one connection.
pub async fn serve(stream: impl Read + Write + Unpin) {
    async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let mut response = Response::new(Full::new(Bytes::from_static(HELLO)));
        let text = HeaderValue::from_static("text/plain");
        response.headers_mut().insert(CONTENT_TYPE, text);
        Ok(response)
    }
    // A connection that breaks ends its task, as in any server.
    let _ = hyper::server::conn::http1::Builder::new()
        .serve_connection(stream, hyper::service::service_fn(hello))
        .await;
}
