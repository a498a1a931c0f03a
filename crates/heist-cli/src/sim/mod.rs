//! `heist sim`: experiments on a model of the scheduler.

mod validate;

use crate::cli::SimOptions;
use heist_sim::costs::ROWS;
use heist_sim::experiments::{ALL, Answer, Lab, Setup};
use heist_sim::table::{Table, number, percent, time};
use heist_sim::workloads::OpenLoop;
use heist_sim::{Config, Costs, Report, Sim, Spent};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

const VALIDATE: &str = "validate";
const QUESTION: &str = "Does the model count what the runtime counts?";

/// The names of all experiments.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|experiment| experiment.name).chain([VALIDATE])
}

pub fn run(options: &SimOptions) -> ExitCode {
    match try_run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(problem) => {
            eprintln!("heist sim: {problem}");
            ExitCode::from(2)
        }
    }
}

fn try_run(options: &SimOptions) -> Result<(), String> {
    let costs = read_costs(options)?;
    if options.show_costs {
        print!("{}", costs_table().text());
        return Ok(());
    }
    let Some(name) = &options.experiment else {
        return one_run(options, costs);
    };
    let setup = Setup { quick: options.quick, seed: options.seed, seeds: seeds(options), costs };
    let (question, answer) = if name == VALIDATE {
        (QUESTION, validate::validate(&setup))
    } else {
        let experiment = ALL.iter().find(|experiment| experiment.name == name.as_str());
        let experiment = experiment.ok_or("no such experiment")?;
        let bar = spinner();
        let mut tell = |what: &str, report: &Report| {
            bar.set_message(format!("{what}: {} events", report.events));
            bar.tick();
        };
        let answer = (experiment.run)(&mut Lab::new(setup, &mut tell));
        bar.finish_and_clear();
        (experiment.question, answer)
    };
    let text = page(name, question, options, &answer);
    print!("{text}");
    match &options.out {
        Some(folder) => write(folder, name, &text, &answer),
        None => Ok(()),
    }
}

/// How many seeds each run is repeated with.
fn seeds(options: &SimOptions) -> u32 {
    options.seeds.unwrap_or(if options.quick { 1 } else { 3 })
}

fn read_costs(options: &SimOptions) -> Result<Costs, String> {
    let mut costs = Costs::default();
    if let Some(path) = &options.costs {
        let text = std::fs::read_to_string(path);
        let text = text.map_err(|problem| format!("{}: {problem}", path.display()))?;
        costs.read(&text).map_err(|problem| format!("{}: {problem}", path.display()))?;
    }
    Ok(costs)
}

fn costs_table() -> Table {
    let mut table = Table::new(&["cost", "ns", "source"]);
    for row in ROWS {
        table.row(vec![row.name.into(), row.default_ns.to_string(), row.source.into()]);
    }
    table
}

fn spinner() -> ProgressBar {
    let style = ProgressStyle::with_template("{spinner} {elapsed_precise} {wide_msg}");
    ProgressBar::new_spinner().with_style(style.expect("the template is right"))
}

fn page(name: &str, question: &str, options: &SimOptions, answer: &Answer) -> String {
    let quick = if options.quick { ", quick" } else { "" };
    let seeds = match (options.seed, seeds(options)) {
        (seed, n) if n > 1 && name != VALIDATE => {
            format!("seeds {seed} to {}", seed + u64::from(n) - 1)
        }
        (seed, _) => format!("seed {seed}"),
    };
    let mut text = format!("## {name}\n\n{question} ({seeds}{quick})\n");
    for (title, table) in &answer.tables {
        text += &format!("\n{title}\n\n{}", table.text());
    }
    text + &format!("\n{}\n", answer.conclusion)
}

fn write(folder: &Path, name: &str, text: &str, answer: &Answer) -> Result<(), String> {
    let put = |file: String, text: &str| -> Result<(), String> {
        let path = folder.join(file);
        std::fs::write(&path, text).map_err(|problem| format!("{}: {problem}", path.display()))?;
        println!("wrote {}", path.display());
        Ok(())
    };
    std::fs::create_dir_all(folder)
        .map_err(|problem| format!("{}: {problem}", folder.display()))?;
    put(format!("{name}.md"), text)?;
    for (file, chart) in &answer.charts {
        put(format!("{file}.svg"), &chart.svg())?;
    }
    Ok(())
}

/// One run of an open loop, and how fast the simulation is.
fn one_run(options: &SimOptions, costs: Costs) -> Result<(), String> {
    if options.procs == 0 || options.load <= 0.0 {
        return Err("processors and load must be more than zero".into());
    }
    let config = Config { costs, ..Config::new(options.procs, options.seed) };
    let mean_ns = 20_000.0 / (options.load * f64::from(options.procs));
    let mut requests = OpenLoop::poisson(options.requests, mean_ns, 20_000.0);
    let style = ProgressStyle::with_template("{bar:40} {percent} % {eta}");
    let bar = ProgressBar::new(options.requests).with_style(style.expect("the template is right"));
    let began = Instant::now();
    let report = Sim::new(config, &mut requests).run_with(|_, done| bar.set_position(done));
    let wall = began.elapsed().as_secs_f64();
    bar.finish_and_clear();
    let mut table = Table::new(&["of this run", "value"]);
    let mut row = |name: &str, value: String| table.row(vec![name.into(), value]);
    row("seed", report.seed.to_string());
    row("processors", report.procs.to_string());
    row("simulated time", time(report.elapsed_ns as f64));
    row("goroutines", report.counts.finished.to_string());
    row("goroutines that did not end", report.stuck.to_string());
    row("events", report.events.to_string());
    row("events a second", number(report.events as f64 / wall));
    row("thefts", report.counts.steals.to_string());
    row("futile visits", report.futile().to_string());
    row("wake-ups", report.counts.wake_ups.to_string());
    row("threads", report.counts.threads.to_string());
    let all = report.cpu_ns.iter().sum::<u64>().max(1) as f64;
    for (name, spent) in [
        ("CPU time: goroutines", Spent::Work),
        ("CPU time: scheduling", Spent::Schedule),
        ("CPU time: search", Spent::Search),
        ("CPU time: sleeping and waking", Spent::Kernel),
    ] {
        row(name, percent(report.cpu(spent) as f64 / all));
    }
    for (name, q) in [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)] {
        row(name, time(report.requests.quantile_ns(q) as f64));
    }
    print!("{}", table.text());
    Ok(())
}
