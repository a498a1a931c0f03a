//! The thread that records, and the one that reads what is recorded.

use crate::pipe::{PipeReader, pipe};
use crate::shared::{Shared, Wanted};
use heist::Handle;
use heist::trace::Recording;
use heist_trace::file::{Reader, Section};
use heist_trace::follow::Follower;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long the recording goes on when the last client has left: it may come back.
const LINGER: Duration = Duration::from_secs(10);
/// When a recording first shows what it has: the length of a tick is then known to 0.01 %.
const FIRST_FLUSH: Duration = Duration::from_millis(20);
/// How long a recording lasts at least, although events are missing.
const RESYNC_PERIOD: Duration = Duration::from_secs(5);
/// Different names and messages that one recording may have; another one forgets them.
const TEXTS_MAX: usize = 100_000;

/// When it records.
#[derive(Clone, Debug)]
pub(crate) struct Recorder {
    pub(crate) interval: Duration,
    pub(crate) is_always_on: bool,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The next one begins at once: events were lost, or it knows too many texts.
    Resync,
    /// Nobody watches.
    Unwatched,
    /// The runtime or the console ended.
    ForGood,
}

/// Starts the thread that records. It ends with the console or the runtime.
pub(crate) fn start(
    handle: &Handle,
    shared: Arc<Shared>,
    recorder: Recorder,
) -> io::Result<JoinHandle<()>> {
    let handle = handle.clone();
    thread::Builder::new().name("console-record".to_owned()).spawn(move || {
        let _bystander = heist::debug::bystander();
        loop {
            if !recorder.is_always_on && shared.await_watcher() == Wanted::Never {
                break;
            }
            match recorder.record(&handle, &shared) {
                Ok(Ended::Resync) => {}
                // The times of what is not observed are not known.
                Ok(Ended::Unwatched) => shared.book().clear(),
                Ok(Ended::ForGood) => break,
                // The system refuses a thread, perhaps not for ever.
                Err(_) => shared.rest(Duration::from_secs(1)),
            }
        }
        shared.book().end_all();
        shared.ring();
    })
}

impl Recorder {
    /// Records until something ends it.
    fn record(&self, handle: &Handle, shared: &Arc<Shared>) -> io::Result<Ended> {
        if !handle.is_running() || shared.wanted() == Wanted::Never {
            return Ok(Ended::ForGood);
        }
        let (writer, reader) = pipe();
        let needs_resync = Arc::new(AtomicBool::new(false));
        let follower = {
            let (shared, needs_resync) = (Arc::clone(shared), Arc::clone(&needs_resync));
            let builder = thread::Builder::new().name("console-follow".to_owned());
            builder.spawn(move || {
                let _bystander = heist::debug::bystander();
                follow(&shared, reader, &needs_resync);
            })?
        };
        // The follower ends when the writer is dropped, whatever happens.
        let outcome = Recording::start_on(handle, writer).map(|recording| {
            let ended = self.keep(handle, shared, &recording, &needs_resync);
            // An error of the pipe: the follower is gone, and says why.
            let _ = recording.stop();
            ended
        });
        // A panic of the thread was reported when it happened.
        let _ = follower.join();
        outcome
    }

    /// Hands on what happens, from time to time, until something ends the recording.
    fn keep(
        &self,
        handle: &Handle,
        shared: &Shared,
        recording: &Recording,
        needs_resync: &AtomicBool,
    ) -> Ended {
        let began = Instant::now();
        shared.rest(FIRST_FLUSH.min(self.interval));
        loop {
            if recording.flush().is_err() {
                shared.rest(self.interval);
                return Ended::Resync;
            }
            match shared.wanted() {
                Wanted::Never => return Ended::ForGood,
                Wanted::Unwatched(time) if time > LINGER && !self.is_always_on => {
                    return Ended::Unwatched;
                }
                _ if !handle.is_running() => return Ended::ForGood,
                _ if needs_resync.load(Ordering::Relaxed) && began.elapsed() > RESYNC_PERIOD => {
                    return Ended::Resync;
                }
                _ => shared.rest(self.interval),
            }
        }
    }
}

/// Reads a recording to its end, and keeps the book.
fn follow(shared: &Shared, reader: PipeReader, needs_resync: &AtomicBool) {
    let Ok(mut reader) = Reader::new(reader) else { return };
    let mut follower = Follower::new(reader.header().clone());
    shared.book().begin(reader.header().wait_reasons.clone());
    // It ends with the recording. Damage is impossible; it would be an early end.
    while let Ok(Some(section)) = reader.next() {
        let now_ns = match &section {
            Section::Clock(clock) => Some(clock.monotonic_ns),
            _ => None,
        };
        let mut book = shared.book();
        follower.take(section, &mut |happening| book.note(happening));
        let Some(now_ns) = now_ns.filter(|_| follower.is_settled()) else { continue };
        book.publish(now_ns, follower.unix_ns(now_ns), follower.n_lost());
        drop(book);
        shared.ring();
        if follower.n_lost() > 0 || follower.n_texts() > TEXTS_MAX {
            needs_resync.store(true, Ordering::Relaxed);
        }
    }
    shared.book().close(follower.n_lost());
}
