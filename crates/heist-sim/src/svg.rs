//! Line charts as SVG: axes with units, a legend, readable on light and on dark pages.

use crate::table::number;
use std::fmt::Write;

/// How an axis divides its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Equal steps.
    Linear,
    /// Equal factors. Values below one are drawn at one.
    Log,
}

/// An axis.
#[derive(Clone, Debug)]
pub struct Axis {
    /// What is drawn, with its unit.
    pub label: String,
    /// Its division.
    pub scale: Scale,
}

impl Axis {
    /// An axis with equal steps.
    #[must_use]
    pub fn linear(label: &str) -> Self {
        Self { label: label.into(), scale: Scale::Linear }
    }

    /// An axis with equal factors.
    #[must_use]
    pub fn log(label: &str) -> Self {
        Self { label: label.into(), scale: Scale::Log }
    }

    fn place(&self, value: f64) -> f64 {
        if self.scale == Scale::Log { value.max(1.0).log10() } else { value }
    }
}

/// A line of a chart.
#[derive(Clone, Debug, Default)]
pub struct Series {
    /// Its name in the legend.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// The axis at the bottom.
    pub x: Axis,
    /// The axis to the left.
    pub y: Axis,
    /// Its lines.
    pub series: Vec<Series>,
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 190.0;
const TOP: f64 = 44.0;
const BOTTOM: f64 = 58.0;

/// Colours that can be told apart with any kind of colour vision, on white and on black.
const COLOURS: [&str; 8] =
    ["#0077bb", "#ee7733", "#009988", "#cc3311", "#aa3377", "#999933", "#33bbee", "#888888"];

const STYLE: &str = "text{font:12px system-ui,sans-serif;fill:#222}.t{font-size:15px;\
font-weight:600}.g{stroke:#8884;stroke-width:1}.a{stroke:#888}path{fill:none;stroke-width:2.2}\
@media(prefers-color-scheme:dark){text{fill:#ddd}}";

/// The visible part of an axis.
#[derive(Clone, Copy)]
struct Span {
    from: f64,
    to: f64,
}

impl Span {
    fn share(self, place: f64) -> f64 {
        (place - self.from) / (self.to - self.from)
    }
}

impl Chart {
    /// The text of the picture.
    #[must_use]
    pub fn svg(&self) -> String {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x_span = span(&self.x, points().map(|point| point.0), Scale::Log);
        let y_span = span(&self.y, points().map(|point| point.1), self.y.scale);
        let mut svg = String::new();
        let _ = write!(
            svg,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
             role=\"img\"><title>{0}</title><style>{STYLE}</style>\
             <text class=\"t\" x=\"{LEFT}\" y=\"24\">{0}</text>",
            escape(&self.title)
        );
        self.draw_grid(&mut svg, x_span, y_span);
        self.draw_lines(&mut svg, x_span, y_span);
        svg.push_str("</svg>\n");
        svg
    }

    fn draw_grid(&self, svg: &mut String, x_span: Span, y_span: Span) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for value in ticks(&self.y, y_span) {
            let y = bottom - (bottom - TOP) * y_span.share(self.y.place(value));
            let _ = write!(
                svg,
                "<path class=\"g\" d=\"M{LEFT} {y:.1}H{right}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 8.0,
                y + 4.0,
                short(value)
            );
        }
        let mut xs: Vec<f64> = self.series.iter().flat_map(|s| &s.points).map(|p| p.0).collect();
        xs.sort_by(f64::total_cmp);
        xs.dedup();
        let mut last = f64::MIN;
        for value in xs {
            let x = LEFT + (right - LEFT) * x_span.share(self.x.place(value));
            if x - last < 34.0 {
                continue;
            }
            last = x;
            let _ = write!(
                svg,
                "<path class=\"g\" d=\"M{x:.1} {bottom}V{TOP}\"/>\
                 <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                bottom + 18.0,
                short(value)
            );
        }
        let _ = write!(
            svg,
            "<path class=\"a\" d=\"M{LEFT} {TOP}V{bottom}H{right}\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\
             <text transform=\"translate(18 {:.1}) rotate(-90)\" text-anchor=\"middle\">{}</text>",
            (LEFT + right) / 2.0,
            HEIGHT - 16.0,
            escape(&self.x.label),
            (TOP + bottom) / 2.0,
            escape(&self.y.label)
        );
    }

    fn draw_lines(&self, svg: &mut String, x_span: Span, y_span: Span) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for (at, series) in self.series.iter().enumerate() {
            let colour = COLOURS[at % COLOURS.len()];
            let place = |&(x, y): &(f64, f64)| {
                let x = LEFT + (right - LEFT) * x_span.share(self.x.place(x));
                (x, bottom - (bottom - TOP) * y_span.share(self.y.place(y)))
            };
            let mut path = String::new();
            for (at, (x, y)) in series.points.iter().map(place).enumerate() {
                let _ = write!(path, "{}{x:.1} {y:.1}", if at == 0 { 'M' } else { 'L' });
                let dot =
                    format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>");
                svg.push_str(&dot);
            }
            let y = TOP + 8.0 + 20.0 * at as f64;
            let _ = write!(
                svg,
                "<path stroke=\"{colour}\" d=\"{path}\"/>\
                 <path stroke=\"{colour}\" d=\"M{:.1} {y}h18\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                right + 12.0,
                right + 36.0,
                y + 4.0,
                escape(&series.name)
            );
        }
    }
}

/// The part of an axis that shows all values; zero too, unless it is logarithmic.
fn span(axis: &Axis, values: impl Iterator<Item = f64>, zero_unless: Scale) -> Span {
    let (mut from, mut to) = (f64::MAX, f64::MIN);
    for place in values.map(|value| axis.place(value)) {
        (from, to) = (from.min(place), to.max(place));
    }
    if axis.scale == Scale::Linear && zero_unless == Scale::Linear {
        from = from.min(0.0);
    }
    if from > to {
        (from, to) = (0.0, 1.0);
    }
    if to - from < 1e-9 { Span { from, to: from + 1.0 } } else { Span { from, to } }
}

fn ticks(axis: &Axis, span: Span) -> Vec<f64> {
    if axis.scale == Scale::Log {
        let powers = span.from.floor() as i32..=span.to.ceil() as i32;
        let inside = |&value: &f64| (span.from..=span.to).contains(&axis.place(value));
        let ticks: Vec<_> = powers
            .flat_map(|power| [1.0, 3.0].map(|step| step * 10f64.powi(power)))
            .filter(inside)
            .collect();
        return if ticks.len() > 1 {
            ticks
        } else {
            vec![10f64.powf(span.from), 10f64.powf(span.to)]
        };
    }
    let raw = (span.to - span.from) / 5.0;
    let size = 10f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 5.0, 10.0].map(|n| n * size).into_iter().find(|&step| step >= raw);
    let step = step.unwrap_or(raw);
    let first = (span.from / step).ceil() as i64;
    (first..).map(|n| n as f64 * step).take_while(|&value| value <= span.to).collect()
}

fn short(value: f64) -> String {
    let text = match value.abs() {
        size if size >= 1e9 => format!("{}G", number(value / 1e9)),
        size if size >= 1e6 => format!("{}M", number(value / 1e6)),
        size if size >= 1e4 => format!("{}k", number(value / 1e3)),
        _ => number(value),
    };
    let (digits, unit) = text.split_at(text.trim_end_matches(['k', 'M', 'G']).len());
    let digits = if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    };
    format!("{digits}{unit}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_has_its_parts() {
        let series = Series { name: "a < b".into(), points: vec![(1.0, 10.0), (4.0, 1e6)] };
        let (x, y) = (Axis::linear("procs"), Axis::log("time, ns"));
        let chart = Chart { title: "T".into(), x, y, series: vec![series] };
        let svg = chart.svg();
        for part in ["a &lt; b", "procs", "time, ns", "prefers-color-scheme", ">100k<", "circle"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    #[test]
    fn ticks_are_round() {
        let span = Span { from: 0.0, to: 23.0 };
        assert_eq!(ticks(&Axis::linear(""), span), [0.0, 5.0, 10.0, 15.0, 20.0]);
        assert_eq!(short(20_000.0), "20k");
        assert_eq!(short(0.5), "0.5");
    }
}
