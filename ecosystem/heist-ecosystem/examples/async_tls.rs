//! TLS in tasks: tokio-rustls over heist's sockets, without a runtime of tokio.
//!
//! ```console
//! cargo run --release --manifest-path ecosystem/Cargo.toml -p heist-ecosystem --example async_tls
//! ```
//!
//! It talks with itself. For goroutines there is rustls as it is:
//! `crates/heist/examples/tls_echo.rs`.

use heist::net::{TcpListener, TcpStream};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::AsyncBufReadExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt, BufReader};
use tokio_rustls::{TlsAcceptor, TlsConnector};

// For localhost, and for tests only.
static CERTIFICATE: &[u8] = include_bytes!("../../../crates/heist/tests/net/tls/certificate.der");
static KEY: &[u8] = include_bytes!("../../../crates/heist/tests/net/tls/key.der");

#[heist::main(unsafe)]
fn main() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = heist::spawn(echo(listener, acceptor()?));
    let answer = heist::block_on(ask(address, connector()?, "hello"))?;
    println!("{answer}");
    server.abort();
    Ok(())
}

/// The server's half of TLS.
///
/// # Errors
/// If the certificate and the key do not fit.
pub fn acceptor() -> Result<TlsAcceptor, rustls::Error> {
    let key = PrivatePkcs8KeyDer::from(KEY).into();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![CertificateDer::from(CERTIFICATE)], key)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

/// The client's half of TLS.
///
/// # Errors
/// If the certificate is none.
pub fn connector() -> Result<TlsConnector, rustls::Error> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(CERTIFICATE))?;
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// Sends every line back, each connection in a task of its own.
///
/// # Errors
/// If accepting fails.
pub async fn echo(listener: TcpListener, acceptor: TlsAcceptor) -> io::Result<()> {
    loop {
        let (stream, address) = listener.accept_async().await?;
        let acceptor = acceptor.clone();
        heist::spawn(async move {
            if let Err(error) = echo_lines(stream, acceptor).await {
                eprintln!("{address}: {error}");
            }
        });
    }
}

async fn echo_lines(stream: TcpStream, acceptor: TlsAcceptor) -> io::Result<()> {
    let mut stream = BufReader::new(acceptor.accept(stream).await?);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 0 {
        stream.write_all(line.as_bytes()).await?;
        stream.flush().await?;
        line.clear();
    }
    stream.shutdown().await
}

/// Sends a line and returns what comes back.
///
/// # Errors
/// If the connection fails or the certificate is refused.
pub async fn ask(address: SocketAddr, connector: TlsConnector, line: &str) -> io::Result<String> {
    let name = ServerName::try_from("localhost").map_err(io::Error::other)?;
    let stream = TcpStream::connect_async(address).await?;
    let mut stream = connector.connect(name, stream).await?;
    stream.write_all(format!("{line}\n").as_bytes()).await?;
    stream.flush().await?;
    stream.shutdown().await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.trim_end().to_owned())
}
