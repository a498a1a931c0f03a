//! The algorithms of heist's scheduler: an OS-free crate.
//!
//! Everything here is pure memory and atomics: no thread, no syscall, no thread-local, no clock. So
//! loom can run the protocols through every interleaving, and a simulator can link them unchanged.
//! The crate `heist` adds threads, stacks and I/O on top.
//!
//! | module | what it holds |
//! |---|---|
//! | [`policy`] | the constants of the policy and every decision that is a pure function |
//! | [`run_queue`] | the per-P ring with its `run_next` slot, owner half and thief half |
//! | [`fork_deque`] | the latent jobs of a goroutine that forks, owner half and thief half |
//! | [`fork_job`] | one latent job: who took it, its cancellation, its end |
//! | [`global_queue`] | the FIFO under the scheduler lock, with a length anyone may read |
//! | [`list`] | intrusive lists: single (queues) and double (idle Ms) |
//! | [`steal_order`] | the random walks over the Ps |
//! | [`idle`] | the idle-P stack and the bitmaps that let thieves skip Ps |
//! | [`idle_ms`] | the Ms that sleep until they are given a P |
//! | [`stalled`] | detects a P that takes nothing out of its ring |
//! | [`watch`] | whether an M watches, so that submitters need not wake another |
//! | [`block_predictor`] | predicts which kinds of goroutine block |
//! | [`stack_needs`] | predicts which kinds of goroutine need larger stacks |
//! | [`spinning`] | the count of Ms that look for work, and when a submitter must wake one |
//! | [`status`] | the life of a goroutine as checked transitions |
//! | [`m_word`] | whether an M is in the runtime or in user code, and whether its P can be taken |
//! | [`note`] | one-shot sleep and wake-up of a thread |
//! | [`endings`] | how the thread that waits for the last goroutine learns that one has ended |
//! | [`fd_lock`] | the uses of a descriptor, one reader and one writer at a time, and its end |
//! | [`readiness`] | a direction of a descriptor: events remembered, and its waiter |
//! | [`join`] | the hand-over of a goroutine's result |
//! | [`task_word`] | the life of a task, its wake-ups and the number of its wakers |
//! | [`timer_heap`] | the timers of a P |
//! | [`buffer`] | the buffers of channels, and how their fast paths agree with the waiters |
//! | [`mutex_word`] | the word of the mutex: holder, waiters, starvation |
//! | [`rw_word`] | the word of the read-write lock: readers, and the writer that waits for them |
//! | [`wait_queue`] | the queue of waits, and the claim that ends a wait |
//! | [`lock_rank`] | the lock order as text, checked in debug builds |
//! | [`stop`] | the count behind a stop of the world |
//! | [`level_time`] | the integral of a level over time |
//! | [`trace_gate`] | who touches the buffer of a thread that writes a trace |
//! | [`time_histogram`] | durations in Go's buckets |
//! | [`work_span`] | work and span of a fork-join computation |
//! | [`rng`] | the seeded random numbers of the scheduler |
//! | [`mod@throw`] | the end of the process when the scheduler finds its own state corrupted |
//! | [`sync`] | the one switch between std's and loom's atomics |
#![warn(missing_docs)]

pub mod block_predictor;
pub mod buffer;
pub mod endings;
pub mod fd_lock;
pub mod fork_deque;
pub mod fork_job;
pub mod global_queue;
pub mod idle;
pub mod idle_ms;
pub mod join;
mod lane;
pub mod level_time;
pub mod list;
pub mod lock_rank;
pub mod m_word;
pub mod mutex_word;
pub mod note;
pub mod policy;
pub mod readiness;
pub mod rng;
pub mod run_queue;
pub mod rw_word;
pub mod spinning;
pub mod stack_needs;
pub mod stalled;
pub mod status;
pub mod steal_order;
pub mod stop;
pub mod sync;
pub mod task_word;
pub mod throw;
pub mod time_histogram;
pub mod timer_heap;
pub mod trace_gate;
pub mod wait_queue;
pub mod watch;
pub mod work_span;
