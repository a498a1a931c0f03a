//! HTTP clients of other people against a server on heist.

use crate::Serving;
use bytes::Bytes;
use heist_ecosystem::serve::Limits;
use heist_tokio::TokioContext;
use http::{Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use std::convert::Infallible;
use std::time::Duration;
use ureq::Agent;

#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/blocking_fetch.rs"]
mod blocking;
#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/reqwest_fetch.rs"]
mod with_context;

const N: usize = 40;

/// The page `/n` has `n` bytes; `/slow` never comes; everything else is missing.
async fn page(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let path = &request.uri().path()[1..];
    if path == "slow" {
        std::future::pending::<()>().await;
    }
    let mut response = Response::default();
    match path.parse() {
        Ok(len) => *response.body_mut() = Full::new(Bytes::from(vec![b'x'; len])),
        Err(_) => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    Ok(response)
}

fn start() -> (Serving, Vec<String>) {
    let limits = Limits { grace: Duration::ZERO, ..Limits::default() };
    let server = Serving::start(service_fn(page), limits);
    let mut urls: Vec<_> = (0..N).map(|i| server.url(&format!("/{}", i * 1000))).collect();
    urls.push(server.url("/missing"));
    (server, urls)
}

fn check(fetched: Vec<blocking::Result<String>>) {
    for (i, text) in fetched.iter().take(N).enumerate() {
        assert_eq!(text.as_ref().unwrap().len(), i * 1000);
    }
    assert!(fetched[N].as_ref().unwrap_err().to_string().contains("404"));
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn reqwest_fetches_in_a_tokio_context() {
    let (server, urls) = start();
    let tokio = TokioContext::new(1).unwrap();
    let fetched = with_context::fetch_all(&tokio, &urls).unwrap();
    for (i, len) in fetched.iter().take(N).enumerate() {
        assert_eq!(*len.as_ref().unwrap(), i * 1000);
    }
    assert_eq!(fetched[N].as_ref().unwrap_err().status(), Some(StatusCode::NOT_FOUND));
    server.stop();
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn ureq_fetches_over_sockets_of_heist() {
    let (server, urls) = start();
    let agent = blocking::over_heist();
    check(blocking::fetch_all(&urls, |url| blocking::with_ureq(&agent, url)));
    // Again, over connections of the pool.
    check(blocking::fetch_all(&urls, |url| blocking::with_ureq(&agent, url)));
    server.stop();
}

#[heist::test(unsafe, procs = [1, 2])]
fn ureq_gives_up_when_the_time_is_over() {
    let (server, _) = start();
    let limit = Some(Duration::from_millis(50));
    let agent = heist_ecosystem::ureq::agent(Agent::config_builder().timeout_global(limit).build());
    let error = agent.get(server.url("/slow")).call().unwrap_err();
    assert!(matches!(error, ureq::Error::Timeout(_)), "{error}");
    server.stop();
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn ureq_works_unchanged() {
    let (server, urls) = start();
    let agent = blocking::as_it_is();
    check(blocking::fetch_all(&urls, |url| blocking::with_ureq(&agent, url)));
    server.stop();
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn blocking_reqwest_works_unchanged() {
    let (server, urls) = start();
    let client = reqwest::blocking::Client::new();
    check(blocking::fetch_all(&urls, |url| blocking::with_reqwest(&client, url)));
    drop(client);
    server.stop();
}
