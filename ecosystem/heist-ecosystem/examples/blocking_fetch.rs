//! Fetches pages in blocking style: ureq over heist's sockets, ureq as it is, reqwest::blocking.
//!
//! ```console
//! cargo run --release --manifest-path ecosystem/Cargo.toml -p heist-ecosystem \
//!     --example blocking_fetch -- http://127.0.0.1:8000/ ...
//! ```

use std::error::Error;
use std::time::Duration;
use ureq::Agent;

/// What can go wrong here has many types.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const TIMEOUT: Duration = Duration::from_secs(30);

#[heist::main(unsafe)]
fn main() {
    let urls: Vec<String> = std::env::args().skip(1).collect();
    let agent = over_heist();
    for (url, fetched) in urls.iter().zip(fetch_all(&urls, |url| with_ureq(&agent, url))) {
        match fetched {
            Ok(text) => println!("{url}: {} bytes", text.len()),
            Err(error) => println!("{url}: {error}"),
        }
    }
}

/// The pages, each fetched by a goroutine.
pub fn fetch_all(
    urls: &[String],
    fetch: impl Fn(&str) -> Result<String> + Sync,
) -> Vec<Result<String>> {
    let fetch = &fetch;
    heist::scope(|scope| {
        let handles: Vec<_> = urls.iter().map(|url| scope.go(move || fetch(url))).collect();
        handles.into_iter().map(|handle| handle.join().expect("it does not panic")).collect()
    })
}

/// An agent of ureq whose connections are sockets of heist: a goroutine that waits is parked.
#[must_use]
pub fn over_heist() -> Agent {
    heist_ecosystem::ureq::agent(Agent::config_builder().timeout_global(Some(TIMEOUT)).build())
}

/// An agent of ureq as it is: a goroutine that waits blocks its thread.
#[must_use]
pub fn as_it_is() -> Agent {
    Agent::config_builder().timeout_global(Some(TIMEOUT)).build().into()
}

/// A page, by ureq.
///
/// # Errors
/// If the server does not answer, or with an error.
pub fn with_ureq(agent: &Agent, url: &str) -> Result<String> {
    Ok(agent.get(url).call()?.body_mut().read_to_string()?)
}

/// A page, by reqwest's blocking client. It has a thread of its own with a tokio runtime, which
/// does the work of all its requests; a goroutine that waits blocks its thread.
///
/// # Errors
/// If the server does not answer, or with an error.
pub fn with_reqwest(client: &reqwest::blocking::Client, url: &str) -> Result<String> {
    Ok(client.get(url).send()?.error_for_status()?.text()?)
}
