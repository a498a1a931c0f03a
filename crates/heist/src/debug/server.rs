//! The loop of the debug server, on a thread of its own.
//!
//! It does not run on goroutines: people look at a program when it makes no progress, and then no
//! goroutine would answer. So this thread uses std's sockets and `poll`, holds no P, and reads the
//! scheduler as sysmon does. It wakes no goroutine, so that a deadlock is found while it waits (see
//! `sys::bystanders`). While no client is connected it sleeps.
//!
//! One thread serves all connections without blocking on any of them. A slow client therefore costs
//! a small buffer until its deadline, and nobody else's time.

use super::connection::{Connection, Event};
use super::listener::{Accepted, Listener};
use super::routes::{self, Answer, Context};
use super::worker::{Workers, guarded};
use crate::sys::bystanders::Bystander;
use crate::sys::poll::{self, Bell};
use crate::sys::poll_set::{Interest, PollSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long no connection is accepted after the system refused one.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// What the handle and the thread of a server share.
#[derive(Debug)]
pub(super) struct Control {
    bell: Arc<Bell>,
    stop: AtomicBool,
}

impl Control {
    pub(super) fn new() -> std::io::Result<Self> {
        Ok(Self { bell: Arc::new(Bell::new()?), stop: AtomicBool::new(false) })
    }

    /// Asks the thread to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.bell.ring();
    }
}

/// The state of the loop.
pub(super) struct Server {
    control: Arc<Control>,
    listener: Listener,
    context: Context,
    connections: Vec<Connection>,
    n_accepted: u64,
    /// No connection is accepted until then.
    paused_until: Option<Instant>,
    workers: Workers,
}

impl Server {
    pub(super) fn new(
        control: Arc<Control>,
        listener: Listener,
        context: Context,
        name: String,
    ) -> Self {
        let workers = Workers::new(name, Arc::clone(&control.bell));
        Self {
            control,
            listener,
            context,
            connections: Vec::new(),
            n_accepted: 0,
            paused_until: None,
            workers,
        }
    }

    /// Serves until [`Control::stop`].
    pub(super) fn run(mut self) {
        let _bystander = Bystander::new();
        let mut set = PollSet::default();
        while !self.control.stop.load(Ordering::Relaxed) {
            set.clear();
            let bell = set.add(self.control.bell.fd(), Interest::Reading);
            let is_open = self.paused_until.is_none();
            let listener = if is_open { self.listener.fd() } else { poll::NO_BELL };
            let listener = set.add(listener, Interest::Reading);
            for connection in &self.connections {
                let (fd, interest) = connection.interest();
                set.add(fd, interest);
            }
            if set.wait(self.patience()).is_err() {
                // The system lacks memory for the moment.
                crate::sys::thread::nap(ACCEPT_PAUSE);
                continue;
            }
            let ready = |at: &usize| set.is_ready(listener + 1 + at);
            let ready: Vec<_> = (0..self.connections.len()).filter(ready).collect();
            for at in ready {
                self.serve(at);
            }
            if set.is_ready(bell) {
                poll::silence(self.control.bell.fd());
                self.hand_out();
            }
            self.check_times();
            if set.is_ready(listener) {
                self.accept();
            }
        }
        self.connections.iter_mut().for_each(Connection::close);
        self.workers.join();
    }

    /// How long the loop may sleep.
    fn patience(&self) -> Option<Duration> {
        let deadlines = self.connections.iter().filter_map(Connection::deadline);
        let first = deadlines.chain(self.paused_until).min()?;
        Some(first.saturating_duration_since(Instant::now()))
    }

    fn serve(&mut self, at: usize) {
        let connection = &mut self.connections[at];
        let options = &self.context.options;
        let Event::Asked(request) = connection.go_on(options) else { return };
        let via = connection.via;
        match guarded(|| routes::answer(&self.context, &request, via)) {
            Answer::Now(response) => connection.reply(response, options),
            Answer::Later(work) => match self.workers.start(connection.number, work) {
                Ok(cancel) => connection.await_worker(cancel),
                Err(refused) => connection.reply(refused, options),
            },
        }
    }

    /// Hands the answers of workers to their connections.
    fn hand_out(&mut self) {
        while let Some((number, response)) = self.workers.next_done() {
            let mut all = self.connections.iter_mut();
            if let Some(connection) = all.find(|connection| connection.number == number) {
                connection.reply(response, &self.context.options);
            }
        }
    }

    fn check_times(&mut self) {
        let now = Instant::now();
        self.connections.iter_mut().for_each(|connection| connection.check_time(now));
        self.connections.retain(|connection| !connection.is_over());
        self.paused_until = self.paused_until.filter(|until| *until > now);
    }

    fn accept(&mut self) {
        // A bound, so that a flood of connections does not keep the others from being served.
        for _ in 0..self.context.options.connections_max {
            match self.listener.accept() {
                Accepted::One(stream, via) => {
                    self.make_room();
                    self.n_accepted += 1;
                    let options = &self.context.options;
                    let connection = Connection::new(self.n_accepted, stream, via, options);
                    self.connections.push(connection);
                }
                Accepted::Nothing => return,
                Accepted::Refused => {
                    self.paused_until = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    /// Closes the oldest connection if there are too many.
    fn make_room(&mut self) {
        if self.connections.len() >= self.context.options.connections_max {
            let oldest = self.connections.iter().position(Connection::is_dispensable).unwrap_or(0);
            self.connections.remove(oldest).close();
        }
    }
}
