//! Fetches pages with reqwest, many at a time: reqwest insists on tokio, so it gets a context.
//!
//! ```console
//! cargo run --release --manifest-path ecosystem/Cargo.toml -p heist-ecosystem \
//!     --example reqwest_fetch -- http://127.0.0.1:8000/ ...
//! ```

use heist::sync::Semaphore;
use heist_tokio::TokioContext;
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Requests at the same time.
const AT_ONCE: usize = 20;

#[heist::main(unsafe)]
fn main() -> Result<(), Box<dyn Error>> {
    let tokio = TokioContext::new(1)?;
    let urls: Vec<String> = std::env::args().skip(1).collect();
    for (url, fetched) in urls.iter().zip(fetch_all(&tokio, &urls)?) {
        match fetched {
            Ok(len) => println!("{url}: {len} bytes"),
            Err(error) => println!("{url}: {error}"),
        }
    }
    // What reqwest spawned runs on tokio's worker: connections and lookups of names.
    println!("{:?}", tokio.metrics());
    Ok(())
}

/// The lengths of the pages.
///
/// # Errors
/// If there is no client.
pub fn fetch_all(
    tokio: &TokioContext,
    urls: &[String],
) -> reqwest::Result<Vec<reqwest::Result<usize>>> {
    let client = reqwest::Client::builder().timeout(Duration::from_secs(30)).build()?;
    let room = Arc::new(Semaphore::new(AT_ONCE));
    let tasks: Vec<_> = urls
        .iter()
        .map(|url| {
            let (client, url, room) = (client.clone(), url.clone(), Arc::clone(&room));
            tokio.spawn(async move {
                let _permit = room.acquire_owned_async(1).await;
                let response = client.get(&url).send().await?.error_for_status()?;
                Ok(response.bytes().await?.len())
            })
        })
        .collect();
    Ok(tasks.into_iter().map(|task| task.join().expect("it does not panic")).collect())
}
