//! A table of accounts with sqlx, by its feature `runtime-smol` or in a tokio context.
//!
//! ```console
//! cargo run --release --manifest-path ecosystem/Cargo.toml -p heist-ecosystem \
//!     --example sqlx_service -- postgres://me@127.0.0.1/db
//! ```
//!
//! sqlx takes tokio's sockets where it finds a tokio context and smol's where it does not, so one
//! program may use both. With smol its sockets and timers are served by one thread of async-io, and
//! what it spawns by another.

use heist_tokio::TokioContext;
use sqlx::postgres::{PgPool, PgPoolOptions};
use sqlx::{Executor, Row};
use std::error::Error;

#[heist::main(unsafe)]
fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::args().nth(1).ok_or("the address of a database is missing")?;
    println!("smol's sockets: {} left over", heist::block_on(transfers(&url, "by_smol", 50))?);
    let tokio = TokioContext::new(1)?;
    println!("tokio's sockets: {} left over", tokio.block_on(transfers(&url, "by_tokio", 50))?);
    Ok(())
}

/// Makes two accounts, moves `n` units from one to the other in as many transactions, and returns
/// the rest.
///
/// # Errors
/// The errors of the database.
pub async fn transfers(url: &str, table: &str, n: i64) -> sqlx::Result<i64> {
    let pool = PgPoolOptions::new().max_connections(4).connect(url).await?;
    pool.execute(sqlx::AssertSqlSafe(format!(
        "DROP TABLE IF EXISTS {table};
         CREATE TABLE {table} (id INT8 PRIMARY KEY, amount INT8 NOT NULL CHECK (amount >= 0));
         INSERT INTO {table} VALUES (1, 100), (2, 0)"
    )))
    .await?;
    for _ in 0..n {
        transfer(&pool, table).await?;
    }
    let row = sqlx::query(sqlx::AssertSqlSafe(format!("SELECT amount FROM {table} WHERE id = 1")))
        .fetch_one(&pool)
        .await?;
    pool.execute(sqlx::AssertSqlSafe(format!("DROP TABLE {table}"))).await?;
    pool.close().await;
    row.try_get(0)
}

async fn transfer(pool: &PgPool, table: &str) -> sqlx::Result<()> {
    let update = format!("UPDATE {table} SET amount = amount + $1 WHERE id = $2");
    let mut transaction = pool.begin().await?;
    for (amount, id) in [(-1i64, 1i64), (1, 2)] {
        sqlx::query(sqlx::AssertSqlSafe(update.clone()))
            .bind(amount)
            .bind(id)
            .execute(&mut *transaction)
            .await?;
    }
    transaction.commit().await
}
