//! WebSockets with tungstenite in blocking style: a goroutine per connection.
//!
//! ```console
//! cargo run --release --manifest-path ecosystem/Cargo.toml -p heist-ecosystem \
//!     --example websocket -- 127.0.0.1:9001
//! ```
//!
//! Then connect with any client: every message comes back in capitals.

use heist::net::{Server, TcpListener, TcpStream};
use std::error::Error;
use std::io;
use std::time::Duration;
use tungstenite::{Error as WsError, Message, WebSocket};

/// How long a client may say nothing.
const IDLE: Duration = Duration::from_secs(60);

#[heist::main(unsafe)]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:9001".to_owned());
    let listener = TcpListener::bind(&address)?;
    println!("listening at ws://{}", listener.local_addr()?);
    Server::new().serve(listener, |stream, address| {
        if let Err(error) = shout(stream) {
            eprintln!("{address}: {error}");
        }
    })
}

/// Answers every text in capitals, until the client closes.
///
/// # Errors
/// If the client breaks off, breaks the rules or is silent for too long.
pub fn shout(stream: TcpStream) -> Result<(), Box<dyn Error>> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IDLE))?;
    let mut socket = tungstenite::accept(stream).map_err(|error| error.to_string())?;
    loop {
        match socket.read() {
            Ok(Message::Text(text)) => socket.send(Message::text(text.to_uppercase()))?,
            // Pings are answered by the library.
            Ok(_) => {}
            Err(WsError::ConnectionClosed) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
}

/// Connects a client to a server.
///
/// # Errors
/// If the server does not answer as a server of WebSockets.
pub fn connect(address: std::net::SocketAddr) -> Result<WebSocket<TcpStream>, Box<dyn Error>> {
    let stream = TcpStream::connect(address)?;
    let (socket, _) = tungstenite::client(format!("ws://{address}/"), stream)
        .map_err(|error| error.to_string())?;
    Ok(socket)
}
