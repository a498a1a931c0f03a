//! The operating system: the only place that calls libc.
//!
//! Nothing here allocates or takes a lock that user code can hold, except for functions that say
//! so, such as those that start threads.

pub(crate) mod alt_stack;
pub(crate) mod bystanders;
pub(crate) mod cgroup;
pub(crate) mod clock;
pub(crate) mod cpu;
pub(crate) mod degraded;
pub(crate) mod doorbell;
pub(crate) mod env;
pub(crate) mod fd;
pub(crate) mod frames;
pub(crate) mod futex;
pub(crate) mod halt;
pub(crate) mod heap;
pub(crate) mod last_words;
pub(crate) mod limits;
pub(crate) mod lock;
pub(crate) mod maps;
pub(crate) mod membarrier;
pub(crate) mod memory;
pub(crate) mod modules;
pub(crate) mod notify;
pub(crate) mod numa;
pub(crate) mod peer;
pub(crate) mod place;
pub(crate) mod placed_thread;
pub(crate) mod poll;
pub(crate) mod poll_set;
pub(crate) mod probe;
pub(crate) mod profile_timer;
pub(crate) mod quit;
pub(crate) mod registers;
pub(crate) mod signal;
pub(crate) mod slot;
pub(crate) mod stderr;
pub(crate) mod stopwatch;
pub(crate) mod symbols;
pub(crate) mod thread;
pub(crate) mod thread_state;
pub(crate) mod ticks;
pub(crate) mod timer_fd;
pub(crate) mod tls;
pub(crate) mod unwind;
pub(crate) mod walk;
