//! HTTP/1.1 on any stream, in blocking style: heads are read by httparse, connections are kept
//! alive, and requests that come together are answered together.
//!
//! Bodies are read whole, with a length in front; chunked ones are refused. A request has a limit
//! in bytes and, from its first byte to its last, in time.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The maximum length of a head.
const HEAD_MAX: usize = 16 << 10;
const HEADERS_MAX: usize = 64;
/// The maximum length of a body.
const BODY_MAX: usize = 1 << 20;
/// Answers are sent at the latest when this many bytes are buffered.
const OUTGOING_MAX: usize = 64 << 10;

/// A complete request.
#[derive(Debug)]
pub struct Request<'a> {
    pub method: &'a str,
    pub target: &'a str,
    pub body: &'a [u8],
}

/// The answer to a request.
#[derive(Debug)]
pub struct Response<'a> {
    pub status: &'static str,
    pub content_type: &'static str,
    pub body: &'a [u8],
}

impl<'a> Response<'a> {
    pub const fn text(body: &'a [u8]) -> Self {
        Self { status: "200 OK", content_type: "text/plain", body }
    }
}

/// The stream of a connection.
pub trait Connection: Read + Write {
    /// Is called before the next read: nothing of the next request has come, or a part of it, and
    /// since when. The read fails by itself when it has taken too long.
    ///
    /// # Errors
    /// If the stream is closed.
    fn before_read(&mut self, _: Waiting) -> io::Result<()> {
        Ok(())
    }

    /// Whether the server stops: the answer that is made now is the last one.
    fn is_ending(&self) -> bool {
        false
    }
}

impl<C: Connection + ?Sized> Connection for &mut C {
    fn before_read(&mut self, waiting: Waiting) -> io::Result<()> {
        (**self).before_read(waiting)
    }

    fn is_ending(&self) -> bool {
        (**self).is_ending()
    }
}

/// The event that a read waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// The first byte of a request.
    ForRequest,
    /// The rest of a request that began at this time.
    ForRest(Instant),
}

/// Serves a connection until either side ends it.
///
/// # Errors
/// The errors of the stream; `UnexpectedEof` if it ends within a request.
pub fn serve<S: Connection>(
    mut stream: S,
    answer: impl for<'a> Fn(&Request<'a>) -> Response<'a>,
) -> io::Result<()> {
    let mut incoming = Incoming::new();
    let mut outgoing = Outgoing::new();
    let mut told_to_continue = false;
    let mut began = None;
    loop {
        match incoming.next() {
            Next::Request(request, head) => {
                told_to_continue = false;
                began = None;
                let keeps = head.keep_alive && !stream.is_ending();
                let ends = if keeps { Ends::No } else { Ends::AfterThis };
                outgoing.push(&answer(&request), head.wants_body, ends);
                let n = head.len + head.body_len;
                incoming.settle(n);
                if ends == Ends::AfterThis {
                    return outgoing.send(&mut stream);
                }
                if outgoing.bytes.len() >= OUTGOING_MAX {
                    outgoing.send(&mut stream)?;
                }
                // The next request may be there already: nothing is read before it is answered.
                continue;
            }
            Next::Partial { expects_continue: true } if !told_to_continue => {
                told_to_continue = true;
                outgoing.bytes.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n");
            }
            Next::Partial { .. } => {}
            Next::Refused(status) => {
                let refusal = Response { status, content_type: "text/plain", body: b"" };
                outgoing.push(&refusal, true, Ends::AfterThis);
                return outgoing.send(&mut stream);
            }
        }
        outgoing.send(&mut stream)?;
        if incoming.is_empty() && stream.is_ending() {
            return Ok(());
        }
        stream.before_read(if incoming.is_empty() {
            Waiting::ForRequest
        } else {
            Waiting::ForRest(*began.get_or_insert_with(Instant::now))
        })?;
        if incoming.read(&mut stream)? == 0 {
            return if incoming.is_empty() {
                Ok(())
            } else {
                Err(io::ErrorKind::UnexpectedEof.into())
            };
        }
    }
}

/// The bytes that were received and not answered yet.
struct Incoming {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

/// The properties of a request that its head determines.
struct Head {
    len: usize,
    body_len: usize,
    keep_alive: bool,
    expects_continue: bool,
    /// Whether the answer has a body: not for HEAD.
    wants_body: bool,
}

enum Next<'a> {
    Request(Request<'a>, Head),
    Partial { expects_continue: bool },
    Refused(&'static str),
}

impl Incoming {
    fn new() -> Self {
        Self { buffer: vec![0; 4096], start: 0, end: 0 }
    }

    const fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The first request of the received bytes.
    fn next(&self) -> Next<'_> {
        let bytes = &self.buffer[self.start..self.end];
        if bytes.is_empty() {
            return Next::Partial { expects_continue: false };
        }
        let mut headers = [const { std::mem::MaybeUninit::uninit() }; HEADERS_MAX];
        let mut request = httparse::Request::new(&mut []);
        let len = match request.parse_with_uninit_headers(bytes, &mut headers) {
            Ok(httparse::Status::Complete(len)) if len <= HEAD_MAX => len,
            Ok(httparse::Status::Complete(_)) => {
                return Next::Refused("431 Request Header Fields Too Large");
            }
            Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => {
                return Next::Partial { expects_continue: false };
            }
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Next::Refused("431 Request Header Fields Too Large");
            }
            Err(_) => return Next::Refused("400 Bad Request"),
        };
        let head = match Head::of(&request, len) {
            Ok(head) => head,
            Err(status) => return Next::Refused(status),
        };
        let Some(body) = bytes.get(len..len + head.body_len) else {
            return Next::Partial { expects_continue: head.expects_continue };
        };
        let Some(method) = request.method else { return Next::Refused("400 Bad Request") };
        let Some(target) = request.path.and_then(|target| origin_form(method, target)) else {
            return Next::Refused("400 Bad Request");
        };
        Next::Request(Request { method, target, body }, head)
    }

    /// Notes that `n` bytes are answered.
    fn settle(&mut self, n: usize) {
        self.start += n;
        if self.is_empty() {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads more. Makes room first: the rest of a request moves to the front.
    fn read(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.buffer.len() {
            // `next` refuses more bytes than a head and a body may have.
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let n = stream.read(&mut self.buffer[self.end..])?;
        self.end += n;
        Ok(n)
    }
}

impl Head {
    fn of(request: &httparse::Request<'_, '_>, len: usize) -> Result<Self, &'static str> {
        const BAD: &str = "400 Bad Request";
        let is_1_1 = request.version == Some(1);
        let mut head = Self {
            len,
            body_len: 0,
            keep_alive: is_1_1,
            expects_continue: false,
            wants_body: request.method != Some("HEAD"),
        };
        let (mut n_hosts, mut body_len) = (0, None);
        // Several headers of that name are one list, and in it `close` wins.
        let (mut closes, mut keeps) = (false, false);
        for header in &*request.headers {
            let (name, value) = (header.name, header.value);
            // Most headers are none of these; their lengths tell.
            match name.len() {
                4 if name.eq_ignore_ascii_case("host") => n_hosts += 1,
                6 if name.eq_ignore_ascii_case("expect") => {
                    head.expects_continue = value.eq_ignore_ascii_case(b"100-continue");
                }
                10 if name.eq_ignore_ascii_case("connection") => {
                    closes |= has_token(value, b"close");
                    keeps |= has_token(value, b"keep-alive");
                }
                14 if name.eq_ignore_ascii_case("content-length") => {
                    let n = parse_length(value).ok_or(BAD)?;
                    if body_len.replace(n).is_some_and(|other| other != n) {
                        return Err(BAD);
                    }
                }
                17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                    return Err("501 Not Implemented");
                }
                _ => {}
            }
        }
        if n_hosts > 1 || (is_1_1 && n_hosts == 0) {
            return Err(BAD);
        }
        head.keep_alive = !closes && (is_1_1 || keeps);
        head.body_len = body_len.unwrap_or(0);
        if head.body_len > BODY_MAX {
            return Err("413 Content Too Large");
        }
        Ok(head)
    }
}

/// The path of a target: one in absolute form has a scheme and an authority before it (RFC 9112,
/// 3.2).
fn origin_form<'a>(method: &str, target: &'a str) -> Option<&'a str> {
    if target.starts_with('/') || (target == "*" && method == "OPTIONS") {
        return Some(target);
    }
    let (scheme, rest) = target.split_once("://")?;
    if !scheme.eq_ignore_ascii_case("http") && !scheme.eq_ignore_ascii_case("https") {
        return None;
    }
    let path = rest.find(['/', '?']).unwrap_or(rest.len());
    match (&rest[..path], &rest[path..]) {
        ("", _) => None,
        (_, "") => Some("/"),
        // Without a path the query is that of the root, which has no name here.
        (_, path) => path.starts_with('/').then_some(path),
    }
}

fn has_token(list: &[u8], token: &[u8]) -> bool {
    list.split(|&byte| byte == b',').any(|item| item.trim_ascii().eq_ignore_ascii_case(token))
}

/// Digits and nothing else: no sign, which `parse` would take.
fn parse_length(value: &[u8]) -> Option<usize> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// Whether the connection ends after an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    No,
    AfterThis,
}

/// Answers that are not sent yet.
struct Outgoing {
    bytes: Vec<u8>,
    date: Date,
}

impl Outgoing {
    fn new() -> Self {
        Self { bytes: Vec::with_capacity(512), date: Date::new() }
    }

    fn push(&mut self, response: &Response<'_>, with_body: bool, ends: Ends) {
        let Response { status, content_type, body } = response;
        let out = &mut self.bytes;
        for part in ["HTTP/1.1 ", status, "\r\ncontent-type: ", content_type] {
            out.extend_from_slice(part.as_bytes());
        }
        out.extend_from_slice(b"\r\ncontent-length: ");
        push_number(out, body.len());
        out.extend_from_slice(b"\r\ndate: ");
        out.extend_from_slice(self.date.now().as_bytes());
        if ends == Ends::AfterThis {
            out.extend_from_slice(b"\r\nconnection: close");
        }
        out.extend_from_slice(b"\r\n\r\n");
        if with_body {
            out.extend_from_slice(body);
        }
    }

    fn send(&mut self, stream: &mut impl Write) -> io::Result<()> {
        if !self.bytes.is_empty() {
            stream.write_all(&self.bytes)?;
            self.bytes.clear();
        }
        Ok(())
    }
}

fn push_number(out: &mut Vec<u8>, mut n: usize) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// The time of day as HTTP writes it. Written anew once a second.
struct Date {
    second: u64,
    text: String,
}

impl Date {
    const fn new() -> Self {
        Self { second: 0, text: String::new() }
    }

    fn now(&mut self) -> &str {
        let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        if second != self.second || self.text.is_empty() {
            self.second = second;
            self.text = httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_secs(second));
        }
        &self.text
    }
}
