//! The traces that the environment asks for.

use super::BuildError;
use crate::runtime::Runtime;
use crate::trace::{FlightRecorder, Recording};
use heist_core::sync::{AtomicU32, Ordering};
use std::fs::File;
use std::path::{Path, PathBuf};
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
    flight: Option<FlightRecorder>,
}

impl RunningTraces {
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
            static N_FILES: AtomicU32 = AtomicU32::new(0);
            let path = numbered(path, N_FILES.fetch_add(1, Ordering::Relaxed));
            let recording = File::create(&path)
                .and_then(|file| Recording::begin(rt.sched(), Box::new(file), *seconds));
            running.recording = Some(recording.map_err(|error| BuildError::Option {
                option: "HEIST_TRACE",
                problem: format!("{} cannot be written: {error}", path.display()),
            })?);
        }
        if let Some(age) = self.flight {
            static N_FLIGHTS: AtomicU32 = AtomicU32::new(0);
            let path = PathBuf::from(format!("heist-{}.trace", std::process::id()));
            let path = numbered(&path, N_FLIGHTS.fetch_add(1, Ordering::Relaxed));
            let flight = FlightRecorder::begin(rt.sched(), age, Some(path));
            running.flight = Some(flight.map_err(BuildError::System)?);
        }
        rt.set_traces(running);
        Ok(())
    }
}

/// The file of the `n`th runtime of the process: the name itself, then with `.1`, `.2` and so on.
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
