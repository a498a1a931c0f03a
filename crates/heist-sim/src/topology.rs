//! The machine: CPUs, nodes, and how far they are apart.
//!
//! The Ps of a node are neighbours in their numbers, and so are the CPUs that their threads use.

/// CPUs and nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// How many CPUs there are.
    pub cpus: u32,
    /// How many nodes they form.
    pub nodes: u32,
    /// How many times longer a line takes from another node than from the own one, in percent: 100
    /// means that nodes make no difference.
    pub remote_percent: u64,
    /// How many times longer a goroutine computes away from the node of its data, in percent.
    pub inflation_percent: u64,
}

impl Topology {
    /// One node.
    #[must_use]
    pub const fn flat(cpus: u32) -> Self {
        Self { cpus, nodes: 1, remote_percent: 100, inflation_percent: 100 }
    }

    /// Several nodes: a remote line takes two and a half times as long, and a goroutine away from
    /// its data a third longer, as on two-socket servers.
    #[must_use]
    pub const fn numa(cpus: u32, nodes: u32) -> Self {
        Self { cpus, nodes, remote_percent: 250, inflation_percent: 133 }
    }

    /// The node of a P, of `procs`.
    #[must_use]
    pub const fn node_of(&self, p: u32, procs: u32) -> u32 {
        (p as u64 * self.nodes as u64 / procs as u64) as u32
    }

    /// What a step between two nodes costs.
    #[must_use]
    pub const fn far(&self, ns: u64, same_node: bool) -> u64 {
        if same_node { ns } else { ns * self.remote_percent / 100 }
    }
}
