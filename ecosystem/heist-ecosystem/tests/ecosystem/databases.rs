//! Databases: blocking libraries on goroutines, async ones in tasks, against real servers.

use crate::server;
use heist_tokio::TokioContext;
use redis::{Commands, ConnectionLike};
use std::sync::atomic::{AtomicUsize, Ordering};

#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/blocking_databases.rs"]
mod blocking;
#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/postgres_async.rs"]
mod postgres_async;
#[allow(dead_code, reason = "its main is not called")]
#[path = "../../examples/sqlx_service.rs"]
mod sqlx_service;

/// A name that no other test uses, also not in another process.
pub fn unique(name: &str) -> String {
    static N: AtomicUsize = AtomicUsize::new(0);
    format!("{name}_{}_{}", std::process::id(), N.fetch_add(1, Ordering::Relaxed))
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn postgres_counts_on_goroutines() {
    let Some(url) = server("ECOSYSTEM_POSTGRES", "postgres on goroutines") else { return };
    assert_eq!(blocking::count_in_postgres(&url, &unique("counter"), 10, 20).unwrap(), 200);
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn redis_counts_on_goroutines() {
    let Some(url) = server("ECOSYSTEM_REDIS", "redis on goroutines") else { return };
    assert_eq!(blocking::count_in_redis(&url, &unique("counter"), 10, 100).unwrap(), 1000);
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn sqlite_counts_on_goroutines() {
    let folder = std::env::temp_dir().join(unique("heist_sqlite"));
    std::fs::create_dir_all(&folder).unwrap();
    let counted = blocking::count_in_sqlite(&folder.join("counter.db"), 4, 20);
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(counted.unwrap(), 80);
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn redis_speaks_over_sockets_of_heist() {
    let Some(url) = server("ECOSYSTEM_REDIS", "redis over sockets of heist") else { return };
    let address = url.trim_start_matches("redis://").trim_end_matches('/');
    let key = unique("adapter");
    let mut connection = heist_ecosystem::redis::Connection::open(address, 3).unwrap();
    assert!(connection.check_connection());
    let numbers: (i64, i64, String) = redis::pipe()
        .atomic()
        .incr(&key, 2)
        .incr(&key, 40)
        .get(&key)
        .query(&mut connection)
        .unwrap();
    assert_eq!(numbers, (2, 42, "42".to_owned()));
    // An error of the server is no error of the connection.
    connection.hget::<_, _, String>(&key, "field").unwrap_err();
    assert_eq!(connection.get::<_, i64>(&key).unwrap(), 42);
    connection.del::<_, ()>(&key).unwrap();
    assert_eq!(connection.get::<_, Option<i64>>(&key).unwrap(), None);
    assert!(connection.is_open());
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn a_redis_connection_is_broken_by_a_timeout() {
    let Some(url) = server("ECOSYSTEM_REDIS", "a timeout of redis") else { return };
    let address = url.trim_start_matches("redis://").trim_end_matches('/');
    let mut connection = heist_ecosystem::redis::Connection::open(address, 0).unwrap();
    connection.set_read_timeout(Some(std::time::Duration::from_millis(5))).unwrap();
    redis::cmd("BLPOP").arg(unique("nothing")).arg(0).exec(&mut connection).unwrap_err();
    assert!(!connection.is_open());
    // Its answer may still come, and must not be taken for that of the next command.
    redis::cmd("PING").exec(&mut connection).unwrap_err();
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn tokio_postgres_runs_over_sockets_of_heist() {
    let Some(url) = server("ECOSYSTEM_POSTGRES", "tokio-postgres over sockets of heist") else {
        return;
    };
    let config = url.parse().unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let connected = postgres_async::connect(&config);
            heist::block_on(async { postgres_async::sums(connected, 50).await.unwrap() })
        })
        .collect();
    assert_eq!(tasks, [1275; 8]);
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn tokio_postgres_runs_in_a_tokio_context() {
    let Some(url) = server("ECOSYSTEM_POSTGRES", "tokio-postgres in a tokio context") else {
        return;
    };
    let tokio = TokioContext::new(1).unwrap();
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let url = url.clone();
            tokio.spawn(async move {
                postgres_async::sums(postgres_async::connect_tokio(&url), 50).await.unwrap()
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.join().unwrap(), 1275);
    }
}

#[heist::test(unsafe, procs = [1, 2, 4])]
fn sqlx_transfers_with_smol_and_in_a_tokio_context() {
    let Some(url) = server("ECOSYSTEM_POSTGRES", "sqlx") else { return };
    let left = heist::block_on(sqlx_service::transfers(&url, &unique("smol"), 30));
    assert_eq!(left.unwrap(), 70);
    let tokio = TokioContext::new(1).unwrap();
    let left = tokio.block_on(sqlx_service::transfers(&url, &unique("tokio"), 30));
    assert_eq!(left.unwrap(), 70);
}
