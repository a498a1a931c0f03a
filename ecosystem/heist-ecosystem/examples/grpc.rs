//! A gRPC service and its client with tonic, both on heist, without a runtime of tokio.
//!
//! ```console
//! cargo run --release --manifest-path ecosystem/Cargo.toml -p heist-ecosystem --example grpc
//! ```
//!
//! It asks its own server.
//!
//! tonic's `transport` is tied to tokio. Its codecs and services are not: here hyper serves them,
//! and hyper-util's client calls them. The messages are written by hand; those that
//! `tonic-prost-build` makes from a `.proto` file look the same.

use futures_core::Stream;
use heist::chan;
use heist::net::TcpListener;
use heist_ecosystem::client::{self, Connector};
use heist_ecosystem::serve::{Limits, serve};
use hyper_util::client::legacy::Client;
use hyper_util::service::TowerToHyperService;
use std::convert::Infallible;
use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll};
use tonic::body::Body;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::codegen::http::{Request as HttpRequest, Response as HttpResponse, Uri};
use tonic::server::{ServerStreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower_service::Service;

/// Two numbers.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Pair {
    /// The first.
    #[prost(int64, tag = "1")]
    pub left: i64,
    /// The second.
    #[prost(int64, tag = "2")]
    pub right: i64,
}

/// One number.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Number {
    /// The number.
    #[prost(int64, tag = "1")]
    pub value: i64,
}

#[heist::main(unsafe)]
fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let (stop, canceller) = heist::context::background().with_cancel();
    let server = heist::go(move || {
        serve(listener, TowerToHyperService::new(Sums), &Limits::default(), &stop)
    });

    let sums = SumsClient::new(format!("http://{address}").parse()?);
    println!("2 + 3 = {}", heist::block_on(sums.add(2, 3))?);
    println!("from 1 to 9: {:?}", heist::block_on(sums.count(1, 9))?);

    canceller.cancel();
    server.join().unwrap()?;
    Ok(())
}

type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// The service `sums.Sums`: what a generator makes of a trait.
#[derive(Clone, Copy, Debug)]
pub struct Sums;

impl Service<HttpRequest<hyper::body::Incoming>> for Sums {
    type Response = HttpResponse<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest<hyper::body::Incoming>) -> Self::Future {
        Box::pin(async move {
            let path = request.uri().path();
            Ok(match path {
                "/sums.Sums/Add" => {
                    tonic::server::Grpc::new(ProstCodec::default()).unary(Add, request).await
                }
                "/sums.Sums/Count" => {
                    let mut grpc = tonic::server::Grpc::new(ProstCodec::default());
                    grpc.server_streaming(Count, request).await
                }
                _ => Status::unimplemented(format!("{path} is no method")).into_http(),
            })
        })
    }
}

struct Add;

impl UnaryService<Pair> for Add {
    type Response = Number;
    type Future = BoxFuture<Result<Response<Number>, Status>>;

    fn call(&mut self, request: Request<Pair>) -> Self::Future {
        let Pair { left, right } = request.into_inner();
        Box::pin(async move {
            match left.checked_add(right) {
                Some(value) => Ok(Response::new(Number { value })),
                None => Err(Status::out_of_range("the sum has more than 64 bits")),
            }
        })
    }
}

struct Count;

impl ServerStreamingService<Pair> for Count {
    type Response = Number;
    type ResponseStream = Pin<Box<dyn Stream<Item = Result<Number, Status>> + Send>>;
    type Future = BoxFuture<Result<Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: Request<Pair>) -> Self::Future {
        let Pair { left, right } = request.into_inner();
        Box::pin(async move {
            let (tx, rx) = chan::bounded(4);
            // A goroutine in blocking style makes the answers. The client slows it down, and ends
            // it by going away.
            heist::go(move || {
                for value in left..=right {
                    if tx.send(Ok(Number { value })).is_err() {
                        return;
                    }
                }
            });
            let stream: Self::ResponseStream = Box::pin(rx.into_stream());
            Ok(Response::new(stream))
        })
    }
}

/// A client of the service.
#[derive(Clone, Debug)]
pub struct SumsClient {
    grpc: tonic::client::Grpc<Client<Connector, Body>>,
}

impl SumsClient {
    /// A client of the server at `http://host:port`.
    #[must_use]
    pub fn new(origin: Uri) -> Self {
        Self { grpc: tonic::client::Grpc::with_origin(client::http2(), origin) }
    }

    /// The sum of two numbers.
    ///
    /// # Errors
    /// `OutOfRange` if it has more than 64 bits, and the errors of the connection.
    pub async fn add(&self, left: i64, right: i64) -> Result<i64, Status> {
        let mut grpc = self.grpc.clone();
        let path = PathAndQuery::from_static("/sums.Sums/Add");
        let codec: ProstCodec<Pair, Number> = ProstCodec::default();
        let answer = grpc.unary(Request::new(Pair { left, right }), path, codec).await?;
        Ok(answer.into_inner().value)
    }

    /// The numbers from one to another, in a stream.
    ///
    /// # Errors
    /// The errors of the connection.
    pub async fn count(&self, left: i64, right: i64) -> Result<Vec<i64>, Status> {
        let mut grpc = self.grpc.clone();
        let path = PathAndQuery::from_static("/sums.Sums/Count");
        let codec: ProstCodec<Pair, Number> = ProstCodec::default();
        let answer = grpc.server_streaming(Request::new(Pair { left, right }), path, codec).await?;
        let mut stream: Streaming<Number> = answer.into_inner();
        let mut values = Vec::new();
        while let Some(number) = poll_fn(|cx| Pin::new(&mut stream).poll_next(cx)).await {
            values.push(number?.value);
        }
        Ok(values)
    }
}
