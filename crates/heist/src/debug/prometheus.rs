//! `/metrics`: all metrics for Prometheus, and the names under which others look for some of them.

use super::request::Request;
use super::response::Response;
use super::routes::Context;
use crate::metrics::Metrics;
use std::fmt::Write;

const PLAIN: &str = "text/plain; version=0.0.4; charset=utf-8";
const OPEN: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Another name of a metric: dashboards that were written for descriptions of Go's scheduler use
/// it.
struct Alias {
    name: &'static str,
    help: &'static str,
    is_counter: bool,
    value: fn(&Metrics) -> f64,
}

fn of(metrics: &Metrics, name: &str) -> u64 {
    metrics.get(name).unwrap_or_default()
}

/// Names that end in `_total` but rise and fall keep their name, and are of no type.
#[rustfmt::skip]
const ALIASES: &[Alias] = &[
    Alias { name: "sched_goroutine_idle", is_counter: false,
        help: "Alias: goroutines that wait for a processor.",
        value: |all| of(all, "/sched/goroutines/runnable:goroutines") as f64 },
    Alias { name: "sched_goroutine_running", is_counter: false,
        help: "Alias: goroutines that are running.",
        value: |all| of(all, "/sched/goroutines/running:goroutines") as f64 },
    Alias { name: "sched_goroutine_steal_attempts", is_counter: true,
        help: "Alias: looks at the queue of another processor.",
        value: |all| of(all, "/heist/steal/attempts:events") as f64 },
    Alias { name: "sched_goroutine_steal_success", is_counter: true,
        help: "Alias: looks that brought goroutines.",
        value: |all| of(all, "/heist/steal/successes:events") as f64 },
    Alias { name: "sched_mspinning", is_counter: true,
        help: "Alias: seconds that threads spent looking for work.",
        value: |all| of(all, "/heist/spin/time:nanoseconds") as f64 / 1e9 },
    Alias { name: "sched_preemptions_forced", is_counter: true,
        help: "Alias: goroutines preempted by a signal.",
        value: |all| of(all, "/heist/preempt/forced:events") as f64 },
    Alias { name: "sched_preemptions", is_counter: true,
        help: "Alias: goroutines preempted at the end of their slice, by a request or a signal.",
        value: |all| {
            (of(all, "/heist/preempt/asked:events") + of(all, "/heist/preempt/forced:events")) as f64
        } },
];

/// The format of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    Plain,
    OpenMetrics,
}

/// The answer of `/metrics`: OpenMetrics if the client prefers it, or else the plain text format.
pub(super) fn answer(context: &Context, request: &Request) -> Response {
    let accepts_open = request.accept.as_deref().is_some_and(|accept| {
        accept.split(',').any(|one| one.trim().starts_with("application/openmetrics-text"))
    });
    let metrics = Metrics::read(context.sched());
    if accepts_open {
        let text = metrics.to_openmetrics();
        let text = text.trim_end_matches("# EOF\n");
        let aliases = aliases(&metrics, Format::OpenMetrics);
        Response::new(OPEN, format!("{text}{aliases}# EOF\n"))
    } else {
        let aliases = aliases(&metrics, Format::Plain);
        Response::new(PLAIN, format!("{}{aliases}", metrics.to_prometheus()))
    }
}

fn aliases(metrics: &Metrics, format: Format) -> String {
    let mut text = String::new();
    for Alias { name, help, is_counter, value } in ALIASES {
        let value = value(metrics);
        let (family, kind) = match (format, is_counter) {
            (Format::OpenMetrics, true) => ((*name).to_owned(), "counter"),
            (Format::OpenMetrics, false) => (format!("{name}_total"), "unknown"),
            (Format::Plain, true) => (format!("{name}_total"), "counter"),
            (Format::Plain, false) => (format!("{name}_total"), "untyped"),
        };
        // Writing to a String does not fail.
        let _ = writeln!(text, "# HELP {family} {help}\n# TYPE {family} {kind}");
        let _ = writeln!(text, "{name}_total {value}");
    }
    text
}
