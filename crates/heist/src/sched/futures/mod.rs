//! Futures: who is woken when a future can make progress.
//!
//! A waker (`waker`) makes a task runnable again, or a goroutine or thread that blocks on a future
//! (`parker`). The room keeps nothing: what it needs is in the record of the task. A task runs as a
//! goroutine does (`life::body`, `run::execute`). docs/design/tasks.md has the protocol.

pub(crate) mod parker;
pub(crate) mod waker;
