//! Which requests are allowed.
//!
//! A web page of another site can make a browser send requests to this server, also when it listens
//! at the loopback address only. Three rules keep such a page from reading an answer or causing
//! work:
//! - `Host` must be an address or a name that was allowed. With a name of its own that suddenly
//!   means 127.0.0.1 (DNS rebinding), a page would share its origin with this server. An address
//!   cannot be rebound.
//! - `Sec-Fetch-Site`, which browsers set and pages cannot, must not name another site.
//! - `Origin` must be this server.

use super::options::Options;
use super::request::Request;
use super::response::{Response, Status};
use std::net::{IpAddr, Ipv6Addr};

/// How a request came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Via {
    /// A TCP connection from this machine.
    Loopback,
    /// A TCP connection from another machine.
    Network,
    /// A Unix socket: the peer is of the same user.
    Socket,
}

/// Whether an answer costs the program more than reading its counters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cost {
    Free,
    /// It needs the token, if there is one, and does not go to another machine without one.
    Token,
}

/// Refuses a request that may have been caused by another site.
pub(super) fn check_origin(request: &Request, via: Via, options: &Options) -> Result<(), Response> {
    if via == Via::Socket {
        return Ok(());
    }
    let Some(host) = &request.host else {
        return Err(Response::error(Status::BadRequest, "the request has no Host"));
    };
    if !is_allowed(host, options) {
        let why = "this Host is not served: use the address, or allow the name when the server \
                   is started (heist::debug::Options::host)";
        return Err(Response::error(Status::Forbidden, why));
    }
    let other_site = match request.fetch_site.as_deref() {
        None | Some("same-origin" | "none") => false,
        Some(_) => true,
    };
    let other_origin = request.origin.as_ref().is_some_and(|origin| {
        origin.strip_prefix("http://").is_none_or(|origin| !origin.eq_ignore_ascii_case(host))
    });
    if other_site || other_origin {
        return Err(Response::error(Status::Forbidden, "a page of another site asks for this"));
    }
    Ok(())
}

/// Whether `host`, with or without a port, is an address or an allowed name.
fn is_allowed(host: &str, options: &Options) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((inner, _)) => return inner.parse::<Ipv6Addr>().is_ok(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || options.hosts.iter().any(|allowed| name.eq_ignore_ascii_case(allowed))
}

/// Refuses a request that may not cause work.
pub(super) fn check_token(request: &Request, via: Via, options: &Options) -> Result<(), Response> {
    let Some(token) = &options.token else {
        return match via {
            Via::Loopback | Via::Socket => Ok(()),
            Via::Network => {
                let why = "this costs the program time, and is served to other machines with a \
                           token only (heist::debug::Options::token)";
                Err(Response::error(Status::Forbidden, why))
            }
        };
    };
    let header = request.authorization.as_deref().and_then(|value| value.strip_prefix("Bearer "));
    let given = header.map(str::to_owned).or_else(|| request.parameter("token"));
    if given.is_some_and(|given| is_same(given.as_bytes(), token.as_bytes())) {
        return Ok(());
    }
    let why = "this needs the token of the server: Authorization: Bearer TOKEN, or ?token=TOKEN";
    let answer = Response::error(Status::Unauthorized, why);
    Err(answer.with_header("WWW-Authenticate", "Bearer"))
}

/// Compares without stopping at the first difference, so that the time does not tell where it is.
fn is_same(given: &[u8], token: &[u8]) -> bool {
    let differences = given.iter().zip(token).fold(0, |all, (a, b)| all | (a ^ b));
    given.len() == token.len() && std::hint::black_box(differences) == 0
}

#[cfg(test)]
mod tests {
    use super::super::request::{Parsed, parse};
    use super::*;

    fn request(lines: &str) -> Request {
        match parse(format!("GET /x?token=b HTTP/1.1\r\n{lines}\r\n\r\n").as_bytes()) {
            Parsed::Complete(request) => *request,
            other => panic!("{other:?}"),
        }
    }

    fn status(result: Result<(), Response>) -> Option<Status> {
        result.err().map(|response| response.status)
    }

    #[test]
    fn names_that_can_be_rebound_are_refused() {
        let options = Options::new().host("metrics.internal");
        let check = |host: &str| {
            let request = request(&format!("Host: {host}"));
            status(check_origin(&request, Via::Loopback, &options))
        };
        for host in ["127.0.0.1:80", "localhost", "LOCALHOST:1", "[::1]:80", "10.0.0.1"] {
            assert_eq!(check(host), None, "{host}");
        }
        assert_eq!(check("metrics.internal:9"), None);
        for host in ["attacker.example", "127.0.0.1.attacker.example:80", "[x]", ""] {
            assert_eq!(check(host), Some(Status::Forbidden), "{host}");
        }
        let without = request("Accept: */*");
        assert_eq!(
            status(check_origin(&without, Via::Loopback, &options)),
            Some(Status::BadRequest)
        );
        assert_eq!(status(check_origin(&without, Via::Socket, &options)), None);
    }

    #[test]
    fn pages_of_other_sites_are_refused() {
        let options = Options::new();
        let check = |line: &str| {
            let request = request(&format!("Host: localhost:80\r\n{line}"));
            status(check_origin(&request, Via::Loopback, &options))
        };
        assert_eq!(check("Origin: http://localhost:80"), None);
        assert_eq!(check("Sec-Fetch-Site: none"), None);
        for line in [
            "Origin: http://localhost:81",
            "Origin: https://localhost:80",
            "Origin: null",
            "Sec-Fetch-Site: cross-site",
            "Sec-Fetch-Site: same-site",
        ] {
            assert_eq!(check(line), Some(Status::Forbidden), "{line}");
        }
    }

    #[test]
    fn work_needs_the_token() {
        let (open, closed) = (Options::new(), Options::new().token("secret"));
        let plain = request("Host: localhost");
        assert_eq!(status(check_token(&plain, Via::Loopback, &open)), None);
        assert_eq!(status(check_token(&plain, Via::Network, &open)), Some(Status::Forbidden));
        for via in [Via::Loopback, Via::Network, Via::Socket] {
            assert_eq!(status(check_token(&plain, via, &closed)), Some(Status::Unauthorized));
            let right = request("Host: localhost\r\nAuthorization: Bearer secret");
            assert_eq!(status(check_token(&right, via, &closed)), None);
            let longer = request("Host: localhost\r\nAuthorization: Bearer secrets");
            assert_eq!(status(check_token(&longer, via, &closed)), Some(Status::Unauthorized));
        }
        // The query of these requests has `token=b`.
        assert_eq!(status(check_token(&plain, Via::Network, &Options::new().token("b"))), None);
    }
}
