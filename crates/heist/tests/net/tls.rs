//! TLS over our sockets, through rustls's blocking streams.

use crate::matrix;
use crate::wire;

use heist::net::TcpStream;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Instant;

type ServerStream = StreamOwned<ServerConnection, TcpStream>;
type ClientStream = StreamOwned<ClientConnection, TcpStream>;

/// Both ends of a connection. The first read or write makes the handshake.
fn pair() -> (ClientStream, ServerStream) {
    let certificate = CertificateDer::from(&include_bytes!("tls/certificate.der")[..]);
    let key = PrivatePkcs8KeyDer::from(&include_bytes!("tls/key.der")[..]);
    let server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![certificate.clone()], PrivateKeyDer::from(key))
        .expect("a certificate");
    let mut roots = RootCertStore::empty();
    roots.add(certificate).expect("a certificate");
    let client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = "localhost".try_into().expect("a name");
    let client = ClientConnection::new(Arc::new(client), name).expect("a client");
    let server = ServerConnection::new(Arc::new(server)).expect("a server");
    let (near, far) = wire::pair();
    (StreamOwned::new(client, near), StreamOwned::new(server, far))
}

#[test]
fn messages_and_large_transfers_arrive() {
    matrix::each_of(&matrix::cases_with(&[1, 2]), |_, rt| {
        rt.run(|| {
            const LARGE: usize = 1 << 20;
            let (mut client, mut server) = pair();
            let serving = heist::go(move || {
                let mut message = [0; 5];
                for _ in 0..50 {
                    server.read_exact(&mut message).expect("reads");
                    server.write_all(&message).expect("writes");
                }
                server.write_all(&vec![7; LARGE]).expect("writes");
                server.conn.send_close_notify();
                server.flush().expect("writes");
            });
            for _ in 0..50 {
                client.write_all(b"hello").expect("writes");
                let mut answer = [0; 5];
                client.read_exact(&mut answer).expect("reads");
                assert_eq!(&answer, b"hello");
            }
            let mut large = Vec::new();
            client.read_to_end(&mut large).expect("reads to the end");
            assert!(large.len() == LARGE && large.iter().all(|&byte| byte == 7));
            serving.join().expect("ends well");
        });
    });
}

/// A deadline of the socket ends a handshake that is not answered.
#[test]
fn a_handshake_has_a_deadline() {
    matrix::each_of(&matrix::cases_with(&[1]), |_, rt| {
        rt.run(|| {
            let (mut client, _silent) = pair();
            client.sock.set_deadline(Some(Instant::now())).expect("a deadline");
            assert_eq!(client.write(b"x").expect_err("late").kind(), ErrorKind::TimedOut);
        });
    });
}
