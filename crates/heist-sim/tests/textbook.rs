//! The model against the formulas of queueing theory: with steps that cost nothing, it is the queue
//! of a textbook.
//!
//! The mean wait does not depend on the order in which requests are served, as long as that order
//! does not depend on their lengths. So it must be right although thieves change the order.

use heist_sim::workloads::OpenLoop;
use heist_sim::{Config, Costs, Report, Sim, Tuning};

const SERVICE_NS: f64 = 1_000_000.0;
const REQUESTS: u64 = 200_000;

fn run(procs: u32, load: f64, seed: u64) -> Report {
    let mut config = Config::new(procs, seed);
    config.costs = Costs::zero();
    // A textbook's server does not linger; it would only take the test's time.
    config.tuning = Tuning::go();
    // No slice ends in the middle of a service.
    config.quantum_ns = 1 << 40;
    let mean_ns = SERVICE_NS / (load * f64::from(procs));
    let mut requests = OpenLoop::poisson(REQUESTS, mean_ns, SERVICE_NS);
    Sim::new(config, &mut requests).run()
}

/// The probability that a request has to wait, by Erlang's C formula.
fn erlang_c(servers: u32, load: f64) -> f64 {
    let offered = load * f64::from(servers);
    let mut inverse_b = 1.0;
    for server in 1..=servers {
        inverse_b = 1.0 + inverse_b * f64::from(server) / offered;
    }
    let b = 1.0 / inverse_b;
    b / (1.0 - load * (1.0 - b))
}

/// The mean time of a request in an M/M/c queue.
fn mean_ns(servers: u32, load: f64) -> f64 {
    let wait = erlang_c(servers, load) / (f64::from(servers) * (1.0 - load));
    SERVICE_NS * (1.0 + wait)
}

fn check(procs: u32, load: f64, tolerance: f64) {
    let seed = u64::from(procs) * 1000 + (load * 100.0) as u64;
    let report = run(procs, load, seed);
    let (expected, found) = (mean_ns(procs, load), report.requests.mean_ns());
    let error = found / expected - 1.0;
    println!(
        "c={procs} load={load} seed={seed}: {found:.0} ns, formula {expected:.0}, {error:+.4}"
    );
    assert_eq!(report.counts.finished, REQUESTS);
    assert!(error.abs() < tolerance, "c={procs} load={load}: {error:+.4}");
}

#[test]
fn erlang_c_has_known_values() {
    assert!((erlang_c(1, 0.7) - 0.7).abs() < 1e-12);
    assert!((erlang_c(2, 0.5) - 1.0 / 3.0).abs() < 1e-12);
}

/// One processor is an M/M/1 queue: the mean time in it is service / (1 - load).
#[test]
fn one_processor_is_an_mm1_queue() {
    for (load, tolerance) in [(0.3, 0.02), (0.5, 0.02), (0.7, 0.03), (0.9, 0.1)] {
        check(1, load, tolerance);
    }
}

/// The distribution as well: the time in an M/M/1 queue that serves in order is exponential. One
/// processor serves in order, but for the one-in-61 rule.
#[test]
fn the_tail_of_one_processor_is_exponential() {
    let report = run(1, 0.5, 5);
    let expected = -0.01f64.ln() * SERVICE_NS / 0.5;
    let error = report.requests.quantile_ns(0.99) as f64 / expected - 1.0;
    assert!(error.abs() < 0.05, "p99 {error:+.4}");
}

/// Several processors are an M/M/c queue: stealing makes one queue of all rings.
#[test]
fn several_processors_are_an_mmc_queue() {
    for (procs, load, tolerance) in
        [(2, 0.5, 0.02), (4, 0.7, 0.02), (16, 0.7, 0.02), (16, 0.9, 0.04), (32, 0.8, 0.02)]
    {
        check(procs, load, tolerance);
    }
}

/// Little's law: what is in the queue on average is the rate times the mean time.
#[test]
fn work_is_conserved() {
    let report = run(4, 0.7, 9);
    let utilisation = report.cpu_ns[0] as f64 / (4.0 * report.elapsed_ns as f64);
    assert!((utilisation / 0.7 - 1.0).abs() < 0.02, "{utilisation}");
}
