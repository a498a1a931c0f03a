//! The servers that `HEIST_DEBUG` asks for.

use super::{DebugServer, Options, socket};
use crate::runtime::Handle;
use crate::sys::stderr;
use std::net::{Ipv4Addr, SocketAddr};

/// Where a server was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A loopback address.
    Address(SocketAddr),
    /// A Unix socket that is found by the process id.
    Socket,
}

impl Place {
    /// Reads the value of `server=`: a loopback address with a port, or only the port.
    pub(crate) fn from_text(text: &str) -> Option<Self> {
        let port = text.strip_prefix(':').unwrap_or(text).parse();
        let port = port.map(|port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let addr = port.or_else(|_| text.parse::<SocketAddr>()).ok()?;
        addr.ip().to_canonical().is_loopback().then_some(Self::Address(addr))
    }

    /// Starts the server. If that fails, it says so on standard error: programs that this one
    /// starts inherit the variable, and must not fail because the address is taken.
    pub(crate) fn serve(self, handle: &Handle) -> Option<DebugServer> {
        let (server, place) = match self {
            Self::Address(addr) => (Options::new().serve_on(handle, addr), addr.to_string()),
            Self::Socket => (socket::serve(handle), socket::socket_dir().display().to_string()),
        };
        match server {
            Ok(server) => Some(server),
            Err(error) => {
                stderr::report(format_args!(
                    "heist: HEIST_DEBUG: the debug server at {place} does not start: {error}\n"
                ));
                None
            }
        }
    }
}

#[test]
fn only_loopback_addresses_are_places() {
    let address = |text: &str| match Place::from_text(text) {
        Some(Place::Address(addr)) => Some(addr.to_string()),
        _ => None,
    };
    assert_eq!(address("6060").as_deref(), Some("127.0.0.1:6060"));
    assert_eq!(address(":0").as_deref(), Some("127.0.0.1:0"));
    assert_eq!(address("127.0.0.1:80").as_deref(), Some("127.0.0.1:80"));
    assert_eq!(address("[::1]:80").as_deref(), Some("[::1]:80"));
    for text in ["", "x", "0.0.0.0:80", "192.0.2.1:80", "127.0.0.1", "70000", "[::]:1"] {
        assert_eq!(address(text), None, "{text}");
    }
}
