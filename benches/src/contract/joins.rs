//! Fork and join without a task per fork.

/// A peer's own primitive that runs two closures, maybe at the same time.
pub trait Joins {
    /// What a peer hands from fork to fork.
    type Cx<'a>;

    /// Runs `main` on so many processors.
    fn run<T: Send>(procs: usize, main: impl FnOnce(&mut Self::Cx<'_>) -> T + Send) -> T;

    /// Runs both, and returns both results.
    fn join<A: Send, B: Send>(
        cx: &mut Self::Cx<'_>,
        a: impl FnOnce(&mut Self::Cx<'_>) -> A + Send,
        b: impl FnOnce(&mut Self::Cx<'_>) -> B + Send,
    ) -> (A, B);
}
