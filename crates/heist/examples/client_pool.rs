//! A pool of connections that many goroutines share, and requests that are given up: a request that
//! takes too long is cancelled, and its connection does not return to the pool half used.
//!
//! `cargo run --release -p heist --example client_pool`

use heist::chan::{self, Receiver, Sender};
use heist::net::{TcpListener, TcpStream};
use std::io::{self, BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_millis(200);

/// Connections that wait for work, and the right to make a number of them.
#[derive(Clone)]
struct Pool {
    address: SocketAddr,
    idle_in: Sender<Option<TcpStream>>,
    idle_out: Receiver<Option<TcpStream>>,
}

impl Pool {
    fn new(address: SocketAddr, size: usize) -> Self {
        let (idle_in, idle_out) = chan::bounded(size);
        for _ in 0..size {
            idle_in.send(None).expect("there is room");
        }
        Self { address, idle_in, idle_out }
    }

    fn ask(&self, question: u32) -> io::Result<String> {
        let idle = self.idle_out.recv().map_err(io::Error::other)?;
        // Only a holder of a place returns one.
        let mut place = Place { pool: self, stream: None };
        let stream = match idle {
            Some(stream) => stream,
            None => TcpStream::connect(self.address)?,
        };
        // A line is sent in pieces, and none should wait for the acknowledgement of the one before.
        stream.set_nodelay(true)?;
        writeln!(&stream, "{question}")?;
        let mut answer = String::new();
        BufReader::new(&stream).read_line(&mut answer)?;
        // Only a connection whose answer was read to its end can be used for another question.
        place.stream = Some(stream);
        Ok(answer)
    }
}

/// A place of the pool in use. It is returned with a connection, or without one if the goroutine
/// was cancelled or failed meanwhile.
struct Place<'a> {
    pool: &'a Pool,
    stream: Option<TcpStream>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // There is room for as many as there are places.
        let _ = self.pool.idle_in.try_send(self.stream.take());
    }
}

/// Answers quickly, except for every tenth question, which it never answers.
fn answer(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    for line in BufReader::new(stream).lines() {
        let question: u32 = line?.parse().map_err(io::Error::other)?;
        if question % 10 == 9 {
            heist::time::sleep(Duration::MAX);
        }
        writeln!(&*stream, "{question} squared is {}", question * question)?;
    }
    Ok(())
}

#[heist::main(unsafe)]
fn main() -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    heist::go(move || {
        for stream in listener.incoming().flatten() {
            // A client that gives up breaks its connection.
            heist::go(move || answer(&stream));
        }
    });

    let pool = Pool::new(address, 8);
    let questions: Vec<_> = (0..40)
        .map(|question| {
            let pool = pool.clone();
            heist::go(move || {
                let (tx, rx) = chan::bounded(1);
                let asking = heist::go(move || tx.send(pool.ask(question)));
                let answer = rx.recv_timeout(PATIENCE).ok();
                if answer.is_none() {
                    // It unwinds where it waits, and leaves its place in the pool to others.
                    asking.cancel();
                }
                answer
            })
        })
        .collect();
    let (mut answered, mut given_up) = (0, 0);
    for question in questions {
        match question.join().map_err(|error| io::Error::other(error.to_string()))? {
            Some(answer) => {
                print!("{}", answer?);
                answered += 1;
            }
            None => given_up += 1,
        }
    }
    println!("{answered} answered, {given_up} given up");
    Ok(())
}
