//! Metrics in the text formats of Prometheus and OpenMetrics.
//!
//! They differ in the name that stands above a counter, and in the end of the text.

use super::{Description, Histogram, Kind, Metric};
use std::fmt::Write;

/// The format of the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    Prometheus,
    OpenMetrics,
}

/// All metrics as text.
pub(super) fn text(metrics: &[Metric], histograms: &[Histogram], format: Format) -> String {
    let mut text = String::new();
    for Metric { description, value } in metrics {
        let name = write_head(&mut text, description, format);
        // Writing to a String does not fail.
        let _ = writeln!(text, "{name} {value}");
    }
    for histogram in histograms {
        let name = write_head(&mut text, &histogram.description, format);
        histogram.write_prometheus(&mut text, &name);
    }
    if format == Format::OpenMetrics {
        text.push_str("# EOF\n");
    }
    text
}

/// Writes the lines above a metric. Returns its name.
fn write_head(text: &mut String, description: &Description, format: Format) -> String {
    let path = description.name.trim_start_matches("/heist").trim_start_matches('/');
    let mut name = String::from("heist_");
    name.extend(path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }));
    let mut family = name.clone();
    if description.kind == Kind::Counter {
        name.push_str("_total");
        if format == Format::Prometheus {
            family.clone_from(&name);
        }
    }
    let (kind, help) = (description.kind.word(), description.help);
    // Writing to a String does not fail.
    let _ = writeln!(text, "# HELP {family} {help}\n# TYPE {family} {kind}");
    name
}
