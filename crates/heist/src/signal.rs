//! Signals of the operating system as messages in a channel.
//!
//! ```no_run
//! # fn main() -> std::io::Result<()> {
//! let signals = heist::signal::notify(&[heist::signal::INTERRUPT])?;
//! signals.recv().unwrap();
//! println!("stopping");
//! # Ok(())
//! # }
//! ```
//!
//! GO: os/signal.

use crate::chan::{self, Receiver, Sender};
use crate::sys::notify::{self, Before};
use crate::sys::thread;
use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, PipeWriter, Read};
use std::ops::Deref;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// A signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Signal(i32);

/// The terminal is gone, or the configuration should be read again.
pub const HANGUP: Signal = Signal(notify::HANGUP);
/// Ctrl-C.
pub const INTERRUPT: Signal = Signal(notify::INTERRUPT);
/// Ctrl-\.
pub const QUIT: Signal = Signal(notify::QUIT);
/// For the program's own use.
pub const USER1: Signal = Signal(notify::USER1);
/// For the program's own use.
pub const USER2: Signal = Signal(notify::USER2);
/// A request to end the program.
pub const TERMINATE: Signal = Signal(notify::TERMINATE);
/// A child process has ended.
pub const CHILD: Signal = Signal(notify::CHILD);
/// The terminal has another size.
pub const WINDOW_CHANGE: Signal = Signal(notify::WINDOW_CHANGE);

impl Signal {
    /// The signal with this number.
    #[must_use]
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// Its number.
    #[must_use]
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}

/// The name of a signal that has a constant here, or its number.
///
/// ```
/// use heist::signal::{self, Signal};
///
/// assert_eq!(signal::INTERRUPT.to_string(), "SIGINT");
/// assert_eq!(Signal::from_raw(42).to_string(), "signal 42");
/// ```
impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match *self {
            HANGUP => "SIGHUP",
            INTERRUPT => "SIGINT",
            QUIT => "SIGQUIT",
            USER1 => "SIGUSR1",
            USER2 => "SIGUSR2",
            TERMINATE => "SIGTERM",
            CHILD => "SIGCHLD",
            WINDOW_CHANGE => "SIGWINCH",
            Self(number) => return write!(f, "signal {number}"),
        };
        f.write_str(name)
    }
}

/// How many signals are kept for a late receiver. Further ones are dropped.
const ROOM: usize = 16;

/// Sends the signals that come from now on to a channel, instead of their default action.
///
/// Several receivers may ask for the same signal; each gets it. When the last of them is dropped,
/// the previous action of the signal is restored. Up to 16 signals wait for a late receiver; more
/// are dropped.
///
/// # Errors
/// [`io::ErrorKind::InvalidInput`] for signals that cannot be caught, that report a fault, or that
/// the runtime uses itself (SIGURG); another error if there is no descriptor or thread left.
///
/// # Examples
/// ```
/// use heist::signal;
///
/// let signals = signal::notify(&[signal::INTERRUPT, signal::TERMINATE])?;
/// assert!(signals.try_recv().is_err(), "nobody has pressed Ctrl-C");
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "Notify")]
pub fn notify(signals: &[Signal]) -> io::Result<Signals> {
    if signals.iter().any(|signal| !notify::may_be_caught(signal.0)) {
        let text =
            "a signal that cannot be received: leave out SIGURG, faults, SIGKILL and SIGSTOP";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    let mut table = table();
    if !table.is_started {
        start()?;
        table.is_started = true;
    }
    notify::set_idle_readers(0);
    let id = table.n_asked;
    table.n_asked += 1;
    let (tx, rx) = chan::bounded(ROOM);
    let signals = signals.to_vec();
    table.asked.insert(id, Asked { signals: signals.clone(), tx });
    // Restores the signals that were caught if the rest fails.
    let handle = Signals { id, rx };
    for signal in signals {
        if !table.caught.contains_key(&signal) {
            let before = match notify::catch(signal.0) {
                Ok(before) => before,
                Err(error) => {
                    drop(table);
                    return Err(error);
                }
            };
            table.caught.insert(signal, before);
        }
    }
    Ok(handle)
}

/// Waits for Ctrl-C.
///
/// # Errors
/// As for [`notify`].
///
/// # Examples
/// ```no_run
/// heist::signal::ctrl_c()?;
/// println!("stopping");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn ctrl_c() -> io::Result<()> {
    let signals = notify(&[INTERRUPT])?;
    signals.recv().map(drop).map_err(io::Error::other)
}

/// Waits for Ctrl-C, as a future.
///
/// # Cancel safety
/// If the future is dropped, Ctrl-C has its previous effect again.
///
/// # Errors
/// As for [`notify`].
///
/// # Examples
/// ```no_run
/// # let rt = heist::Runtime::builder().build_async().unwrap();
/// # rt.block_on(async {
/// heist::signal::ctrl_c_async().await?;
/// println!("stopping");
/// # Ok::<(), std::io::Error>(())
/// # }).unwrap();
/// ```
pub async fn ctrl_c_async() -> io::Result<()> {
    let signals = notify(&[INTERRUPT])?;
    signals.recv_async().await.map(drop).map_err(io::Error::other)
}

/// The receiving end of [`notify`]: a [`Receiver`] that stops catching when it is dropped.
pub struct Signals {
    id: u64,
    rx: Receiver<Signal>,
}

impl Deref for Signals {
    type Target = Receiver<Signal>;

    fn deref(&self) -> &Receiver<Signal> {
        &self.rx
    }
}

/// Waits for signals, one after the other, without end.
///
/// ```no_run
/// use heist::signal;
///
/// for signal in &signal::notify(&[signal::HANGUP, signal::USER1])? {
///     println!("got {signal}");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
impl<'a> IntoIterator for &'a Signals {
    type Item = Signal;
    type IntoIter = chan::Iter<'a, Signal>;

    fn into_iter(self) -> chan::Iter<'a, Signal> {
        self.rx.iter()
    }
}

impl fmt::Debug for Signals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signals").finish_non_exhaustive()
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        let mut table = table();
        let asked = table.asked.remove(&self.id);
        let Table { asked: others, caught, .. } = &mut *table;
        caught.retain(|signal, before| {
            let wanted = others.values().any(|other| other.signals.contains(signal));
            if !wanted {
                notify::restore(before);
            }
            wanted
        });
        if others.is_empty() {
            notify::set_idle_readers(1);
        }
        drop(table);
        // The sender is dropped without the lock of the table.
        drop(asked);
    }
}

struct Asked {
    signals: Vec<Signal>,
    tx: Sender<Signal>,
}

/// The receivers and their signals. Its lock is held for a short time and never across a wait.
struct Table {
    asked: BTreeMap<u64, Asked>,
    n_asked: u64,
    /// The caught signals and their previous actions.
    caught: BTreeMap<Signal, Before>,
    is_started: bool,
}

static TABLE: Mutex<Table> = Mutex::new(Table {
    asked: BTreeMap::new(),
    n_asked: 0,
    caught: BTreeMap::new(),
    is_started: false,
});

fn table() -> MutexGuard<'static, Table> {
    TABLE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts the thread that passes signals on. It lives as long as the process: there is one table
/// for all runtimes.
fn start() -> io::Result<()> {
    static WRITER: OnceLock<PipeWriter> = OnceLock::new();
    let (mut reader, writer) = io::pipe()?;
    thread::spawn("heist-signals".to_owned(), move || {
        let mut numbers = [0; 64];
        loop {
            match reader.read(&mut numbers) {
                Ok(n) => numbers[..n].iter().for_each(|&number| pass_on(Signal(number.into()))),
                // A handler of somebody else ran here.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return,
            }
        }
    })?;
    notify::write_to(WRITER.get_or_init(|| writer))
}

fn pass_on(signal: Signal) {
    for asked in table().asked.values().filter(|asked| asked.signals.contains(&signal)) {
        // A late receiver misses signals, as in Go.
        let _ = asked.tx.try_send(signal);
    }
}
