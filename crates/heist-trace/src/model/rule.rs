//! The rules that every trace of a correct scheduler follows.

macro_rules! rules {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)+) => {
        /// A rule. Its documentation says what holds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Rule { $($(#[$doc])* $name,)+ }

        impl Rule {
            /// All rules.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// A short name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)+ }
            }
        }
    };
}

rules! {
    /// All numbers fit together: for each event there is a moment at which it can happen.
    Order => "order",
    /// A goroutine is made once.
    CreatedOnce => "created-once",
    /// A goroutine that ended does nothing.
    DeadStaysDead => "dead-stays-dead",
    /// A goroutine that starts was runnable, or frozen on the same M.
    StartsRunnable => "starts-runnable",
    /// An M runs one goroutine at a time.
    OneGoroutine => "one-goroutine",
    /// A goroutine stops, waits or ends where it runs.
    LeavesWhereItRuns => "leaves-where-it-runs",
    /// Each end of a wait has its wait.
    WakesWaiting => "wakes-waiting",
    /// An M that runs a goroutine holds a P, unless the goroutine is in a blocking call.
    RunsWithP => "runs-with-p",
    /// An M holds one P at a time.
    OneP => "one-p",
    /// A P is held by one M at a time.
    OneHolder => "one-holder",
    /// A P is given up or taken where it is.
    LeavesHolder => "leaves-holder",
    /// The numbers of a P follow one another.
    ProcNumber => "proc-number",
    /// A P that is used is one of those that exist.
    ProcExists => "proc-exists",
    /// Blocking calls begin and end in turn.
    Calls => "calls",
    /// An M that sleeps has no P, runs nothing and does nothing until it wakes up.
    Asleep => "asleep",
    /// Searches for work begin and end in turn.
    Spins => "spins",
    /// There are never more searching Ms than Ps.
    SpinBound => "spin-bound",
    /// Only an M with a P takes goroutines from another P.
    Steals => "steals",
    /// The world stops and runs in turn.
    World => "world",
    /// Regions nest in each goroutine.
    Regions => "regions",
    /// What a buffer says about its beginning is what the buffer before it ended with.
    Contexts => "contexts",
    /// The clock of a writer does not go back.
    WriterTime => "writer-time",
    /// The clock does not go back from one event of a goroutine to the next.
    GoroutineTime => "goroutine-time",
    /// No goroutine of the normal class is runnable for long while a P is idle all that time. Times
    /// in which nothing at all happens do not count: then the process did not run.
    WorkConservation => "work-conservation",
}

impl Rule {
    /// Whether it needs nothing but the events of one writer, whose order is always known.
    #[must_use]
    pub const fn is_local(self) -> bool {
        matches!(self, Self::Spins | Self::WriterTime)
    }
}
