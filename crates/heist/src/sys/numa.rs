//! The NUMA nodes of the machine: which CPUs are near to which.
//!
//! A node is a hint for thieves and nothing else: a thread may change its CPU at any time.

use std::path::Path;
use std::sync::Arc;

/// The folder of the nodes, below the root.
const FOLDER: &str = "sys/devices/system/node";
/// The kernel numbers nodes from zero on, and builds for fewer than this.
const NODES_MAX: usize = 1024;
/// The highest CPU number that is looked at.
const CPUS_MAX: usize = 1 << 16;

/// A node.
pub(crate) type Node = u16;

/// How the Ps of a runtime are spread over nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Nodes {
    /// There is one node, or the system does not tell: every P is near.
    #[default]
    One,
    /// A P belongs to the node of the CPU on which its thread runs; the nodes of all CPUs, by
    /// number.
    OfCpus(Arc<[Node]>),
    /// So many equal parts of the Ps, by their numbers. For tests.
    Fake(u32),
}

impl Nodes {
    /// Reads the nodes of the machine whose files are below `root`. It allocates.
    pub(crate) fn read(root: &Path) -> Self {
        let folder = root.join(FOLDER);
        let mut of_cpus: Vec<Node> = Vec::new();
        let mut n_nodes = 0;
        for node in 0..NODES_MAX {
            let list = std::fs::read_to_string(folder.join(format!("node{node}/cpulist")));
            let Ok(list) = list else { continue };
            let mut has_cpus = false;
            for (first, last) in ranges(list.trim()) {
                if of_cpus.len() <= last {
                    of_cpus.resize(last + 1, 0);
                }
                of_cpus[first..=last].fill(node as Node);
                has_cpus = true;
            }
            n_nodes += usize::from(has_cpus);
        }
        if n_nodes < 2 { Self::One } else { Self::OfCpus(of_cpus.into()) }
    }

    /// The node of P `id` of `procs`, whose M calls this; none if there is only one node.
    #[inline]
    pub(crate) fn of_p(&self, id: u32, procs: u32) -> Option<Node> {
        match self {
            Self::One => None,
            Self::OfCpus(of_cpus) => of_cpus.get(here()?).copied(),
            &Self::Fake(n) => {
                Some((u64::from(id) * u64::from(n) / u64::from(procs.max(1))) as Node)
            }
        }
    }
}

impl Nodes {
    /// The node of P `id` of `procs` before it has ever run, as far as that is known.
    pub(crate) fn at_first(&self, id: u32, procs: u32) -> Node {
        match self {
            Self::Fake(_) => self.of_p(id, procs).unwrap_or(0),
            _ => 0,
        }
    }
}

/// The CPU of the calling thread.
fn here() -> Option<usize> {
    // SAFETY: there is nothing to go wrong.
    usize::try_from(unsafe { libc::sched_getcpu() }).ok()
}

/// The ranges of a list such as `0-3,8,10-11`. What is not a range is left out.
fn ranges(list: &str) -> impl Iterator<Item = (usize, usize)> {
    list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first <= last && last < CPUS_MAX).then_some((first, last))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str, nodes: &[(u32, &str)]) -> Nodes {
        let root = std::env::temp_dir().join(format!("heist-numa-{}-{name}", std::process::id()));
        for (node, list) in nodes {
            let folder = root.join(FOLDER).join(format!("node{node}"));
            std::fs::create_dir_all(&folder).expect("a folder");
            std::fs::write(folder.join("cpulist"), list).expect("a file");
        }
        let read = Nodes::read(&root);
        let _ = std::fs::remove_dir_all(&root);
        read
    }

    #[test]
    fn cpus_belong_to_the_node_that_lists_them() {
        let nodes = machine("two", &[(0, "0-1,4\n"), (2, "2-3,5-5\n")]);
        assert_eq!(nodes, Nodes::OfCpus([0, 0, 2, 2, 0, 2].into()));
    }

    #[test]
    fn a_machine_with_one_node_has_no_far_cpus() {
        assert_eq!(machine("one", &[(0, "0-63\n")]), Nodes::One);
        assert_eq!(machine("none", &[]), Nodes::One);
        // A node without CPUs is memory only.
        assert_eq!(machine("memory", &[(0, "0-3\n"), (1, "\n")]), Nodes::One);
    }

    #[test]
    fn a_list_that_is_damaged_is_read_as_far_as_it_makes_sense() {
        let read: Vec<_> = ranges("3-1,x,2,,7-,9-9999999999,4-5").collect();
        assert_eq!(read, [(2, 2), (4, 5)]);
    }

    #[test]
    fn fake_nodes_are_equal_parts() {
        let nodes = Nodes::Fake(4);
        let of = |procs| (0..procs).filter_map(|id| nodes.of_p(id, procs)).collect::<Vec<_>>();
        assert_eq!(of(8), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(of(2), [0, 2]);
    }
}
