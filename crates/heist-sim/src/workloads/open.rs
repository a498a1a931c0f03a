//! An open loop: requests arrive whether earlier ones are answered or not.

use crate::random::{exponential_ns, unit};
use crate::workload::{Arrival, Class, Op, Task, Workload};
use heist_core::rng::Rng;

/// How requests arrive.
#[derive(Clone, Copy, Debug)]
pub enum Arrivals {
    /// Independently of each other: a Poisson process with this mean time between two.
    Poisson {
        /// The mean.
        mean_ns: f64,
    },
    /// In bursts: a Poisson process that is on and off for exponentially distributed times.
    Bursts {
        /// The mean time between two while it is on.
        mean_ns: f64,
        /// The mean time for which it is on.
        on_ns: f64,
        /// The mean time for which it is off.
        off_ns: f64,
    },
}

/// Requests that compute, and may start goroutines that they wait for.
#[derive(Clone, Debug)]
pub struct OpenLoop {
    /// How requests arrive.
    arrivals: Arrivals,
    /// The mean of the exponentially distributed time that a request computes.
    service_ns: f64,
    /// How many goroutines a request starts besides its own. They compute as long as it does.
    children: u32,
    /// The share of requests of the latency class, which compute for `latency_ns`.
    latency_share: f64,
    /// How long a request of the latency class computes.
    latency_ns: u64,
    /// Nodes among which the data of the requests is spread.
    nodes: u32,
    left: u64,
    on_left_ns: f64,
}

impl OpenLoop {
    /// `n` requests by a Poisson process.
    #[must_use]
    pub const fn poisson(n: u64, mean_ns: f64, service_ns: f64) -> Self {
        Self::new(n, Arrivals::Poisson { mean_ns }, service_ns)
    }

    /// `n` requests that arrive in some way.
    #[must_use]
    pub const fn new(n: u64, arrivals: Arrivals, service_ns: f64) -> Self {
        Self {
            arrivals,
            service_ns,
            children: 0,
            latency_share: 0.0,
            latency_ns: 0,
            nodes: 1,
            left: n,
            on_left_ns: 0.0,
        }
    }

    /// With so many goroutines that each request starts and waits for.
    #[must_use]
    pub const fn with_children(mut self, children: u32) -> Self {
        self.children = children;
        self
    }

    /// With this share of requests of the latency class, which compute for `ns`.
    #[must_use]
    pub const fn with_latency(mut self, share: f64, ns: u64) -> Self {
        (self.latency_share, self.latency_ns) = (share, ns);
        self
    }

    /// With the data of the requests spread among so many nodes.
    #[must_use]
    pub const fn with_nodes(mut self, nodes: u32) -> Self {
        self.nodes = nodes;
        self
    }

    fn gap_ns(&mut self, rng: &mut Rng) -> u64 {
        match self.arrivals {
            Arrivals::Poisson { mean_ns } => exponential_ns(rng, mean_ns),
            Arrivals::Bursts { mean_ns, on_ns, off_ns } => {
                let mut gap_ns = exponential_ns(rng, mean_ns) as f64;
                let mut pause_ns = 0.0;
                while gap_ns > self.on_left_ns {
                    gap_ns -= self.on_left_ns;
                    pause_ns += self.on_left_ns + exponential_ns(rng, off_ns) as f64;
                    self.on_left_ns = exponential_ns(rng, on_ns).max(1) as f64;
                }
                self.on_left_ns -= gap_ns;
                (gap_ns + pause_ns) as u64
            }
        }
    }
}

const REQUEST: u32 = 0;
const CHILD: u32 = 1;

impl Workload for OpenLoop {
    fn arrival(&mut self, rng: &mut Rng) -> Option<Arrival> {
        self.left = self.left.checked_sub(1)?;
        let after_ns = self.gap_ns(rng);
        let mut task = Task::new(REQUEST).with(exponential_ns(rng, self.service_ns));
        if self.latency_share > 0.0 && unit(rng) <= self.latency_share {
            task.class = Class::Latency;
            task.data[0] = self.latency_ns;
        }
        if self.nodes > 1 {
            task.home = Some(rng.below(self.nodes));
        }
        Some(Arrival { after_ns, task })
    }

    fn total(&self) -> Option<u64> {
        Some(self.left * u64::from(1 + self.children))
    }

    fn next(&mut self, task: &mut Task, _rng: &mut Rng) -> Op {
        let step = task.step;
        task.step += 1;
        let children = if task.kind == REQUEST { self.children } else { 0 };
        if step < children {
            return Op::Spawn(Task { kind: CHILD, step: 0, ..*task });
        }
        match step - children {
            0 => Op::Compute(task.data[0]),
            1 if children > 0 => Op::Join,
            _ => Op::End,
        }
    }
}
