//! How much runs in a context.

/// How much runs in a [`TokioContext`](crate::TokioContext), at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metrics {
    /// Workers of the tokio runtime.
    pub workers: usize,
    /// Tasks that were given to `tokio::spawn` and have not ended. Their work is done by the
    /// workers and not by heist: many of them for each worker are a reason for more workers.
    pub tasks: usize,
    /// Tasks in the queue that all workers share. If it stays above zero, there are too
    /// few workers.
    pub queued: usize,
    /// Futures that run on heist inside the context and have not been dropped.
    pub wrapped: usize,
    /// Polls of such futures since the beginning.
    pub polls: u64,
}

impl Metrics {
    /// The numbers as text for Prometheus, to be put behind heist's own.
    ///
    /// # Examples
    /// ```
    /// let tokio = heist_tokio::TokioContext::new(3)?;
    /// assert!(tokio.metrics().to_prometheus().contains("\nheist_tokio_workers 3\n"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let rows: [(&str, &str, &str, u64); 5] = [
            ("workers", "gauge", "Workers of the tokio runtime.", self.workers as u64),
            ("tasks", "gauge", "Tasks of tokio that have not ended.", self.tasks as u64),
            ("queued", "gauge", "Tasks in tokio's shared queue.", self.queued as u64),
            ("wrapped", "gauge", "Futures of heist inside the context.", self.wrapped as u64),
            ("polls_total", "counter", "Polls of these futures.", self.polls),
        ];
        let lines = rows.map(|(name, kind, help, value)| {
            let name = format!("heist_tokio_{name}");
            format!("# HELP {name} {help}\n# TYPE {name} {kind}\n{name} {value}\n")
        });
        lines.concat()
    }
}
