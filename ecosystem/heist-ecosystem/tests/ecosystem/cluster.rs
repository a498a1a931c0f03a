//! The service `cluster_worker`: processes that share a stream of jobs, and one that is killed.

use crate::databases::unique;
use crate::server;
use heist::process::{Child, Command};
use heist_ecosystem::redis::Connection;
use redis::streams::{StreamInfoConsumersReply, StreamPendingReply, StreamReadReply};
use redis::{Commands, FromRedisValue};
use std::collections::HashMap;
use std::process::{Output, Stdio};
use std::time::Duration;

/// How long a test waits for the next job to be done.
const WAIT: Duration = Duration::from_secs(60);

struct Cluster {
    address: String,
    stream: String,
    redis: Connection,
    /// The last entry that was read from each stream.
    seen: HashMap<String, String>,
}

impl Cluster {
    fn new(url: &str) -> Self {
        let address = url.trim_start_matches("redis://").trim_end_matches('/').to_owned();
        let redis = Connection::open(&address, 0).unwrap();
        Self { address, stream: unique("jobs"), redis, seen: HashMap::new() }
    }

    fn add(&mut self, jobs: std::ops::Range<u64>, failures: u64) {
        let mut all = redis::pipe();
        for job in jobs {
            all.xadd(&self.stream, "*", &[("job", job), ("failures", failures)]).ignore();
        }
        all.exec(&mut self.redis).unwrap();
    }

    fn start(&self, name: &str, at_once: usize) -> Child {
        Command::new(env!("CARGO_BIN_EXE_cluster_worker"))
            .args(["work", &self.address, &self.stream, name])
            .env("WORKER_AT_ONCE", at_once.to_string())
            .env("WORKER_CLAIM_AFTER_MS", "600")
            .env("WORKER_WORK_MS", "20")
            .env("WORKER_PAUSE_MS", "1")
            .env("WORKER_TRIES", "3")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Waits for more entries in the stream with this ending, and returns their jobs.
    fn ended(&mut self, ending: &str) -> Vec<u64> {
        let key = format!("{}:{ending}", self.stream);
        let last = self.seen.entry(key.clone()).or_insert_with(|| "0".to_owned());
        let mut read = redis::cmd("XREAD");
        read.arg("BLOCK").arg(WAIT.as_millis() as u64).arg("STREAMS").arg(&key).arg(&*last);
        let reply: Option<StreamReadReply> = read.query(&mut self.redis).unwrap();
        let ids = reply.expect("no job has ended for a minute").keys.remove(0).ids;
        *last = ids.last().unwrap().id.clone();
        ids.into_iter()
            .map(|mut id| u64::from_redis_value(id.map.remove("job").unwrap()).unwrap())
            .collect()
    }

    /// Jobs that were handed out and not acknowledged.
    fn pending(&mut self) -> usize {
        let reply: StreamPendingReply = self.redis.xpending(&self.stream, "workers").unwrap();
        reply.count()
    }

    fn pending_of(&mut self, name: &str) -> usize {
        let reply: StreamInfoConsumersReply =
            self.redis.xinfo_consumers(&self.stream, "workers").unwrap();
        reply.consumers.iter().find(|consumer| consumer.name == name).map_or(0, |c| c.pending)
    }

    fn remove(mut self) {
        for ending in ["", ":done", ":failed"] {
            let () = self.redis.del(format!("{}{ending}", self.stream)).unwrap();
        }
    }
}

fn signal(child: &Child, name: &str) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-s", name, &pid]).status().unwrap().success());
}

fn terminate(child: Child) -> String {
    signal(&child, "TERM");
    let Output { status, stdout, stderr } = child.wait_with_output().unwrap();
    let text = String::from_utf8(stdout).unwrap();
    assert!(status.success(), "{status}: {text}\n{}", String::from_utf8_lossy(&stderr));
    text
}

/// Each job is done at least once, and twice only if it ran in the process that was killed.
#[heist::test(unsafe, procs = [2])]
fn killing_a_worker_loses_no_job() {
    const N: usize = 600;
    const AT_ONCE: usize = 8;
    let Some(url) = server("ECOSYSTEM_REDIS", "killing a worker") else { return };
    let mut cluster = Cluster::new(&url);
    cluster.add(0..N as u64, 0);
    let mut victim = cluster.start("victim", AT_ONCE);
    let others: Vec<_> =
        ["first", "second"].map(|name| cluster.start(name, AT_ONCE)).into_iter().collect();

    let mut done: HashMap<u64, usize> = HashMap::new();
    let mut lost = 0;
    while done.len() < N {
        cluster.ended("done").into_iter().for_each(|job| *done.entry(job).or_default() += 1);
        if lost == 0 && done.len() > N / 10 {
            // Stopped, it cannot end a job between the count and its death.
            signal(&victim, "STOP");
            lost = cluster.pending_of("victim");
            let name = if lost == 0 { "CONT" } else { "KILL" };
            signal(&victim, name);
        }
    }
    assert!(lost > 0, "the victim was never caught at work");
    assert!(!victim.wait().unwrap().success());
    let twice = done.values().filter(|&&n| n > 1).count();
    assert!(twice <= lost, "{twice} jobs were done twice, {lost} were lost");
    assert_eq!(cluster.pending(), 0);
    for other in others {
        let text = terminate(other);
        assert!(text.contains("failed: 0, running: 0"), "{text}");
    }
    cluster.remove();
}

#[heist::test(unsafe, procs = [2])]
fn failed_jobs_are_tried_again_and_then_given_up() {
    let Some(url) = server("ECOSYSTEM_REDIS", "failed jobs") else { return };
    let mut cluster = Cluster::new(&url);
    cluster.add(0..1, 2);
    cluster.add(1..2, 3);
    let worker = cluster.start("worker", 4);
    assert_eq!(cluster.ended("done"), [0]);
    assert_eq!(cluster.ended("failed"), [1]);
    assert_eq!(cluster.pending(), 0);
    let text = terminate(worker);
    assert!(text.contains("done: 1, failed: 1, running: 0"), "{text}");
    cluster.remove();
}

/// A worker that is asked to stop finishes what it has taken, and takes nothing more.
#[heist::test(unsafe, procs = [2])]
fn a_stopping_worker_finishes_its_jobs() {
    let Some(url) = server("ECOSYSTEM_REDIS", "stopping a worker") else { return };
    let mut cluster = Cluster::new(&url);
    cluster.add(0..5000, 0);
    let worker = cluster.start("worker", 8);
    cluster.ended("done");
    let text = terminate(worker);
    assert!(text.contains("failed: 0, running: 0"), "{text}");
    assert_eq!(cluster.pending(), 0);
    let done: usize = cluster.redis.xlen(format!("{}:done", cluster.stream)).unwrap();
    assert!((1..5000).contains(&done), "{done}");
    cluster.remove();
}
