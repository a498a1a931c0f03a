//! The options that environment variables override.

use super::recording::Traces;
use super::{BuildError, Builder};
use crate::coro::guard;
use crate::debug::Place;
use crate::sched::Detail;
use crate::sys::env;
use crate::traceback::reports;
use crate::traceback::text::{self, Show};
use std::ffi::OsString;
use std::time::Duration;

#[cfg(test)]
mod tests;

/// Where variables are looked up.
type Lookup<'a> = &'a dyn Fn(&str) -> Option<OsString>;

impl Builder {
    pub(super) fn with_environment(self) -> Result<Self, BuildError> {
        self.with_variables(&env::var)
    }

    fn with_variables(mut self, lookup: Lookup<'_>) -> Result<Self, BuildError> {
        let parsed = Parser(lookup);
        if let Some(procs) =
            parsed.get("HEIST_PROCS", "a number of processors, 1 or more", number)?
        {
            self.procs = Some(procs);
        }
        let bytes = parsed.get("HEIST_STACK_SIZE", "a size such as 262144, 256k or 1m", size)?;
        self.stack_bytes = bytes.unwrap_or(self.stack_bytes);
        let threads = parsed.get("HEIST_MAX_THREADS", "a number of threads, 1 or more", number)?;
        self.max_threads = threads.unwrap_or(self.max_threads);
        let policy =
            parsed.get("HEIST_STEAL_POLICY", "go or gentle", |value| value.parse().ok())?;
        self.steal = policy.unwrap_or(self.steal);
        let file = "a file, or a file and seconds, such as app.trace or app.trace,10";
        self.traces.file =
            parsed.get("HEIST_TRACE", file, Traces::parse_file)?.or(self.traces.file);
        self.with_debug(lookup)
    }

    /// `HEIST_DEBUG`: an error shows the whole list, and what is expected of its first wrong item.
    fn with_debug(mut self, lookup: Lookup<'_>) -> Result<Self, BuildError> {
        let variable = "HEIST_DEBUG";
        let list = lookup(variable).unwrap_or_default();
        let list = list.to_string_lossy();
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            self.set_debug(item).map_err(|expected| BuildError::Environment {
                variable,
                value: list.clone().into_owned(),
                expected,
            })?;
        }
        Ok(self)
    }

    /// Sets one item of the list. The error says what was expected.
    fn set_debug(&mut self, item: &str) -> Result<(), &'static str> {
        let (name, value) = item.split_once('=').unwrap_or((item, ""));
        match name {
            "chaos" => {
                self.chaos = Some(value.parse().map_err(|_| "chaos=SEED with a number")?);
            }
            "quantum" => {
                let units = "quantum=DURATION with a unit, such as 500us, 10ms or 1s";
                let quantum = duration(value).ok_or(units)?;
                self.quantum = if self.exact_quantum { self.quantum } else { quantum };
            }
            "numa" => {
                let nodes = value.parse().ok().filter(|nodes| (1..=1024).contains(nodes));
                self.fake_nodes = Some(nodes.ok_or("numa=NODES, from 1 to 1024")?);
            }
            "containermaxprocs" => match switch(value) {
                Some(true) => {}
                Some(false) => self.cgroup_root = None,
                None => return Err("containermaxprocs=0, or 1 for the default"),
            },
            "updatemaxprocs" => match switch(value) {
                Some(true) => {}
                Some(false) => self.follow_procs = false,
                None => return Err("updatemaxprocs=0, or 1 for the default"),
            },
            "shortturns" => {
                self.short_turns = switch(value).ok_or("shortturns=0 or shortturns=1")?;
            }
            "guard" if guard::protect_by(value) => {}
            "guard" => return Err("guard=protect, or guard=install for the default"),
            _ => return self.set_report(name, value),
        }
        Ok(())
    }

    /// Sets an item that is about what the runtime shows of itself.
    fn set_report(&mut self, name: &str, value: &str) -> Result<(), &'static str> {
        match name {
            "schedtrace" => {
                self.trace_ms = value.parse().map_err(|_| "schedtrace=MILLISECONDS")?;
            }
            "scheddetail" => {
                let all = switch(value).ok_or("scheddetail=0 or scheddetail=1")?;
                self.trace_detail = if all { Detail::All } else { Detail::Summary };
            }
            "server" => {
                let address = "server=PORT or a loopback address such as server=127.0.0.1:6060";
                self.debug_servers.push(Place::from_text(value).ok_or(address)?);
            }
            "socket" if flag(value).ok_or("socket, or socket=0")? => {
                self.debug_servers.push(Place::Socket);
            }
            "socket" => {}
            "flightrecorder" => {
                let seconds = value.parse().ok().filter(|&seconds| seconds > 0);
                let seconds = seconds.ok_or("flightrecorder=SECONDS, 1 or more")?;
                self.traces.flight = Some(Duration::from_secs(seconds));
            }
            "stuck" => {
                let limit = watched(value).ok_or("stuck=DURATION with a unit, such as 500ms or 2s");
                self.orders.stuck = Some(limit?);
            }
            "leaks" => {
                let period = watched(value).ok_or("leaks=DURATION with a unit, such as 60s");
                self.orders.leaks = Some(period?);
            }
            "slowstart" => {
                let limit = watched(value).ok_or("slowstart=DURATION with a unit, such as 100ms");
                self.orders.slow_start = Some(limit?);
            }
            "tlsreport" => self.tls_report = flag(value).ok_or("tlsreport, or tlsreport=0")?,
            "frames" => match value {
                "all" => text::show(Show::All),
                "program" => text::show(Show::Program),
                _ => return Err("frames=all, or frames=program for the default"),
            },
            "sigquit" if switch(value).ok_or("sigquit=0, or sigquit=1 for the default")? => {}
            "sigquit" => reports::leave_quit(),
            _ => return Err(ITEMS),
        }
        Ok(())
    }
}

/// What is expected of an item that does not exist.
const ITEMS: &str = "a list of chaos=SEED, flightrecorder=SECONDS, frames=all, guard=WAY, leaks=DURATION, \
     numa=NODES, quantum=DURATION, schedtrace=MS, scheddetail=1, server=ADDRESS, shortturns=1, \
     sigquit=0, slowstart=DURATION, socket, stuck=DURATION, tlsreport, containermaxprocs=0 and \
     updatemaxprocs=0";

/// Parses single variables.
struct Parser<'a>(Lookup<'a>);

impl Parser<'_> {
    /// A variable, if it is set and not empty.
    fn get<T>(
        &self,
        variable: &'static str,
        expected: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, BuildError> {
        let value = match self.0(variable) {
            None => return Ok(None),
            Some(value) => value.to_string_lossy().into_owned(),
        };
        match value.trim() {
            "" => Ok(None),
            text => match parse(text) {
                Some(parsed) => Ok(Some(parsed)),
                None => Err(BuildError::Environment { variable, value, expected }),
            },
        }
    }
}

fn number(text: &str) -> Option<usize> {
    text.parse().ok().filter(|&n| n > 0)
}

/// A whole number with a unit.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().ok()?;
    match &text[digits.len()..] {
        "ns" => Some(Duration::from_nanos(number)),
        "us" | "\u{b5}s" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

/// Zero or one.
fn switch(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// As [`switch`]; the name alone means one.
fn flag(text: &str) -> Option<bool> {
    if text.is_empty() { Some(true) } else { switch(text) }
}

/// A duration that something is watched for.
fn watched(text: &str) -> Option<Duration> {
    duration(text).filter(|time| !time.is_zero())
}

fn size(text: &str) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    let (digits, unit) = match text.strip_suffix(['k', 'm']) {
        Some(digits) if text.ends_with('k') => (digits, 1 << 10),
        Some(digits) => (digits, 1 << 20),
        None => (&*text, 1),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}
