//! Tasks: futures on the scheduler of the goroutines.
//!
//! A task is a goroutine that polls a future. It is in the same queues, is stolen, named, counted,
//! traced and dumped as every goroutine, and has the same classes. Between two polls it has no
//! stack: a task that waits takes 192 bytes and its future.
//!
//! ```
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| {
//! let (tx, rx) = heist::chan::bounded(1);
//! let task = heist::spawn(async move { rx.recv_async().await.unwrap() + 1 });
//! heist::go(move || tx.send(41).unwrap());
//! assert_eq!(task.join().unwrap(), 42);
//! # });
//! ```
//!
//! # A poll is a run of a goroutine
//! Each poll runs on a stack that the processor has at hand. So a poll that computes for long is
//! preempted, one that blocks its thread loses its processor, and it may call everything that a
//! goroutine may call: [`go`](crate::go), a blocking `recv`, a mutex. If it waits there, the task
//! keeps its stack until the poll returns.
//!
//! # How long a poll may last
//! As long as a goroutine may run: until the end of its time slice, while others wait. A future
//! that is always ready, or that always wakes itself, does not keep others from running: the first
//! is preempted, the second goes to the end of the queue after each poll.
//!
//! # Futures that are not `Send`
//! A task may be polled by any thread, so its future must be `Send`. A future that is not can be
//! run by a goroutine of its own, with [`block_on`] and a future that is made there:
//!
//! ```
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| {
//! let local = heist::go(|| heist::block_on(async {
//!     let not_send = std::rc::Rc::new(5);
//!     heist::task::yield_now().await;
//!     *not_send
//! }));
//! assert_eq!(local.join().unwrap(), 5);
//! # });
//! ```

mod abort;
mod block_on;
mod code;
mod events;
mod join;
mod spawn;
mod yielding;

pub use abort::AbortHandle;
pub use block_on::block_on;
pub use join::{JoinFuture, Task};
pub use spawn::{Builder, spawn, try_spawn};
pub use yielding::{YieldNow, yield_now};

pub(crate) use events::leave_waker;
pub(crate) use spawn::spawn_on;
