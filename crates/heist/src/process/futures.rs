//! Waiting for programs as futures.

use super::{Child, Command, Ending, LOOK_PAUSES, Waited};
use crate::net::{PipeReader, PollFd};
use crate::sys::fd;
use crate::time;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::process::{ExitStatus, Output};
use std::task::Poll;

/// How many bytes are read from a pipe at once.
const PIECE: usize = 8 << 10;

impl Command {
    /// As [`status`](Self::status), as a future, which is awaited inside a runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, the program continues to run, and the runtime reaps it when it has
    /// ended.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn status_async(&mut self) -> io::Result<ExitStatus> {
        let mut child = Waited(Some(self.spawn()?));
        child.wait_async().await
    }

    /// As [`output`](Self::output), as a future, which is awaited inside a runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, the program continues to run, and the runtime reaps it when it has
    /// ended. What it wrote is lost.
    ///
    /// # Errors
    /// If it cannot be started.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.block_on(async {
    /// let output = heist::process::Command::new("echo").arg("hello").output_async().await?;
    /// assert_eq!(output.stdout, b"hello\n");
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn output_async(&mut self) -> io::Result<Output> {
        self.spawn_for_output()?.wait_with_output_async().await
    }
}

impl Child {
    /// Waits until the program has ended, as a future, which is awaited inside a runtime. Its
    /// standard input is closed first.
    ///
    /// # Cancel safety
    /// If the future is dropped, the program continues to run and can be waited for again.
    ///
    /// # Errors
    /// If the system returns one.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.block_on(async {
    /// let mut child = heist::process::Command::new("true").spawn()?;
    /// assert!(child.wait_async().await?.success());
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn wait_async(&mut self) -> io::Result<ExitStatus> {
        drop(self.stdin.take());
        if let Some(status) = self.inner.try_wait()? {
            return Ok(status);
        }
        // The descriptor is readable when the process has ended. Old kernels have none.
        let Ok(ending) = fd::of_process(self.id()).and_then(|fd| PollFd::pollable(Ending(fd)))
        else {
            return self.wait_by_looking_async().await;
        };
        let inner = &mut self.inner;
        ending.read_with_async(|_| inner.try_wait()?.ok_or(io::ErrorKind::WouldBlock.into())).await
    }

    async fn wait_by_looking_async(&mut self) -> io::Result<ExitStatus> {
        let [mut pause, longest] = LOOK_PAUSES;
        loop {
            if let Some(status) = self.inner.try_wait()? {
                return Ok(status);
            }
            time::sleep_async(pause).await;
            pause = (2 * pause).min(longest);
        }
    }

    /// Waits until the program has ended and collects what it wrote into its pipes, as a future,
    /// which is awaited inside a runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, the program continues to run, and the runtime reaps it when it has
    /// ended. What it wrote is lost.
    ///
    /// # Errors
    /// If the system returns one.
    pub async fn wait_with_output_async(mut self) -> io::Result<Output> {
        drop(self.stdin.take());
        let (stdout, stderr) = (self.stdout.take(), self.stderr.take());
        let mut child = Waited(Some(self));
        // A program that writes into two pipes may wait for either.
        let (stdout, stderr) = both(read_all(stdout), read_all(stderr)).await;
        let status = child.wait_async().await?;
        Ok(Output { status, stdout: stdout?, stderr: stderr? })
    }
}

impl Waited {
    async fn wait_async(&mut self) -> io::Result<ExitStatus> {
        let Some(child) = &mut self.0 else {
            heist_core::throw!("Waited::wait_async: it was waited for")
        };
        let status = child.wait_async().await?;
        self.0 = None;
        Ok(status)
    }
}

async fn read_all(pipe: Option<PipeReader>) -> io::Result<Vec<u8>> {
    let Some(pipe) = pipe else { return Ok(Vec::new()) };
    let mut all = Vec::new();
    loop {
        let len = all.len();
        all.resize(len + PIECE, 0);
        let n = pipe.read_async(&mut all[len..]).await?;
        all.truncate(len + n);
        if n == 0 {
            return Ok(all);
        }
    }
}

/// Awaits two futures at the same time.
async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut of_a, mut of_b) = (None, None);
    poll_fn(|cx| {
        if of_a.is_none()
            && let Poll::Ready(output) = a.as_mut().poll(cx)
        {
            of_a = Some(output);
        }
        if of_b.is_none()
            && let Poll::Ready(output) = b.as_mut().poll(cx)
        {
            of_b = Some(output);
        }
        match (of_a.take(), of_b.take()) {
            (Some(a), Some(b)) => Poll::Ready((a, b)),
            unfinished => {
                (of_a, of_b) = unfinished;
                Poll::Pending
            }
        }
    })
    .await
}
