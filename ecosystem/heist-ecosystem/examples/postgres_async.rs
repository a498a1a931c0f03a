//! PostgreSQL with tokio-postgres: over heist's sockets without tokio, and in a tokio context.
//!
//! ```console
//! cargo run --release --manifest-path ecosystem/Cargo.toml -p heist-ecosystem \
//!     --example postgres_async -- postgres://me@127.0.0.1/db
//! ```

use heist::net::TcpStream;
use heist_tokio::TokioContext;
use std::error::Error;
use std::net::ToSocketAddrs;
use tokio_postgres::config::Host;
use tokio_postgres::{Client, Config, NoTls};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[heist::main(unsafe)]
fn main() -> Result<()> {
    let url = std::env::args().nth(1).ok_or("the address of a database is missing")?;
    println!("over heist's sockets: {}", heist::block_on(sums(connect(&url.parse()?), 10))?);
    let tokio = TokioContext::new(1)?;
    println!("over tokio's sockets: {}", tokio.block_on(sums(connect_tokio(&url), 10))?);
    Ok(())
}

/// Connects over a socket of heist. The connection is a task of heist; nothing of tokio runs.
///
/// # Errors
/// If the server does not answer or refuses the user.
pub async fn connect(config: &Config) -> Result<Client> {
    let (Some(Host::Tcp(host)), Some(port)) =
        (config.get_hosts().first(), config.get_ports().first())
    else {
        return Err("the address of the server is missing".into());
    };
    let address = (host.as_str(), *port).to_socket_addrs()?.next().ok_or("no such host")?;
    let stream = TcpStream::connect_async(address).await?;
    stream.set_nodelay(true)?;
    let (client, connection) = config.connect_raw(stream, NoTls).await?;
    heist::spawn(async move {
        if let Err(error) = connection.await {
            eprintln!("the database: {error}");
        }
    });
    Ok(client)
}

/// Connects over a socket of tokio, in a tokio context: it also knows Unix sockets and timeouts.
///
/// # Errors
/// If the server does not answer or refuses the user.
pub async fn connect_tokio(url: &str) -> Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    // Runs on a worker of tokio.
    tokio::spawn(connection);
    Ok(client)
}

/// Adds up 1 to `n` in the server.
///
/// # Errors
/// The errors of the database.
pub async fn sums(client: impl Future<Output = Result<Client>>, n: i32) -> Result<i32> {
    let client = client.await?;
    let statement = client.prepare("SELECT $1::int4 + $2::int4").await?;
    let mut sum = 0;
    for i in 1..=n {
        sum = client.query_one(&statement, &[&sum, &i]).await?.get(0);
    }
    Ok(sum)
}
