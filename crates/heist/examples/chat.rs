//! A chat: every line of a guest is sent to all others. The room is a goroutine that owns the list
//! of guests and selects among everything that can happen, so nothing is shared and nothing is
//! locked.
//!
//! `cargo run --release -p heist --example chat -- 127.0.0.1:7002`, then several `nc 127.0.0.1
//! 7002`. Ctrl-C ends it with a word of farewell.

use heist::chan::{self, Receiver, Sender};
use heist::net::{Server, TcpListener, TcpStream};
use heist::signal::{self, Signals};
use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The number of lines that are kept for a guest that reads slowly. Further lines are dropped for
/// that guest: the room does not wait.
const PATIENCE: usize = 100;
/// The longest line, in bytes. A client that sends a longer one is disconnected.
const LINE_MAX: u64 = 4096;
/// How often the room says that it is still there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(60);

type Line = Arc<str>;

/// How guests talk to the room.
#[derive(Clone)]
struct Door {
    come: Sender<(SocketAddr, Sender<Line>)>,
    say: Sender<(SocketAddr, String)>,
    leave: Sender<SocketAddr>,
}

/// The events of the room.
struct Room {
    come: Receiver<(SocketAddr, Sender<Line>)>,
    say: Receiver<(SocketAddr, String)>,
    leave: Receiver<SocketAddr>,
    stop: Signals,
}

#[heist::main(unsafe)]
fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7002".to_owned());
    let listener = TcpListener::bind(&address)?;
    println!("listening at {}", listener.local_addr()?);
    let (come, comes) = chan::bounded(0);
    let (say, says) = chan::bounded(0);
    let (leave, leaves) = chan::bounded(0);
    let stop = signal::notify(&[signal::INTERRUPT])?;
    let room = Room { come: comes, say: says, leave: leaves, stop };
    let server = Server::new();
    let stopping = server.clone();
    let closing = heist::go(move || {
        room.open();
        stopping.shutdown(Duration::from_secs(1))
    });
    let door = Door { come, say, leave };
    server.serve(listener, move |stream, address| guest(stream, address, &door))?;
    // Serving ends when the room has closed.
    let _ = closing.join();
    Ok(())
}

impl Room {
    /// Until Ctrl-C is pressed.
    fn open(&self) {
        let mut guests: HashMap<SocketAddr, Sender<Line>> = HashMap::new();
        let clock = chan::tick(SIGN_OF_LIFE);
        loop {
            let stop = &*self.stop;
            let line: Line = heist::select! {
                recv(self.come) -> came => {
                    let Ok((who, lines)) = came else { return };
                    guests.insert(who, lines);
                    format!("* {who} came\n").into()
                }
                recv(self.say) -> said => {
                    let Ok((who, what)) = said else { return };
                    format!("{who}: {what}\n").into()
                }
                recv(self.leave) -> left => {
                    let Ok(who) = left else { return };
                    guests.remove(&who);
                    format!("* {who} left\n").into()
                }
                recv(clock) -> _ => format!("* {} are here\n", guests.len()).into(),
                recv(stop) -> _ => {
                    for lines in guests.values() {
                        let _ = lines.try_send("* the room closes\n".into());
                    }
                    return;
                }
            };
            for lines in guests.values() {
                let _ = lines.try_send(Arc::clone(&line));
            }
        }
    }
}

/// Reads the lines of a guest and writes the lines for it, each in its own loop. If the room has
/// closed, the connection is ended.
fn guest(stream: TcpStream, address: SocketAddr, door: &Door) {
    let (lines, to_write) = chan::bounded::<Line>(PATIENCE);
    let stream = Arc::new(stream);
    let writer = {
        let stream = Arc::clone(&stream);
        heist::go(move || {
            let written =
                to_write.iter().try_for_each(|line| (&*stream).write_all(line.as_bytes()));
            // The reader is woken and sees the end of the stream.
            let _ = stream.shutdown(std::net::Shutdown::Both);
            written
        })
    };
    if door.come.send((address, lines)).is_err() {
        return;
    }
    let mut reader = BufReader::new(&*stream);
    while let Some(line) = next_line(&mut reader) {
        if door.say.send((address, line)).is_err() {
            break;
        }
    }
    let _ = door.leave.send(address);
    // The room has dropped its end, or a write has failed.
    let _ = writer.join();
}

/// None at the end, and if the line is too long.
fn next_line(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    let n = reader.take(LINE_MAX).read_line(&mut line).ok()?;
    let is_whole = line.ends_with('\n') || (n as u64) < LINE_MAX;
    (n > 0 && is_whole).then(|| line.trim_end_matches(['\r', '\n']).to_owned())
}
