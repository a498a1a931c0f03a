//! The goroutines of a runtime, listed and counted while they run.

use crate::current;
use crate::gmp::described::Described;
use crate::gmp::flags::Flag;
use crate::gmp::{G, pool};
use crate::sched::Sched;
use crate::sys::walk::Registers;
use crate::traceback::{collect, text};
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;

/// Goroutines that were spawned at the same place and are in the same state.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let (_tx, rx) = heist::chan::bounded::<()>(0);
/// let (ready, all) = (heist::sync::WaitGroup::new(), 100);
/// for _ in 0..all {
///     let rx = rx.clone();
///     ready.go(move || drop(heist::go(move || rx.recv())));
/// }
/// ready.wait();
/// for group in heist::goroutine::census() {
///     // 100 goroutines [chan receive], spawned at src/main.rs:7:29
///     println!("{group}");
/// }
/// # });
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Group {
    /// How many there are.
    pub count: usize,
    /// Their state, in the words of a dump: `running`, `runnable`, `chan receive`, ...
    pub state: &'static str,
    /// Where they were spawned.
    pub spawned_at: &'static Location<'static>,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { count, state, spawned_at } = self;
        let s = if *count == 1 { "" } else { "s" };
        write!(f, "{count} goroutine{s} [{state}], spawned at {spawned_at}")
    }
}

impl Sched {
    /// All goroutines as text, the calling one first, then by number.
    pub(crate) fn dump(&self, here: Registers) -> String {
        let own = current::goroutine().map(|gp| gp.id.get());
        text::dump(collect::entries(self, here), own)
    }

    /// The goroutines by spawn site and state, the largest group first.
    pub(crate) fn census(&self) -> Vec<Group> {
        let mut counts: HashMap<(&Location<'static>, &'static str), usize> = HashMap::new();
        self.for_each_live(|gp| {
            if let Some(site) = gp.spawn_site() {
                *counts.entry((site, Described::state_of(gp))).or_default() += 1;
            }
        });
        let mut groups: Vec<_> = counts
            .into_iter()
            .map(|((spawned_at, state), count)| Group { count, state, spawned_at })
            .collect();
        groups.sort_by(|a, b| {
            let by_size = b.count.cmp(&a.count);
            by_size.then_with(|| (a.spawned_at, a.state).cmp(&(b.spawned_at, b.state)))
        });
        groups
    }

    fn for_each_live(&self, mut look: impl FnMut(&G)) {
        pool::for_each(|gp| {
            if self.is_mine(gp) && !gp.flags.has(Flag::UNBORN) {
                look(gp);
            }
        });
    }
}
