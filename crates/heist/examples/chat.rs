//! A chat: what one says, all others hear. The room is a goroutine that owns the list of guests; it
//! is told everything through a channel, so nothing is shared and nothing is locked.
//!
//! `cargo run --release --example chat -- 127.0.0.1:7002`, then several `nc 127.0.0.1 7002`.

use heist::chan::{self, Receiver, Sender};
use heist::net::{TcpListener, TcpStream};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::sync::Arc;

/// Lines that wait for a guest who reads slowly. More are lost for that one: nobody waits for him.
const PATIENCE: usize = 100;

type Line = Arc<str>;

enum Event {
    Came(SocketAddr, Sender<Line>),
    Said(SocketAddr, String),
    Left(SocketAddr),
}

#[heist::main(unsafe)]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7002".to_owned());
    let listener = TcpListener::bind(&address)?;
    println!("listening at {}", listener.local_addr()?);
    let (tell_room, events) = chan::unbounded();
    heist::go(move || room(&events));
    loop {
        let (stream, address) = listener.accept()?;
        let tell_room = tell_room.clone();
        heist::go(move || guest(stream, address, &tell_room));
    }
}

fn room(events: &Receiver<Event>) {
    let mut guests = HashMap::new();
    for event in events {
        let line: Line = match event {
            Event::Came(who, lines) => {
                guests.insert(who, lines);
                format!("* {who} came\n").into()
            }
            Event::Said(who, what) => format!("{who}: {what}\n").into(),
            Event::Left(who) => {
                guests.remove(&who);
                format!("* {who} left\n").into()
            }
        };
        for lines in guests.values() {
            let _ = lines.try_send(Arc::clone(&line));
        }
    }
}

fn guest(stream: TcpStream, address: SocketAddr, tell_room: &Sender<Event>) {
    let (lines, to_write) = chan::bounded::<Line>(PATIENCE);
    let stream = Arc::new(stream);
    let writer = {
        let stream = Arc::clone(&stream);
        heist::go(move || {
            to_write.iter().try_for_each(|line| (&*stream).write_all(line.as_bytes()))
        })
    };
    // The room outlives all guests.
    let _ = tell_room.send(Event::Came(address, lines));
    for line in BufReader::new(&*stream).lines() {
        let Ok(line) = line else { break };
        let _ = tell_room.send(Event::Said(address, line));
    }
    let _ = tell_room.send(Event::Left(address));
    // The room has dropped its end, or a write has failed.
    let _ = writer.join();
}
