//! How long the runs of a goroutine, or its waits for a processor, take.

use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};

/// Counts durations in buckets that are an eighth of a power of two wide. Only those that are used
/// take memory: most goroutines have few.
#[derive(Clone, Debug, Default)]
pub(crate) struct Spread {
    /// Buckets with their counts, in order.
    buckets: Vec<(u16, u32)>,
    max_ns: u64,
}

const fn bucket(ns: u64) -> u16 {
    if ns < 8 {
        return ns as u16;
    }
    let exponent = 63 - ns.leading_zeros();
    ((exponent - 2) * 8 + (ns >> (exponent - 3) & 7) as u32) as u16
}

/// The middle of a bucket.
const fn middle(bucket: u16) -> u64 {
    if bucket < 8 {
        return bucket as u64;
    }
    let (exponent, part) = (bucket as u32 / 8 + 2, bucket as u64 % 8);
    let width = 1 << (exponent - 3);
    (8 + part) * width + width / 2
}

impl Spread {
    pub(crate) fn add(&mut self, ns: u64) {
        self.max_ns = self.max_ns.max(ns);
        let bucket = bucket(ns);
        match self.buckets.binary_search_by_key(&bucket, |&(bucket, _)| bucket) {
            Ok(at) => self.buckets[at].1 = self.buckets[at].1.saturating_add(1),
            Err(at) => self.buckets.insert(at, (bucket, 1)),
        }
    }

    pub(crate) const fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// As tokio-console reads it.
    pub(crate) fn serialize(&self) -> Vec<u8> {
        let max_ns = self.max_ns.max(2);
        let mut bytes = Vec::new();
        let Ok(mut histogram) = Histogram::<u64>::new_with_max(max_ns, 2) else { return bytes };
        for &(bucket, count) in &self.buckets {
            histogram.saturating_record_n(middle(bucket).clamp(1, max_ns), count.into());
        }
        // Writing to memory does not fail.
        let _ = V2Serializer::new().serialize(&histogram, &mut bytes);
        bytes
    }
}

#[test]
fn buckets_are_narrow_and_in_order() {
    let mut last = 0;
    for ns in (0..64).flat_map(|shift| [1_u64 << shift, (1 << shift) + (1 << shift) / 3]) {
        let bucket = bucket(ns);
        assert!(bucket >= last, "{ns}");
        last = bucket;
        let error = middle(bucket).abs_diff(ns);
        assert!(error <= ns / 8, "{ns}: {}", middle(bucket));
    }
}

#[test]
fn a_spread_is_read_back_as_a_histogram() {
    let mut spread = Spread::default();
    for ns in [0, 5, 1_000, 1_000, 1_000_000_000] {
        spread.add(ns);
    }
    let bytes = spread.serialize();
    let mut reader = &bytes[..];
    let read: Histogram<u64> =
        hdrhistogram::serialization::Deserializer::new().deserialize(&mut reader).unwrap();
    assert_eq!((read.len(), read.count_between(900, 1_100)), (5, 2));
    assert_eq!(spread.max_ns(), 1_000_000_000);
}
