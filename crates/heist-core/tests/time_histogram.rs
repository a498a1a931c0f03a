//! The buckets of durations.

use heist_core::time_histogram::{Bucket, N_BUCKETS, TimeHistogram, bucket_of, lower_edge_ns};

/// IN-43, MT-13: 64 ns steps up to 512 ns, then four equal steps for each power of two, up to
/// 2^47 ns.
#[test]
fn edges_follow_the_formula() {
    assert_eq!(N_BUCKETS, 160);
    let edges: Vec<_> = (0..=N_BUCKETS).map(lower_edge_ns).collect();
    assert_eq!(edges[..9], [0, 64, 128, 192, 256, 320, 384, 448, 512]);
    assert_eq!(edges[9..17], [640, 768, 896, 1024, 1280, 1536, 1792, 2048]);
    assert_eq!(edges[N_BUCKETS], 1 << 47);
    for (n, pair) in edges.windows(2).enumerate() {
        let power = n / 4;
        let width = if power == 0 { 64 } else { 1 << (power + 5) };
        assert_eq!(pair[1] - pair[0], width, "bucket {n}");
    }
}

/// MT-13: a sample at each end of each bucket is counted in that bucket; durations that are
/// negative or too long are counted separately.
#[test]
fn samples_land_where_expected() {
    let histogram = TimeHistogram::new();
    let mut sum = 0;
    for n in 0..N_BUCKETS {
        let (first, last) = (lower_edge_ns(n), lower_edge_ns(n + 1) - 1);
        for ns in [first, u64::midpoint(first, last), last] {
            assert_eq!(bucket_of(ns as i64), Bucket::Number(n), "{ns}");
            histogram.record(ns as i64);
            sum += ns;
        }
    }
    for ns in [-1, i64::MIN] {
        assert_eq!(bucket_of(ns), Bucket::Underflow);
        histogram.record(ns);
    }
    for ns in [1 << 47, i64::MAX] {
        assert_eq!(bucket_of(ns), Bucket::Overflow);
    }
    histogram.record(1 << 47);
    let mut counts = [0; N_BUCKETS + 2];
    assert_eq!(histogram.add_to(&mut counts), sum + (1 << 47));
    assert_eq!((counts[0], counts[N_BUCKETS + 1]), (2, 1));
    assert!(counts[1..=N_BUCKETS].iter().all(|&count| count == 3));
    histogram.add_to(&mut counts);
    assert_eq!((counts[0], counts[1]), (4, 6), "counts add up");
}
