//! The debug server: what it answers, when it answers, and when it stops.

use heist::debug::{self, DebugServer, Options};
use heist::goroutine::Builder;
use heist::sync::WaitGroup;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// The status and the body of an answer.
pub fn get(addr: SocketAddr, path: &str) -> (u16, String) {
    ask(addr, &format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\n\r\n"))
}

/// Sends these bytes and reads everything.
pub fn ask(addr: SocketAddr, request: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout");
    stream.write_all(request.as_bytes()).expect("the request is sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("an answer, then the end");
    // Profiles and traces are not text.
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).and_then(|code| code.parse().ok());
    (status.expect("a status"), body.to_owned())
}

pub fn start(rt: &heist::Runtime, options: Options) -> (DebugServer, SocketAddr) {
    let server = options.serve_on(&rt.handle(), "127.0.0.1:0").expect("it serves");
    let addr = server.local_addr().expect("a TCP address");
    (server, addr)
}

fn runtime(procs: usize) -> heist::Runtime {
    // SAFETY: the goroutines of these tests keep nothing across a park that is bound to a thread.
    unsafe { heist::Runtime::builder().procs(procs).build() }.expect("it starts")
}

/// Every path of the index is answered, and an unknown one with the list.
#[test]
fn every_path_of_the_index_is_answered() {
    let rt = runtime(2);
    let (_server, addr) = start(&rt, Options::new());
    let (_keep, wait) = heist::chan::bounded::<()>(0);
    rt.handle().spawn(move || wait.recv());
    let (status, index) = get(addr, "/");
    assert_eq!(status, 200);
    let paths: Vec<_> =
        index.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(paths.len() > 5, "{index}");
    for path in paths {
        let (status, body) = get(addr, &format!("{path}?seconds=1"));
        assert_eq!((status, body.is_empty()), (200, false), "{path}: {body}");
    }
    let (status, body) = get(addr, "/debug/nothing");
    assert_eq!(status, 404);
    assert!(body.contains("/debug/sched.json"), "{body}");
}

/// The metrics are those of `Metrics::to_prometheus`, with the names that descriptions of
/// Go's scheduler use. A client that prefers OpenMetrics gets it.
#[test]
fn metrics_are_served_in_both_formats_and_with_aliases() {
    let rt = runtime(2);
    rt.run(|| heist::go(|| ()).join().unwrap());
    let (_server, addr) = start(&rt, Options::new());
    let (_, plain) = get(addr, "/metrics");
    assert!(plain.contains("\nheist_sched_goroutines_created_goroutines_total 2\n"), "{plain}");
    for name in [
        "sched_goroutine_idle_total",
        "sched_goroutine_running_total",
        "sched_goroutine_steal_attempts_total",
        "sched_goroutine_steal_success_total",
        "sched_mspinning_total",
        "sched_preemptions_forced_total",
        "sched_preemptions_total",
    ] {
        assert!(plain.contains(&format!("\n{name} ")), "{name}");
    }
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: {addr}\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n"
    );
    let (_, open) = ask(addr, &request);
    assert!(open.ends_with("# EOF\n") && open.matches("# EOF").count() == 1, "{open}");
    assert!(open.contains("# TYPE heist_sched_goroutines_created_goroutines counter\n"), "{open}");
    assert!(open.contains("\nheist_sched_goroutines_created_goroutines_total 2\n"), "{open}");
}

/// The state shows the goroutine that runs, its name and where it was spawned; and a goroutine that
/// waits is in the lists.
#[test]
fn the_state_shows_what_runs_and_what_waits() {
    let rt = runtime(1);
    let (_server, addr) = start(&rt, Options::new());
    let (_keep, wait) = heist::chan::bounded::<()>(0);
    rt.handle().spawn(move || wait.recv());
    let line = line!() + 2;
    let state = rt.run(|| {
        let asks = Builder::new().name("asker").spawn(move || {
            // It does not park: a plain socket blocks the thread, so the goroutine is running.
            let (status, state) = get(addr, "/debug/sched.json");
            assert_eq!(status, 200);
            state
        });
        asks.unwrap().join().unwrap()
    });
    assert!(state.contains("\"name\":\"asker\""), "{state}");
    assert!(state.contains(&format!("{}:{line}:", file!())), "{line}: {state}");
    for part in ["\"thefts\":[[0]]", "\"state\":\"chan receive\"", "\"procs\":1,", "\"upper_s\":["]
    {
        assert!(state.contains(part), "{part}: {state}");
    }
    let (_, list) = get(addr, "/debug/goroutines.json?state=chan+receive");
    assert!(list.starts_with("{\"total\":1,"), "{list}");
    let (_, none) = get(addr, "/debug/goroutines.json?site=no/such/file");
    assert!(none.starts_with("{\"total\":0,"), "{none}");
    let (_, dump) = get(addr, "/debug/goroutines?debug=2");
    assert!(dump.contains(" [chan receive]:"), "{dump}");
    let (_, groups) = get(addr, "/debug/goroutines?debug=1");
    assert!(
        groups.starts_with("goroutine profile: total 1\n1 goroutine [chan receive]"),
        "{groups}"
    );
}

/// What was stolen from whom adds up to what was stolen.
#[test]
fn the_thefts_add_up() {
    let rt = runtime(4);
    let (_server, addr) = start(&rt, Options::new());
    let stolen = |rt: &heist::Runtime| rt.metrics().get("/heist/steal/goroutines:goroutines");
    while stolen(&rt).is_none_or(|n| n < 100) {
        rt.run(|| {
            let group = WaitGroup::new();
            (0..500).for_each(|_| group.go(|| ()));
            group.wait();
        });
    }
    let (_, state) = get(addr, "/debug/sched.json");
    let rows = state.split("\"thefts\":[").nth(1).and_then(|rest| rest.split("]]").next()).unwrap();
    let matrix: Vec<Vec<u64>> = rows
        .split("],")
        .map(|row| row.trim_matches(['[', ']']).split(',').map(|n| n.parse().unwrap()).collect())
        .collect();
    assert!((0..4).all(|p| matrix[p].len() == 4 && matrix[p][p] == 0), "{matrix:?}");
    assert_eq!(Some(matrix.iter().flatten().sum()), stolen(&rt), "{matrix:?}");
}

/// The server answers while goroutines keep every processor and cannot be preempted.
#[test]
fn a_stuck_runtime_is_shown() {
    // SAFETY: the goroutine keeps nothing.
    let rt = unsafe { heist::Runtime::builder().procs(1).forced_preemption(false).build() };
    let rt = rt.expect("it starts");
    let (_server, addr) = start(&rt, Options::new());
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let seen = std::sync::Arc::clone(&stop);
    let hog = rt.handle().spawn(move || {
        while !seen.load(std::sync::atomic::Ordering::Relaxed) {
            std::hint::spin_loop();
        }
    });
    let running = "\"state\":\"running\",\"m\"";
    while !get(addr, "/debug/sched.json").1.contains(running) {
        std::thread::yield_now();
    }
    let waits = rt.handle().spawn(|| ());
    let state = get(addr, "/debug/sched.json").1;
    assert!(state.contains(running) && state.contains("\"goroutines\":2"), "{state}");
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    hog.join().unwrap();
    waits.join().unwrap();
}

/// Dropping the handle of a server stops it, also on a goroutine, and while an answer is made.
#[test]
fn a_dropped_server_stops() {
    let rt = runtime(2);
    let addr = rt.run(|| {
        let server = debug::serve("127.0.0.1:0").expect("it serves");
        let addr = server.local_addr().unwrap();
        let mut slow = TcpStream::connect(addr).unwrap();
        slow.write_all(b"GET /debug/rates?seconds=300 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            .unwrap();
        assert_eq!(get(addr, "/metrics").0, 200);
        drop(server);
        assert_eq!(slow.read(&mut [0; 10]).unwrap_or(0), 0, "the connection is closed");
        addr
    });
    TcpStream::connect(addr).expect_err("nothing listens any more");
}

/// After its runtime has ended, a server says so.
#[test]
fn a_server_outlives_its_runtime() {
    let rt = runtime(1);
    let (server, addr) = start(&rt, Options::new());
    drop(rt);
    let (status, body) = get(addr, "/debug/sched.json");
    assert_eq!(status, 503, "{body}");
    drop(server);
}

/// An address that others can reach, or a thread without a runtime, is refused with the remedy.
#[test]
fn mistakes_are_refused_with_the_remedy() {
    let rt = runtime(1);
    let error = Options::new().serve_on(&rt.handle(), "0.0.0.0:0").expect_err("it is reachable");
    assert!(error.to_string().contains("any_address"), "{error}");
    let server = Options::new().any_address().serve_on(&rt.handle(), "0.0.0.0:0");
    drop(server.expect("it was asked for"));
    let error = debug::serve("127.0.0.1:0").expect_err("this is a plain thread");
    assert!(error.to_string().contains("serve_on"), "{error}");
}

/// Every metric that the dashboard and the alerts name is served.
#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_exist() {
    let rt = runtime(1);
    let (_server, addr) = start(&rt, Options::new());
    let (_, metrics) = get(addr, "/metrics");
    let exists = |name: &str| {
        metrics
            .lines()
            .any(|line| line.strip_prefix(name).is_some_and(|s| s.starts_with([' ', '{'])))
    };
    for text in [
        include_str!("../../docs/operations/heist-dashboard.json"),
        include_str!("../../docs/operations/heist-alerts.yml"),
    ] {
        let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names: Vec<_> = words.filter(|word| word.starts_with("heist_")).collect();
        assert!(names.len() > 5);
        for name in names {
            assert!(exists(name), "{name} is not served");
        }
    }
}

/// A trace of the running program has the beginning that Go's tool expects, and heist's own.
#[test]
fn a_trace_is_recorded_while_the_program_runs() {
    let rt = runtime(2);
    let (_server, addr) = start(&rt, Options::new());
    let bytes = |path: &str| {
        let mut stream = TcpStream::connect(addr).expect("the server listens");
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {addr}\r\n\r\n").expect("it is sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("a head");
        answer.split_off(end + 4)
    };
    let go = bytes("/debug/trace?seconds=1");
    assert!(go.starts_with(b"go 1."), "{:?}", &go[..go.len().min(16)]);
    let own = bytes("/debug/trace?seconds=1&format=heist");
    let trace = heist_trace::file::Trace::read(&*own, |_| ()).expect("a trace");
    assert!(trace.truncated.is_none());
}
