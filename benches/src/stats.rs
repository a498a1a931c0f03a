//! Median, spread and the 95 % interval of a handful of repetitions.

/// The statistics of the repetitions of one row.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Summary {
    pub n: usize,
    pub median: f64,
    pub min: f64,
    pub max: f64,
    /// Half the width of the 95 % interval of the mean; absent below two values.
    pub ci_half: Option<f64>,
}

/// Student's t, two-sided 95 %, by degrees of freedom; beyond the table the normal value
/// is near enough.
const T_95: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
    2.052, 2.048, 2.045, 2.042,
];

impl Summary {
    /// Summarises; no values, no summary.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        Some(Self { n: sorted.len(), median: median(&sorted), min, max, ci_half: ci_half(&sorted) })
    }
}

fn median(sorted: &[f64]) -> f64 {
    let mid = sorted.len() / 2;
    if sorted.len().is_multiple_of(2) {
        f64::midpoint(sorted[mid - 1], sorted[mid])
    } else {
        sorted[mid]
    }
}

fn ci_half(values: &[f64]) -> Option<f64> {
    if values.len() < 2 {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (n - 1.0);
    let t = T_95.get(values.len() - 2).copied().unwrap_or(1.96);
    Some(t * (variance / n).sqrt())
}

/// The q-quantile (nearest rank) of samples, which it sorts.
pub fn quantile(samples: &mut [u64], q: f64) -> u64 {
    assert!(!samples.is_empty(), "quantile: no samples");
    samples.sort_unstable();
    let rank = (q * samples.len() as f64).ceil() as usize;
    samples[rank.clamp(1, samples.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_odd_and_even_counts() {
        assert_eq!(Summary::of(&[3.0, 1.0, 2.0]).unwrap().median, 2.0);
        assert_eq!(Summary::of(&[4.0, 1.0, 2.0, 3.0]).unwrap().median, 2.5);
    }

    #[test]
    fn the_interval_of_five_is_students() {
        let summary = Summary::of(&[1.0, 2.0, 3.0, 4.0, 5.0]).unwrap();
        let expected = 2.776 * (2.5_f64 / 5.0).sqrt();
        assert!((summary.ci_half.unwrap() - expected).abs() < 1e-12);
        assert_eq!((summary.min, summary.max), (1.0, 5.0));
    }

    #[test]
    fn one_value_has_no_interval_and_none_no_summary() {
        assert_eq!(Summary::of(&[7.0]).unwrap().ci_half, None);
        assert_eq!(Summary::of(&[]), None);
    }

    #[test]
    fn equal_values_have_an_interval_of_zero() {
        assert_eq!(Summary::of(&[5.0; 8]).unwrap().ci_half, Some(0.0));
    }

    #[test]
    fn quantiles_are_values_that_occurred() {
        let mut samples: Vec<u64> = (1..=100).rev().collect();
        assert_eq!(quantile(&mut samples, 0.5), 50);
        assert_eq!(quantile(&mut samples, 0.99), 99);
        assert_eq!(quantile(&mut samples, 1.0), 100);
        assert_eq!(quantile(&mut [9], 0.5), 9);
    }
}
