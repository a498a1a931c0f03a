//! Metrics in the text format of Prometheus.

use super::{Description, Histogram, Kind, Metric};
use std::fmt::Write;

/// All metrics as text.
pub(super) fn text(metrics: &[Metric], histograms: &[Histogram]) -> String {
    let mut text = String::new();
    for Metric { description, value } in metrics {
        let name = write_head(&mut text, description);
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name} {value}");
    }
    for histogram in histograms {
        let name = write_head(&mut text, &histogram.description);
        histogram.write_prometheus(&mut text, &name);
    }
    text
}

/// Writes the lines above a metric. Returns its name.
fn write_head(text: &mut String, description: &Description) -> String {
    let path = description.name.trim_start_matches("/heist").trim_start_matches('/');
    let mut name = String::from("heist_");
    name.extend(path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }));
    if description.kind == Kind::Counter {
        name.push_str("_total");
    }
    let (kind, help) = (description.kind.word(), description.help);
    // Writing to a String does not fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
    name
}
