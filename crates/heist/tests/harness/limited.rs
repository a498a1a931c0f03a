//! A test's body in its own process, under a limit of the system.
//!
//! The allocator of `matrix` ends the child if the scheduler allocates, even when it reports a
//! refusal of the system.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use heist::net::{TcpListener, TcpStream};
use heist::{Builder, Runtime, go};
use std::io::{Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::Duration;

const ROLE: &str = "HEIST_TEST_LIMITED";
/// After this many seconds a child counts as hung. It takes a fraction of a second on an idle
/// machine.
const PATIENCE_SECS: u32 = 60;
/// The exit code of a child to which the system refused something, with a reason.
const REFUSED: i32 = 7;
/// The exit code of a child that cannot be put under the limit on this system.
const SKIPPED: i32 = 8;

/// How a child ended.
#[derive(Debug)]
pub struct Ended {
    pub what: String,
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub stderr: String,
}

impl Ended {
    /// It did everything. False if it cannot be put under the limit here, which is printed.
    #[track_caller]
    pub fn worked(&self) -> bool {
        if self.code == Some(SKIPPED) {
            println!("skipped: {}: {}", self.what, self.stderr.trim_end());
            return false;
        }
        assert_eq!(self.code, Some(0), "{self}");
        true
    }

    /// It did everything, or was refused with a reason. True if it did everything.
    #[track_caller]
    pub fn worked_or_was_refused(&self) -> bool {
        let refused = self.code == Some(REFUSED) && self.stderr.contains("refused: ");
        assert!(self.code == Some(0) || refused, "{self}");
        !refused
    }

    #[track_caller]
    pub fn said(&self, text: &str) {
        assert!(self.stderr.contains(text), "{text:?} is not in {self}");
    }

    /// How often its standard error contains `text`.
    pub fn times(&self, text: &str) -> usize {
        self.stderr.matches(text).count()
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { what, code, signal, stderr } = self;
        let hung = if *signal == Some(libc::SIGALRM) { " (it hung)" } else { "" };
        write!(f, "{what}: exit code {code:?}, signal {signal:?}{hung}, standard error:\n{stderr}")
    }
}

/// Runs the calling test in a child, where `body` is run with `value` instead. In the child this
/// does not return. No thread watches the child, because threads and address space may be limited:
/// an alarm ends it.
pub fn run(value: u64, body: impl FnOnce(u64)) -> Ended {
    run_with(value, |_| (), body)
}

/// As [`run`]; `prepare` may change how the child is started.
pub fn run_with(value: u64, prepare: impl FnOnce(&mut Command), body: impl FnOnce(u64)) -> Ended {
    if let Some(given) = std::env::var_os(ROLE) {
        let given = given.into_string().expect("a number").parse().expect("a number");
        // SAFETY: the alarm ends this process, as intended.
        unsafe { libc::alarm(PATIENCE_SECS) };
        body(given);
        std::process::exit(0);
    }
    let test = crate::child::own_name();
    let program = std::env::current_exe().expect("a test knows its own program");
    let mut command = Command::new(program);
    command.args(["--exact", &test, "--nocapture", "--test-threads=1"]);
    prepare(&mut command);
    let output = command.env(ROLE, value.to_string()).output().expect("the child starts");
    Ended {
        what: format!("{test} with {value}"),
        code: output.status.code(),
        signal: output.status.signal(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// Ends a child that cannot be put under its limit here.
pub fn skip(reason: &str) -> ! {
    eprintln!("{reason}: {}", std::io::Error::last_os_error());
    std::process::exit(SKIPPED)
}

/// Ends a child that was refused something.
pub fn refused(reason: impl std::fmt::Display) -> ! {
    eprintln!("refused: {reason}");
    std::process::exit(REFUSED)
}

/// Sets both limits of a resource.
pub fn set_limit(resource: libc::__rlimit_resource_t, value: u64) {
    let limit = libc::rlimit { rlim_cur: value, rlim_max: value };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limit) }, 0);
}

/// Starts a runtime, or ends the child with the reason why not.
pub fn build(builder: Builder) -> Runtime {
    // SAFETY: the goroutines of these tests keep nothing across a park that is bound to a thread.
    match unsafe { builder.build() } {
        Ok(rt) => rt,
        Err(error) => refused(error),
    }
}

/// Checks that a goroutine that computes without calls is preempted, so that another can end it.
pub fn hog_is_frozen() {
    let stop = Arc::new(AtomicBool::new(false));
    let hog = {
        let stop = Arc::clone(&stop);
        go(move || {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    };
    heist::yield_now();
    stop.store(true, Ordering::Relaxed);
    hog.join().expect("the hog ends");
}

/// Checks that a goroutine in an unannounced call that blocks its thread loses its processor.
pub fn sleeper_loses_its_processor() {
    let (wake, woken) = mpsc::channel();
    let sleeper = go(move || woken.recv().expect("it is woken"));
    heist::yield_now();
    wake.send(7).expect("it waits");
    assert_eq!(sleeper.join().expect("the sleeper ends"), 7);
}

/// Checks that a goroutine sleeps while an announced call blocks.
pub fn time_passes() {
    let sleeper = go(|| heist::time::sleep(Duration::from_millis(2)));
    heist::blocking(|| std::thread::sleep(Duration::from_millis(5)));
    sleeper.join().expect("the sleeper ends");
}

/// A listener, a connection to it, and its other end.
pub struct Network {
    client: TcpStream,
    server: TcpStream,
    _listener: TcpListener,
}

/// Opens the descriptors of a connection.
pub fn connect() -> std::io::Result<Network> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let client = TcpStream::connect(listener.local_addr()?)?;
    let (server, _) = listener.accept()?;
    Ok(Network { client, server, _listener: listener })
}

/// Sends a message there and back.
pub fn echo(mut network: Network) {
    let mut server = network.server;
    let echo = go(move || {
        let mut bytes = [0; 5];
        server.read_exact(&mut bytes).expect("it comes");
        heist::time::sleep(Duration::from_millis(1));
        server.write_all(&bytes).expect("it goes");
    });
    network.client.write_all(b"hello").expect("it goes");
    let mut bytes = [0; 5];
    network.client.read_exact(&mut bytes).expect("it comes back");
    assert_eq!(&bytes, b"hello");
    echo.join().expect("the echo ends");
}

/// Checks preemption, hand-off, time and the network.
pub fn everything_works() {
    hog_is_frozen();
    sleeper_loses_its_processor();
    time_passes();
    match connect() {
        Ok(network) => echo(network),
        Err(error) if error.raw_os_error() == Some(libc::EMFILE) => {
            eprintln!("no descriptor for a connection: {error}");
        }
        Err(error) => panic!("no connection: {error}"),
    }
}

/// Takes all descriptors that there are.
pub fn take_all_descriptors() -> Vec<std::fs::File> {
    let mut held = Vec::with_capacity(1024);
    while let Ok(file) = std::fs::File::open("/dev/null") {
        held.push(file);
    }
    held
}

/// Sets the soft limit of a resource and returns the one before.
pub fn set_soft_limit(resource: libc::__rlimit_resource_t, soft: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer, and then a valid limit.
    unsafe {
        assert_eq!(libc::getrlimit(resource, &raw mut limit), 0);
        let before = limit.rlim_cur;
        limit.rlim_cur = soft.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(resource, &raw const limit), 0);
        before
    }
}

/// Limits the address space of the process to `more` bytes beyond what it has. Returns the previous
/// limit.
pub fn limit_address_space(more: u64) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a size");
    let kib = line.split_whitespace().next().expect("a value").parse::<u64>().expect("a number");
    set_soft_limit(libc::RLIMIT_AS, kib * 1024 + more)
}

/// CPU time that this process has used.
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
