//! Very many connections: one after the other, at once, and more than there are descriptors for.
//!
//! `HEIST_STRESS_SECS` makes it a million and ten thousand, for as long as that takes; its number
//! should be the seconds that they may take.

use crate::child;
use crate::matrix;
use crate::wire;

use heist::net::{Server, TcpListener, TcpStream};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Where the partner of a test finds the address to connect to.
const SERVER: &str = "HEIST_TEST_SERVER";

/// Short connections, a million in the long run, leave no descriptor behind.
#[test]
fn short_connections_leave_nothing_behind() {
    let ended = child::run(|| {
        matrix::each_of(&matrix::cases_with(&[2])[..2], |case, rt| {
            let rounds: u64 = match (matrix::stress_time(), case.chaos) {
                (None, _) => 3000,
                (Some(_), None) => 1_000_000,
                (Some(_), Some(_)) => 50_000,
            };
            let listener = Arc::new(TcpListener::bind("127.0.0.1:0").expect("listens"));
            let address = listener.local_addr().expect("an address");
            let serving = Arc::clone(&listener);
            let server = rt.handle().spawn(move || wire::echo_server(&serving));
            matrix::eventually("the server waits", || heist::testing::poll_waiters(rt) == 1);
            let before = open_descriptors();
            rt.run(|| {
                let clients: Vec<_> = (0..8)
                    .map(|_| heist::go(move || (0..rounds / 8).for_each(|_| connect_once(address))))
                    .collect();
                for client in clients {
                    client.join().expect("ends well");
                }
            });
            matrix::eventually("the server's ends are closed", || open_descriptors() <= before);
            listener.close().expect("closes");
            server.join().expect("ends well");
            assert_eq!(heist::testing::poll_waiters(rt), 0);
        });
    });
    ended.succeeded();
}

/// Descriptors this process has, but for pipes: a thread of the runtime opens one when it is first
/// stopped by force, and keeps it.
fn open_descriptors() -> usize {
    let is_pipe = |link: &std::path::PathBuf| link.to_string_lossy().starts_with("pipe:");
    let entries = std::fs::read_dir("/proc/self/fd").expect("proc is mounted");
    // One that is closed meanwhile has no link.
    let links = entries.flatten().filter_map(|entry| entry.path().read_link().ok());
    links.filter(|link| !is_pipe(link)).count()
}

fn connect_once(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).expect("connects");
    // Without this every port would be in TIME_WAIT for a minute after its connection.
    stream.set_linger(Some(Duration::ZERO)).expect("an option");
    stream.write_all(b"ping").expect("writes");
    stream.read_exact(&mut [0; 4]).expect("reads");
}

/// An echo server on a goroutine, and its address.
fn echo_server() -> (SocketAddr, Server) {
    let (address, server, _) = wire::serve(|stream, _| wire::echo(stream));
    (address, server)
}

/// IN-21: hundreds of connections at once, ten thousand in the long run, as far as the limits go,
/// between two processes. That two threads never poll at the same time is checked by the poller
/// itself.
#[test]
fn many_connections_at_once() {
    if let Ok(server) = std::env::var(SERVER) {
        let (address, n) = server.split_once(' ').expect("two words");
        return connect_many(address.parse().expect("an address"), n.parse().expect("a number"));
    }
    let ended = child::run(|| {
        let wanted = if matrix::stress_time().is_some() { 10_000 } else { 400 };
        let n = wanted.min((child::descriptor_limit() as usize).saturating_sub(100));
        let rt = matrix::plain(2);
        let (address, server) = rt.run(echo_server);
        let mut clients = child::partner(SERVER, &format!("{address} {n}"));
        matrix::eventually("all are connected at once", || server.connections() == n);
        // They continue when their input ends: otherwise some would have ended before this thread
        // checks.
        drop(clients.stdin.take());
        assert!(clients.wait().expect("waits").success());
        matrix::eventually("all have left", || server.connections() == 0);
        assert_eq!(rt.run(move || server.shutdown(Duration::MAX)).cancelled, 0);
        assert_eq!(heist::testing::poll_waiters(&rt), 0);
    });
    ended.succeeded();
}

fn connect_many(address: SocketAddr, n: usize) {
    matrix::plain(2).run(|| {
        let (all, seen) = (heist::sync::WaitGroup::new(), heist::sync::WaitGroup::new());
        all.add(n);
        seen.add(1);
        let clients: Vec<_> = (0..n)
            .map(|i| {
                let (all, seen) = (all.clone(), seen.clone());
                heist::go(move || {
                    let mut stream = TcpStream::connect(address).expect("connects");
                    let message = (i as u64).to_le_bytes();
                    for round in 0..5 {
                        stream.write_all(&message).expect("writes");
                        let mut answer = [0; 8];
                        stream.read_exact(&mut answer).expect("reads");
                        assert_eq!(answer, message);
                        if round == 0 {
                            // All are connected before any of them continues.
                            all.done();
                            all.wait();
                            seen.wait();
                        }
                    }
                })
            })
            .collect();
        let server_has_seen = || std::io::stdin().read_to_end(&mut Vec::new());
        heist::blocking(server_has_seen).expect("the end of the input");
        seen.done();
        for client in clients {
            client.join().expect("ends well");
        }
    });
}

/// A server that may have fewer descriptors than it has clients serves all of them, some later, and
/// reports once that it had to wait.
#[test]
fn more_clients_than_descriptors_are_served() {
    const DESCRIPTORS: u32 = 150;
    const CLIENTS: usize = 220;
    if let Ok(address) = std::env::var(SERVER) {
        let address: SocketAddr = address.parse().expect("an address");
        // All are connected, as far as they can know, before the first one is done.
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| TcpStream::connect(address).expect("connects")).collect();
        for mut client in clients {
            client.write_all(b"ping").expect("writes");
            client.read_exact(&mut [0; 4]).expect("reads");
        }
        return;
    }
    let ended = child::run_with_descriptors(DESCRIPTORS, || {
        assert_eq!(child::descriptor_limit(), DESCRIPTORS.into());
        let rt = matrix::plain(2);
        let (address, server) = rt.run(echo_server);
        let mut clients = child::partner(SERVER, &address.to_string());
        assert!(clients.wait().expect("waits").success());
        matrix::eventually("all have left", || server.connections() == 0);
        assert_eq!(rt.run(move || server.shutdown(Duration::MAX)).cancelled, 0);
    });
    ended.succeeded();
    let said = ended.stderr.matches("cannot accept connections for now").count();
    assert_eq!(said, 1, "{}", ended.stderr);
}
