//! Goroutines in the words of tokio-console.

use crate::book::Book;
use crate::goroutine::{Doing, Goroutine};
use crate::spread::Spread;
use console_api::field::{Name, Value};
use console_api::register_metadata::NewMetadata;
use console_api::tasks::{DurationHistogram, Stats, Task, TaskDetails, task_details};
use console_api::{Field, Id, Location, MetaId, Metadata, PollStats, RegisterMetadata, metadata};
use heist_trace::record::End;
use prost_types::{Duration, Timestamp};

const GOROUTINE: MetaId = MetaId { id: 1 };
const TASK: MetaId = MetaId { id: 2 };

/// The two kinds of things that are shown.
pub(crate) fn metadata() -> RegisterMetadata {
    let kind = |id, name: &str| NewMetadata {
        id: Some(id),
        metadata: Some(Metadata {
            name: name.to_owned(),
            target: format!("heist::{name}"),
            module_path: format!("heist::{name}"),
            location: None,
            kind: metadata::Kind::Span.into(),
            level: metadata::Level::Trace.into(),
            field_names: Vec::new(),
        }),
    };
    RegisterMetadata { metadata: vec![kind(GOROUTINE, "goroutine"), kind(TASK, "task")] }
}

fn field(name: &str, value: Value, kind: MetaId) -> Field {
    Field {
        name: Some(Name::StrName(name.to_owned())),
        value: Some(value),
        metadata_id: Some(kind),
    }
}

/// What it is.
pub(crate) fn task(book: &Book, id: u64, goroutine: &Goroutine) -> Task {
    let (kind, kind_name) =
        if goroutine.is_task { (TASK, "task") } else { (GOROUTINE, "goroutine") };
    let mut fields = vec![
        field("task.id", Value::U64Val(id), kind),
        field("kind", Value::StrVal(kind_name.to_owned()), kind),
    ];
    let mut text = |name, value: &str| {
        fields.push(field(name, Value::StrVal(value.to_owned()), kind));
    };
    if !goroutine.name.is_empty() {
        text("task.name", &goroutine.name);
    }
    match goroutine.class {
        0 => {}
        1 => text("class", "latency"),
        _ => text("class", "idle"),
    }
    // tokio-console shows fields in the order of their names, and cuts off the end.
    let (doing, wait_reason) = goroutine.described;
    if let Some(reason) = wait_reason {
        text("awaits", book.wait_reason(reason));
    }
    if doing == Doing::InCall {
        text("call", "blocking");
    }
    match goroutine.end {
        None | Some(End::Returned) => {}
        Some(End::Panicked) => text("end", "panicked"),
        Some(End::Cancelled) => text("end", "cancelled"),
        Some(End::Exited) => text("end", "exited"),
        Some(End::Overflowed) => text("end", "stack overflow"),
        Some(End::NoStack) => text("end", "no stack"),
    }
    if goroutine.parent != 0 {
        fields.push(field("parent", Value::U64Val(goroutine.parent), kind));
    }
    let location = goroutine.site.as_ref().map(|site| Location {
        file: Some(site.file.clone()),
        module_path: None,
        line: Some(site.line),
        column: Some(site.column),
    });
    Task {
        id: Some(Id { id }),
        metadata: Some(kind),
        kind: console_api::tasks::task::Kind::Spawn.into(),
        fields,
        parents: Vec::new(),
        location,
    }
}

/// What it did.
pub(crate) fn stats(book: &Book, goroutine: &Goroutine) -> Stats {
    let at = |time_ns| timestamp(book.unix_ns(time_ns));
    Stats {
        created_at: Some(at(goroutine.created_ns)),
        dropped_at: goroutine.ended_ns.map(at),
        wakes: goroutine.wakes,
        // Wakers are not counted, and tokio-console warns of a task without one.
        waker_clones: 1,
        waker_drops: 0,
        last_wake: goroutine.ready_since_ns.map(at),
        poll_stats: Some(PollStats {
            polls: goroutine.runs,
            first_poll: goroutine.first_run_ns.map(at),
            last_poll_started: goroutine.run_started_ns.map(at),
            last_poll_ended: goroutine.run_ended_ns.map(at),
            busy_time: Some(duration(goroutine.busy_ns)),
        }),
        self_wakes: goroutine.self_wakes,
        scheduled_time: Some(duration(goroutine.ready_ns)),
    }
}

/// That a client missed the end of a goroutine.
pub(crate) fn gone(book: &Book) -> Stats {
    let now = timestamp(book.unix_ns(book.now_ns()));
    Stats {
        created_at: Some(now),
        dropped_at: Some(now),
        poll_stats: Some(PollStats::default()),
        ..Stats::default()
    }
}

/// How its runs and its waits for a processor are distributed.
pub(crate) fn details(book: &Book, id: u64, goroutine: &Goroutine) -> TaskDetails {
    let busy = task_details::PollTimesHistogram::Histogram(histogram(&goroutine.busy));
    TaskDetails {
        task_id: Some(Id { id }),
        now: Some(timestamp(book.unix_ns(book.now_ns()))),
        poll_times_histogram: Some(busy),
        scheduled_times_histogram: Some(histogram(&goroutine.ready)),
    }
}

fn histogram(spread: &Spread) -> DurationHistogram {
    DurationHistogram {
        raw_histogram: spread.serialize(),
        max_value: spread.max_ns(),
        high_outliers: 0,
        highest_outlier: None,
    }
}

pub(crate) fn timestamp(unix_ns: u64) -> Timestamp {
    let (seconds, nanos) = parts(unix_ns);
    Timestamp { seconds, nanos }
}

fn duration(ns: u64) -> Duration {
    let (seconds, nanos) = parts(ns);
    Duration { seconds, nanos }
}

const fn parts(ns: u64) -> (i64, i32) {
    ((ns / 1_000_000_000) as i64, (ns % 1_000_000_000) as i32)
}
