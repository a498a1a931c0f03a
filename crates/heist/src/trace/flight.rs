//! A trace that keeps only the latest events.

use super::consumer::{Ring, Sink, Summary};
use super::convert;
use super::hub::Hub;
use super::recording::own_sched;
use crate::runtime::Handle;
use crate::sched::Sched;
use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The most that a flight recorder keeps by default.
const BYTES_MAX: usize = 32 << 20;

/// Keeps the latest events of a runtime in memory, and writes them when they are wanted: after an
/// error, or a request that took too long.
///
/// `HEIST_DEBUG=flightrecorder=SECONDS` starts one without changing the program. It writes the last
/// seconds to `heist-PID.trace` in the current folder if the process ends because of a deadlock or
/// of an error inside the runtime.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().procs(1).build() }.unwrap();
/// # rt.run(|| {
/// use heist::trace::FlightRecorder;
/// use std::time::Duration;
///
/// let recorder = FlightRecorder::start(Duration::from_secs(10))?;
/// heist::go(|| ()).join().unwrap();
/// assert!(recorder.dump(std::io::sink())?.records > 0);
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
#[must_use = "a flight recorder that is dropped ends"]
pub struct FlightRecorder {
    sched: Arc<Sched>,
    hub: Arc<Hub>,
    id: u64,
}

impl FlightRecorder {
    /// Records the runtime of the calling goroutine, and keeps what is not older than `age`, at
    /// most 32 MiB.
    ///
    /// # Errors
    /// If the caller is not a goroutine, or if the system refuses a thread.
    pub fn start(age: Duration) -> io::Result<Self> {
        Self::begin(&own_sched()?, age, None)
    }

    /// Records the runtime of a handle.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start_on(rt: &Handle, age: Duration) -> io::Result<Self> {
        Self::begin(rt.sched(), age, None)
    }

    /// Records a runtime. What was kept is written to `last_file` if the process ends because of
    /// an error.
    pub(crate) fn begin(
        sched: &Arc<Sched>,
        age: Duration,
        last_file: Option<PathBuf>,
    ) -> io::Result<Self> {
        let (hub, id) = Hub::begin(sched, None, || {
            let mut ring = Ring::new(convert::header(sched), convert::clock(), BYTES_MAX, age);
            if let Some(path) = last_file {
                ring.set_last_file(path);
            }
            Ok(Sink::Ring(ring))
        })?;
        Ok(Self { sched: Arc::clone(sched), hub, id })
    }

    /// Writes what was kept, up to this moment. The recorder goes on.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn dump(&self, out: impl Write + Send + 'static) -> io::Result<Summary> {
        self.hub.dump(&self.sched, self.id, Box::new(out))
    }
}

impl Drop for FlightRecorder {
    fn drop(&mut self) {
        // There is nothing to write.
        let _ = self.hub.end(&self.sched, self.id);
    }
}

impl fmt::Debug for FlightRecorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FlightRecorder").finish_non_exhaustive()
    }
}
