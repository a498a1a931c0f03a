//! An uneven tree, walked by goroutines that all descend from one on one P.
//!
//! Seven eighths of the nodes below a node are on its left: a spine, with twigs that are spines
//! with twigs. A goroutine walks a spine and spawns one for each twig, the work of which is
//! anything from one node to an eighth of the tree. It waits for the last but one before it spawns
//! the next, so a P's queue stays short and never spills into the global one: another P runs only
//! goroutines that it has stolen.

use super::Step;
use super::mixer;
use crate::demo::figures;
use crate::demo::report::Report;
use crate::demo::stage::Stage;
use heist::JoinHandle;
use std::time::Instant;

pub const STEP: Step =
    Step { name: "tree", title: "an uneven tree that only stealing can balance", run };

const ROOT_SEED: u64 = 1;
const WORK_ROUNDS: u32 = 300;

/// The result of a walk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Walk {
    n_nodes: u64,
    checksum: u64,
}

impl Walk {
    fn and(self, other: Self) -> Self {
        Self {
            n_nodes: self.n_nodes + other.n_nodes,
            checksum: self.checksum.wrapping_add(other.checksum),
        }
    }
}

/// A node and how many nodes there are from it downwards, at least one.
#[derive(Clone, Copy)]
struct Node {
    seed: u64,
    weight: u64,
}

impl Node {
    fn visit(self) -> Walk {
        Walk { n_nodes: 1, checksum: mixer::churn(self.seed, WORK_ROUNDS) }
    }

    /// The heavy child and the light one.
    fn children(self) -> [Option<Self>; 2] {
        let below = self.weight - 1;
        let light = below / 8;
        let child = |side: u64, weight| {
            let seed = mixer::mix(self.seed ^ (side << 32) ^ weight);
            (weight > 0).then_some(Self { seed, weight })
        };
        [child(1, below - light), child(2, light)]
    }
}

fn run(stage: &Stage<'_>) -> Report {
    let root = Node { seed: ROOT_SEED, weight: stage.pick(20_000, 2_000_000) };
    let serial = Instant::now();
    let expected = stage.follow("first without goroutines", 1, || 0, || walk_alone(root));
    let serial = serial.elapsed();

    let n_twigs = n_twigs(root);
    let n_finished = || stage.n_finished();
    let (walk, time) = stage.follow(STEP.title, n_twigs, n_finished, || {
        stage.rt.run(|| {
            let start = Instant::now();
            let walk = walk(root);
            (walk, start.elapsed())
        })
    });
    let done =
        format!("{} nodes, {} goroutines", figures::count(root.weight), figures::count(n_twigs),);
    let mut report = Report::new(done, time, root.weight, "node");
    report.expect("the walk", walk, expected);
    report.expect("its nodes", walk.n_nodes, root.weight);
    report.lanes = stage.lanes();
    report.note(
        "bright: stolen. One P began with the root; what the others ran they stole, or it grew \
         from what they stole",
    );
    report.note(format!(
        "{:.2} times as fast as plain recursion on one thread ({})",
        serial.as_secs_f64() / time.as_secs_f64(),
        figures::time(serial),
    ));
    let n_stolen: u64 = report.lanes.iter().map(|lane| lane.n_stolen).sum();
    let alone = stage.rt.procs() == 1;
    report.require(alone || n_stolen > 0, "nothing was stolen");
    report
}

/// Walks a spine; other goroutines walk its twigs.
fn walk(root: Node) -> Walk {
    let mut walked = Walk::default();
    let mut twigs = [None, None];
    let mut spine = Some(root);
    while let Some(node) = spine {
        walked = walked.and(node.visit());
        let [heavy, light] = node.children();
        if let Some(light) = light {
            twigs.swap(0, 1);
            let last_but_one = twigs[0].replace(heist::go(move || walk(light)));
            walked = walked.and(gather(last_but_one));
        }
        spine = heavy;
    }
    twigs.into_iter().fold(walked, |walked, twig| walked.and(gather(twig)))
}

fn gather(twig: Option<JoinHandle<Walk>>) -> Walk {
    twig.map_or_else(Walk::default, |twig| {
        let walk = twig.join();
        walk.unwrap_or_else(|error| panic!("a part of the tree is lost: {error}"))
    })
}

/// Goroutines that [`walk`] spawns.
fn n_twigs(root: Node) -> u64 {
    let [heavy, light] = root.children();
    let below = [heavy, light].into_iter().flatten().map(n_twigs);
    below.sum::<u64>() + u64::from(light.is_some())
}

fn walk_alone(node: Node) -> Walk {
    let below = node.children().into_iter().flatten().map(walk_alone);
    below.fold(node.visit(), Walk::and)
}

#[test]
fn a_tree_has_as_many_nodes_as_its_weight() {
    for weight in [1, 2, 3, 9, 10, 1000] {
        let root = Node { seed: 5, weight };
        assert_eq!(walk_alone(root).n_nodes, weight);
    }
}

#[test]
fn the_left_is_heavy() {
    let root = Node { seed: 5, weight: 801 };
    let [left, right] = root.children().map(|child| child.map_or(0, |c| c.weight));
    assert_eq!((left, right), (700, 100));
}
