//! One connection: it receives a head, waits for the answer, sends it, and lets the client read it.

use super::access::Via;
use super::listener::Stream;
use super::options::Options;
use super::request::{HEAD_MAX, Method, Parsed, Request, parse};
use super::response::{Body, Response};
use super::worker::Cancel;
use crate::sys::poll_set::Interest;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a whole answer may take to be read.
const REPLY_TIMEOUT: Duration = Duration::from_secs(120);
/// How long the client may take to notice the end of the answer. Closing earlier, with bytes of the
/// client unread, would make the kernel discard what the client has not read yet.
const LINGER_TIMEOUT: Duration = Duration::from_secs(1);

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    pub(super) number: u64,
    pub(super) via: Via,
    stream: Stream,
    stage: Stage,
    body: Body,
    /// When the stage ends at the latest.
    until: Instant,
}

#[derive(Debug)]
enum Stage {
    /// It has sent this much of its head.
    Head(Vec<u8>),
    /// A worker makes the answer.
    Work(Arc<Cancel>),
    /// This much of the answer was sent.
    Reply {
        bytes: Vec<u8>,
        sent: usize,
        whole_until: Instant,
    },
    /// The answer was sent.
    Linger,
    Over,
}

/// What the server has to do for a connection.
pub(super) enum Event {
    Nothing,
    /// Answer this request.
    Asked(Box<Request>),
}

impl Connection {
    pub(super) fn new(number: u64, stream: Stream, via: Via, options: &Options) -> Self {
        let until = Instant::now() + options.head_timeout;
        Self { number, via, stream, stage: Stage::Head(Vec::new()), body: Body::Sent, until }
    }

    /// The descriptor, and what to wait for there.
    pub(super) fn interest(&self) -> (i32, Interest) {
        let interest = match &self.stage {
            Stage::Head(_) | Stage::Linger => Interest::Reading,
            Stage::Reply { .. } => Interest::Writing,
            Stage::Work(_) | Stage::Over => Interest::End,
        };
        (self.stream.fd(), interest)
    }

    /// When it has to be looked at again, at the latest.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        match self.stage {
            Stage::Work(_) => None,
            _ => Some(self.until),
        }
    }

    pub(super) const fn is_over(&self) -> bool {
        matches!(self.stage, Stage::Over)
    }

    /// Whether it may be closed in favour of a new one.
    pub(super) const fn is_dispensable(&self) -> bool {
        !matches!(self.stage, Stage::Work(_))
    }

    /// Ends it, and the work for it.
    pub(super) fn close(&mut self) {
        if let Stage::Work(cancel) = &self.stage {
            cancel.cancel();
        }
        self.stage = Stage::Over;
    }

    /// Waits for a worker, which `cancel` stops.
    pub(super) fn await_worker(&mut self, cancel: Arc<Cancel>) {
        self.stage = Stage::Work(cancel);
    }

    /// Begins to send an answer.
    pub(super) fn reply(&mut self, response: Response, options: &Options) {
        let bytes = response.into_bytes(self.body);
        let now = Instant::now();
        self.until = now + options.write_timeout;
        self.stage = Stage::Reply { bytes, sent: 0, whole_until: now + REPLY_TIMEOUT };
        self.send(options);
    }

    /// Continues after something happened at the descriptor.
    pub(super) fn go_on(&mut self, options: &Options) -> Event {
        match &self.stage {
            Stage::Head(_) => return self.receive(options),
            Stage::Reply { .. } => self.send(options),
            Stage::Linger => self.drain(),
            // The client is gone.
            Stage::Work(_) => self.close(),
            Stage::Over => {}
        }
        Event::Nothing
    }

    /// Ends it if it is late.
    pub(super) fn check_time(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.close();
        }
    }

    fn receive(&mut self, options: &Options) -> Event {
        let Stage::Head(bytes) = &mut self.stage else { return Event::Nothing };
        let mut buffer = [0; 2048];
        loop {
            let n = match self.stream.read(&mut buffer) {
                Ok(0) => {
                    self.close();
                    return Event::Nothing;
                }
                Ok(n) => n,
                Err(error) if is_temporary(&error) => return Event::Nothing,
                Err(_) => {
                    self.close();
                    return Event::Nothing;
                }
            };
            // The head and a part of what follows, so that a head that is too long is noticed.
            let room = (HEAD_MAX + buffer.len()).saturating_sub(bytes.len());
            bytes.extend_from_slice(&buffer[..n.min(room)]);
            match parse(bytes) {
                Parsed::Partial => {}
                Parsed::Complete(request) => {
                    if request.method == Method::Head {
                        self.body = Body::Omitted;
                    }
                    return Event::Asked(request);
                }
                Parsed::Refused(response) => {
                    self.reply(response, options);
                    return Event::Nothing;
                }
            }
        }
    }

    fn send(&mut self, options: &Options) {
        let Stage::Reply { bytes, sent, whole_until } = &mut self.stage else { return };
        while *sent < bytes.len() {
            match self.stream.write(&bytes[*sent..]) {
                Ok(0) => return self.close(),
                Ok(n) => {
                    *sent += n;
                    self.until = (Instant::now() + options.write_timeout).min(*whole_until);
                }
                Err(error) if is_temporary(&error) => return,
                Err(_) => return self.close(),
            }
        }
        self.stream.end_writing();
        self.until = Instant::now() + LINGER_TIMEOUT;
        self.stage = Stage::Linger;
    }

    /// Reads what the client still sends, up to a limit in each call.
    fn drain(&mut self) {
        let mut buffer = [0; 4096];
        for _ in 0..16 {
            match self.stream.read(&mut buffer) {
                Ok(n) if n > 0 => {}
                Err(error) if is_temporary(&error) => return,
                _ => return self.close(),
            }
        }
    }
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}
