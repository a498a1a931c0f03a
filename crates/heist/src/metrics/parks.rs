//! How often goroutines parked, by what they waited for.

use crate::gmp::g::WaitReason;
use crate::sched::Sched;
use std::sync::OnceLock;

/// The name of each count and its value, and their sum.
pub(super) fn read(sched: &Sched) -> (Vec<(&'static str, u64)>, u64) {
    let of = |at: usize| sched.world.all_made().map(|pp| pp.parks[at].get()).sum();
    let counts: Vec<(&'static str, u64)> =
        names().iter().enumerate().map(|(at, &name)| (name, of(at))).collect();
    let sum = counts.iter().map(|(_, n)| n).sum();
    (counts, sum)
}

/// `sync.WaitGroup.Wait` becomes `/heist/parks/sync-waitgroup-wait:events`.
fn names() -> &'static [&'static str] {
    static NAMES: OnceLock<Vec<&'static str>> = OnceLock::new();
    NAMES.get_or_init(|| {
        WaitReason::ALL
            .iter()
            .map(|reason| {
                let text = reason.text().to_ascii_lowercase();
                let words = text.split(|c: char| !c.is_ascii_alphanumeric());
                let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
                let name = format!("/heist/parks/{}:events", words.join("-"));
                &*Box::leak(name.into_boxed_str())
            })
            .collect()
    })
}
