//! The head of a request: what it asks for, or why it is refused.
//!
//! The crate `httparse` splits the head; this file decides what of it is accepted. The answer is
//! never a panic, whatever the bytes are.

use super::response::{Response, Status};

/// The most bytes of a head.
pub(super) const HEAD_MAX: usize = 8 << 10;
/// The most header lines of a head.
const HEADERS_MAX: usize = 64;

/// The methods that are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Get,
    Head,
}

/// A request that can be answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: Method,
    pub(super) path: String,
    query: String,
    pub(super) host: Option<String>,
    pub(super) origin: Option<String>,
    pub(super) fetch_site: Option<String>,
    pub(super) authorization: Option<String>,
    pub(super) accept: Option<String>,
}

/// What the bytes that came so far are.
#[derive(Debug)]
pub(super) enum Parsed {
    /// The beginning of a head.
    Partial,
    /// A request.
    Complete(Box<Request>),
    /// A head that is not accepted.
    Refused(Response),
}

/// Reads a head.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Request::new(&mut headers);
    match head.parse(bytes) {
        Ok(httparse::Status::Partial) if bytes.len() < HEAD_MAX => Parsed::Partial,
        Ok(httparse::Status::Complete(len)) if len <= HEAD_MAX => match accept(&head) {
            Ok(request) => Parsed::Complete(Box::new(request)),
            Err(refused) => Parsed::Refused(refused),
        },
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            refused(Status::HeadTooLarge, "the head of the request is too large")
        }
        Err(_) => refused(Status::BadRequest, "this is not an HTTP/1.1 request"),
    }
}

fn refused(status: Status, why: &str) -> Parsed {
    Parsed::Refused(Response::error(status, why))
}

fn accept(head: &httparse::Request<'_, '_>) -> Result<Request, Response> {
    let bad = |why: &str| Response::error(Status::BadRequest, why);
    let method = match head.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        _ => {
            let answer =
                Response::error(Status::MethodNotAllowed, "only GET and HEAD are answered");
            return Err(answer.with_header("Allow", "GET, HEAD"));
        }
    };
    let target = head.path.unwrap_or_default();
    if !target.starts_with('/') {
        return Err(bad("the target of the request must be a path"));
    }
    refuse_body(head.headers)?;
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Ok(Request {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
        host: only(head.headers, "Host")?,
        origin: only(head.headers, "Origin")?,
        fetch_site: only(head.headers, "Sec-Fetch-Site")?,
        authorization: only(head.headers, "Authorization")?,
        // It may be repeated; the first line decides.
        accept: only(head.headers, "Accept").unwrap_or_default(),
    })
}

/// A GET has no body here.
fn refuse_body(headers: &[httparse::Header<'_>]) -> Result<(), Response> {
    let has_body = headers.iter().any(|header| {
        let is = |name| header.name.eq_ignore_ascii_case(name);
        is("Transfer-Encoding") || is("Content-Length") && header.value != b"0"
    });
    if has_body {
        return Err(Response::error(Status::BodyTooLarge, "a request must not have a body"));
    }
    Ok(())
}

/// The value of a header that must not be repeated.
fn only(headers: &[httparse::Header<'_>], name: &str) -> Result<Option<String>, Response> {
    let mut found = headers.iter().filter(|header| header.name.eq_ignore_ascii_case(name));
    let Some(first) = found.next() else { return Ok(None) };
    match (std::str::from_utf8(first.value), found.next()) {
        (Ok(value), None) => Ok(Some(value.trim().to_owned())),
        _ => {
            let why = format!("the header {name} is repeated or is not text");
            Err(Response::error(Status::BadRequest, &why))
        }
    }
}

impl Request {
    /// The decoded value of a parameter of the query.
    pub(super) fn parameter(&self, name: &str) -> Option<String> {
        let pairs = self.query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let mut values = pairs.filter(|&(key, _)| key == name).map(|(_, value)| decode(value));
        values.next()
    }

    /// A parameter that is a number, or None if it is missing.
    pub(super) fn number(&self, name: &str) -> Result<Option<u64>, Response> {
        let Some(text) = self.parameter(name).filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        text.parse().map(Some).map_err(|_| {
            let why = format!("{name}={text} is not a number");
            Response::error(Status::BadRequest, &why)
        })
    }
}

/// Undoes the escapes of a query.
fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let hex = |digit: u8| (digit as char).to_digit(16);
        rest = after;
        bytes.push(match (first, after) {
            (b'+', _) => b' ',
            (b'%', [high, low, after @ ..]) => match (hex(*high), hex(*low)) {
                (Some(high), Some(low)) => {
                    rest = after;
                    (high * 16 + low) as u8
                }
                _ => b'%',
            },
            (byte, _) => byte,
        });
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn request(head: &str) -> Request {
        match parse(head.as_bytes()) {
            Parsed::Complete(request) => *request,
            other => panic!("{other:?}"),
        }
    }

    fn status(head: &[u8]) -> Option<Status> {
        match parse(head) {
            Parsed::Refused(response) => Some(response.status),
            Parsed::Partial | Parsed::Complete(_) => None,
        }
    }

    #[test]
    fn a_request_is_taken_apart() {
        let head = "GET /a/b?seconds=5&site=src%2Fa.rs+b&x HTTP/1.1\r\nhost: localhost:1\r\n\
                    ORIGIN: http://localhost:1\r\nSec-Fetch-Site: same-origin\r\n\r\n";
        let request = request(head);
        assert_eq!((request.method, &*request.path), (Method::Get, "/a/b"));
        assert_eq!(request.number("seconds").unwrap(), Some(5));
        assert_eq!(request.number("missing").unwrap(), None);
        assert_eq!(request.parameter("site").as_deref(), Some("src/a.rs b"));
        assert_eq!(request.number("x").unwrap(), None);
        assert!(request.number("site").is_err());
        assert_eq!(request.host.as_deref(), Some("localhost:1"));
        assert_eq!(request.origin.as_deref(), Some("http://localhost:1"));
        assert_eq!(request.fetch_site.as_deref(), Some("same-origin"));
    }

    #[test]
    fn wrong_heads_are_refused_with_a_reason() {
        let with = |line: &str| format!("GET / HTTP/1.1\r\n{line}\r\n\r\n").into_bytes();
        assert_eq!(status(b"POST / HTTP/1.1\r\n\r\n"), Some(Status::MethodNotAllowed));
        assert_eq!(status(b"GET http://a/ HTTP/1.1\r\n\r\n"), Some(Status::BadRequest));
        assert_eq!(status(b"\x16\x03\x01\x02\x00\x01\x00"), Some(Status::BadRequest));
        assert_eq!(status(&with("Content-Length: 5")), Some(Status::BodyTooLarge));
        assert_eq!(status(&with("Transfer-Encoding: chunked")), Some(Status::BodyTooLarge));
        assert_eq!(status(&with("Host: a\r\nHost: b")), Some(Status::BadRequest));
        assert_eq!(status(&with(&"a: b\r\n".repeat(65))), Some(Status::HeadTooLarge));
        assert_eq!(status(&vec![b'G'; HEAD_MAX]), Some(Status::HeadTooLarge));
        assert_eq!(status(&vec![b'G'; HEAD_MAX - 1]), None);
        let long = format!("GET /{} HTTP/1.1\r\n", "a".repeat(HEAD_MAX));
        assert_eq!(status(long.as_bytes()), Some(Status::HeadTooLarge));
    }

    proptest! {
        /// Any bytes are answered, and a prefix of a request is never taken for another request.
        #[test]
        fn any_bytes_have_an_answer(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = parse(&bytes);
        }

        /// A valid request, cut or changed in one place, is answered too.
        #[test]
        fn damaged_requests_have_an_answer(
            path in "/[a-z./?=&%+0-9]{0,40}",
            host in "[a-z0-9.:\\[\\]-]{0,20}",
            cut in 0_usize..200,
            change in any::<(u8, u8)>(),
        ) {
            let head = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\n\r\n");
            let whole = request(&head);
            prop_assert_eq!(whole.host.as_deref(), Some(&*host));
            let mut bytes = head.into_bytes();
            bytes.truncate(cut);
            let is_whole = matches!(parse(&bytes), Parsed::Complete(_));
            prop_assert!(!is_whole || bytes.ends_with(b"\r\n\r\n"));
            if let Some(byte) = bytes.get_mut(usize::from(change.0)) {
                *byte = change.1;
            }
            if let Parsed::Complete(request) = parse(&bytes) {
                let _ = (request.parameter("a"), request.number("seconds"));
            }
        }
    }
}
