//! When a fork is worth waking a thread.

/// A half that was taken and ends sooner was not worth it: waking a thread for it and waiting for
/// its end cost more.
const SHORT_HALF_NS: u64 = 20_000;

/// After so many short halves in a row, forkers are patient.
const SHORT_HALVES_MIN: u32 = 3;

/// A patient forker wakes a thread at the latest with this fork. So many take tens of microseconds
/// if they are as short as forks can be.
const SILENT_MAX: u32 = 8192;

/// The number of short halves in a row after a half that ran for `ns`.
#[must_use]
pub const fn short_halves(n_short: u32, ns: u64) -> u32 {
    if ns >= SHORT_HALF_NS {
        0
    } else if n_short < SHORT_HALVES_MIN {
        n_short + 1
    } else {
        n_short
    }
}

/// Whether a forker does not wake a thread for a job, after `n_short` short halves in a row and
/// `n_silent` forks without a wake-up.
#[must_use]
pub const fn fork_waits(n_short: u32, n_silent: u32) -> bool {
    n_short >= SHORT_HALVES_MIN && n_silent < SILENT_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_halves_make_forkers_patient_and_a_long_one_ends_that() {
        let mut n_short = 0;
        for n in 0..10 {
            assert_eq!(fork_waits(n_short, 0), n >= SHORT_HALVES_MIN);
            n_short = short_halves(n_short, 1_000);
        }
        assert!(!fork_waits(n_short, SILENT_MAX));
        assert!(!fork_waits(short_halves(n_short, 1_000_000), 0));
    }
}
