//! A server at the limits of the system: it refuses connections that it cannot serve, and
//! continues.

use crate::limited;

use heist::net::{Server, TcpListener, TcpStream};
use heist::{JoinHandle, Runtime};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

type Serving = JoinHandle<io::Result<()>>;

/// Echoes single bytes until the client has closed.
fn start(server: &Server) -> (SocketAddr, Serving) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("there is a port");
    let address = listener.local_addr().expect("it is bound");
    let server = server.clone();
    let serving = heist::go(move || {
        server.serve(listener, |mut stream, _| {
            let mut byte = [0];
            while stream.read_exact(&mut byte).is_ok() && stream.write_all(&byte).is_ok() {}
        })
    });
    (address, serving)
}

/// Whether a connection is served.
fn is_served(stream: &mut TcpStream) -> bool {
    let mut byte = [0];
    stream.write_all(b"x").is_ok() && stream.read_exact(&mut byte).is_ok()
}

fn end(server: &Server, serving: Serving) {
    assert!(!serving.is_finished(), "it still serves");
    server.shutdown(Duration::from_secs(30));
    serving.join().expect("it does not panic").expect("it ends without an error");
}

/// A connection beyond the limit is closed at once; when another has ended, there is room again.
#[test]
fn a_connection_beyond_the_limit_is_refused() {
    let rt = limited::build(Runtime::builder().procs(2));
    rt.run(|| {
        let server = Server::new().max_connections(3);
        let (address, serving) = start(&server);
        let mut streams: Vec<_> = (0..3)
            .map(|_| {
                let mut stream = TcpStream::connect(address).expect("it is accepted");
                assert!(is_served(&mut stream));
                stream
            })
            .collect();
        for n in 1..=5 {
            let mut stream = TcpStream::connect(address).expect("it is accepted");
            assert!(!is_served(&mut stream), "it is one too many");
            assert_eq!(server.refused(), n);
        }
        assert_eq!(server.connections(), 3);
        drop(streams.pop());
        while server.connections() == 3 {
            heist::time::sleep(Duration::from_millis(1));
        }
        let mut stream = TcpStream::connect(address).expect("it is accepted");
        assert!(is_served(&mut stream), "there is room again");
        drop((stream, streams));
        end(&server, serving);
    });
    assert_eq!(rt.metrics().get("/heist/net/refused:connections"), Some(5));
}

/// While there is no memory for another goroutine, connections are refused; afterwards they are
/// served.
#[test]
fn a_connection_without_memory_is_refused() {
    let ended = limited::run(0, |_| {
        let rt = limited::build(Runtime::builder().procs(2));
        rt.run(|| {
            let server = Server::new();
            let (address, serving) = start(&server);
            let mut first = TcpStream::connect(address).expect("it is accepted");
            assert!(is_served(&mut first));
            // Goroutines that wait at a gate take the memory of all stacks.
            let before = limited::limit_address_space(100 << 20);
            let gate = heist::sync::WaitGroup::new();
            gate.add(1);
            let mut waiters = Vec::with_capacity(100_000);
            let mut clients = Vec::with_capacity(1000);
            while server.refused() < 10 {
                let waits = gate.clone();
                while let Ok(waiter) = heist::try_go({
                    let waits = waits.clone();
                    move || waits.wait()
                }) {
                    waiters.push(waiter);
                    heist::yield_now();
                }
                clients.push(TcpStream::connect(address).expect("the kernel accepts it"));
                heist::time::sleep(Duration::from_millis(1));
            }
            assert!(is_served(&mut first), "a connection that is served stays served");
            gate.done();
            for waiter in waiters {
                waiter.join().expect("it ends");
            }
            drop(clients);
            limited::set_soft_limit(libc::RLIMIT_AS, before);
            let mut last = TcpStream::connect(address).expect("it is accepted");
            assert!(is_served(&mut last), "there is memory again");
            drop((first, last));
            end(&server, serving);
        });
    });
    ended.worked();
}

/// Without a free descriptor the server waits for one, and does not use the CPU for that.
#[test]
fn a_server_survives_the_lack_of_descriptors() {
    let ended = limited::run(128, |n| {
        limited::set_limit(libc::RLIMIT_NOFILE, n);
        let rt = limited::build(Runtime::builder().procs(2));
        rt.run(|| {
            let server = Server::new();
            let (address, serving) = start(&server);
            let mut first = TcpStream::connect(address).expect("it is accepted");
            assert!(is_served(&mut first));
            let mut held = limited::take_all_descriptors();
            drop(held.pop());
            let mut late = TcpStream::connect(address).expect("the kernel accepts it");
            late.write_all(b"x").expect("it goes into the buffer");
            let began = limited::cpu_time();
            heist::time::sleep(Duration::from_millis(300));
            let took = limited::cpu_time() - began;
            assert!(took < Duration::from_millis(150), "it used {took:?} of 300 ms");
            assert!(is_served(&mut first), "a connection that is served stays served");
            drop(held);
            let mut byte = [0];
            late.read_exact(&mut byte).expect("it is served in the end");
            drop((first, late));
            end(&server, serving);
        });
    });
    ended.worked();
    assert_eq!(ended.times("heist: cannot accept connections for now"), 1, "{ended}");
}
