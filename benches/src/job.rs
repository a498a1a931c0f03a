//! What one measuring process is asked to do.

/// One workload with its sizes.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub workload: &'a str,
    /// Workers of the runtime.
    pub procs: usize,
    /// Tasks at once, for the workloads that are asked for a number of them.
    pub size: usize,
}
