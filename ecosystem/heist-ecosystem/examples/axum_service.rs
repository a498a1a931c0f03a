//! An axum service on heist that keeps its notes in SQLite.
//!
//! ```console
//! cargo run --release --manifest-path ecosystem/Cargo.toml -p heist-ecosystem \
//!     --example axum_service -- 127.0.0.1:8000 notes.db
//! ```
//!
//! Then `curl --json '{"text":"milk"}' http://127.0.0.1:8000/notes` and
//! `curl http://127.0.0.1:8000/notes`.
//!
//! rusqlite blocks its thread. A handler calls it as it is, without `spawn_blocking`: heist
//! notices, and other tasks run on another thread meanwhile.

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use axum::{Json, Router};
use heist::net::TcpListener;
use heist::sync::Mutex;
use heist::{context, signal};
use heist_ecosystem::serve::{Limits, serve};
use hyper_util::service::TowerToHyperService;
use rusqlite::{Connection, OptionalExtension};
use serde_json::{Value, json};
use std::error::Error;
use std::sync::Arc;

#[heist::main(unsafe)]
fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let address = args.next().unwrap_or_else(|| "127.0.0.1:8000".to_owned());
    let router = match args.next() {
        Some(file) => router(Connection::open(file)?)?,
        None => router(Connection::open_in_memory()?)?,
    };
    let listener = TcpListener::bind(&address)?;
    println!("listening at {}", listener.local_addr()?);

    let (stop, canceller) = context::background().with_cancel();
    heist::go(move || signal::ctrl_c().map(|()| canceller.cancel()));
    serve(listener, TowerToHyperService::new(router), &Limits::default(), &stop)?;
    Ok(())
}

type Notes = Arc<Mutex<Connection>>;

/// The service over a database.
///
/// # Errors
/// If the database cannot be written.
pub fn router(database: Connection) -> rusqlite::Result<Router> {
    database.execute("CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT)", ())?;
    let notes = Arc::new(Mutex::new(database));
    Ok(Router::new()
        .route("/notes", get(list).post(add))
        .route("/notes/{id}", get(show).delete(remove))
        .with_state(notes))
}

type Answer = Result<(StatusCode, Json<Value>), Failed>;

async fn list(State(notes): State<Notes>) -> Answer {
    let database = notes.lock_async().await;
    let mut query = database.prepare("SELECT id, text FROM notes ORDER BY id")?;
    let rows = query.query_map((), |row| {
        Ok(json!({ "id": row.get::<_, i64>(0)?, "text": row.get::<_, String>(1)? }))
    })?;
    Ok((StatusCode::OK, Json(rows.collect::<Result<_, _>>()?)))
}

async fn add(State(notes): State<Notes>, Json(note): Json<Value>) -> Answer {
    let Some(text) = note["text"].as_str() else {
        return Ok((StatusCode::BAD_REQUEST, Json(json!({ "error": "a note needs a text" }))));
    };
    let database = notes.lock_async().await;
    database.execute("INSERT INTO notes (text) VALUES (?1)", [text])?;
    Ok((StatusCode::CREATED, Json(json!({ "id": database.last_insert_rowid() }))))
}

async fn show(State(notes): State<Notes>, Path(id): Path<i64>) -> Answer {
    let database = notes.lock_async().await;
    let text: Option<String> = database
        .query_row("SELECT text FROM notes WHERE id = ?1", [id], |row| row.get(0))
        .optional()?;
    Ok(match text {
        Some(text) => (StatusCode::OK, Json(json!({ "id": id, "text": text }))),
        None => (StatusCode::NOT_FOUND, Json(Value::Null)),
    })
}

async fn remove(State(notes): State<Notes>, Path(id): Path<i64>) -> Answer {
    let database = notes.lock_async().await;
    let n = database.execute("DELETE FROM notes WHERE id = ?1", [id])?;
    let status = if n == 0 { StatusCode::NOT_FOUND } else { StatusCode::OK };
    Ok((status, Json(json!({ "removed": n }))))
}

/// An error of the database. The client learns nothing of it.
struct Failed;

impl From<rusqlite::Error> for Failed {
    fn from(error: rusqlite::Error) -> Self {
        eprintln!("notes: {error}");
        Self
    }
}

impl axum::response::IntoResponse for Failed {
    fn into_response(self) -> axum::response::Response {
        StatusCode::INTERNAL_SERVER_ERROR.into_response()
    }
}
