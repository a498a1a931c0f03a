//! The task of one measuring process.

/// One workload with its sizes.
#[derive(Clone, Copy, Debug)]
pub struct Job<'a> {
    pub workload: &'a str,
    /// Workers of the runtime.
    pub procs: usize,
    /// The number of tasks at once, for the workloads that take one.
    pub size: usize,
}
