//! All goroutines, and which of them changed when.

use crate::goroutine::{Doing, Goroutine};
use heist_trace::follow::{Happening, Step};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::ops::Bound;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How much is kept.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) retention: Duration,
    pub(crate) ended_max: usize,
    pub(crate) goroutines_max: usize,
}

/// The place of a change: the version of the book in which it was published, and the goroutine.
pub(crate) type Place = (u64, u64);

/// The goroutines that clients are shown.
pub(crate) struct Book {
    limits: Limits,
    goroutines: HashMap<u64, Goroutine>,
    /// Those that changed since the last version.
    dirty: HashSet<u64>,
    /// Those that are shown, by their last change.
    changes: BTreeSet<Place>,
    /// Those that ended, in this order.
    ended: VecDeque<u64>,
    /// How many clients look at the details of a goroutine.
    watched: HashMap<u64, usize>,
    wait_reasons: Vec<String>,
    version: u64,
    recording: u64,
    is_settled: bool,
    now_ns: u64,
    /// What to add to a time in order to get nanoseconds since 1970.
    unix_offset_ns: Option<u64>,
    /// Lost events of earlier recordings, and of this one.
    n_lost: (u64, u64),
    /// Goroutines that are not shown, because there are too many.
    n_ignored: u64,
}

impl Book {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            goroutines: HashMap::new(),
            dirty: HashSet::new(),
            changes: BTreeSet::new(),
            ended: VecDeque::new(),
            watched: HashMap::new(),
            wait_reasons: Vec::new(),
            version: 0,
            recording: 0,
            is_settled: false,
            now_ns: 0,
            unix_offset_ns: None,
            n_lost: (0, 0),
            n_ignored: 0,
        }
    }

    /// A recording begins.
    pub(crate) fn begin(&mut self, wait_reasons: Vec<String>) {
        self.wait_reasons = wait_reasons;
        self.recording += 1;
        self.is_settled = false;
    }

    /// A recording ended.
    pub(crate) fn close(&mut self, n_lost: u64) {
        self.n_lost = (self.n_lost.0 + n_lost, 0);
    }

    /// Forgets all goroutines.
    pub(crate) fn clear(&mut self) {
        self.is_settled = false;
        self.goroutines.clear();
        self.dirty.clear();
        self.changes.clear();
        self.ended.clear();
    }

    /// The runtime has ended, or nothing is known any more.
    pub(crate) fn end_all(&mut self) {
        let now_ns = self.now_ns;
        let unix_ns = || SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.unix_offset_ns.get_or_insert_with(|| unix_ns().as_nanos() as u64);
        self.is_settled = true;
        self.end_living(now_ns, |_| true);
        self.publish_at(now_ns);
    }

    /// Notes what a goroutine did.
    pub(crate) fn note(&mut self, happening: Happening) {
        let Happening { goroutine: id, time_ns, step } = happening;
        let recording = self.recording;
        match (self.goroutines.get_mut(&id), step) {
            (None, Step::Appears(appearance)) => {
                if self.goroutines.len() - self.ended.len() >= self.limits.goroutines_max {
                    self.n_ignored += 1;
                    return;
                }
                self.goroutines.insert(id, Goroutine::new(appearance, time_ns, recording));
            }
            (None, _) => return,
            (Some(goroutine), Step::Appears(appearance)) => {
                goroutine.resume(&appearance, time_ns, recording);
            }
            (Some(goroutine), step) => {
                goroutine.note(id, &step, time_ns);
                if goroutine.doing == Doing::Ended {
                    self.ended.push_back(id);
                }
            }
        }
        self.dirty.insert(id);
    }

    /// Shows the clients what has happened.
    pub(crate) fn publish(&mut self, now_ns: u64, unix_ns: u64, n_lost: u64) {
        // Later changes of the wall clock do not move what clients know already.
        self.unix_offset_ns.get_or_insert(unix_ns.wrapping_sub(now_ns));
        self.n_lost.1 = n_lost;
        if !self.is_settled {
            self.is_settled = true;
            // A recording begins with a list of all goroutines: those that it does not know ended.
            let recording = self.recording;
            self.end_living(now_ns, |goroutine| goroutine.recording != recording);
        }
        self.publish_at(now_ns);
    }

    fn end_living(&mut self, now_ns: u64, has_ended: impl Fn(&Goroutine) -> bool) {
        for (&id, goroutine) in &mut self.goroutines {
            if goroutine.doing != Doing::Ended && has_ended(goroutine) {
                goroutine.finish(now_ns, None);
                self.ended.push_back(id);
                self.dirty.insert(id);
            }
        }
    }

    fn publish_at(&mut self, now_ns: u64) {
        self.now_ns = self.now_ns.max(now_ns);
        self.version += 1;
        for id in self.dirty.drain() {
            let Some(goroutine) = self.goroutines.get_mut(&id) else { continue };
            let was_never_born = goroutine.doing == Doing::Ended && goroutine.runs == 0;
            if goroutine.doing == Doing::Unborn || was_never_born && goroutine.changed == 0 {
                continue;
            }
            self.changes.remove(&(goroutine.changed, id));
            goroutine.changed = self.version;
            self.changes.insert((self.version, id));
            // tokio-console replaces a task that is described again, and an open page about it
            // then shows the old one for ever.
            let to_describe = goroutine.to_describe();
            if goroutine.described != to_describe && !self.watched.contains_key(&id) {
                goroutine.described = to_describe;
                goroutine.description += 1;
            }
        }
        self.forget();
    }

    /// Forgets what ended long ago.
    fn forget(&mut self) {
        let retention_ns = u64::try_from(self.limits.retention.as_nanos()).unwrap_or(u64::MAX);
        while let Some(&id) = self.ended.front() {
            let Some(goroutine) = self.goroutines.get(&id) else {
                self.ended.pop_front();
                continue;
            };
            let ended_ns = goroutine.ended_ns.unwrap_or(self.now_ns);
            let is_old = self.now_ns.saturating_sub(ended_ns) > retention_ns;
            if !is_old && self.ended.len() <= self.limits.ended_max {
                return;
            }
            self.changes.remove(&(goroutine.changed, id));
            self.goroutines.remove(&id);
            self.ended.pop_front();
        }
    }

    /// The changes behind a place, in order.
    pub(crate) fn changes_after(
        &self,
        place: Place,
    ) -> impl Iterator<Item = (Place, &Goroutine)> + '_ {
        let after = self.changes.range((Bound::Excluded(place), Bound::Unbounded));
        after.filter_map(|&place| Some((place, self.goroutines.get(&place.1)?)))
    }

    pub(crate) fn goroutine(&self, id: u64) -> Option<&Goroutine> {
        self.goroutines.get(&id).filter(|goroutine| goroutine.changed != 0)
    }

    /// A client opens the page of a goroutine.
    pub(crate) fn watch(&mut self, id: u64) {
        *self.watched.entry(id).or_default() += 1;
    }

    /// A client leaves the page of a goroutine.
    pub(crate) fn unwatch(&mut self, id: u64) {
        if let Some(n) = self.watched.get_mut(&id) {
            *n -= 1;
            if *n == 0 {
                self.watched.remove(&id);
                self.dirty.insert(id);
            }
        }
    }

    pub(crate) fn wait_reason(&self, reason: u8) -> &str {
        self.wait_reasons.get(usize::from(reason)).map_or("unknown", |text| text)
    }

    /// Whether the recording has told which goroutines there are.
    pub(crate) const fn is_settled(&self) -> bool {
        self.is_settled
    }

    pub(crate) const fn version(&self) -> u64 {
        self.version
    }

    pub(crate) const fn now_ns(&self) -> u64 {
        self.now_ns
    }

    /// Nanoseconds since 1970.
    pub(crate) fn unix_ns(&self, time_ns: u64) -> u64 {
        time_ns.wrapping_add(self.unix_offset_ns.unwrap_or(0))
    }

    /// Events that are missing, and goroutines that are not shown.
    pub(crate) const fn n_missing(&self) -> u64 {
        self.n_lost.0 + self.n_lost.1 + self.n_ignored
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> (usize, usize) {
        (self.goroutines.len(), self.changes.len())
    }
}
