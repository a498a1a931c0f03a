//! `/debug/pprof/...`: profiles, at Go's paths and in the format of its tools.

use super::rates::seconds;
use super::request::Request;
use super::response::{Response, Status, TEXT};
use super::routes::{Answer, Context};
use super::worker::Cancel;
use crate::profile::{self, CpuProfile, Profile};
use std::io;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A CPU profile is of so many seconds if the request does not say, as Go's.
const CPU_SECONDS: u64 = 30;
/// While a block profile is collected for a request, waits from this length on are sampled.
const BLOCK_RATE: Duration = Duration::from_micros(10);

/// How a profile is written.
#[derive(Clone, Copy)]
enum Format {
    Binary,
    Text,
}

impl Format {
    fn of(request: &Request) -> Result<Self, Response> {
        Ok(match request.number("debug")? {
            None | Some(0) => Self::Binary,
            Some(_) => Self::Text,
        })
    }

    fn write(self, profile: &Profile, name: &str) -> io::Result<Response> {
        Ok(match self {
            Self::Text => Response::new(TEXT, profile.to_string()),
            Self::Binary => {
                let mut bytes = Vec::new();
                profile.write_to(&mut bytes)?;
                Response::download(name, bytes)
            }
        })
    }
}

/// Makes the answer on a worker.
fn later(make: impl FnOnce(&Cancel) -> io::Result<Response> + Send + 'static) -> Answer {
    Answer::Later(Box::new(|cancel| {
        make(cancel).unwrap_or_else(|error| {
            Response::error(Status::Unavailable, &format!("the profile failed: {error}"))
        })
    }))
}

pub(super) fn goroutines(context: &Context, request: &Request) -> Result<Answer, Response> {
    if request.number("debug")? == Some(2) {
        let handle = context.handle().clone();
        return Ok(later(move |_| Ok(Response::new(TEXT, handle.dump_goroutines()))));
    }
    let format = Format::of(request)?;
    Ok(later(move |_| format.write(&profile::goroutines(), "goroutine")))
}

pub(super) fn leaks(_: &Context, request: &Request) -> Result<Answer, Response> {
    let format = Format::of(request)?;
    Ok(later(move |_| format.write(&profile::leaks()?, "goroutineleak")))
}

pub(super) fn threads(_: &Context, request: &Request) -> Result<Answer, Response> {
    let format = Format::of(request)?;
    Ok(later(move |_| format.write(&profile::threads(), "threadcreate")))
}

pub(super) fn cpu(_: &Context, request: &Request) -> Result<Answer, Response> {
    let (format, time) = (Format::of(request)?, seconds(request, CPU_SECONDS)?);
    Ok(later(move |cancel| {
        let running = CpuProfile::start()?;
        cancel.wait(time);
        format.write(&running.stop(), "profile")
    }))
}

/// The parameter `seconds`, if it is there.
fn collecting(request: &Request) -> Result<Option<Duration>, Response> {
    match request.number("seconds")? {
        None => Ok(None),
        Some(_) => seconds(request, 1).map(Some),
    }
}

/// How many requests collect a profile at the moment, and the rate before the first of them.
type Collecting<T> = Mutex<(u32, T)>;

/// Collects a profile while `wait` runs. Requests may overlap: the last one restores the rate.
fn collect<T: Copy>(
    collecting: &Collecting<T>,
    rate: T,
    set: impl Fn(T) -> io::Result<T>,
    wait: impl FnOnce(),
) -> io::Result<()> {
    let lock = || collecting.lock().unwrap_or_else(PoisonError::into_inner);
    let mut begun = lock();
    if begun.0 == 0 {
        begun.1 = set(rate)?;
    }
    begun.0 += 1;
    drop(begun);
    wait();
    let mut ended = lock();
    ended.0 -= 1;
    if ended.0 == 0 {
        set(ended.1)?;
    }
    Ok(())
}

pub(super) fn block(_: &Context, request: &Request) -> Result<Answer, Response> {
    let (format, time) = (Format::of(request)?, collecting(request)?);
    Ok(later(move |cancel| {
        static BLOCK: Collecting<Option<Duration>> = Mutex::new((0, None));
        if let Some(time) = time {
            collect(&BLOCK, Some(BLOCK_RATE), profile::set_block_rate, || _ = cancel.wait(time))?;
        }
        format.write(&profile::block(), "block")
    }))
}

pub(super) fn mutex(_: &Context, request: &Request) -> Result<Answer, Response> {
    let (format, time) = (Format::of(request)?, collecting(request)?);
    Ok(later(move |cancel| {
        static MUTEX: Collecting<u32> = Mutex::new((0, 0));
        if let Some(time) = time {
            collect(&MUTEX, 1, profile::set_mutex_fraction, || _ = cancel.wait(time))?;
        }
        format.write(&profile::mutex(), "mutex")
    }))
}

/// Requests that overlap leave the rate as it was.
#[test]
fn the_last_request_restores_the_rate() {
    let rate = std::cell::Cell::new(5);
    let set = |new| Ok(rate.replace(new));
    let collecting = Mutex::new((0, 0));
    collect(&collecting, 1, set, || {
        collect(&collecting, 1, set, || assert_eq!(rate.get(), 1)).expect("it is set");
        assert_eq!(rate.get(), 1);
    })
    .expect("it is set");
    assert_eq!(rate.get(), 5);
}
