//! Queries per second of blocking libraries on goroutines, on threads, and in tokio's
//! `spawn_blocking`, in one run.
//!
//! ```console
//! ci/ecosystem cargo run --release --bin throughput -- [CLIENTS [ROUNDS [MILLISECONDS]]]
//! ```
//!
//! Each client has a connection of its own and asks one query after the other. The rounds of all
//! ways are interleaved; the table has medians. A library whose server is missing is left out.

use bytes::Bytes;
use heist::net::TcpListener;
use heist_ecosystem::serve::{Limits, serve};
use http::Response;
use http_body_util::Full;
use hyper::service::service_fn;
use std::convert::Infallible;
use std::error::Error;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use ureq::Agent;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;
/// One query over a connection that is open.
type Query = Box<dyn FnMut() -> Result<()> + Send>;
type Open = Box<dyn Fn() -> Result<Query>>;

/// A way to run the clients: the number of queries until the moment.
type Way = (&'static str, fn(Vec<Query>, Instant) -> u64);

const WAYS: [Way; 3] =
    [("goroutines", on_goroutines), ("threads", on_threads), ("spawn_blocking", on_tokio)];

#[heist::main(unsafe)]
fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|arg| arg == "serve") {
        return serve_hello();
    }
    let number = |i: usize, default| args.get(i).map_or(Ok(default), |text| text.parse());
    let (n_clients, n_rounds, millis) = (number(0, 32)?, number(1, 5)?, number(2, 500)?);
    let round = Duration::from_millis(millis as u64);

    // In a process of its own: it should take nothing from the runtimes that are measured.
    let mut server = start_server()?;
    let libraries = libraries(&server.1);
    println!("| queries per second, {n_clients} clients | goroutines | threads | spawn_blocking |");
    println!("|---|---|---|---|");
    for (name, open) in libraries {
        let mut rates = [const { Vec::new() }; WAYS.len()];
        for _ in 0..n_rounds {
            for (rates, (_, run)) in rates.iter_mut().zip(WAYS) {
                let queries = (0..n_clients).map(|_| open()).collect::<Result<Vec<_>>>()?;
                let began = Instant::now();
                let n = run(queries, began + round);
                rates.push(n as f64 / began.elapsed().as_secs_f64());
            }
        }
        let medians = rates.map(|mut rates| {
            rates.sort_by(f64::total_cmp);
            format!("{:.0}", rates[rates.len() / 2])
        });
        println!("| {name} | {} |", medians.join(" | "));
    }
    server.0.kill()?;
    server.0.wait()?;
    Ok(())
}

/// The libraries whose servers are there.
fn libraries(address: &str) -> Vec<(&'static str, Open)> {
    let mut found: Vec<(&'static str, Open)> = Vec::new();
    if let Ok(url) = std::env::var("ECOSYSTEM_POSTGRES") {
        found.push(("postgres", Box::new(move || open_postgres(&url))));
    }
    if let Ok(url) = std::env::var("ECOSYSTEM_REDIS") {
        let address = url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
        found.push(("redis", Box::new(move || open_redis(&url))));
        found.push(("redis over heist's sockets", Box::new(move || open_redis_heist(&address))));
    }
    found.push(("rusqlite, in memory", Box::new(open_sqlite)));
    let url = format!("http://{address}/");
    let config = || Agent::config_builder().max_idle_connections_per_host(1000).build();
    let as_it_is: Agent = config().into();
    let over_heist = heist_ecosystem::ureq::agent(config());
    for (name, agent) in [("ureq", as_it_is), ("ureq over heist's sockets", over_heist)] {
        let url = url.clone();
        found.push((name, Box::new(move || Ok(open_ureq(agent.clone(), url.clone())))));
    }
    found
}

fn open_postgres(url: &str) -> Result<Query> {
    let mut client = postgres::Client::connect(url, postgres::NoTls)?;
    let statement = client.prepare("SELECT $1::int4 + 1")?;
    Ok(Box::new(move || {
        let sum: i32 = client.query_one(&statement, &[&41])?.get(0);
        assert_eq!(sum, 42);
        Ok(())
    }))
}

fn open_redis(url: &str) -> Result<Query> {
    let mut connection = redis::Client::open(url)?.get_connection()?;
    Ok(Box::new(move || Ok(redis::cmd("PING").exec(&mut connection)?)))
}

fn open_redis_heist(address: &str) -> Result<Query> {
    let mut connection = heist_ecosystem::redis::Connection::open(address, 0)?;
    Ok(Box::new(move || Ok(redis::cmd("PING").exec(&mut connection)?)))
}

fn open_sqlite() -> Result<Query> {
    let connection = rusqlite::Connection::open_in_memory()?;
    connection.execute_batch(
        "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER);
         WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < 1000)
         INSERT INTO t SELECT i, i * i FROM c",
    )?;
    Ok(Box::new(move || {
        let sum = "SELECT sum(n) FROM t WHERE id <= 100";
        let sum: i64 = connection.query_row(sum, (), |row| row.get(0))?;
        assert_eq!(sum, 338_350);
        Ok(())
    }))
}

fn open_ureq(agent: Agent, url: String) -> Query {
    Box::new(move || {
        let text = agent.get(&url).call()?.body_mut().read_to_string()?;
        assert_eq!(text, "Hello, World!");
        Ok(())
    })
}

fn repeat(mut query: Query, until: Instant) -> u64 {
    let mut n = 0;
    while Instant::now() < until {
        query().expect("an answer");
        n += 1;
    }
    n
}

fn on_goroutines(queries: Vec<Query>, until: Instant) -> u64 {
    let handles: Vec<_> =
        queries.into_iter().map(|query| heist::go(move || repeat(query, until))).collect();
    handles.into_iter().map(|handle| handle.join().unwrap()).sum()
}

fn on_threads(queries: Vec<Query>, until: Instant) -> u64 {
    let spawn = |query| std::thread::spawn(move || repeat(query, until));
    let handles: Vec<_> = queries.into_iter().map(spawn).collect();
    handles.into_iter().map(|handle| handle.join().unwrap()).sum()
}

/// A task for each client, which gives every query to `spawn_blocking`, as async programs do.
fn on_tokio(queries: Vec<Query>, until: Instant) -> u64 {
    // Threads that wait for tokio must not be goroutines.
    std::thread::spawn(move || {
        let tokio = tokio::runtime::Runtime::new().unwrap();
        // Connections are closed outside the runtime: one of postgres has a runtime of its own, and
        // its destructor panics on a worker.
        let (sum, _queries) = tokio.block_on(async {
            let spawn = |mut query: Query| {
                tokio::spawn(async move {
                    let mut n = 0;
                    while Instant::now() < until {
                        let asked = tokio::task::spawn_blocking(move || {
                            query().expect("an answer");
                            query
                        });
                        query = asked.await.unwrap();
                        n += 1;
                    }
                    (n, query)
                })
            };
            let (mut sum, mut left) = (0, Vec::new());
            for task in queries.into_iter().map(spawn).collect::<Vec<_>>() {
                let (n, query) = task.await.unwrap();
                sum += n;
                left.push(query);
            }
            (sum, left)
        });
        sum
    })
    .join()
    .unwrap()
}

fn start_server() -> Result<(Child, String)> {
    let mut child = Command::new(std::env::current_exe()?)
        .arg("serve")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut address = String::new();
    BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut address)?;
    Ok((child, address.trim().to_owned()))
}

fn serve_hello() -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    // Its standard input ends with the process that started it, however that ends.
    heist::go(|| {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        std::process::exit(0);
    });
    let hello = service_fn(|_| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"Hello, World!"))))
    });
    serve(listener, hello, &Limits::default(), &heist::context::background())?;
    Ok(())
}
