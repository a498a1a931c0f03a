//! A client of tokio-console's protocol looks at a program.

use console_api::field::{Name, Value};
use console_api::instrument::instrument_client::InstrumentClient;
use console_api::instrument::{
    InstrumentRequest, PauseRequest, ResumeRequest, StateRequest, TaskDetailsRequest, Temporality,
    Update,
};
use console_api::tasks::{Stats, Task, task_details};
use heist::goroutine::Builder;
use heist::{Runtime, chan};
use heist_console::Console;
use prost::Message;
use std::collections::HashMap;
use std::future::Future;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Streaming};

fn runtime() -> Runtime {
    // SAFETY: the goroutines of these tests keep nothing across a park that is bound to a thread.
    unsafe { Runtime::builder().procs(2).build() }.expect("it starts")
}

fn serve(rt: &Runtime) -> Console {
    let builder = heist_console::Builder::new().publish_interval(Duration::from_millis(10));
    builder.serve_on(&rt.handle(), "127.0.0.1:0").expect("it serves")
}

/// Runs the client's side, which must come to an end.
fn client<T>(body: impl Future<Output = T>) -> T {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let limited = tokio.block_on(async { tokio::time::timeout(PATIENCE, body).await });
    limited.expect("it takes too long")
}

const PATIENCE: Duration = Duration::from_secs(120);

type Client = InstrumentClient<Channel>;

async fn connect(addr: SocketAddr) -> Client {
    // A small window, so that a client that does not read is noticed soon.
    let endpoint = Endpoint::from_shared(format!("http://{addr}")).unwrap();
    let endpoint = endpoint.initial_stream_window_size(65_535);
    InstrumentClient::new(endpoint.connect().await.expect("it listens"))
}

/// What a client knows.
struct View {
    updates: Streaming<Update>,
    tasks: HashMap<u64, Task>,
    stats: HashMap<u64, Stats>,
    ids: HashMap<String, u64>,
    now: Duration,
    n_bytes: usize,
}

impl View {
    async fn new(client: &mut Client) -> Self {
        let updates = client.watch_updates(InstrumentRequest {}).await.expect("it watches");
        let (tasks, stats, ids) = (HashMap::new(), HashMap::new(), HashMap::new());
        let (now, n_bytes) = (Duration::ZERO, 0);
        Self { updates: updates.into_inner(), tasks, stats, ids, now, n_bytes }
    }

    /// Reads one update, as tokio-console does.
    async fn read(&mut self) {
        let update = self.updates.message().await.expect("no error").expect("no end");
        self.n_bytes += update.encoded_len();
        self.now = since_1970(update.now.expect("a time"));
        let mut tasks = update.task_update.expect("tasks");
        assert!(update.resource_update.is_some() && update.async_op_update.is_some());
        for task in tasks.new_tasks {
            let id = task.id.expect("an id").id;
            self.stats.insert(id, tasks.stats_update.remove(&id).expect("numbers"));
            self.ids.insert(text(&task, "task.name"), id);
            self.tasks.insert(id, task);
        }
        for (id, stats) in tasks.stats_update {
            *self.stats.get_mut(&id).expect("it was described") = stats;
        }
    }

    /// Reads until something is so.
    async fn until(&mut self, mut is_so: impl FnMut(&Self) -> bool) {
        while !is_so(self) {
            self.read().await;
        }
    }

    fn id(&self, name: &str) -> Option<u64> {
        self.ids.get(name).copied()
    }

    fn numbers(&self, name: &str) -> Option<Numbers> {
        let stats = &self.stats[&self.id(name)?];
        let polls = stats.poll_stats.expect("poll stats");
        let ended = stats.dropped_at.map(since_1970);
        let started = polls.last_poll_started.map(since_1970);
        let is_running = started > polls.last_poll_ended.map(since_1970);
        let so_far = started.filter(|_| is_running).map(|started| self.now - started);
        let busy: Duration = polls.busy_time.expect("a time").try_into().expect("not negative");
        Some(Numbers {
            total: ended.unwrap_or(self.now) - since_1970(stats.created_at.expect("a time")),
            busy: busy + so_far.unwrap_or_default(),
            scheduled: stats.scheduled_time.expect("a time").try_into().expect("not negative"),
            runs: polls.polls,
            wakes: stats.wakes,
            has_ended: ended.is_some(),
            is_running,
        })
    }
}

/// The numbers that tokio-console shows.
#[derive(Debug)]
struct Numbers {
    total: Duration,
    busy: Duration,
    scheduled: Duration,
    runs: u64,
    wakes: u64,
    has_ended: bool,
    is_running: bool,
}

fn since_1970(time: prost_types::Timestamp) -> Duration {
    Duration::new(time.seconds.try_into().unwrap(), time.nanos.try_into().unwrap())
}

/// The field of a task, or nothing.
fn text(task: &Task, wanted: &str) -> String {
    let is_wanted = |name: &Option<Name>| *name == Some(Name::StrName(wanted.to_owned()));
    let field = task.fields.iter().find(|field| is_wanted(&field.name));
    match field.and_then(|field| field.value.clone()) {
        Some(Value::StrVal(text)) => text,
        Some(Value::U64Val(number)) => number.to_string(),
        _ => String::new(),
    }
}

/// Goroutines that wait until the gate is dropped.
fn gate() -> (chan::Sender<()>, chan::Receiver<()>) {
    chan::bounded(0)
}

fn waits(rt: &Runtime, name: &str, gate: &chan::Receiver<()>) {
    let gate = gate.clone();
    let builder = Builder::new().name(name);
    drop(builder.spawn_on(&rt.handle(), move || gate.recv()).expect("it is spawned"));
}

#[test]
fn goroutines_are_shown_with_names_sites_and_times() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let rt = runtime();
    let (open, closed) = gate();
    waits(&rt, "old", &closed);
    let console = serve(&rt);
    client(async {
        let mut client = connect(console.local_addr()).await;
        let mut view = View::new(&mut client).await;
        waits(&rt, "waits", &closed);
        let hog = Builder::new().name("hog").class(heist::goroutine::Class::Latency).spawn_on(
            &rt,
            || {
                while !STOP.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            },
        );
        let gate = closed.clone();
        let task = rt.spawn_async(async move { gate.recv_async().await });
        let is_task = |task: &Task| text(task, "kind") == "task";

        let wait = |view: &View, name| view.id(name).map(|id| text(&view.tasks[&id], "awaits"));
        view.until(|view| {
            ["old", "waits"].iter().all(|name| wait(view, name).as_deref() == Some("chan receive"))
                && view.tasks.values().any(|task| is_task(task) && !text(task, "awaits").is_empty())
                && view.numbers("hog").is_some_and(|hog| hog.busy > Duration::from_millis(30))
        })
        .await;
        for name in ["old", "waits", "hog"] {
            let task = &view.tasks[&view.id(name).unwrap()];
            assert_eq!(text(task, "kind"), "goroutine");
            assert_eq!(text(task, "task.id"), view.id(name).unwrap().to_string());
            let location = task.location.as_ref().expect("a place");
            assert!(location.file.as_ref().unwrap().ends_with("tests/console.rs"));
            assert!(location.line > Some(100) && location.column > Some(1), "{location:?}");
            let numbers = view.numbers(name).unwrap();
            assert!(numbers.busy + numbers.scheduled <= numbers.total, "{name}: {numbers:?}");
            assert!(!numbers.has_ended);
        }
        let found = view.tasks.values().find(|task| is_task(task)).unwrap();
        assert_eq!(text(found, "awaits"), "future pending");
        assert_eq!(text(&view.tasks[&view.id("hog").unwrap()], "class"), "latency");
        let waits = view.numbers("waits").unwrap();
        assert_eq!((waits.runs, waits.wakes, waits.is_running), (1, 0, false));
        assert!(view.numbers("hog").unwrap().runs >= 1);

        STOP.store(true, Ordering::Relaxed);
        drop(open);
        view.until(|view| view.stats.values().all(|stats| stats.dropped_at.is_some())).await;
        assert!(view.tasks.len() >= 4);
        let waited = view.numbers("waits").unwrap();
        assert_eq!((waited.runs, waited.wakes), (2, 1));
        assert!(waited.busy < waited.total);
        assert!(view.numbers("hog").unwrap().busy > Duration::from_millis(30));
        hog.unwrap().join().unwrap();
        task.join().unwrap().unwrap_err();
    });
}

/// A goroutine that ended by a panic says so.
#[test]
fn the_end_of_a_goroutine_is_shown() {
    let rt = runtime();
    let console = serve(&rt);
    client(async {
        let mut client = connect(console.local_addr()).await;
        let mut view = View::new(&mut client).await;
        view.read().await;
        let (open, closed) = gate();
        let unlucky = Builder::new().name("unlucky").spawn_on(&rt, move || {
            let _ = closed.recv();
            std::panic::panic_any(7);
        });
        view.until(|view| view.id("unlucky").is_some()).await;
        drop(open);
        view.until(|view| view.numbers("unlucky").unwrap().has_ended).await;
        assert_eq!(text(&view.tasks[&view.id("unlucky").unwrap()], "end"), "panicked");
        unlucky.unwrap().join().unwrap_err();
    });
}

#[test]
fn a_paused_console_sends_nothing_until_it_is_resumed() {
    let rt = runtime();
    let console = serve(&rt);
    let (_open, closed) = gate();
    client(async {
        let mut client = connect(console.local_addr()).await;
        let mut view = View::new(&mut client).await;
        let states = client.watch_state(StateRequest {}).await.unwrap();
        let mut states = states.into_inner();
        let mut state = async || states.message().await.unwrap().unwrap().temporality();
        assert_eq!(state().await, Temporality::Live);
        waits(&rt, "before", &closed);
        view.until(|view| view.id("before").is_some()).await;
        client.pause(PauseRequest {}).await.unwrap();
        assert_eq!(state().await, Temporality::Paused);
        waits(&rt, "meanwhile", &closed);
        // What was sent before, and then nothing.
        while tokio::time::timeout(Duration::from_millis(300), view.read()).await.is_ok() {}
        assert_eq!(view.id("meanwhile"), None);
        client.resume(ResumeRequest {}).await.unwrap();
        assert_eq!(state().await, Temporality::Live);
        view.until(|view| view.id("meanwhile").is_some()).await;
    });
}

/// A client that is gone does not leave the console paused.
#[test]
fn several_clients_look_at_once() {
    let rt = runtime();
    let console = serve(&rt);
    let (_open, closed) = gate();
    client(async {
        let mut clients = Vec::new();
        let mut views = Vec::new();
        for _ in 0..16 {
            let mut client = connect(console.local_addr()).await;
            views.push(View::new(&mut client).await);
            clients.push(client);
        }
        let refused = clients[0].watch_updates(InstrumentRequest {}).await;
        assert_eq!(refused.unwrap_err().code(), Code::ResourceExhausted);
        waits(&rt, "seen by all", &closed);
        for view in &mut views {
            view.until(|view| view.id("seen by all").is_some()).await;
        }
        clients[0].pause(PauseRequest {}).await.unwrap();
        (views, clients) = (Vec::new(), Vec::new());
        assert!(views.is_empty() && clients.is_empty());
        let mut client = connect(console.local_addr()).await;
        // The server notices a moment later that they are gone.
        let mut view = loop {
            let watched = client.watch_updates(InstrumentRequest {}).await;
            match watched {
                Ok(_) => break View::new(&mut client).await,
                Err(status) => assert_eq!(status.code(), Code::ResourceExhausted),
            }
        };
        while view.id("seen by all").is_none() {
            if tokio::time::timeout(Duration::from_secs(1), view.read()).await.is_err() {
                // One of them was still there when the others had left.
                client.resume(ResumeRequest {}).await.unwrap();
            }
        }
    });
}

/// While a client does not read, the program makes thousands of goroutines. The client is not sent
/// them later: nothing was kept for it.
#[test]
fn a_slow_client_costs_nothing_and_reads_the_latest() {
    const ROUNDS: usize = 40;
    const ENDED_MAX: usize = 1_000;
    let rt = runtime();
    let builder = heist_console::Builder::new().publish_interval(Duration::from_millis(10));
    let builder = builder.ended_max(ENDED_MAX);
    let console = builder.serve_on(&rt.handle(), "127.0.0.1:0").expect("it serves");
    let (_open, closed) = gate();
    client(async {
        let mut client = connect(console.local_addr()).await;
        let mut slow = View::new(&mut client).await;
        let mut other = connect(console.local_addr()).await;
        let mut quick = View::new(&mut other).await;
        for round in 0..ROUNDS {
            rt.run(|| {
                let all = heist::sync::WaitGroup::new();
                (0..1_000).for_each(|_| all.go(|| ()));
                all.wait();
            });
            let name = format!("round {round}");
            waits(&rt, &name, &closed);
            quick.until(|view| view.id(&name).is_some()).await;
        }
        slow.until(|view| view.id(&format!("round {}", ROUNDS - 1)).is_some()).await;
        assert!((0..ROUNDS).all(|round| slow.id(&format!("round {round}")).is_some()));
        // What fits into the windows of the connection, and what is still known.
        let n_tasks = slow.tasks.len();
        assert!(n_tasks < ROUNDS * 1_000 / 4, "{n_tasks} tasks, {} bytes", slow.n_bytes);
        assert!(slow.n_bytes < n_tasks * 600 + 100_000, "{n_tasks} tasks, {} bytes", slow.n_bytes);
    });
}

#[test]
fn details_have_the_distributions_of_times() {
    let rt = runtime();
    let console = serve(&rt);
    client(async {
        let mut client = connect(console.local_addr()).await;
        let mut view = View::new(&mut client).await;
        let request = |id| TaskDetailsRequest { id: Some(console_api::Id { id }) };
        let unknown = client.watch_task_details(request(u64::MAX)).await;
        assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
        let (asks, asked) = chan::bounded::<()>(0);
        let serves =
            Builder::new().name("serves").spawn_on(&rt, move || while asked.recv().is_ok() {});
        view.until(|view| view.id("serves").is_some()).await;
        let id = view.id("serves").unwrap();
        let details = client.watch_task_details(request(id)).await.unwrap();
        let mut details = details.into_inner();
        rt.run(move || (0..50).for_each(|_| asks.send(()).unwrap()));
        let mut last = None;
        while let Some(message) = details.message().await.unwrap() {
            assert_eq!(message.task_id.unwrap().id, id);
            last = Some(message);
        }
        // The stream ends with the goroutine.
        let last = last.unwrap();
        let runs = match last.poll_times_histogram.unwrap() {
            task_details::PollTimesHistogram::Histogram(histogram) => histogram,
            other => panic!("{other:?}"),
        };
        let read = |histogram: &console_api::tasks::DurationHistogram| {
            let mut bytes = &histogram.raw_histogram[..];
            let mut deserializer = hdrhistogram::serialization::Deserializer::new();
            let read: hdrhistogram::Histogram<u64> = deserializer.deserialize(&mut bytes).unwrap();
            read
        };
        view.until(|view| view.numbers("serves").unwrap().has_ended).await;
        let numbers = view.numbers("serves").unwrap();
        assert!(numbers.runs > 25, "{numbers:?}");
        assert_eq!(read(&runs).len(), numbers.runs);
        assert!(Duration::from_nanos(runs.max_value) <= numbers.busy);
        let scheduled = last.scheduled_times_histogram.unwrap();
        assert_eq!(read(&scheduled).len(), numbers.runs);
        serves.unwrap().join().unwrap();
    });
}

/// Nobody watches, so nothing is recorded.
#[test]
fn an_unwatched_program_records_nothing() {
    let rt = runtime();
    let console = serve(&rt);
    let traced = || rt.metrics().get("/heist/trace/bytes:bytes").expect("a metric");
    rt.run(|| (0..10_000).for_each(|_| heist::go(|| ()).join().unwrap()));
    assert_eq!(traced(), 0);
    client(async {
        let mut client = connect(console.local_addr()).await;
        View::new(&mut client).await.read().await;
    });
    assert!(traced() > 0);
}

/// The runtime ends before the console does.
#[test]
fn all_goroutines_end_with_their_runtime() {
    let rt = runtime();
    let console = serve(&rt);
    let (_open, closed) = gate();
    client(async {
        let mut client = connect(console.local_addr()).await;
        let mut view = View::new(&mut client).await;
        waits(&rt, "left behind", &closed);
        view.until(|view| view.id("left behind").is_some()).await;
        drop(rt);
        view.until(|view| view.numbers("left behind").unwrap().has_ended).await;
    });
}

#[test]
fn only_loopback_addresses_are_served_unless_it_is_asked_for() {
    let rt = runtime();
    let refused = heist_console::Builder::new().serve_on(&rt.handle(), "0.0.0.0:0");
    assert_eq!(refused.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    let allowed = heist_console::Builder::new().any_address().serve_on(&rt.handle(), "0.0.0.0:0");
    assert!(allowed.unwrap().local_addr().ip().is_unspecified());
    let thread = heist_console::serve("127.0.0.1:0");
    assert_eq!(thread.unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
}

/// The port is free again, and clients are told.
#[test]
fn a_dropped_console_closes_its_connections() {
    let rt = runtime();
    let console = serve(&rt);
    let addr = console.local_addr();
    client(async {
        let mut client = connect(addr).await;
        let mut view = View::new(&mut client).await;
        view.read().await;
        drop(console);
        while let Ok(Some(_)) = view.updates.message().await {}
    });
    let builder = heist_console::Builder::new();
    drop(builder.serve_on(&rt.handle(), addr).expect("the port is free"));
}
