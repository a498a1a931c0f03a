//! Distributions over the seeded generator of heist-core.

use heist_core::rng::Rng;

/// A number in `(0, 1]`.
pub fn unit(rng: &mut Rng) -> f64 {
    (f64::from(rng.next_u32()) + 1.0) / 4_294_967_296.0
}

/// An exponentially distributed time with this mean, rounded to a nanosecond.
pub fn exponential_ns(rng: &mut Rng, mean_ns: f64) -> u64 {
    (-unit(rng).ln() * mean_ns).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponential_times_have_the_mean_and_the_spread() {
        let mut rng = Rng::new(1);
        let n = 200_000;
        let times: Vec<_> = (0..n).map(|_| exponential_ns(&mut rng, 1e6) as f64).collect();
        let mean = times.iter().sum::<f64>() / f64::from(n);
        let spread = times.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / f64::from(n);
        assert!((mean / 1e6 - 1.0).abs() < 0.01, "{mean}");
        assert!((spread.sqrt() / 1e6 - 1.0).abs() < 0.02, "{spread}");
    }
}
