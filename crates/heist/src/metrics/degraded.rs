//! What the process has to do without.

use crate::sys::degraded::Lack;

/// Names, meanings and counts.
pub(super) fn read() -> [(&'static str, &'static str, u64); 5] {
    [
        (
            "/heist/degraded/goroutines:goroutines",
            "Goroutines of the process that ended unrun, because there was no memory for their stacks.",
            Lack::Goroutine.count(),
        ),
        (
            "/heist/degraded/membarrier:events",
            "1 if the kernel refuses membarrier, so that entering the runtime costs a fence.",
            Lack::Membarrier.count(),
        ),
        (
            "/heist/degraded/stacks:events",
            "Times the system refused memory for the stack of a goroutine of the process.",
            Lack::Stack.count(),
        ),
        (
            "/heist/degraded/thread-states:events",
            "Times the CPU clock of a thread told what it does, because its file in /proc could not.",
            Lack::ThreadState.count(),
        ),
        (
            "/heist/degraded/threads:events",
            "Times the system refused a thread to a runtime of the process.",
            Lack::Thread.count(),
        ),
    ]
}
