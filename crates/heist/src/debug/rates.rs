//! `/debug/rates`: what the scheduler did per second, for those who have only `curl`.

use super::request::Request;
use super::response::{Response, Status, TEXT};
use super::routes::{Answer, Context};
use super::worker::Cancel;
use crate::metrics::{Kind, Metrics};
use crate::runtime::Handle;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// The longest time over which rates are taken.
const SECONDS_MAX: u64 = 300;

/// Counts for `seconds`, one by default, and answers how much each counter rose per second.
pub(super) fn answer(context: &Context, request: &Request) -> Result<Answer, Response> {
    let seconds = seconds(request, 1)?;
    let handle = context.handle().clone();
    Ok(Answer::Later(Box::new(move |cancel| take(&handle, seconds, cancel))))
}

/// The parameter `seconds`.
pub(super) fn seconds(request: &Request, default: u64) -> Result<Duration, Response> {
    match request.number("seconds")?.unwrap_or(default) {
        n @ 1..=SECONDS_MAX => Ok(Duration::from_secs(n)),
        n => {
            let why = format!("seconds={n} is not between 1 and {SECONDS_MAX}");
            Err(Response::error(Status::BadRequest, &why))
        }
    }
}

fn take(handle: &Handle, time: Duration, cancel: &Cancel) -> Response {
    let (before, start) = (handle.metrics(), Instant::now());
    if !cancel.wait(time) {
        return Response::error(Status::Unavailable, "the client is gone");
    }
    Response::new(TEXT, table(&before, &handle.metrics(), start.elapsed()))
}

/// The counters that rose, and how much per second.
fn table(before: &Metrics, after: &Metrics, time: Duration) -> String {
    let mut text = format!("per second, over {:.1} s\n", time.as_secs_f64());
    for metric in after.iter().filter(|metric| metric.description.kind == Kind::Counter) {
        let name = metric.description.name;
        let rose = metric.value.saturating_sub(before.get(name).unwrap_or_default());
        if rose != 0 {
            let per_second = rose as f64 / time.as_secs_f64();
            // Writing to a String does not fail.
            let _ = writeln!(text, "{per_second:>16.1}  {name}");
        }
    }
    text
}
