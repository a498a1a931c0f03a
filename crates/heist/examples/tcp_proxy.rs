//! A TCP proxy: each direction is a loop on a goroutine, and a connection on which nothing moves
//! for a while is closed.
//!
//! `cargo run --release -p heist --example tcp_proxy -- 127.0.0.1:7001 127.0.0.1:7000`

use heist::net::{Server, TcpListener, TcpStream};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CONNECT: Duration = Duration::from_secs(5);
const IDLE: Duration = Duration::from_secs(30);

#[heist::main(unsafe)]
fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(from), Some(to)) = (args.next(), args.next()) else {
        return Err(io::Error::other("usage: tcp_proxy LISTEN-ADDRESS TARGET-ADDRESS"));
    };
    let listener = TcpListener::bind(&from)?;
    println!("listening at {}, passing on to {to}", listener.local_addr()?);
    // It pauses while there are no descriptors left, and then continues.
    Server::new().serve(listener, move |client, address| {
        if let Err(error) = connect_both(client, &to) {
            eprintln!("{address}: {error}");
        }
    })
}

fn connect_both(client: TcpStream, to: &str) -> io::Result<()> {
    let server = TcpStream::connect_deadline(to, Instant::now() + CONNECT)?;
    let (client, server) = (Arc::new(client), Arc::new(server));
    let answers = {
        let (client, server) = (Arc::clone(&client), Arc::clone(&server));
        heist::go(move || pump(&server, &client))
    };
    let asked = pump(&client, &server);
    let answered = answers.join().map_err(|error| io::Error::other(error.to_string()))?;
    asked.and(answered)
}

/// Forwards the data of `from` until it ends, and then shuts down the writing side of `to`.
fn pump(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let mut buffer = [0; 16 * 1024];
    loop {
        // Data in either direction shows that the connection is in use.
        let until = Some(Instant::now() + IDLE);
        from.set_deadline(until)?;
        to.set_deadline(until)?;
        let n = from.read(&mut buffer)?;
        if n == 0 {
            return to.shutdown(Shutdown::Write);
        }
        to.write_all(&buffer[..n])?;
    }
}
