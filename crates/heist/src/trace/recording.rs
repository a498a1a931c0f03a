//! A trace that is written to a file.

use super::consumer::{FileSink, Sink, Summary};
use super::convert;
use super::hub::Hub;
use crate::current;
use crate::runtime::Handle;
use crate::sched::Sched;
use std::fmt;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Records the events of a runtime from its start until it is stopped or dropped.
///
/// Several can run at once, each with its own writer. A thread of the runtime calls the writer, one
/// block of events at a time, so the writer need not buffer. It must not wait for a goroutine of
/// the runtime that is recorded: such a goroutine may be waiting for the trace to end.
///
/// If the runtime ends first, the recording contains its end, and is complete when it is stopped.
/// If the process ends first, by `exit`, because of a deadlock or of an error inside the runtime,
/// what was recorded is written before it ends.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().procs(1).build() }.unwrap();
/// use heist::trace::Recording;
///
/// // From a thread outside the runtime:
/// let recording = Recording::start_on(&rt, std::io::sink())?;
/// rt.run(|| heist::go(|| ()).join().unwrap());
/// assert!(recording.stop()?.records > 0);
/// # Ok::<(), std::io::Error>(())
/// ```
#[must_use = "a recording that is dropped ends"]
pub struct Recording {
    running: Option<Running>,
}

struct Running {
    sched: Arc<Sched>,
    hub: Arc<Hub>,
    id: u64,
}

impl Recording {
    /// Records the runtime of the calling goroutine.
    ///
    /// # Errors
    /// If the caller is not a goroutine, if the system refuses a thread, or if `out` fails.
    pub fn start(out: impl Write + Send + 'static) -> io::Result<Self> {
        Self::begin(&own_sched()?, Box::new(out), None)
    }

    /// Records the runtime of a handle.
    ///
    /// # Errors
    /// If the system refuses a thread, or if `out` fails.
    pub fn start_on(rt: &Handle, out: impl Write + Send + 'static) -> io::Result<Self> {
        Self::begin(rt.sched(), Box::new(out), None)
    }

    /// Records a runtime, at most for the given time.
    pub(crate) fn begin(
        sched: &Arc<Sched>,
        out: Box<dyn Write + Send>,
        at_most: Option<Duration>,
    ) -> io::Result<Self> {
        let until = at_most.and_then(|at_most| Instant::now().checked_add(at_most));
        let (hub, id) = Hub::begin(sched, until, || {
            let file = FileSink::new(out, &convert::header(sched), &convert::clock())?;
            Ok(Sink::File(Box::new(file)))
        })?;
        Ok(Self { running: Some(Running { sched: Arc::clone(sched), hub, id }) })
    }

    /// Ends the recording. When this returns, everything is written, and the writer was flushed and
    /// dropped.
    ///
    /// # Errors
    /// The first error of the writer.
    pub fn stop(mut self) -> io::Result<Summary> {
        self.end()
    }

    /// Hands everything that has happened up to now to the writer, and flushes it; the recording
    /// goes on. Otherwise a thread that does little may keep its events for an hour. What follows
    /// in the file is a moment on all clocks, so that a reader can tell how far it has got.
    ///
    /// The scheduler is not stopped. Each thread begins a new buffer with its next event.
    ///
    /// # Errors
    /// The first error of the writer, and if the recording has ended.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().procs(1).build() }.unwrap();
    /// # rt.run(|| {
    /// use std::sync::atomic::{AtomicUsize, Ordering};
    ///
    /// /// A reader that looks at the events while they happen.
    /// struct Live(&'static AtomicUsize);
    /// impl std::io::Write for Live {
    ///     fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
    ///         self.0.fetch_add(bytes.len(), Ordering::Relaxed);
    ///         Ok(bytes.len())
    ///     }
    ///     fn flush(&mut self) -> std::io::Result<()> {
    ///         Ok(())
    ///     }
    /// }
    ///
    /// static N_BYTES: AtomicUsize = AtomicUsize::new(0);
    /// let recording = heist::trace::Recording::start(Live(&N_BYTES))?;
    /// recording.flush()?;
    /// let before = N_BYTES.load(Ordering::Relaxed);
    /// heist::go(|| ()).join().unwrap();
    /// recording.flush()?;
    /// assert!(N_BYTES.load(Ordering::Relaxed) > before);
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    pub fn flush(&self) -> io::Result<()> {
        match &self.running {
            Some(Running { hub, id, .. }) => hub.flush(*id),
            None => Ok(()),
        }
    }

    fn end(&mut self) -> io::Result<Summary> {
        match self.running.take() {
            Some(Running { sched, hub, id }) => hub.end(&sched, id),
            None => Ok(Summary::default()),
        }
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // There is nobody to tell about an error.
        let _ = self.end();
    }
}

impl fmt::Debug for Recording {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recording").finish_non_exhaustive()
    }
}

/// The scheduler of the calling goroutine.
pub(super) fn own_sched() -> io::Result<Arc<Sched>> {
    current::with_sched(|sched| sched.life.share()).ok_or_else(|| {
        io::Error::other("heist::trace: not on a goroutine; a plain thread names the runtime")
    })
}
