//! A connection of the crate redis over heist's sockets.
//!
//! The crate's own blocking connection works on goroutines as it is; then a goroutine that waits
//! for an answer blocks its thread, and heist starts another one. Over heist's sockets it parks.
//! Commands, types and pipelines are the crate's: they take anything that is `ConnectionLike`.

use heist::net::TcpStream;
use redis::{ConnectionLike, Parser, RedisResult, Value};
use std::io::{self, BufReader, Write};
use std::net::ToSocketAddrs;
use std::time::Duration;

/// A connection to a Redis server, for one goroutine at a time.
pub struct Connection {
    stream: BufReader<TcpStream>,
    parser: Parser,
    db: i64,
    /// After an error of the socket nobody knows to which command the next answer belongs.
    is_broken: bool,
}

impl Connection {
    /// Connects to a server at an address such as `127.0.0.1:6379`.
    ///
    /// # Errors
    /// If the server does not answer, or refuses the database.
    pub fn open(address: impl ToSocketAddrs, db: i64) -> RedisResult<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        let stream = BufReader::new(stream);
        let mut connection = Self { stream, parser: Parser::new(), db, is_broken: false };
        if db != 0 {
            redis::cmd("SELECT").arg(db).exec(&mut connection)?;
        }
        Ok(connection)
    }

    /// Bounds the wait for an answer. When it is over, the connection is broken.
    ///
    /// # Errors
    /// If the time is zero.
    pub fn set_read_timeout(&self, limit: Option<Duration>) -> io::Result<()> {
        self.stream.get_ref().set_read_timeout(limit)
    }

    fn send(&mut self, bytes: &[u8]) -> RedisResult<()> {
        if self.is_broken {
            return Err(io::Error::from(io::ErrorKind::NotConnected).into());
        }
        // Until all answers are here: also if the goroutine is cancelled while it waits.
        self.is_broken = true;
        Ok(self.stream.get_mut().write_all(bytes)?)
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.send(command)?;
        let value = self.parser.parse_value(&mut self.stream)?;
        self.is_broken = false;
        value.extract_error()
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.send(commands)?;
        let mut values = Vec::with_capacity(count);
        for i in 0..offset + count {
            let value = self.parser.parse_value(&mut self.stream)?;
            if i >= offset {
                values.push(value);
            }
        }
        self.is_broken = false;
        Ok(values)
    }

    fn get_db(&self) -> i64 {
        self.db
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").query::<String>(self).is_ok()
    }

    fn is_open(&self) -> bool {
        !self.is_broken
    }
}
