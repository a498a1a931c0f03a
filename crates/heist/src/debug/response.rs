//! An answer: its status, its headers and its body.

use std::fmt::Write;

/// The statuses that are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Ok,
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    BodyTooLarge,
    HeadTooLarge,
    Internal,
    Unavailable,
}

impl Status {
    const fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::BadRequest => "400 Bad Request",
            Self::Unauthorized => "401 Unauthorized",
            Self::Forbidden => "403 Forbidden",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::BodyTooLarge => "413 Content Too Large",
            Self::HeadTooLarge => "431 Request Header Fields Too Large",
            Self::Internal => "500 Internal Server Error",
            Self::Unavailable => "503 Service Unavailable",
        }
    }
}

/// The formats of bodies.
pub(super) const TEXT: &str = "text/plain; charset=utf-8";
pub(super) const HTML: &str = "text/html; charset=utf-8";
const BINARY: &str = "application/octet-stream";
pub(super) const JSON: &str = "application/json";

/// An answer.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) status: Status,
    content_type: &'static str,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

/// A page may contain its own script and style, ask this server, and nothing else. No other site
/// may show it in a frame.
const SECURITY: &str = "default-src 'none'; style-src 'unsafe-inline'; \
                        script-src 'unsafe-inline'; img-src data:; connect-src 'self'; \
                        base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

impl Response {
    pub(super) fn new(content_type: &'static str, body: impl Into<Vec<u8>>) -> Self {
        Self { status: Status::Ok, content_type, headers: Vec::new(), body: body.into() }
    }

    /// An error with its reason as text.
    pub(super) fn error(status: Status, why: &str) -> Self {
        Self { status, ..Self::new(TEXT, format!("{why}\n")) }
    }

    /// A file that a browser saves under this name.
    pub(super) fn download(name: &str, body: Vec<u8>) -> Self {
        let disposition = format!("attachment; filename=\"{name}\"");
        Self::new(BINARY, body).with_header("Content-Disposition", disposition)
    }

    pub(super) fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    /// The bytes to send. The connection is closed after them.
    pub(super) fn into_bytes(self, body: Body) -> Vec<u8> {
        let mut head = format!(
            "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\
             Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
             Referrer-Policy: no-referrer\r\nCross-Origin-Resource-Policy: same-origin\r\n\
             Content-Security-Policy: {SECURITY}\r\n",
            self.status.line(),
            self.content_type,
            self.body.len(),
        );
        for (name, value) in &self.headers {
            // Writing to a String does not fail.
            let _ = write!(head, "{name}: {value}\r\n");
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        if body == Body::Sent {
            bytes.extend_from_slice(&self.body);
        }
        bytes
    }
}

/// Whether the body is sent: not for HEAD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Body {
    Sent,
    Omitted,
}
