//! Blocking database libraries, unchanged, on goroutines: postgres, redis and rusqlite.
//!
//! ```console
//! cargo run --release --manifest-path ecosystem/Cargo.toml -p heist-ecosystem \
//!     --example blocking_databases
//! ```
//!
//! The variables `ECOSYSTEM_POSTGRES` and `ECOSYSTEM_REDIS` say where the servers are.
//!
//! A goroutine that waits inside such a library blocks its thread. heist gives its processor to
//! another thread, so nothing else waits; there are as many threads as goroutines that block. A
//! semaphore or a pool bounds them, as it bounds the connections.

use heist::sync::Semaphore;
use redis::Commands;
use std::error::Error;
use std::path::Path;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[heist::main(unsafe)]
fn main() -> Result<()> {
    if let Ok(url) = std::env::var("ECOSYSTEM_POSTGRES") {
        println!("postgres: {}", count_in_postgres(&url, "example", 4, 100)?);
    }
    if let Ok(url) = std::env::var("ECOSYSTEM_REDIS") {
        println!("redis: {}", count_in_redis(&url, "example", 4, 100)?);
    }
    let file = std::env::temp_dir().join(format!("heist-{}.db", std::process::id()));
    println!("rusqlite: {}", count_in_sqlite(&file, 4, 100)?);
    std::fs::remove_file(&file)?;
    Ok(())
}

/// Calls `f` on `n` goroutines, at most 16 at the same time, and returns the first error.
fn on_goroutines(n: usize, f: impl Fn() -> Result<()> + Sync) -> Result<()> {
    let room = Semaphore::new(16);
    heist::scope(|scope| {
        let handles: Vec<_> = (0..n)
            .map(|_| {
                scope.go(|| {
                    let _permit = room.acquire(1);
                    f()
                })
            })
            .collect();
        handles.into_iter().try_for_each(|handle| handle.join().expect("it does not panic"))
    })
}

/// Adds one to a counter `times` times on each of `n` goroutines, and returns the counter.
///
/// # Errors
/// The errors of the database.
pub fn count_in_postgres(url: &str, table: &str, n: usize, times: usize) -> Result<i64> {
    let mut client = postgres::Client::connect(url, postgres::NoTls)?;
    client.batch_execute(&format!(
        "DROP TABLE IF EXISTS {table};
         CREATE TABLE {table} (n INT8 NOT NULL);
         INSERT INTO {table} VALUES (0)"
    ))?;
    on_goroutines(n, || {
        let mut client = postgres::Client::connect(url, postgres::NoTls)?;
        let update = client.prepare(&format!("UPDATE {table} SET n = n + 1"))?;
        for _ in 0..times {
            client.execute(&update, &[])?;
        }
        Ok(())
    })?;
    let counted = client.query_one(&format!("SELECT n FROM {table}"), &[])?.get(0);
    client.batch_execute(&format!("DROP TABLE {table}"))?;
    Ok(counted)
}

/// Adds one to a counter `times` times on each of `n` goroutines, and returns the counter.
///
/// # Errors
/// The errors of the server.
pub fn count_in_redis(url: &str, key: &str, n: usize, times: usize) -> Result<i64> {
    let client = redis::Client::open(url)?;
    let mut connection = client.get_connection()?;
    let () = connection.del(key)?;
    on_goroutines(n, || {
        let mut connection = client.get_connection()?;
        for _ in 0..times {
            let () = connection.incr(key, 1)?;
        }
        Ok(())
    })?;
    let counted = connection.get(key)?;
    let () = connection.del(key)?;
    Ok(counted)
}

/// Adds one to a counter `times` times on each of `n` goroutines, and returns the counter. A writer
/// that meets another one waits inside SQLite.
///
/// # Errors
/// The errors of the database.
pub fn count_in_sqlite(file: &Path, n: usize, times: usize) -> Result<i64> {
    let open = || -> Result<rusqlite::Connection> {
        let connection = rusqlite::Connection::open(file)?;
        connection.busy_timeout(std::time::Duration::from_secs(60))?;
        connection.pragma_update(None, "synchronous", "off")?;
        Ok(connection)
    };
    let connection = open()?;
    connection.execute_batch("CREATE TABLE counter (n INTEGER); INSERT INTO counter VALUES (0)")?;
    on_goroutines(n, || {
        let connection = open()?;
        for _ in 0..times {
            connection.execute("UPDATE counter SET n = n + 1", ())?;
        }
        Ok(())
    })?;
    Ok(connection.query_row("SELECT n FROM counter", (), |row| row.get(0))?)
}
