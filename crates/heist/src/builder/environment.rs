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
        match item.split_once('=').unwrap_or((item, "")) {
            ("chaos", seed) => match seed.parse() {
                Ok(seed) => self.chaos = Some(seed),
                Err(_) => return Err("chaos=SEED with a number"),
            },
            ("quantum", text) => match duration(text) {
                Some(_) if self.exact_quantum => {}
                Some(quantum) => self.quantum = quantum,
                None => {
                    return Err("quantum=DURATION with a unit, such as 500us, 10ms or 1s");
                }
            },
            ("numa", nodes) => match nodes.parse() {
                Ok(nodes) if (1..=1024).contains(&nodes) => self.fake_nodes = Some(nodes),
                _ => return Err("numa=NODES, from 1 to 1024"),
            },
            ("schedtrace", ms) => match ms.parse() {
                Ok(ms) => self.trace_ms = ms,
                Err(_) => return Err("schedtrace=MILLISECONDS"),
            },
            ("containermaxprocs", "0") => self.cgroup_root = None,
            ("updatemaxprocs", "0") => self.follow_procs = false,
            ("containermaxprocs" | "updatemaxprocs", "1") => {}
            ("containermaxprocs" | "updatemaxprocs", _) => {
                return Err("containermaxprocs=0 and updatemaxprocs=0, or 1 for the default");
            }
            ("scheddetail", "0") => self.trace_detail = Detail::Summary,
            ("scheddetail", "1") => self.trace_detail = Detail::All,
            ("scheddetail", _) => return Err("scheddetail=0 or scheddetail=1"),
            ("server", text) => match Place::from_text(text) {
                Some(place) => self.debug_servers.push(place),
                None => {
                    return Err("server=PORT or a loopback address such as server=127.0.0.1:6060");
                }
            },
            ("socket", "" | "1") => self.debug_servers.push(Place::Socket),
            ("socket", "0") => {}
            ("socket", _) => return Err("socket, or socket=0"),
            ("shortturns", "0") => self.short_turns = false,
            ("shortturns", "1") => self.short_turns = true,
            ("shortturns", _) => return Err("shortturns=0 or shortturns=1"),
            ("flightrecorder", seconds) => match seconds.parse() {
                Ok(seconds) if seconds > 0 => {
                    self.traces.flight = Some(Duration::from_secs(seconds));
                }
                _ => return Err("flightrecorder=SECONDS, 1 or more"),
            },
            ("stuck", text) => match watched(text) {
                Some(limit) => self.orders.stuck = Some(limit),
                None => return Err("stuck=DURATION with a unit, such as 500ms or 2s"),
            },
            ("leaks", text) => match watched(text) {
                Some(period) => self.orders.leaks = Some(period),
                None => return Err("leaks=DURATION with a unit, such as 60s"),
            },
            ("slowstart", text) => match watched(text) {
                Some(limit) => self.orders.slow_start = Some(limit),
                None => return Err("slowstart=DURATION with a unit, such as 100ms"),
            },
            ("tlsreport", "" | "1") => self.tls_report = true,
            ("tlsreport", "0") => self.tls_report = false,
            ("tlsreport", _) => return Err("tlsreport, or tlsreport=0"),
            ("frames", "all") => text::show(Show::All),
            ("frames", "program") => text::show(Show::Program),
            ("frames", _) => return Err("frames=all, or frames=program for the default"),
            ("sigquit", "0") => reports::leave_quit(),
            ("sigquit", "1") => {}
            ("sigquit", _) => return Err("sigquit=0, or sigquit=1 for the default"),
            ("guard", way) if guard::protect_by(way) => {}
            ("guard", _) => return Err("guard=protect, or guard=install for the default"),
            _ => {
                return Err(
                    "a list of chaos=SEED, flightrecorder=SECONDS, frames=all, guard=WAY, leaks=DURATION, \
                     numa=NODES, quantum=DURATION, schedtrace=MS, scheddetail=1, server=ADDRESS, shortturns=1, sigquit=0, \
                     slowstart=DURATION, socket, stuck=DURATION, tlsreport, containermaxprocs=0 and \
                     updatemaxprocs=0",
                );
            }
        }
        Ok(())
    }
}

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
