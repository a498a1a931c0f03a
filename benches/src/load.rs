//! The load generator for tcp_echo_*: one thread, one process, the same for every peer.
//!
//! Each connection keeps one message in flight: it sends, waits for the whole echo, notes
//! how long that took, sends again.

use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::time::{Duration, Instant};

use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use serde::{Deserialize, Serialize};

use crate::reading::{Figures, Outcome};
use crate::stats::quantile;
use crate::sys::{self, Who};

/// Names the program to run as the load generator, for peers that are not this program.
pub const PROGRAM_VARIABLE: &str = "HEIST_BENCH_LOAD";

const MESSAGE_BYTES: usize = 64;
const WARM_UP: Duration = Duration::from_millis(500);
const LENGTH: Duration = Duration::from_millis(2500);

#[derive(Clone, Debug)]
pub struct EchoLoad {
    address: SocketAddr,
    n_connections: usize,
}

/// The output of the generator for the process under load.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadResult {
    pub requests_per_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
    /// All requests, warm-up included, as the server's CPU time covers them all.
    pub n_requests: u64,
}

impl EchoLoad {
    pub fn new(address: SocketAddr, n_connections: usize) -> Self {
        Self { address, n_connections }
    }
}

/// Puts the server in this process under load and takes the server's CPU time.
pub fn measure(load: &EchoLoad) -> Outcome {
    let cpu_before = sys::cpu_time(Who::Myself);
    // A server that refuses or drops connections fails the measurement, as a lost message does.
    let result = run_elsewhere(load).unwrap_or_else(|why| panic!("{why}"));
    let cpu = sys::cpu_time(Who::Myself) - cpu_before;
    let cpu_us = cpu.as_secs_f64() * 1e6 / result.n_requests as f64;
    Ok(Figures::many(vec![result.requests_per_s, result.p50_us, result.p99_us, cpu_us]))
}

fn run_elsewhere(load: &EchoLoad) -> Result<LoadResult, String> {
    let program = std::env::var_os(PROGRAM_VARIABLE)
        .map_or_else(std::env::current_exe, |path| Ok(path.into()))
        .map_err(|e| format!("cannot find the load generator: {e}"))?;
    let output = Command::new(program)
        .args(["load", &load.address.to_string(), &load.n_connections.to_string()])
        .output()
        .map_err(|e| format!("cannot start the load generator: {e}"))?;
    if !output.status.success() {
        return Err(format!("load generator: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    serde_json::from_slice(&output.stdout).map_err(|e| format!("load generator: {e}"))
}

struct Connection {
    stream: TcpStream,
    sent_at: Instant,
    n_awaited: usize,
}

impl Connection {
    fn open(address: SocketAddr) -> io::Result<Self> {
        let stream = std::net::TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let stream = TcpStream::from_std(stream);
        Ok(Self { stream, sent_at: Instant::now(), n_awaited: 0 })
    }

    fn send(&mut self) -> io::Result<()> {
        self.sent_at = Instant::now();
        self.n_awaited = MESSAGE_BYTES;
        // With one small message in flight the socket buffer always has room.
        self.stream.write_all(&[b'x'; MESSAGE_BYTES])
    }

    /// Reads the available bytes; returns how long the round took when the echo is complete.
    fn receive(&mut self) -> io::Result<Option<Duration>> {
        let mut buffer = [0; MESSAGE_BYTES];
        while self.n_awaited > 0 {
            match self.stream.read(&mut buffer[..self.n_awaited]) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => self.n_awaited -= n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(Some(self.sent_at.elapsed()))
    }
}

/// Generates the load.
///
/// # Errors
/// The server refused or dropped a connection.
pub fn generate(address: SocketAddr, n_connections: usize) -> io::Result<LoadResult> {
    sys::raise_file_limit();
    let mut poll = Poll::new()?;
    let mut connections = Vec::with_capacity(n_connections);
    for index in 0..n_connections {
        let mut connection = Connection::open(address)?;
        poll.registry().register(&mut connection.stream, Token(index), Interest::READABLE)?;
        connections.push(connection);
    }
    for connection in &mut connections {
        connection.send()?;
    }
    let start = Instant::now();
    let (counting_from, end) = (start + WARM_UP, start + WARM_UP + LENGTH);
    let mut latencies_ns = Vec::with_capacity(1 << 20);
    let mut n_warm_up: u64 = 0;
    let mut events = Events::with_capacity(1024);
    loop {
        poll.poll(&mut events, Some(end.saturating_duration_since(Instant::now())))?;
        let now = Instant::now();
        if now >= end {
            break;
        }
        for event in &events {
            let connection = &mut connections[event.token().0];
            let Some(round) = connection.receive()? else {
                continue;
            };
            if now < counting_from {
                n_warm_up += 1;
            } else {
                latencies_ns.push(round.as_nanos() as u64);
            }
            connection.send()?;
        }
    }
    if latencies_ns.is_empty() {
        return Err(io::Error::new(ErrorKind::TimedOut, "no echo came back"));
    }
    let n_counted = latencies_ns.len() as u64;
    Ok(LoadResult {
        requests_per_s: n_counted as f64 / LENGTH.as_secs_f64(),
        p50_us: quantile(&mut latencies_ns, 0.5) as f64 / 1e3,
        p99_us: quantile(&mut latencies_ns, 0.99) as f64 / 1e3,
        n_requests: n_counted + n_warm_up,
    })
}
