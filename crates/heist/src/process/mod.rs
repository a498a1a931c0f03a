//! Other programs: starting them, exchanging data with them, waiting for them.
//!
//! As [`std::process`], but waiting parks the goroutine instead of blocking its thread, and the
//! pipes to the child can be waited for, with deadlines.
//!
//! ```
//! # fn main() -> std::io::Result<()> {
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| -> std::io::Result<()> {
//! let output = heist::process::Command::new("echo").arg("hello").output()?;
//! assert!(output.status.success());
//! assert_eq!(output.stdout, b"hello\n");
//! # Ok(())
//! # })
//! # }
//! ```

mod futures;
mod orphans;

use crate::current;
use crate::goroutine::{self, with_stack_if_possible};
use crate::net::{PipeReader, PipeWriter, PollFd};
use crate::sched::stall::blocking::blocking;
use crate::sys::{fd, thread};
use crate::time;
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{self, ExitStatus, Output, Stdio};
use std::time::Duration;

/// Room on the stack for std to start a program, in debug builds too.
const SPAWN_STACK_BYTES: usize = 32 << 10;

/// The first and the longest pause between two looks at a program whose end the system does not
/// report.
const LOOK_PAUSES: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(100)];

/// A program to be started, as [`std::process::Command`].
#[derive(Debug)]
#[doc(alias = "Cmd")]
pub struct Command {
    inner: process::Command,
    /// Which of its three streams were set.
    set: Streams,
}

#[derive(Clone, Copy, Debug, Default)]
struct Streams {
    stdin: bool,
    stdout: bool,
    stderr: bool,
}

impl Command {
    /// A program, without arguments yet.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        process::Command::new(program).into()
    }

    /// Appends an argument.
    pub fn arg(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.inner.arg(arg);
        self
    }

    /// Appends arguments.
    pub fn args(&mut self, args: impl IntoIterator<Item = impl AsRef<OsStr>>) -> &mut Self {
        self.inner.args(args);
        self
    }

    /// Sets an environment variable.
    pub fn env(&mut self, key: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> &mut Self {
        self.inner.env(key, value);
        self
    }

    /// Sets environment variables.
    pub fn envs(
        &mut self,
        vars: impl IntoIterator<Item = (impl AsRef<OsStr>, impl AsRef<OsStr>)>,
    ) -> &mut Self {
        self.inner.envs(vars);
        self
    }

    /// Removes an environment variable.
    pub fn env_remove(&mut self, key: impl AsRef<OsStr>) -> &mut Self {
        self.inner.env_remove(key);
        self
    }

    /// Removes all environment variables.
    pub fn env_clear(&mut self) -> &mut Self {
        self.inner.env_clear();
        self
    }

    /// The folder it starts in.
    pub fn current_dir(&mut self, folder: impl AsRef<Path>) -> &mut Self {
        self.inner.current_dir(folder);
        self
    }

    /// Its standard input. By default it is the caller's; for [`output`](Self::output), empty.
    pub fn stdin(&mut self, stdin: impl Into<Stdio>) -> &mut Self {
        self.inner.stdin(stdin);
        self.set.stdin = true;
        self
    }

    /// Its standard output. By default it is the caller's; for [`output`](Self::output), a pipe.
    pub fn stdout(&mut self, stdout: impl Into<Stdio>) -> &mut Self {
        self.inner.stdout(stdout);
        self.set.stdout = true;
        self
    }

    /// Its standard error. By default it is the caller's; for [`output`](Self::output), a pipe.
    pub fn stderr(&mut self, stderr: impl Into<Stdio>) -> &mut Self {
        self.inner.stderr(stderr);
        self.set.stderr = true;
        self
    }

    /// The user under whose number it runs. See
    /// [`CommandExt::uid`].
    pub fn uid(&mut self, id: u32) -> &mut Self {
        self.inner.uid(id);
        self
    }

    /// The group under whose number it runs. See
    /// [`CommandExt::gid`].
    pub fn gid(&mut self, id: u32) -> &mut Self {
        self.inner.gid(id);
        self
    }

    /// Its argument number zero, which is the name of the program unless it is set.
    ///
    /// # Examples
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// let mut shell = heist::process::Command::new("sh");
    /// let output = shell.arg0("renamed").args(["-c", "echo $0"]).output()?;
    /// assert_eq!(output.stdout, b"renamed\n");
    /// # Ok(())
    /// # }
    /// ```
    pub fn arg0(&mut self, arg: impl AsRef<OsStr>) -> &mut Self {
        self.inner.arg0(arg);
        self
    }

    /// The process group it belongs to; 0 for a new one, whose number is its own. A signal to the
    /// group reaches the program and those that it starts.
    pub fn process_group(&mut self, group: i32) -> &mut Self {
        self.inner.process_group(group);
        self
    }

    /// Replaces this process by the program. If that works, it does not return, and nothing of this
    /// process is left: no goroutine is unwound, and no destructor runs.
    ///
    /// What is set by `pre_exec`, which is unsafe, is set through [`as_std_mut`](Self::as_std_mut).
    #[must_use = "it returns only if it failed"]
    pub fn exec(&mut self) -> io::Error {
        with_stack_if_possible(SPAWN_STACK_BYTES, || {
            blocking(|| thread::with_normal_turns(|| self.inner.exec()))
        })
    }

    /// The program.
    #[must_use]
    pub fn get_program(&self) -> &OsStr {
        self.inner.get_program()
    }

    /// The arguments, without that of number zero.
    pub fn get_args(&self) -> process::CommandArgs<'_> {
        self.inner.get_args()
    }

    /// The environment variables that were set, or removed (None).
    pub fn get_envs(&self) -> process::CommandEnvs<'_> {
        self.inner.get_envs()
    }

    /// The folder it starts in, if one was set.
    #[must_use]
    pub fn get_current_dir(&self) -> Option<&Path> {
        self.inner.get_current_dir()
    }

    /// Std's command, for everything else. Streams that are set there are not known here:
    /// [`output`](Self::output) sets its own.
    pub const fn as_std_mut(&mut self) -> &mut process::Command {
        &mut self.inner
    }

    /// Starts the program.
    ///
    /// # Errors
    /// If it cannot be started.
    #[doc(alias = "Start")]
    pub fn spawn(&mut self) -> io::Result<Child> {
        // glibc starts programs with all signals blocked: a stack that ends there ends the process
        // without a report.
        let child = with_stack_if_possible(SPAWN_STACK_BYTES, || {
            blocking(|| thread::with_normal_turns(|| self.inner.spawn()))
        });
        Child::from_std(child?)
    }

    /// Starts the program and waits for its end. If the caller is cancelled meanwhile, the program
    /// continues to run, and the runtime reaps it when it has ended.
    ///
    /// # Errors
    /// If it cannot be started.
    #[doc(alias = "Run")]
    pub fn status(&mut self) -> io::Result<ExitStatus> {
        let mut child = Waited(Some(self.spawn()?));
        child.wait()
    }

    /// Starts the program, waits for its end and collects what it wrote. Its standard input is
    /// empty unless it was set, and what it writes to a stream that was set is not collected.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn output(&mut self) -> io::Result<Output> {
        self.spawn_for_output()?.wait_with_output()
    }

    fn spawn_for_output(&mut self) -> io::Result<Child> {
        self.set_defaults([Stdio::null, Stdio::piped, Stdio::piped]);
        let child = self.spawn();
        // The defaults are for this call: the next `spawn` has its own.
        self.set_defaults([Stdio::inherit; 3]);
        child
    }

    /// Sets the streams that were not set.
    fn set_defaults(&mut self, [stdin, stdout, stderr]: [fn() -> Stdio; 3]) {
        if !self.set.stdin {
            self.inner.stdin(stdin());
        }
        if !self.set.stdout {
            self.inner.stdout(stdout());
        }
        if !self.set.stderr {
            self.inner.stderr(stderr());
        }
    }
}

/// A command of std. Which of its streams were set cannot be seen: [`output`](Command::output) sets
/// its own.
impl From<process::Command> for Command {
    fn from(inner: process::Command) -> Self {
        Self { inner, set: Streams::default() }
    }
}

/// A program that was started, as [`std::process::Child`].
///
/// Dropping it does not affect the program. A program that has ended and was not waited for stays
/// in the system as a zombie until this process ends: wait for what you start.
#[derive(Debug)]
pub struct Child {
    inner: process::Child,
    /// The standard input of the program, if that is a pipe.
    pub stdin: Option<PipeWriter>,
    /// The standard output of the program, if that is a pipe.
    pub stdout: Option<PipeReader>,
    /// The standard error of the program, if that is a pipe.
    pub stderr: Option<PipeReader>,
}

impl Child {
    /// Takes over a child of std.
    ///
    /// # Errors
    /// If its pipes cannot be put into non-blocking mode.
    pub fn from_std(mut inner: process::Child) -> io::Result<Self> {
        match Self::streams_of(&mut inner) {
            Ok((stdin, stdout, stderr)) => Ok(Self { inner, stdin, stdout, stderr }),
            Err(error) => {
                orphans::adopt(inner);
                Err(error)
            }
        }
    }

    fn streams_of(
        inner: &mut process::Child,
    ) -> io::Result<(Option<PipeWriter>, Option<PipeReader>, Option<PipeReader>)> {
        let reader = |fd: OwnedFd| PipeReader::from_std(fd.into());
        let stdin = inner.stdin.take().map(|pipe| PipeWriter::from_std(OwnedFd::from(pipe).into()));
        let stdout = inner.stdout.take().map(|pipe| reader(pipe.into()));
        let stderr = inner.stderr.take().map(|pipe| reader(pipe.into()));
        Ok((stdin.transpose()?, stdout.transpose()?, stderr.transpose()?))
    }

    /// The number of the process.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.inner.id()
    }

    /// Kills the program.
    ///
    /// # Errors
    /// If the system returns one.
    pub fn kill(&mut self) -> io::Result<()> {
        self.inner.kill()
    }

    /// How the program ended, if it has.
    ///
    /// # Errors
    /// If the system returns one.
    pub fn try_wait(&mut self) -> io::Result<Option<ExitStatus>> {
        self.inner.try_wait()
    }

    /// Waits until the program has ended. Its standard input is closed first.
    ///
    /// A goroutine that waits can be cancelled; the program continues to run.
    ///
    /// # Errors
    /// If the system returns one.
    pub fn wait(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        if let Some(status) = self.inner.try_wait()? {
            return Ok(status);
        }
        // The descriptor is readable when the process has ended. Old kernels have none.
        let Ok(ending) = fd::of_process(self.id()).and_then(|fd| PollFd::pollable(Ending(fd)))
        else {
            return self.wait_by_looking();
        };
        ending.read_with(|_| self.inner.try_wait()?.ok_or(io::ErrorKind::WouldBlock.into()))
    }

    /// Waits for a program whose end the system does not report, so that a canceller can end the
    /// wait.
    fn wait_by_looking(&mut self) -> io::Result<ExitStatus> {
        let [mut pause, longest] = LOOK_PAUSES;
        loop {
            if let Some(status) = self.inner.try_wait()? {
                return Ok(status);
            }
            time::sleep(pause);
            pause = (2 * pause).min(longest);
        }
    }

    /// Waits until the program has ended and collects what it wrote into its pipes. If the caller
    /// is cancelled meanwhile, the program continues to run, and the runtime reaps it when it has
    /// ended.
    ///
    /// # Errors
    /// If the system returns one.
    pub fn wait_with_output(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let mut child = Waited(Some(self));
        let stderr = stderr.map(InBackground::read).transpose()?;
        let stdout = stdout.map_or(Ok(Vec::new()), read_all)?;
        let status = child.wait()?;
        let stderr = stderr.map_or(Ok(Vec::new()), InBackground::join)?;
        Ok(Output { status, stdout, stderr })
    }
}

/// A child that only this value can wait for: if it is dropped before, the child is an orphan.
struct Waited(Option<Child>);

impl Waited {
    fn wait(&mut self) -> io::Result<ExitStatus> {
        let Some(child) = &mut self.0 else {
            heist_core::throw!("Waited::wait: it was waited for")
        };
        let status = child.wait()?;
        self.0 = None;
        Ok(status)
    }
}

impl Drop for Waited {
    fn drop(&mut self) {
        if let Some(child) = self.0.take() {
            orphans::adopt(child.inner);
        }
    }
}

/// A descriptor that reports the end of a process.
#[derive(Debug)]
struct Ending(OwnedFd);

impl AsRawFd for Ending {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn read_all(mut pipe: PipeReader) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    pipe.read_to_end(&mut all)?;
    Ok(all)
}

/// A second reader next to the caller: a program that writes into two pipes may wait for either.
enum InBackground {
    Goroutine(CancelOnDrop),
    Thread(std::thread::JoinHandle<io::Result<Vec<u8>>>),
}

/// A goroutine that is cancelled if its waiter is cancelled.
struct CancelOnDrop(Option<goroutine::JoinHandle<io::Result<Vec<u8>>>>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if let Some(handle) = &self.0 {
            handle.cancel();
        }
    }
}

impl InBackground {
    fn read(pipe: PipeReader) -> io::Result<Self> {
        let read = move || read_all(pipe);
        if current::goroutine().is_some() {
            let handle = goroutine::try_go(read).map_err(io::Error::other)?;
            return Ok(Self::Goroutine(CancelOnDrop(Some(handle))));
        }
        Ok(Self::Thread(thread::spawn("heist-pipe".to_owned(), read)?))
    }

    fn join(self) -> io::Result<Vec<u8>> {
        let ended = match self {
            Self::Goroutine(mut guard) => guard.0.take().and_then(|handle| handle.join().ok()),
            Self::Thread(handle) => handle.join().ok(),
        };
        ended.unwrap_or_else(|| Err(io::Error::other("the reader of the pipe did not end")))
    }
}
