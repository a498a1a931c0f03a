//! No goroutine is lost, and a seed determines a run.

use heist_sim::topology::Topology;
use heist_sim::tuning::{Chain, Control, Shape, SpinCap, Take, Tuning, Victims};
use heist_sim::workload::{Announced, Arrival, Class};
use heist_sim::workloads::{ClosedLoop, OpenLoop, PingPong, Script, Tree};
use heist_sim::{Config, Costs, Op, Sim, Task};
use proptest::prelude::*;

fn tunings() -> Vec<Tuning> {
    let heist = Tuning::heist();
    vec![
        heist,
        Tuning::go(),
        Tuning::gentle(),
        Tuning::sharing(),
        Tuning { victims: Victims::WorkMask, ..heist },
        Tuning { victims: Victims::TwoChoices(4), ..heist },
        Tuning { victims: Victims::NodeFirst, ..heist },
        Tuning { take: Take::One, ..heist },
        Tuning { take: Take::Quarter, ..Tuning::go() },
        Tuning { take: Take::All, ..heist },
        Tuning { spin_cap: SpinCap::AtMost(1), chain: Chain::IfMore, ..heist },
        Tuning { spin_cap: SpinCap::OfBusy(1, 8), ..Tuning::go() },
        Tuning { shape: Shape::Blocks(8), ..heist },
        Tuning { global_shards: 4, ..heist },
        Tuning { ring: 8, global_check_ticks: 7, ..heist },
        Tuning { control: Control::Delay { period_ns: 10_000, bound_ns: 5_000 }, ..heist },
    ]
}

/// Steps that cannot leave a goroutine waiting for ever: each park is signalled, each value
/// received.
fn op() -> impl Strategy<Value = Vec<Op>> {
    prop_oneof![
        4 => (0..200_000u64).prop_map(|ns| vec![Op::Compute(ns)]),
        3 => (1..4u32, 1..9usize).prop_map(|(kind, n)| vec![Op::Spawn(Task::new(kind)); n]),
        2 => Just(vec![Op::Yield]),
        2 => Just(vec![Op::Join]),
        2 => (0..300_000u64).prop_map(|ns| vec![Op::Sleep(ns)]),
        1 => (0..3_000_000u64).prop_map(|ns| vec![Op::Block(ns, Announced::Yes)]),
        1 => (0..3_000_000u64).prop_map(|ns| vec![Op::Block(ns, Announced::No)]),
        1 => (0..3u32).prop_map(|n| vec![Op::Signal(n), Op::Park(n)]),
        1 => Just(vec![Op::Log(7), Op::Done]),
    ]
}

fn program(depth: u32) -> impl Strategy<Value = Vec<Op>> {
    prop::collection::vec(op(), 0..8).prop_map(move |parts| {
        let deeper = |op: Op| match op {
            // A program starts programs with higher numbers only, so that the tree ends.
            Op::Spawn(task) => Op::Spawn(Task::new((depth + task.kind).min(3))),
            op => op,
        };
        let spawns = depth < 3;
        let keep = move |op: &Op| spawns || !matches!(op, Op::Spawn(_));
        parts.into_iter().flatten().filter(keep).map(deeper).collect()
    })
}

fn arrivals() -> impl Strategy<Value = Vec<Arrival>> {
    let arrival = (0..400_000u64, 0..4u32, any::<bool>()).prop_map(|(after_ns, kind, latency)| {
        let class = if latency { Class::Latency } else { Class::Normal };
        Arrival { after_ns, task: Task { class, ..Task::new(kind) } }
    });
    prop::collection::vec(arrival, 1..20)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Whatever goroutines do, each that began ends, under every policy, and what a run says does
    /// not change when it is repeated.
    #[test]
    fn every_goroutine_ends(
        programs in (program(0), program(1), program(2), program(3)),
        arrivals in arrivals(),
        (procs, cpus, reserved) in (1..9u32, 1..9u32, 0..2u32),
        (seed, free) in (any::<u64>(), any::<bool>()),
    ) {
        let (a, b, c, d) = programs;
        let script = Script::new(vec![a, b, c, d]).with_arrivals(arrivals);
        for tuning in tunings() {
            let mut config = Config::new(procs, seed);
            config.topology = Topology { cpus, ..Topology::numa(cpus, 2) };
            config.reserved = if procs > 1 { reserved } else { 0 };
            config.tuning = tuning;
            if free {
                config.costs = Costs::zero();
            }
            let report = Sim::new(config.clone(), &mut script.clone()).run();
            prop_assert_eq!(report.stuck, 0, "{:?}", tuning);
            prop_assert_eq!(report.counts.started, report.counts.finished);
            prop_assert!(report.counts.steals <= report.counts.steal_attempts + report.counts.stolen);
            let again = Sim::new(config, &mut script.clone()).run();
            prop_assert_eq!(again, report);
        }
    }
}

#[test]
fn a_seed_determines_a_run() {
    for procs in [1, 2, 56, 1024] {
        let run = |seed| {
            let mut requests = OpenLoop::poisson(5_000, 4_000.0, 50_000.0);
            Sim::new(Config::new(procs, seed), &mut requests).run()
        };
        assert_eq!(run(3), run(3), "procs={procs}");
        assert_ne!(run(3), run(4), "procs={procs}");
    }
}

#[test]
fn a_tree_uses_all_processors() {
    let tree = Tree::new(12, 2, 20_000);
    let elapsed = |procs| {
        let report = Sim::new(Config::new(procs, 1), &mut tree.clone()).run();
        assert_eq!(report.counts.finished, tree.size());
        report.elapsed_ns as f64
    };
    let one = elapsed(1);
    assert!(one / elapsed(4) > 3.0, "{}", one / elapsed(4));
    assert!(one / elapsed(16) > 8.0, "{}", one / elapsed(16));
}

/// Sixteen processors on two CPUs do not compute faster than two CPUs can.
#[test]
fn processors_share_cpus() {
    let mut config = Config::new(16, 1);
    config.topology = Topology::flat(2);
    let report = Sim::new(config, &mut Tree::new(10, 2, 100_000)).run();
    let work_ns = report.cpu_ns[0];
    assert!(report.elapsed_ns >= work_ns / 2, "{} {work_ns}", report.elapsed_ns);
    assert!(report.elapsed_ns < work_ns, "{} {work_ns}", report.elapsed_ns);
}

#[test]
fn closed_loops_and_pairs_come_to_an_end() {
    for procs in [1, 2, 8] {
        let mut clients = ClosedLoop::new(20, 50, 100_000.0, 10_000.0);
        let report = Sim::new(Config::new(procs, 1), &mut clients).run();
        assert_eq!((report.stuck, report.requests.n()), (0, 20 * 50));
        let mut pairs = PingPong::new(4, 500, 100);
        let report = Sim::new(Config::new(procs, 1), &mut pairs).run();
        assert_eq!((report.stuck, report.counts.finished), (0, 8));
    }
}

/// A goroutine in a blocking call does not keep others waiting for the whole call.
#[test]
fn a_blocking_call_loses_its_processor() {
    let programs = vec![
        vec![
            Op::Spawn(Task::new(1)),
            Op::Spawn(Task::new(1)),
            Op::Block(50_000_000, Announced::Yes),
            Op::Log(1),
        ],
        vec![Op::Compute(100_000), Op::Log(2)],
    ];
    let mut config = Config::new(1, 1);
    config.topology = Topology::flat(2);
    let report = Sim::new(config, &mut Script::new(programs)).run();
    assert_eq!(report.log, [2, 2, 1]);
    assert_eq!(report.counts.retaken, 1);
}
