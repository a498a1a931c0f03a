//! The jobs in Redis: a stream with a group of consumers.

use heist::sync::Mutex;
use heist_ecosystem::redis::Connection;
use redis::streams::{StreamAutoClaimReply, StreamId, StreamPendingCountReply, StreamReadReply};
use redis::{Cmd, ConnectionLike, FromRedisValue, RedisResult, cmd};
use std::time::Duration;

/// All workers are one group: each job goes to one of them.
const GROUP: &str = "workers";

/// The jobs of one stream, as one worker sees them.
pub struct Store {
    address: String,
    stream: String,
    /// The name of the worker, unique in the group.
    name: String,
    /// Connections that nobody uses now.
    idle: Mutex<Vec<Connection>>,
}

/// A job, and what Redis calls it.
#[derive(Clone, Debug)]
pub struct Job {
    pub id: String,
    pub fields: Vec<(String, String)>,
}

impl Job {
    /// The number in a field, or zero.
    pub fn number(&self, field: &str) -> u64 {
        let found = self.fields.iter().find(|(name, _)| name == field);
        found.and_then(|(_, text)| text.parse().ok()).unwrap_or(0)
    }
}

impl Store {
    pub fn new(address: &str, stream: &str, name: &str) -> Self {
        Self {
            address: address.to_owned(),
            stream: stream.to_owned(),
            name: name.to_owned(),
            idle: Mutex::new(Vec::new()),
        }
    }

    /// Calls `f` with a connection that nobody else uses meanwhile.
    fn with<T>(&self, f: impl FnOnce(&mut Connection) -> RedisResult<T>) -> RedisResult<T> {
        let idle = self.idle.lock().pop();
        let mut connection = match idle {
            Some(connection) => connection,
            None => Connection::open(&self.address, 0)?,
        };
        let result = f(&mut connection);
        if connection.is_open() {
            self.idle.lock().push(connection);
        }
        result
    }

    fn query<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        self.with(|connection| command.query(connection))
    }

    /// Adds a job.
    pub fn add(&self, fields: &[(&str, String)]) -> RedisResult<()> {
        self.query(cmd("XADD").arg(&self.stream).arg("*").arg(fields))
    }

    /// Makes the group, if it is not there.
    pub fn make_group(&self) -> RedisResult<()> {
        let mut create = cmd("XGROUP");
        create.arg("CREATE").arg(&self.stream).arg(GROUP).arg("0").arg("MKSTREAM");
        match self.query(&create) {
            Err(error) if error.code() == Some("BUSYGROUP") => Ok(()),
            other => other,
        }
    }

    /// Takes up to `n` new jobs; waits for the first one.
    pub fn take(&self, n: usize, wait: Duration) -> RedisResult<Vec<Job>> {
        let mut read = cmd("XREADGROUP");
        read.arg("GROUP").arg(GROUP).arg(&self.name).arg("COUNT").arg(n);
        read.arg("BLOCK").arg(wait.as_millis() as u64).arg("STREAMS").arg(&self.stream).arg(">");
        let reply: Option<StreamReadReply> = self.query(&read)?;
        let keys = reply.into_iter().flat_map(|reply| reply.keys);
        Ok(keys.flat_map(|key| key.ids).map(job).collect())
    }

    /// Claims a job whose worker has been silent for so long.
    pub fn claim(&self, silence: Duration) -> RedisResult<Option<Job>> {
        let mut from = "0-0".to_owned();
        loop {
            let mut claim = cmd("XAUTOCLAIM");
            claim.arg(&self.stream).arg(GROUP).arg(&self.name).arg(silence.as_millis() as u64);
            claim.arg(&from).arg("COUNT").arg(1);
            let mut reply: StreamAutoClaimReply = self.query(&claim)?;
            // One request looks at a few jobs only, and most have a worker.
            from = reply.next_stream_id;
            match reply.claimed.pop() {
                None if from != "0-0" => {}
                claimed => return Ok(claimed.map(job)),
            }
        }
    }

    /// Says that this worker still works on these jobs.
    pub fn refresh(&self, ids: &[String]) -> RedisResult<()> {
        if ids.is_empty() {
            return Ok(());
        }
        let mut claim = cmd("XCLAIM");
        claim.arg(&self.stream).arg(GROUP).arg(&self.name).arg(0).arg(ids).arg("JUSTID");
        self.query::<redis::Value>(&claim).map(drop)
    }

    /// How often a job was handed out.
    pub fn handed_out(&self, id: &str) -> RedisResult<usize> {
        let mut pending = cmd("XPENDING");
        pending.arg(&self.stream).arg(GROUP).arg(id).arg(id).arg(1);
        let reply: StreamPendingCountReply = self.query(&pending)?;
        Ok(reply.ids.first().map_or(0, |pending| pending.times_delivered))
    }

    /// Notes how a job ended, in the stream with this ending, and acknowledges it: both or nothing.
    pub fn end(&self, job: &Job, ending: &str) -> RedisResult<()> {
        let mut fields = job.fields.clone();
        fields.push(("by".to_owned(), self.name.clone()));
        let mut both = redis::pipe();
        both.atomic();
        both.cmd("XADD").arg(format!("{}:{ending}", self.stream)).arg("*").arg(fields).ignore();
        both.cmd("XACK").arg(&self.stream).arg(GROUP).arg(&job.id).ignore();
        self.with(|connection| both.exec(connection))
    }
}

fn job(id: StreamId) -> Job {
    let fields = id.map.into_iter();
    let text = |value| String::from_redis_value(value).unwrap_or_default();
    Job { id: id.id, fields: fields.map(|(name, value)| (name, text(value))).collect() }
}
