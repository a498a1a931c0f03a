//! A server that sends back all data that it receives: a goroutine per connection.
//!
//! `cargo run --release -p heist --example echo_server -- 127.0.0.1:7000`, then `nc 127.0.0.1
//! 7000`.

use heist::net::{Server, TcpListener, TcpStream};
use std::io::{self, Read, Write};

#[heist::main(unsafe)]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let listener = TcpListener::bind(&address)?;
    println!("listening at {}", listener.local_addr()?);
    // It pauses while there are no descriptors left, and then continues.
    Server::new().serve(listener, |stream, address| {
        if let Err(error) = echo(stream) {
            eprintln!("{address}: {error}");
        }
    })
}

/// Sends back all data, until the end of the stream.
pub fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..n])?;
    }
}
