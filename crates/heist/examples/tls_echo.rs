//! TLS on goroutines: rustls's blocking streams work on our sockets as they are.
//!
//! Both ends are in this program, with a certificate for tests only: `cargo run --release -p heist
//! --example tls_echo`.
//!
//! With an address it is only the server: `cargo run --release -p heist --example tls_echo --
//! 127.0.0.1:7003`, then `openssl s_client -quiet -connect 127.0.0.1:7003`.

use heist::net::{TcpListener, TcpStream};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::sync::Arc;

static CERTIFICATE: &[u8] = include_bytes!("../tests/net/tls/certificate.der");
static KEY: &[u8] = include_bytes!("../tests/net/tls/key.der");

type AnyError = Box<dyn Error + Send + Sync>;

#[heist::main(unsafe)]
fn main() -> Result<(), AnyError> {
    let certificate = CertificateDer::from(CERTIFICATE);
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(KEY));
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], key)?;
    let config = Arc::new(config);

    let Some(address) = std::env::args().nth(1) else { return both_ends(config, certificate) };
    let listener = TcpListener::bind(&address)?;
    println!("listening at {}", listener.local_addr()?);
    for stream in listener.incoming().flatten() {
        let config = Arc::clone(&config);
        heist::go(move || {
            if let Err(error) = shout(stream, config) {
                eprintln!("a connection broke: {error}");
            }
        });
    }
    Ok(())
}

/// A server for one connection, and a client that says three words to it.
fn both_ends(
    config: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
) -> Result<(), AnyError> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = heist::go(move || shout(listener.accept()?.0, config));

    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), "localhost".try_into()?)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, TcpStream::connect(address)?));
    for word in ["over", "and", "out"] {
        writeln!(stream.get_mut(), "{word}")?;
        let mut line = String::new();
        stream.read_line(&mut line)?;
        print!("{line}");
    }
    // A connection that just ends could have been cut off: TLS requires a closing message.
    stream.get_mut().conn.send_close_notify();
    stream.get_mut().flush()?;
    server.join().map_err(|error| error.to_string())?
}

/// Answers every line with itself in capitals.
fn shout(stream: TcpStream, config: Arc<ServerConfig>) -> Result<(), AnyError> {
    let connection = ServerConnection::new(config)?;
    let mut stream = BufReader::new(StreamOwned::new(connection, stream));
    let mut line = String::new();
    while stream.read_line(&mut line)? != 0 {
        stream.get_mut().write_all(line.to_uppercase().as_bytes())?;
        line.clear();
    }
    stream.get_mut().conn.send_close_notify();
    stream.get_mut().flush()?;
    Ok(())
}
