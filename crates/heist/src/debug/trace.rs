//! `/debug/trace`: an execution trace of the next seconds.

use super::rates::seconds;
use super::request::Request;
use super::response::{Response, Status};
use super::routes::{Answer, Context};
use super::worker::Cancel;
use crate::runtime::Handle;
use crate::trace::Recording;
use heist_trace::file::Trace;
use heist_trace::go;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The most bytes of a trace that are kept; more end it early.
const BYTES_MAX: usize = 256 << 20;

/// The format of the answer.
#[derive(Clone, Copy)]
enum Format {
    /// For `go tool trace`.
    Go,
    /// For `heist trace`.
    Heist,
}

/// Records for `seconds`, one by default, and answers in Go's format, or in heist's own with
/// `format=heist`.
pub(super) fn answer(context: &Context, request: &Request) -> Result<Answer, Response> {
    let time = seconds(request, 1)?;
    let format = match request.parameter("format").as_deref() {
        None | Some("go") => Format::Go,
        Some("heist") => Format::Heist,
        Some(_) => return Err(Response::error(Status::BadRequest, "format= is go or heist")),
    };
    let handle = context.handle().clone();
    Ok(Answer::Later(Box::new(move |cancel| {
        record(&handle, time, format, cancel).unwrap_or_else(|error| {
            Response::error(Status::Internal, &format!("the trace failed: {error}"))
        })
    })))
}

fn record(
    handle: &Handle,
    time: Duration,
    format: Format,
    cancel: &Cancel,
) -> io::Result<Response> {
    let memory = Memory::default();
    let recording = Recording::start_on(handle, memory.clone())?;
    let is_wanted = cancel.wait(time);
    recording.stop()?;
    if !is_wanted {
        return Ok(Response::error(Status::Unavailable, "the client is gone"));
    }
    let bytes = memory.take();
    Ok(match format {
        Format::Heist => Response::download("heist.htrace", bytes),
        Format::Go => {
            let trace = Trace::read(&*bytes, |_| ()).map_err(io::Error::other)?;
            let (converted, _) = go::convert(&trace, Vec::new(), |_| ())?;
            Response::download("trace", converted)
        }
    })
}

/// A file in memory, of which the recording has the other end.
#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Memory {
    fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() + bytes.len() > BYTES_MAX {
            return Err(io::Error::other("the trace is too large; record fewer seconds"));
        }
        all.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
