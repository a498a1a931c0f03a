//! How often goroutines parked, by what they waited for.

use crate::gmp::g::WaitReason;
use crate::sched::Sched;

/// The counts, in the order of `WaitReason::ALL`.
pub(super) fn read(sched: &Sched) -> Vec<u64> {
    let of = |at: usize| sched.world.all_made().map(|pp| pp.parks[at].get()).sum();
    (0..WaitReason::ALL.len()).map(of).collect()
}

/// The name of each count: `sync.WaitGroup.Wait` becomes `/heist/parks/sync-waitgroup-wait:events`.
/// The names are leaked, so this is called once.
pub(super) fn names() -> Vec<&'static str> {
    let name = |reason: &WaitReason| {
        let text = reason.text().to_ascii_lowercase();
        let words = text.split(|c: char| !c.is_ascii_alphanumeric());
        let words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
        let name = format!("/heist/parks/{}:events", words.join("-"));
        &*Box::leak(name.into_boxed_str())
    };
    WaitReason::ALL.iter().map(name).collect()
}
