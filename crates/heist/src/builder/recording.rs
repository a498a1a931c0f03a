//! The traces that the environment asks for.

use super::BuildError;
use crate::runtime::Runtime;
use crate::sys::signal;
use crate::trace::{FlightRecorder, Recording};
use heist_core::sync::{AtomicU32, Ordering};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What is recorded of every runtime of the process.
#[derive(Clone, Debug, Default)]
pub(super) struct Traces {
    /// The file, and for how long.
    pub(super) file: Option<(PathBuf, Option<Duration>)>,
    /// How much a flight recorder keeps.
    pub(super) flight: Option<Duration>,
}

/// The traces of a runtime. They end with it.
#[derive(Debug, Default)]
pub(crate) struct RunningTraces {
    recording: Option<Recording>,
    flight: Option<Arc<FlightRecorder>>,
}

impl RunningTraces {
    /// The flight recorder, if there is one.
    pub(crate) fn flight(&self) -> Option<Arc<FlightRecorder>> {
        self.flight.clone()
    }

    /// Completes them. There is nobody to return an error to.
    pub(crate) fn end(&mut self) {
        drop(self.flight.take());
        if let Some(recording) = self.recording.take()
            && let Err(error) = recording.stop()
        {
            crate::sys::stderr::report(format_args!(
                "heist: HEIST_TRACE: the trace could not be written: {error}\n"
            ));
        }
    }
}

impl Traces {
    /// Parses `FILE` or `FILE,SECONDS`.
    pub(super) fn parse_file(text: &str) -> Option<(PathBuf, Option<Duration>)> {
        let (file, seconds) = match text.rsplit_once(',') {
            None => (text, None),
            Some((file, seconds)) => {
                let seconds: f64 = seconds.trim().parse().ok()?;
                let seconds = Duration::try_from_secs_f64(seconds).ok()?;
                (file, (!seconds.is_zero()).then_some(seconds).map(Some)?)
            }
        };
        (!file.is_empty()).then(|| (file.into(), seconds))
    }

    /// Begins what was asked for.
    pub(super) fn begin(&self, rt: &mut Runtime) -> Result<(), BuildError> {
        let mut running = RunningTraces::default();
        if let Some((path, seconds)) = &self.file {
            let (path, file) = next_file(path);
            let recording =
                file.and_then(|file| Recording::begin(rt.sched(), Box::new(file), *seconds));
            running.recording = Some(recording.map_err(|error| BuildError::Option {
                option: "HEIST_TRACE",
                problem: format!("{} cannot be written: {error}", path.display()),
            })?);
        }
        if let Some(age) = self.flight {
            static N_FLIGHTS: AtomicU32 = AtomicU32::new(0);
            let path = PathBuf::from(format!("heist-{}.trace", std::process::id()));
            let path = numbered(&path, N_FLIGHTS.fetch_add(1, Ordering::Relaxed));
            signal::speak_before_errors();
            let flight = FlightRecorder::begin(rt.sched(), age, Some(path));
            running.flight = Some(Arc::new(flight.map_err(BuildError::System)?));
        }
        rt.set_traces(running);
        Ok(())
    }
}

/// The file of the first runtime. Kept until the process ends, and with it the lock.
static FIRST: Mutex<Option<First>> = Mutex::new(None);

/// Which file the first runtime has.
struct First {
    /// The name in the environment.
    asked_for: PathBuf,
    /// The name that was free.
    path: PathBuf,
    n_runtimes: u32,
    /// Holds the lock.
    _file: Option<File>,
}

/// Opens the file of the next runtime of this process: the first gets the name itself, others the
/// name with `.1`, `.2` and so on. A program that this process starts inherits the variable, and
/// finds the file locked: its names have its process id in them.
fn next_file(asked_for: &Path) -> (PathBuf, io::Result<File>) {
    let mut first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(first) = first.as_mut().filter(|first| first.asked_for == asked_for) {
        first.n_runtimes += 1;
        let path = numbered(&first.path, first.n_runtimes);
        let file = File::create(&path);
        return (path, file);
    }
    let (path, file) = match lock(asked_for) {
        Ok(file) => (asked_for.to_owned(), Ok(file)),
        Err(TryLockError::WouldBlock) => {
            let path = numbered(asked_for, std::process::id());
            let file = File::create(&path);
            (path, file)
        }
        Err(TryLockError::Error(error)) => (asked_for.to_owned(), Err(error)),
    };
    let copy = file.as_ref().ok().and_then(|file| file.try_clone().ok());
    let asked_for = asked_for.to_owned();
    *first = Some(First { asked_for, path: path.clone(), n_runtimes: 0, _file: copy });
    (path, file)
}

/// Opens a file, and empties it unless another process has locked it.
fn lock(path: &Path) -> Result<File, TryLockError> {
    let file = File::options().write(true).create(true).truncate(false).open(path);
    let file = file.map_err(TryLockError::Error)?;
    // Any number of programs can write to a pipe, a terminal or nowhere.
    if !file.metadata().is_ok_and(|about| about.is_file()) {
        return Ok(file);
    }
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Err(TryLockError::WouldBlock),
        // Some file systems have no locks. Then the last process to start gets the file.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    file.set_len(0).map_err(TryLockError::Error)?;
    Ok(file)
}

/// The name itself for zero, otherwise with the number after a dot.
fn numbered(path: &Path, n: u32) -> PathBuf {
    if n == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{n}"));
    name.into()
}

#[test]
fn a_file_may_have_a_time() {
    let parsed = |text| Traces::parse_file(text);
    assert_eq!(parsed("a.trace"), Some(("a.trace".into(), None)));
    assert_eq!(parsed("a,b,2.5"), Some(("a,b".into(), Some(Duration::from_millis(2500)))));
    for wrong in ["", ",1", "a,", "a,x", "a,-1", "a,0", "a,inf"] {
        assert_eq!(parsed(wrong), None, "{wrong:?}");
    }
}
