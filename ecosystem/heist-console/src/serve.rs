//! The thread of the gRPC server.

use crate::service::Service;
use crate::shared::Shared;
use console_api::instrument::instrument_server::InstrumentServer;
use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::oneshot;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;

/// Requests of one connection at a time. tokio-console has three.
const REQUESTS_MAX: u32 = 32;
/// When a connection that says nothing is asked whether it is there, and how long it may take.
const KEEPALIVE: (Duration, Duration) = (Duration::from_secs(20), Duration::from_secs(10));
/// How long the connections have when the server stops.
const FAREWELL: Duration = Duration::from_millis(100);

/// Starts the thread. It ends when `stopped` is told or dropped.
pub(crate) fn start(
    listener: TcpListener,
    shared: Arc<Shared>,
    stopped: oneshot::Receiver<()>,
) -> io::Result<JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    // One thread: tokio makes no other, because nothing here asks it to block.
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    thread::Builder::new().name("console-serve".to_owned()).spawn(move || {
        let _bystander = heist::debug::bystander();
        runtime.block_on(async {
            tokio::select! {
                () = serve(listener, shared) => {}
                _ = stopped => {}
            }
        });
        runtime.shutdown_timeout(FAREWELL);
    })
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else { return };
    let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
    let server = Server::builder()
        .max_concurrent_streams(REQUESTS_MAX)
        .http2_keepalive_interval(Some(KEEPALIVE.0))
        .http2_keepalive_timeout(Some(KEEPALIVE.1))
        .add_service(InstrumentServer::new(Service::new(shared)));
    // It ends with an error of the listening socket only.
    let _ = server.serve_with_incoming(incoming).await;
}
