//! TLS in tasks, and WebSockets on goroutines.

use heist::net::{Server, TcpListener};
use std::time::Duration;
use tungstenite::Message;

#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/async_tls.rs"]
mod async_tls;
#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/websocket.rs"]
mod websocket;

#[heist::test(unsafe, procs = [1, 2, 4])]
fn lines_come_back_through_tls() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = heist::spawn(async_tls::echo(listener, async_tls::acceptor().unwrap()));
    let connector = async_tls::connector().unwrap();
    let clients: Vec<_> = (0..20)
        .map(|i| {
            let (connector, line) = (connector.clone(), format!("{i}").repeat(2000));
            heist::spawn(async move {
                assert_eq!(async_tls::ask(address, connector, &line).await.unwrap(), line);
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    server.abort();
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn web_sockets_shout_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = Server::new();
    let serving = {
        let server = server.clone();
        heist::go(move || server.serve(listener, |stream, _| websocket::shout(stream).unwrap()))
    };
    let clients: Vec<_> = (0..20)
        .map(|i| {
            heist::go(move || {
                let mut socket = websocket::connect(address).unwrap();
                for n in 0..20 {
                    socket.send(Message::text(format!("hello {i} {n}"))).unwrap();
                    let answer = socket.read().unwrap().into_text().unwrap();
                    assert_eq!(answer.as_str(), format!("HELLO {i} {n}"));
                }
                socket.close(None).unwrap();
                while socket.read().is_ok() {}
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_eq!(server.shutdown(Duration::from_secs(60)).cancelled, 0);
    serving.join().unwrap().unwrap();
}
