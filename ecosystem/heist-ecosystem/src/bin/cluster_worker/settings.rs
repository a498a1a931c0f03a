//! What a worker may do, from variables of the environment.

use std::time::Duration;

/// What a worker may do.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Jobs at the same time.
    pub at_once: usize,
    /// After which silence of its process a job is claimed by another one.
    pub claim_after: Duration,
    /// How often a job is tried, and how often handed out, before it is given up.
    pub tries: usize,
    /// The pause after the first failure. It doubles after each further one.
    pub pause: Duration,
    /// How long the jobs that run may take when the worker stops. Others claim the rest.
    pub grace: Duration,
    /// How long a job takes: this example computes nothing.
    pub work: Duration,
}

impl Settings {
    /// # Errors
    /// If a variable is no number.
    pub fn from_environment() -> Result<Self, String> {
        let millis = |name, default| number(name, default).map(Duration::from_millis);
        Ok(Self {
            at_once: number("WORKER_AT_ONCE", 64)?.max(1) as usize,
            claim_after: millis("WORKER_CLAIM_AFTER_MS", 30_000)?,
            tries: number("WORKER_TRIES", 5)?.max(1) as usize,
            pause: millis("WORKER_PAUSE_MS", 100)?,
            grace: millis("WORKER_GRACE_MS", 30_000)?,
            work: millis("WORKER_WORK_MS", 100)?,
        })
    }
}

fn number(name: &str, default: u64) -> Result<u64, String> {
    match std::env::var(name) {
        Ok(text) => text.parse().map_err(|_| format!("{name}={text} is no number")),
        Err(_) => Ok(default),
    }
}
