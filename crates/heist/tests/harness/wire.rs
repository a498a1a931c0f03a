//! Connections for tests.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use heist::JoinHandle;
use heist::net::{Server, TcpListener, TcpStream};
use std::io::{Read, Write};
use std::net::SocketAddr;

/// Both ends of a connection.
pub fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let near = TcpStream::connect(listener.local_addr().expect("an address")).expect("connects");
    let (far, _) = listener.accept().expect("accepts");
    (near, far)
}

/// An address that refuses connections: it is bound, and has no listener, as long as the socket
/// lives.
pub fn refusing() -> (socket2::Socket, SocketAddr) {
    let socket =
        socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).expect("a socket");
    let any: SocketAddr = ([127, 0, 0, 1], 0).into();
    socket.bind(&any.into()).expect("binds");
    let address = socket.local_addr().expect("bound").as_socket().expect("an address");
    (socket, address)
}

/// Sends back all data, until the end of the stream.
pub fn echo(mut stream: TcpStream) {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return,
            Ok(n) => {
                if stream.write_all(&buffer[..n]).is_err() {
                    return;
                }
            }
        }
    }
}

/// A server that echoes, on a goroutine per connection, until its listener is closed.
pub fn echo_server(listener: &TcpListener) {
    for stream in listener.incoming() {
        let stream = stream.expect("accepts");
        heist::go(move || echo(stream));
    }
}

/// The address of a server with that handler, the server, and the goroutine that runs it.
pub fn serve<H>(handle: H) -> (SocketAddr, Server, JoinHandle<std::io::Result<()>>)
where
    H: Fn(TcpStream, SocketAddr) + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let address = listener.local_addr().expect("an address");
    let server = Server::new();
    let serves = server.clone();
    (address, server, heist::go(move || serves.serve(listener, handle)))
}

/// Descriptors this process has.
pub fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("proc is mounted").count()
}
