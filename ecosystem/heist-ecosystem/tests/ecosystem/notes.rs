//! The axum service.

use crate::Serving;
use bytes::Bytes;
use heist_ecosystem::client;
use heist_ecosystem::serve::Limits;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};

#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/axum_service.rs"]
mod example;

async fn ask(server: &Serving, method: &str, path: &str, body: Value) -> (u16, Value) {
    let request = Request::builder()
        .method(method)
        .uri(server.url(path))
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body.to_string())))
        .unwrap();
    let response = client::http1().request(request).await.unwrap();
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn notes_are_kept_and_removed() {
    let router = example::router(rusqlite::Connection::open_in_memory().unwrap()).unwrap();
    let server = Serving::start(TowerToHyperService::new(router), Limits::default());
    heist::block_on(async {
        let added = ask(&server, "POST", "/notes", json!({ "text": "milk" })).await;
        assert_eq!(added, (201, json!({ "id": 1 })));
        let wrong = ask(&server, "POST", "/notes", json!({ "texts": 1 })).await;
        assert_eq!(wrong.0, 400);
        let shown = ask(&server, "GET", "/notes/1", Value::Null).await;
        assert_eq!(shown, (200, json!({ "id": 1, "text": "milk" })));
        assert_eq!(ask(&server, "DELETE", "/notes/1", Value::Null).await.0, 200);
        assert_eq!(ask(&server, "GET", "/notes/1", Value::Null).await.0, 404);
    });
    assert_eq!(server.stop().cut_off, 0);
}

/// Handlers block their threads inside SQLite, many at the same time.
#[heist::test(unsafe, procs = [1, 2, 4])]
fn many_clients_write_at_the_same_time() {
    const N: usize = 100;
    let router = example::router(rusqlite::Connection::open_in_memory().unwrap()).unwrap();
    let server = Serving::start(TowerToHyperService::new(router), Limits::default());
    heist::scope(|scope| {
        let server = &server;
        let clients: Vec<_> = (0..N)
            .map(|i| {
                scope.go(move || {
                    heist::block_on(ask(
                        server,
                        "POST",
                        "/notes",
                        json!({ "text": format!("{i}") }),
                    ))
                })
            })
            .collect();
        for client in clients {
            assert_eq!(client.join().unwrap().0, 201);
        }
    });
    let (status, notes) = heist::block_on(ask(&server, "GET", "/notes", Value::Null));
    assert_eq!((status, notes.as_array().unwrap().len()), (200, N));
    assert_eq!(server.stop().cut_off, 0);
}
