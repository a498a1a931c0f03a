//! Which program to ask: by its process id, the address of its server, or its socket.

use super::client::Stream;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A debug server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    place: Place,
    token: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Address(String),
    Socket(PathBuf),
}

/// What to do if nothing listens.
const REMEDY: &str = "Start the program with HEIST_DEBUG=socket to be found by its process id, or with \
                      HEIST_DEBUG=server=127.0.0.1:6060, or let it call heist::debug::serve.";

impl Target {
    /// The server that is meant by `text`: a process id, an address, a port as `:PORT`, or a path.
    /// Without a text the only program with a socket.
    pub fn find(text: Option<&str>) -> Result<Self, String> {
        let place = match text {
            None => only_socket(&heist::debug::socket_dir())?,
            Some(text) if text.contains('/') => Place::Socket(text.into()),
            Some(text) => match text.parse::<u32>() {
                Ok(pid) => socket_of(&heist::debug::socket_dir(), pid)?,
                Err(_) if text.starts_with(':') => Place::Address(format!("127.0.0.1{text}")),
                Err(_) if text.contains(':') => Place::Address(text.to_owned()),
                Err(_) => {
                    return Err(format!(
                        "{text}: expected a process id, ADDRESS:PORT, :PORT or the path of a socket"
                    ));
                }
            },
        };
        Ok(Self { place, token: None })
    }

    /// With the token that profiles and traces need.
    pub fn with_token(self, token: Option<String>) -> Self {
        Self { token, ..self }
    }

    /// Asks for a path.
    pub fn get(&self, path: &str, patience: Duration) -> Result<Vec<u8>, String> {
        let (stream, host) = match &self.place {
            Place::Address(addr) => (Stream::to_address(addr, patience), addr.as_str()),
            Place::Socket(path) => (Stream::to_socket(path, patience), "localhost"),
        };
        let stream = stream.map_err(|error| match error.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => {
                format!("nothing listens at {self}. {REMEDY}")
            }
            _ => format!("{self}: {error}"),
        })?;
        stream.get(host, path, self.token.as_deref()).map_err(|error| format!("{self}: {error}"))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.place {
            Place::Address(addr) => f.write_str(addr),
            Place::Socket(path) => path.display().fmt(f),
        }
    }
}

fn sockets(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut all: Vec<_> = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "sock"))
        .collect();
    all.sort();
    all
}

fn socket_of(dir: &Path, pid: u32) -> Result<Place, String> {
    let path = dir.join(format!("{pid}.sock"));
    if path.exists() {
        return Ok(Place::Socket(path));
    }
    Err(format!("process {pid} has no socket in {}. {REMEDY}", dir.display()))
}

/// The socket of the only program that has one and listens.
fn only_socket(dir: &Path) -> Result<Place, String> {
    let mut alive = sockets(dir);
    alive.retain(|path| std::os::unix::net::UnixStream::connect(path).is_ok());
    match &*alive {
        [] => Err(format!("no program has a socket in {}. {REMEDY}", dir.display())),
        [one] => Ok(Place::Socket(one.clone())),
        several => {
            let names: Vec<_> = several.iter().filter_map(|path| path.file_stem()).collect();
            let names: Vec<_> = names.iter().map(|name| name.to_string_lossy()).collect();
            Err(format!("several programs have a socket; name one: {}", names.join(", ")))
        }
    }
}

#[test]
fn targets_are_told_apart() {
    let place = |text| Target::find(Some(text)).map(|target| target.place);
    assert_eq!(place(":6060"), Ok(Place::Address("127.0.0.1:6060".into())));
    assert_eq!(place("[::1]:80"), Ok(Place::Address("[::1]:80".into())));
    assert_eq!(place("./a.sock"), Ok(Place::Socket("./a.sock".into())));
    assert!(place("4294967295").unwrap_err().contains("HEIST_DEBUG=socket"));
    assert!(place("nonsense").unwrap_err().contains("process id"));
}
