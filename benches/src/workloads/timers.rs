//! timers: many sleepers of mixed durations; how late the last, how much CPU in all.

use std::time::{Duration, Instant};

use super::ms;
use crate::contract::blocking::{Group as _, Tasks, Timers};
use crate::reading::{Figures, Outcome, cannot};
use crate::sys::{self, Who};

pub const N_SLEEPERS: u64 = 100_000;
pub const LONGEST: Duration = Duration::from_millis(1000);

/// 1 to 1000 ms, each as often as any other, neighbours far apart.
pub fn nap(index: u64) -> Duration {
    Duration::from_millis(1 + index * 7919 % 1000)
}

struct Watch {
    start: Instant,
    cpu: Duration,
}

impl Watch {
    fn start() -> Self {
        Self { start: Instant::now(), cpu: sys::cpu_time(Who::Myself) }
    }

    fn stop(self) -> Figures {
        let over = self.start.elapsed().saturating_sub(LONGEST);
        let cpu = sys::cpu_time(Who::Myself) - self.cpu;
        Figures::many(vec![ms(over), ms(cpu)])
    }
}

pub fn blocking<R: Timers>(procs: usize) -> Outcome {
    fn round<R: Tasks + Timers>(n: u64) -> Figures {
        let group = R::Group::new();
        let watch = Watch::start();
        group.add(n as usize);
        for index in 0..n {
            let group = group.clone();
            R::spawn(move || {
                R::sleep(nap(index));
                group.done();
            });
        }
        group.wait();
        watch.stop()
    }
    if R::MAX_TASKS < N_SLEEPERS as usize {
        return cannot(R::LIMIT_NOTE.unwrap_or("too many tasks"));
    }
    Ok(R::run(procs, || {
        round::<R>(N_SLEEPERS / 100);
        round::<R>(N_SLEEPERS)
    }))
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub fn futures<R: crate::contract::futures::Timers>(procs: usize) -> Outcome {
    use crate::contract::futures::Group as _;

    async fn round<R: crate::contract::futures::Timers>(n: u64) -> Figures {
        let group = R::Group::new();
        let watch = Watch::start();
        group.add(n as usize);
        for index in 0..n {
            let group = group.clone();
            R::spawn(async move {
                R::sleep(nap(index)).await;
                group.done();
            });
        }
        group.wait().await;
        watch.stop()
    }
    Ok(R::run(procs, async {
        round::<R>(N_SLEEPERS / 100).await;
        round::<R>(N_SLEEPERS).await
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn naps_cover_the_whole_range_evenly() {
        let mut seen: Vec<_> = (0..1000).map(nap).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!((seen.len(), seen[0], seen[999]), (1000, Duration::from_millis(1), LONGEST));
    }
}
