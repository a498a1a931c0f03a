//! The examples give the right answers, over real sockets and with real servers.
//!
//! The servers are started by ci/ecosystem, which says where they are in `ECOSYSTEM_POSTGRES` and
//! `ECOSYSTEM_REDIS`. Tests that need one print SKIPPED without it.

mod cluster;
mod databases;
mod fetch;
mod grpc;
mod http_server;
mod notes;
mod streams;

use heist::context::{self, Canceller};
use heist::net::TcpListener;
use heist_ecosystem::serve::{Left, Limits, serve};
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use std::error::Error;
use std::io;
use std::net::SocketAddr;

/// A server that runs until it is stopped or dropped.
struct Serving {
    address: SocketAddr,
    canceller: Canceller,
    handle: heist::JoinHandle<io::Result<Left>>,
}

impl Serving {
    fn start<S, B>(service: S, limits: Limits) -> Self
    where
        S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send + 'static,
        S::Error: Into<Box<dyn Error + Send + Sync>>,
        B: Body<Data: Send, Error: Into<Box<dyn Error + Send + Sync>>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, canceller) = context::background().with_cancel();
        let handle = heist::go(move || serve(listener, service, &limits, &stop));
        Self { address, canceller, handle }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    fn stop(self) -> Left {
        self.canceller.cancel();
        self.handle.join().unwrap().unwrap()
    }
}

/// Where a server is, from the environment.
fn server(variable: &str, test: &str) -> Option<String> {
    let found = std::env::var(variable).ok();
    if found.is_none() {
        eprintln!("SKIPPED: {test}: {variable} is not set, ci/ecosystem sets it");
    }
    found
}
