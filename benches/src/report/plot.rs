//! The scaling as one SVG: a panel per series, both axes logarithmic, a line per peer.
//!
//! Where a cost is meant to be flat, a band from heist's lowest cost to twice that is shaded: the
//! claim holds if the line stays inside.

use std::fmt::Write;

use super::OURS;
use super::figure;
use super::html::escape;
use super::scaling::{FLAT, Line, Panel, Scaling, axis_name};
use crate::quiet::Verdict;
use crate::row::Axis;

const COLUMNS: usize = 4;
const CELL: Size = Size { width: 250.0, height: 230.0 };
const HEAD_PX: f64 = 46.0;
/// The drawing area inside a cell.
const LEFT_PX: f64 = 50.0;
const RIGHT_PX: f64 = 12.0;
const TOP_PX: f64 = 34.0;
const BOTTOM_PX: f64 = 40.0;
/// A panel shows at least this many times its lowest cost, so that noise does not look like growth.
const LEAST_SPAN: f64 = 10.0;

const COLOURS: &[(&str, &str)] =
    &[(OURS, "#d9641c"), ("go", "#2c6fb3"), ("tokio", "#4a8f3c"), ("smol", "#8a5fb0")];
const OTHER_COLOUR: &str = "#777777";

const STYLE: &str = "text{font:11px system-ui,'DejaVu Sans',sans-serif;fill:#222}.title{font-size:12px;\
font-weight:600}.head{font-size:15px;font-weight:600}.loud{fill:#b3261e;font-weight:600}\
.grid{stroke:#e3e3e3;stroke-width:1}.frame{fill:none;stroke:#999;stroke-width:1}\
.band{fill:#d9641c;fill-opacity:.13}.cpus{stroke:#888;stroke-width:1;stroke-dasharray:3 3}\
.faint{fill:#666}polyline{fill:none;stroke-linejoin:round}";

struct Size {
    width: f64,
    height: f64,
}

/// Renders the picture.
///
/// # Errors
/// There is nothing to draw.
pub fn render(scaling: &Scaling) -> Result<String, String> {
    if scaling.panels.is_empty() {
        return Err("nothing to draw: there is no figure of `heist-bench scale`".to_owned());
    }
    let rows = by_row(&scaling.panels);
    let n_rows = rows.iter().map(|(row, _, _)| row + 1).max().unwrap_or(1);
    let (width, height) = (CELL.width * COLUMNS as f64, HEAD_PX + CELL.height * n_rows as f64);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"cost per operation by procs and by tasks\">\n<style>{STYLE}</style>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>\n"
    );
    head(&mut svg, scaling);
    for (row, column, panel) in &rows {
        let (x, y) = (*column as f64 * CELL.width, HEAD_PX + *row as f64 * CELL.height);
        // Writing to a String cannot fail; the results are dropped for that reason.
        let _ = writeln!(svg, "<g transform=\"translate({x},{y})\">");
        Frame::of(panel).draw(&mut svg, panel, scaling.machine.n_cpus);
        svg.push_str("</g>\n");
    }
    legend(
        &mut svg,
        scaling,
        (COLUMNS - 1) as f64 * CELL.width,
        HEAD_PX + (n_rows - 1) as f64 * CELL.height,
    );
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// The row and column of each panel: an axis begins a new row.
fn by_row(panels: &[Panel]) -> Vec<(usize, usize, &Panel)> {
    let mut placed = Vec::new();
    let (mut row, mut column, mut axis) = (0, 0, None);
    for panel in panels {
        if column == COLUMNS || axis.is_some_and(|axis| axis != panel.series.axis) {
            (row, column) = (row + 1, 0);
        }
        placed.push((row, column, panel));
        axis = Some(panel.series.axis);
        column += 1;
    }
    placed
}

fn head(svg: &mut String, scaling: &Scaling) {
    let machine = &scaling.machine;
    let _ = writeln!(svg, "<text class=\"head\" x=\"10\" y=\"20\">Cost per operation</text>");
    let _ = writeln!(
        svg,
        "<text class=\"faint\" x=\"10\" y=\"37\">{}, {} CPUs, Linux {}, {}, medians of {}</text>",
        escape(&machine.cpu_model),
        machine.n_cpus,
        escape(&machine.kernel),
        escape(machine.go_version.as_deref().unwrap_or("no Go")),
        machine.reps
    );
    if scaling.verdict != Verdict::Quiet {
        let _ = writeln!(
            svg,
            "<text class=\"loud\" x=\"{}\" y=\"20\" text-anchor=\"end\">NOT QUIET: others used the CPU, \
             do not quote this</text>",
            CELL.width * COLUMNS as f64 - 12.0
        );
    }
}

/// In the cell that the panels leave free.
fn legend(svg: &mut String, scaling: &Scaling, x: f64, y: f64) {
    let mut peers: Vec<&str> = Vec::new();
    for line in scaling.panels.iter().flat_map(|panel| &panel.lines) {
        if !peers.contains(&line.peer.as_str()) {
            peers.push(&line.peer);
        }
    }
    let (x, mut y) = (x + LEFT_PX, y + TOP_PX + 10.0);
    for peer in peers {
        let _ = writeln!(
            svg,
            "<line x1=\"{x}\" x2=\"{}\" y1=\"{y}\" y2=\"{y}\" stroke=\"{}\" stroke-width=\"{}\"/>\
             <text x=\"{}\" y=\"{}\">{}</text>",
            x + 26.0,
            colour(peer),
            weight(peer),
            x + 34.0,
            y + 4.0,
            escape(peer)
        );
        y += 20.0;
    }
    let _ = writeln!(
        svg,
        "<rect class=\"band\" x=\"{x}\" y=\"{}\" width=\"26\" height=\"12\"/>\
         <text x=\"{}\" y=\"{}\">within {FLAT}x of {OURS}'s least</text>",
        y - 2.0,
        x + 34.0,
        y + 8.0
    );
}

fn colour(peer: &str) -> &'static str {
    COLOURS.iter().find(|(name, _)| *name == peer).map_or(OTHER_COLOUR, |(_, colour)| colour)
}

fn weight(peer: &str) -> f64 {
    if peer == OURS { 2.4 } else { 1.5 }
}

/// The ranges of a panel and how they map to its area.
struct Frame {
    places: Vec<usize>,
    low: f64,
    high: f64,
}

impl Frame {
    fn of(panel: &Panel) -> Self {
        let points = || panel.lines.iter().flat_map(|line| &line.points);
        let mut places: Vec<usize> = points().map(|(at, _)| *at).collect();
        places.sort_unstable();
        places.dedup();
        let least = points().map(|(_, cost)| *cost).fold(f64::INFINITY, f64::min).max(1e-3);
        let most = points().map(|(_, cost)| *cost).fold(0.0, f64::max).max(least);
        let low = tick_below(least / 1.15);
        Self { places, low, high: tick_above(most * 1.15).max(low * LEAST_SPAN) }
    }

    fn x(&self, at: usize) -> f64 {
        let ln = |at: usize| (at.max(1) as f64).ln();
        let (first, last) = (ln(self.places[0]), ln(self.places[self.places.len() - 1]));
        let share = if last > first { (ln(at) - first) / (last - first) } else { 0.5 };
        LEFT_PX + 8.0 + share * (CELL.width - LEFT_PX - RIGHT_PX - 16.0)
    }

    fn y(&self, cost: f64) -> f64 {
        let share = (cost.max(1e-3) / self.low).ln() / (self.high / self.low).ln();
        CELL.height - BOTTOM_PX - share * (CELL.height - TOP_PX - BOTTOM_PX)
    }

    fn draw(&self, svg: &mut String, panel: &Panel, n_cpus: usize) {
        let (right, bottom) = (CELL.width - RIGHT_PX, CELL.height - BOTTOM_PX);
        let _ = writeln!(
            svg,
            "<text class=\"title\" x=\"{LEFT_PX}\" y=\"14\">{}</text>\
             <text class=\"faint\" x=\"{LEFT_PX}\" y=\"28\">{}</text>",
            escape(panel.series.title),
            escape(panel.unit)
        );
        for tick in ticks(self.low, self.high) {
            let y = self.y(tick);
            let _ = writeln!(
                svg,
                "<line class=\"grid\" x1=\"{LEFT_PX}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
                 <text class=\"faint\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT_PX - 5.0,
                y + 4.0,
                figure_of_tick(tick)
            );
        }
        for &place in &self.places {
            let _ = writeln!(
                svg,
                "<text class=\"faint\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
                self.x(place),
                bottom + 14.0,
                short(place)
            );
        }
        let _ = writeln!(
            svg,
            "<rect class=\"frame\" x=\"{LEFT_PX}\" y=\"{TOP_PX}\" width=\"{}\" height=\"{}\"/>\
             <text class=\"faint\" x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            right - LEFT_PX,
            bottom - TOP_PX,
            f64::midpoint(LEFT_PX, right),
            bottom + 30.0,
            axis_name(panel.series.axis)
        );
        match panel.series.axis {
            Axis::Tasks => self.band(svg, panel),
            Axis::Procs => self.cpus(svg, n_cpus),
        }
        // heist last, on top.
        for line in panel.lines.iter().rev() {
            self.line(svg, line);
        }
    }

    /// Where the cost is meant to be flat, and the measured cost.
    fn band(&self, svg: &mut String, panel: &Panel) {
        let Some(ours) = panel.ours() else { return };
        let (Some(growth), Some((first, _))) = (ours.growth(), ours.flat_part().next()) else {
            return;
        };
        let last = self.places[self.places.len() - 1];
        let least = ours.flat_part().map(|(_, cost)| cost).fold(f64::INFINITY, f64::min);
        let (top, bottom) = (self.y(least * FLAT).max(TOP_PX), self.y(least));
        let _ = writeln!(
            svg,
            "<rect class=\"band\" x=\"{:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\
             <text x=\"{}\" y=\"28\" text-anchor=\"end\"{}>{OURS}, {} to {}: {growth:.2}x</text>",
            self.x(first),
            self.x(last) - self.x(first),
            bottom - top,
            CELL.width - RIGHT_PX,
            if growth > FLAT { " class=\"loud\"" } else { "" },
            short(first),
            short(last)
        );
    }

    /// More procs than CPUs share them.
    fn cpus(&self, svg: &mut String, n_cpus: usize) {
        if n_cpus < self.places[0] || n_cpus >= self.places[self.places.len() - 1] {
            return;
        }
        let x = self.x(n_cpus);
        let _ = writeln!(
            svg,
            "<line class=\"cpus\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{TOP_PX}\" y2=\"{}\"/>\
             <text class=\"faint\" x=\"{:.1}\" y=\"{}\">{n_cpus} CPUs</text>",
            CELL.height - BOTTOM_PX,
            x + 4.0,
            TOP_PX + 12.0
        );
    }

    fn line(&self, svg: &mut String, line: &Line) {
        let (colour, weight) = (colour(&line.peer), weight(&line.peer));
        let places: Vec<(f64, f64)> =
            line.points.iter().map(|(at, cost)| (self.x(*at), self.y(*cost))).collect();
        let path: Vec<String> = places.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" stroke=\"{colour}\" stroke-width=\"{weight}\"/>",
            path.join(" ")
        );
        for ((x, y), (at, cost)) in places.iter().zip(&line.points) {
            let _ = writeln!(
                svg,
                "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{weight}\" fill=\"{colour}\">\
                 <title>{} at {at}: {}</title></circle>",
                escape(&line.peer),
                figure(*cost)
            );
        }
    }
}

const STEPS: [f64; 3] = [1.0, 2.0, 5.0];

fn tick_below(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    STEPS.iter().rev().map(|step| step * decade).find(|tick| *tick <= value).unwrap_or(decade)
}

fn tick_above(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    let above = STEPS.iter().map(|step| step * decade).find(|tick| *tick >= value);
    above.unwrap_or(10.0 * decade)
}

/// Ticks from `low` to `high`: fewer in each decade the more decades there are.
fn ticks(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if high / low > 1000.0 { &STEPS[..1] } else { &STEPS };
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let decades = (first..=last)
        .flat_map(|exponent| steps.iter().map(move |step| step * 10_f64.powi(exponent)));
    // A hair of room: 10^x is not exact.
    decades.filter(|tick| *tick >= low * 0.999 && *tick <= high * 1.001).collect()
}

fn figure_of_tick(tick: f64) -> String {
    if tick >= 1000.0 {
        short(tick.round() as usize)
    } else {
        format!("{}", (tick * 1000.0).round() / 1000.0)
    }
}

/// 1000 is 1k.
fn short(n: usize) -> String {
    match n {
        n if n >= 1_000_000 => format!("{}M", n as f64 / 1e6),
        n if n >= 1_000 => format!("{}k", n as f64 / 1e3),
        n => n.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::scaling::sample;
    use crate::row::RunFile;

    fn picture(points: &[(usize, f64)]) -> String {
        let mut rows = sample("heist", "scale_wake", Axis::Tasks, points);
        rows.extend(sample("go", "yield", Axis::Procs, &[(1, 100.0), (16, 5000.0)]));
        let file = RunFile { rows, ..RunFile::default() };
        render(&Scaling::of(&[file]).unwrap()).unwrap()
    }

    #[test]
    fn a_line_for_every_peer_and_panel_and_a_band_for_the_claim() {
        let svg = picture(&[(10, 50.0), (1_000, 100.0), (1_000_000, 150.0)]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("class=\"band\"").count(), 2, "one in the panel, one in the legend");
        assert!(svg.contains("heist, 1k to 1M: 1.50x"), "{svg}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }

    #[test]
    fn growth_beyond_the_claim_is_loud() {
        let svg = picture(&[(1_000, 100.0), (1_000_000, 350.0)]);
        assert!(svg.contains("class=\"loud\">heist, 1k to 1M: 3.50x"), "{svg}");
    }

    #[test]
    fn nothing_measured_is_no_picture() {
        let rows = vec![crate::row::sample("yield", "go", 0, 1.0)];
        let plain = Scaling::of(&[RunFile { rows, ..RunFile::default() }]).unwrap();
        assert!(render(&plain).unwrap_err().contains("nothing to draw"));
    }

    #[test]
    fn ticks_are_round_and_cover_the_range() {
        assert_eq!(ticks(tick_below(34.0), tick_above(130.0)), [20.0, 50.0, 100.0, 200.0]);
        assert_eq!(short(1_000_000), "1M");
        assert_eq!(short(2_500), "2.5k");
        assert_eq!(figure_of_tick(0.2), "0.2");
    }
}
