//! Questions to the model, each with tables, pictures and an answer in words.
//!
//! An answer is made from the figures of the run: with other costs it may be another one.

mod latency;
mod numa;
mod policies;
mod search;

use crate::costs::Costs;
use crate::engine::{Config, Sim};
use crate::stats::Report;
use crate::svg::Chart;
use crate::table::Table;
use crate::tuning::Tuning;
use crate::workload::Workload;

/// How experiments are run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Fewer requests and fewer points.
    pub quick: bool,
    /// The first seed.
    pub seed: u64,
    /// How many seeds in a row each run is repeated with.
    pub seeds: u32,
    /// What steps cost.
    pub costs: Costs,
}

/// What an experiment found.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Tables, with their titles.
    pub tables: Vec<(String, Table)>,
    /// Pictures, with the names of their files.
    pub charts: Vec<(String, Chart)>,
    /// The answer in words.
    pub conclusion: String,
}

/// An experiment.
#[derive(Clone, Copy)]
pub struct Experiment {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it asks.
    pub question: &'static str,
    /// Runs it.
    pub run: fn(&mut Lab<'_>) -> Answer,
}

/// All experiments.
pub const ALL: &[Experiment] = &[
    Experiment {
        name: "go28808",
        question: "What does stealing cost at 56 to 1024 Ps with little work?",
        run: search::go28808,
    },
    Experiment {
        name: "futile",
        question: "What cuts futile steals tenfold at 256 Ps without losing p99?",
        run: search::futile,
    },
    Experiment {
        name: "gentle",
        question: "What does the gentle steal policy cost, and what does it save?",
        run: policies::gentle,
    },
    Experiment {
        name: "sensitivity",
        question: "How much do the constants of the policy matter?",
        run: policies::sensitivity,
    },
    Experiment {
        name: "latency",
        question: "Reserved Ps or the queueing delay as the signal for the latency class?",
        run: latency::latency,
    },
    Experiment {
        name: "numa",
        question: "What does a thief gain that visits its own node first?",
        run: numa::numa,
    },
    Experiment {
        name: "bwos",
        question: "Blocks or a ring as the queue of a P?",
        run: policies::bwos,
    },
    Experiment {
        name: "sharing",
        question: "Work sharing or work stealing, over the load?",
        run: policies::sharing,
    },
];

/// Where experiments run: it makes configurations, and tells how far it is.
pub struct Lab<'a> {
    /// How they are run.
    pub setup: Setup,
    progress: &'a mut dyn FnMut(&str, &Report),
}

impl<'a> Lab<'a> {
    /// A lab that tells `progress` about each run that has ended.
    pub fn new(setup: Setup, progress: &'a mut dyn FnMut(&str, &Report)) -> Self {
        Self { setup, progress }
    }

    /// As many requests as asked for, or a tenth.
    fn n(&self, requests: u64) -> u64 {
        if self.setup.quick { requests / 10 } else { requests }
    }

    fn config(&self, procs: u32, tuning: Tuning) -> Config {
        let costs = self.setup.costs.clone();
        Config { costs, tuning, ..Config::new(procs, self.setup.seed) }
    }

    /// Runs a workload with every seed. The latencies of its first half are not recorded.
    fn run(&mut self, what: &str, config: Config, workload: impl Workload + Clone) -> Report {
        let run = |at| {
            let mut workload = workload.clone();
            let mut config = Config { seed: config.seed + u64::from(at), ..config.clone() };
            config.warm_up = workload.total().unwrap_or(0) / 2;
            let mut report = Sim::new(config, &mut workload).run();
            report.p99s_ns = vec![report.requests.quantile_ns(0.99)];
            report
        };
        let mut all = run(0);
        for at in 1..self.setup.seeds {
            (self.progress)(what, &all);
            all.append(&run(at));
        }
        (self.progress)(what, &all);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every experiment ends, has a table, a picture and an answer, and is the same when it is
    /// repeated. The two smallest stand for all.
    #[test]
    fn an_experiment_is_determined_by_its_seed() {
        for name in ["bwos", "latency"] {
            let experiment = ALL.iter().find(|e| e.name == name).expect("it exists");
            let run = || {
                let setup = Setup { quick: true, seed: 1, seeds: 2, costs: Costs::default() };
                (experiment.run)(&mut Lab::new(setup, &mut |_, _| {}))
            };
            let answer = run();
            assert!(!answer.tables.is_empty() && !answer.charts.is_empty(), "{name}");
            let text = |answer: &Answer| answer.tables[0].1.text() + &answer.conclusion;
            assert_eq!(text(&answer), text(&run()), "{name}");
        }
    }
}
