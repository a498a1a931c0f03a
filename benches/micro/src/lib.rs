//! The paths of heist that are measured one by one: in time by `cargo bench -p heist-micro`, in
//! instructions by `heist-micro check`.
//!
//! A path prepares itself once and then does its operation a given number of times, so that a
//! measurement can exclude the cost of the preparation. Everything runs on one P: the measurement
//! shows the cost of the path, without interference.

mod channels;
mod goroutines;
mod locks;
mod queues;
mod timers;

/// Does the operation `n` times.
pub type Repeat = Box<dyn FnMut(usize)>;

/// One path.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Its name on the command line and in the file of limits.
    pub name: &'static str,
    /// A description of one operation.
    pub about: &'static str,
    /// Prepares it.
    pub prepare: fn() -> Repeat,
}

impl std::fmt::Display for Path {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

const fn path(name: &'static str, about: &'static str, prepare: fn() -> Repeat) -> Path {
    Path { name, about, prepare }
}

/// Every path, from the inside out.
pub static PATHS: &[Path] = &[
    path("queue_tail", "a goroutine into a P's ring and out again", queues::tail),
    path("queue_next", "a goroutine into run_next and out again", queues::next),
    path("queue_overflow", "a goroutine through a ring that overflows", queues::overflow),
    path("queue_steal_one", "a goroutine pushed and stolen", queues::steal_one),
    path("queue_steal_half", "a goroutine of a batch of 128 pushed and stolen", queues::steal_half),
    path("global_batch", "a goroutine through the global queue in a batch", queues::global_batch),
    path("timer_heap_1", "a timer into an empty heap and out when due", timers::heap::<0>),
    path("timer_heap_1k", "the same beside 1,000 others", timers::heap::<1_000>),
    path("timer_heap_1m", "the same beside 1,000,000 others", timers::heap::<1_000_000>),
    path("enter_leave", "a goroutine enters the runtime and leaves it", goroutines::enter_leave),
    path("blocking", "an announced blocking call that does nothing", goroutines::blocking),
    path("yield_alone", "a yield with nobody else to run", goroutines::yield_alone),
    path("yield_two", "a yield to another goroutine that yields", goroutines::yield_two),
    path("spawn_detached", "spawn, run, finish, nobody joins", goroutines::spawn_detached),
    path("spawn_join", "spawn, wait for the end, take the result", goroutines::spawn_join),
    path("join", "a fork that nobody takes, inside another one", goroutines::join),
    path("join_last", "a fork that nobody takes, alone in the deque", goroutines::join_last),
    path("park_ready", "two goroutines wake each other, to and fro", goroutines::park_ready),
    path("mutex", "lock and unlock, nobody else there", locks::mutex),
    path("rwlock_read", "lock for reading and unlock, nobody else there", locks::rwlock_read),
    path("rwlock_write", "lock for writing and unlock, nobody else there", locks::rwlock_write),
    path("once", "a once that is done", locks::once),
    path("chan_buffered", "a message into a buffer of 128 and out again", channels::buffered),
    path("chan_unbounded", "a message into an unbounded channel and out", channels::unbounded),
    path("chan_try_empty", "an attempt to receive that fails", channels::try_recv_empty),
    path("chan_two", "twice: a message sent and received, of two", channels::two),
    path("select_ready", "twice: a message sent and selected of two", channels::select_ready),
    path("chan_ping_pong", "a token to another goroutine and back", channels::ping_pong),
];

/// Finds a path by its name.
#[must_use]
pub fn find(name: &str) -> Option<&'static Path> {
    PATHS.iter().find(|path| path.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each path checks its own results where they can be wrong.
    #[test]
    fn every_path_runs() {
        for path in PATHS {
            let mut repeat = (path.prepare)();
            repeat(1);
            repeat(1_000);
        }
    }

    #[test]
    fn names_are_unique() {
        for path in PATHS {
            assert!(std::ptr::eq(find(path.name).expect("it is in the list"), path));
        }
    }
}
