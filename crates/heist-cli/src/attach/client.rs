//! One request to a debug server: the least of HTTP that it takes.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// A connection.
pub enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub fn to_address(addr: &str, patience: Duration) -> io::Result<Self> {
        let stream = TcpStream::connect(addr)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self::Tcp(stream))
    }

    pub fn to_socket(path: &Path, patience: Duration) -> io::Result<Self> {
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self::Unix(stream))
    }

    fn exchange(mut self, request: &str) -> io::Result<Vec<u8>> {
        let mut answer = Vec::new();
        match &mut self {
            Self::Tcp(stream) => {
                stream.write_all(request.as_bytes())?;
                stream.read_to_end(&mut answer)?;
            }
            Self::Unix(stream) => {
                stream.write_all(request.as_bytes())?;
                stream.read_to_end(&mut answer)?;
            }
        }
        Ok(answer)
    }

    /// Asks for a path. Returns the body, or the reason why there is none.
    pub fn get(self, host: &str, path: &str, token: Option<&str>) -> Result<Vec<u8>, String> {
        let token = token.map_or_else(String::new, |t| format!("Authorization: Bearer {t}\r\n"));
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{token}\r\n");
        let answer = self.exchange(&request).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock => "no answer in time".to_owned(),
            _ => error.to_string(),
        })?;
        body_of(&answer)
    }
}

/// The body of an answer whose status is 200, or the text of the error.
fn body_of(answer: &[u8]) -> Result<Vec<u8>, String> {
    let Some(end) = answer.windows(4).position(|four| four == b"\r\n\r\n") else {
        return Err("this is not an answer of a debug server".to_owned());
    };
    let (head, body) = (String::from_utf8_lossy(&answer[..end]), &answer[end + 4..]);
    let status = head.split(' ').nth(1).unwrap_or_default();
    let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: "));
    if length.and_then(|n| n.parse().ok()).is_some_and(|n: usize| n != body.len()) {
        return Err("the answer was cut off".to_owned());
    }
    match status {
        "200" => Ok(body.to_vec()),
        status => Err(format!("{status}: {}", String::from_utf8_lossy(body).trim())),
    }
}

#[test]
fn answers_are_taken_apart() {
    let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab";
    assert_eq!(body_of(whole), Ok(b"ab".to_vec()));
    assert_eq!(body_of(&whole[..whole.len() - 1]), Err("the answer was cut off".to_owned()));
    assert_eq!(body_of(b"HTTP/1.1 404 Not Found\r\n\r\nno\n"), Err("404: no".to_owned()));
    assert!(body_of(b"SSH-2.0-x").is_err());
}
