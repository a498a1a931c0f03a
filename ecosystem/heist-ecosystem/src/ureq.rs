//! A transport of the crate ureq over heist's sockets.
//!
//! ureq works on goroutines as it is; then a goroutine that waits for an answer blocks its thread,
//! and heist starts another one. Over heist's sockets it parks, so thousands may wait on a few
//! threads. Timeouts are those of ureq's configuration.

use heist::net::TcpStream;
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::mem::MaybeUninit;
use std::time::Duration;
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Agent, Error, Timeout};

/// An agent whose connections are sockets of heist. It speaks plain HTTP.
#[must_use]
pub fn agent(config: Config) -> Agent {
    Agent::with_parts(config, HeistConnector, DefaultResolver::default())
}

/// Opens connections for an agent; may be chained with ureq's connectors for TLS.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeistConnector;

impl Connector for HeistConnector {
    type Out = HeistTransport;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<()>,
    ) -> Result<Option<HeistTransport>, Error> {
        let limit = duration(&details.timeout);
        let mut last = io::ErrorKind::AddrNotAvailable.into();
        for address in &details.addrs {
            let connected = match limit {
                Some(limit) => TcpStream::connect_timeout(address, limit),
                None => TcpStream::connect(address),
            };
            match connected {
                Ok(stream) => {
                    stream.set_nodelay(details.config.no_delay())?;
                    let config = details.config;
                    let buffers =
                        LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
                    return Ok(Some(HeistTransport { stream, buffers }));
                }
                Err(error) => last = error,
            }
        }
        Err(failed(last, Timeout::Connect))
    }
}

/// A connection of an agent.
#[derive(Debug)]
pub struct HeistTransport {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl Transport for HeistTransport {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(duration(&timeout))?;
        let output = &self.buffers.output()[..amount];
        self.stream.write_all(output).map_err(|error| failed(error, timeout.reason))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(duration(&timeout))?;
        let input = self.buffers.input_append_buf();
        let n = self.stream.read(input).map_err(|error| failed(error, timeout.reason))?;
        self.buffers.input_appended(n);
        Ok(n > 0)
    }

    fn is_open(&mut self) -> bool {
        // Nothing is expected between two requests: neither bytes nor the end.
        let mut byte = [MaybeUninit::uninit()];
        match SockRef::from(&self.stream).peek(&mut byte) {
            Err(error) => error.kind() == io::ErrorKind::WouldBlock,
            Ok(_) => false,
        }
    }
}

/// The time that is left. At least a moment: zero would mean "no limit" to some callers and is
/// refused by others.
fn duration(timeout: &NextTimeout) -> Option<Duration> {
    let left = *timeout.not_zero()?;
    Some(left.max(Duration::from_millis(1)))
}

fn failed(error: io::Error, reason: Timeout) -> Error {
    match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => Error::Timeout(reason),
        _ => Error::Io(error),
    }
}
