//! The load for http: `wrk`, found on PATH.

use std::net::SocketAddr;
use std::process::Command;

use crate::reading::{Figures, Outcome};

pub const MISSING: &str = "wrk is not on PATH";
const COMPLAINTS: [&str; 2] = ["Non-2xx or 3xx responses:", "Socket errors:"];
const N_CONNECTIONS: usize = 64;
const WARM_UP_S: u32 = 1;
const LENGTH_S: u32 = 3;

pub fn is_on_path() -> bool {
    // wrk prints its usage and fails; it is enough that it can be started.
    Command::new("wrk").arg("--version").output().is_ok()
}

/// Puts the server at this address under load.
pub fn measure(address: SocketAddr) -> Outcome {
    // A server that responds with errors fails the measurement, as a lost message does.
    Ok(figures(address).unwrap_or_else(|why| panic!("wrk: {why}")))
}

fn figures(address: SocketAddr) -> Result<Figures, String> {
    run(address, WARM_UP_S)?;
    let report = run(address, LENGTH_S)?;
    parse(&report).ok_or_else(|| "it said nothing that can be read".to_owned())
}

/// The line in which wrk reports failed requests; it counts such responses like any other.
fn complaint(report: &str) -> Option<&str> {
    report.lines().map(str::trim).find(|line| COMPLAINTS.iter().any(|c| line.starts_with(c)))
}

fn run(address: SocketAddr, length_s: u32) -> Result<String, String> {
    let output = Command::new("wrk")
        .args(["-t1", &format!("-c{N_CONNECTIONS}"), &format!("-d{length_s}s"), "--latency"])
        .arg(format!("http://{address}/"))
        .output()
        .map_err(|e| format!("cannot start it: {e}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    match complaint(&report) {
        Some(line) => Err(line.to_owned()),
        None => Ok(report),
    }
}

fn parse(report: &str) -> Option<Figures> {
    let field = |label: &str| {
        let line = report.lines().map(str::trim).find(|l| l.starts_with(label))?;
        line.strip_prefix(label).map(str::trim)
    };
    let requests_per_s = field("Requests/sec:")?.parse().ok()?;
    let values = vec![requests_per_s, microseconds(field("50%")?)?, microseconds(field("99%")?)?];
    Some(Figures::many(values))
}

fn microseconds(text: &str) -> Option<f64> {
    let split = text.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(split);
    let scale = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_of_wrk_is_read() {
        let report = "Running 3s test\n  Latency Distribution\n     50%  612.00us\n     \
            75%  1.00ms\n     90%    1.50ms\n     99%    2.25ms\n  100 requests in 3.00s\n\
            Requests/sec:  88300.12\nTransfer/sec:      7.00MB\n";
        let figures = parse(report).unwrap();
        assert_eq!(figures.values, [88300.12, 612.0, 2250.0]);
    }

    #[test]
    fn answers_that_are_none_are_noticed() {
        let good = "  100 requests in 3.00s, 7.00MB read\nRequests/sec:  88300.12\n";
        assert_eq!(complaint(good), None);
        let refused = format!("  Non-2xx or 3xx responses: 100\n{good}");
        assert_eq!(complaint(&refused), Some("Non-2xx or 3xx responses: 100"));
        let broken = format!("  Socket errors: connect 0, read 7, write 0, timeout 0\n{good}");
        assert!(complaint(&broken).unwrap().contains("read 7"));
    }

    #[test]
    fn a_report_without_figures_is_refused() {
        assert!(parse("unable to connect\n").is_none());
        assert_eq!(microseconds("1.5h"), None);
    }
}
