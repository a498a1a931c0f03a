//! What limits a program, by rules that are stated with the answer.

use super::Summary;

/// What limits a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// There is not enough in the trace.
    Unknown,
    /// The world is stopped too often.
    WorldStops,
    /// One goroutine computes nearly all the time.
    OneGoroutine,
    /// All Ps are busy.
    Processors,
    /// Goroutines are runnable while Ps are not busy.
    WakeUps,
    /// Goroutines wait for something.
    Waiting,
    /// There is little to do.
    Idle,
}

/// A limit, and why it is the one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The limit.
    pub limit: Limit,
    /// What was found.
    pub words: String,
    /// The rule that decided.
    pub rule: &'static str,
}

/// The share of `part` in `whole`, in percent.
pub(super) fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

impl Summary {
    /// The lock for which one goroutine or more waits on average.
    fn lock(&self) -> Option<(&str, u64)> {
        const LOCKS: [&str; 3] = ["sync.Mutex.Lock", "sync.RWMutex.RLock", "sync.RWMutex.Lock"];
        let waits = self.waits().into_iter();
        waits.filter(|(reason, _)| LOCKS.contains(reason)).find(|(_, ns)| *ns >= self.span_ns)
    }

    /// What limits the program. The rules are tried in a fixed order; the first that fits decides.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let all = self.all_procs();
        let busy = percent(all.running, all.total());
        let stopped = percent(self.world_stops.1, self.span_ns);
        let serial = percent(self.busiest.0, self.span_ns);
        let beside = percent(self.idle_beside_runnable, self.span_ns);
        let n_procs = self.procs.len();
        let (limit, words, rule) = if self.span_ns == 0 || n_procs == 0 {
            (Limit::Unknown, "No P was seen at work.".to_owned(), "there are no events of Ps")
        } else if stopped >= 5.0 {
            let words = format!("The world is stopped for {stopped:.0} % of the time.");
            (Limit::WorldStops, words, "the world is stopped for 5 % of the time or more")
        } else if busy >= 85.0 {
            let words = format!(
                "Processors: Ps are busy for {busy:.0} % of the time, and {:.1} goroutines \
                 wait for one on average.",
                self.mean_runnable
            );
            (Limit::Processors, words, "Ps run goroutines for 85 % of the time or more")
        } else if serial >= 80.0 && n_procs > 1 {
            let words = format!(
                "One goroutine: goroutine {} runs for {serial:.0} % of the time, beside \
                 it Ps are idle.",
                self.busiest.1
            );
            (Limit::OneGoroutine, words, "one goroutine runs for 80 % of the time or more")
        } else if let Some((reason, ns)) = self.lock() {
            let waiting = ns as f64 / self.span_ns as f64;
            let words = format!(
                "Waiting: Ps are busy for {busy:.0} % of the time, and {waiting:.1} \
                 goroutines wait on average for a lock: {reason}."
            );
            (
                Limit::Waiting,
                words,
                "one goroutine or more waits for a lock beside Ps that are not busy",
            )
        } else if beside >= 25.0 {
            let words = format!(
                "Wake-ups: for {beside:.0} % of the time a goroutine is runnable and a P is \
                 idle. Nobody may steal it (it is locked to a thread, or the policy is gentle), \
                 the idle P is reserved, or threads wake up late."
            );
            (
                Limit::WakeUps,
                words,
                "a goroutine is runnable beside an idle P for 25 % of the time or more",
            )
        } else if self.mean_runnable >= 1.0 {
            let words = format!(
                "Wake-ups: {:.1} goroutines are runnable on average, but Ps are busy for \
                 only {busy:.0} % of the time. Threads wake up late, or the machine is \
                 busy with other programs.",
                self.mean_runnable
            );
            (Limit::WakeUps, words, "one goroutine or more is runnable beside Ps that are not busy")
        } else if let Some((reason, ns)) = self.waits().first().filter(|(_, ns)| *ns > self.span_ns)
        {
            let waiting = *ns as f64 / self.span_ns as f64;
            let words = format!(
                "Waiting: Ps are busy for {busy:.0} % of the time, and {waiting:.1} \
                 goroutines wait on average for: {reason}."
            );
            (Limit::Waiting, words, "more than one goroutine waits for the most frequent reason")
        } else {
            let words = format!("Nothing: Ps are busy for {busy:.0} % of the time.");
            (Limit::Idle, words, "no other rule fits")
        };
        Verdict { limit, words, rule }
    }
}
