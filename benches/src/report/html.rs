//! The report as one self-contained page: an SVG bar per peer and row.

use std::fmt::Write;

use super::{Block, Comparison, Entry, NOTED_BEST, OURS, figure};
use crate::catalog::Better;

const LABEL_PX: f64 = 90.0;
const BAR_PX: f64 = 420.0;
const ROW_PX: f64 = 22.0;
/// The height that a note below a bar adds to its row.
const NOTE_PX: f64 = 15.0;
const WIDTH_PX: f64 = 820.0;

const STYLE: &str = "body{font:14px system-ui,sans-serif;margin:2em auto;max-width:860px;\
color:#222;background:#fff}h2{font-size:1.05em;margin:1.6em 0 .3em}small{color:#666}\
.loud{background:#fde2e0;padding:.5em}.calm{background:#e2f4e4;padding:.5em}\
svg text{font:12px system-ui,sans-serif;fill:#222}.bar{fill:#9bb4cf}.ours{fill:#d9822b}\
.span{stroke:#333;stroke-width:1.5}.remark{fill:#777}\
@media(prefers-color-scheme:dark){body{color:#ddd;background:#181a1b}svg text{fill:#ddd}\
.loud{background:#5a2320}.calm{background:#1f4023}.bar{fill:#4d6a8a}.span{stroke:#ddd}}";

/// Renders the page.
pub fn render(comparison: &Comparison) -> String {
    let machine = &comparison.machine;
    let quiet = matches!(comparison.verdict, crate::quiet::Verdict::Quiet);
    let class = if quiet { "calm" } else { "loud" };
    let mut page = String::from("<!doctype html>\n<html lang=\"en\"><meta charset=\"utf-8\">\n");
    // Writing to a String cannot fail; the results are dropped for that reason.
    let _ = writeln!(page, "<title>heist and its peers</title><style>{STYLE}</style>");
    let _ = writeln!(page, "<h1>heist and its peers</h1>");
    let _ = writeln!(
        page,
        "<p>{}, {} CPUs, Linux {}, {}, procs {}, {} repetitions. Bars are medians, the line on a \
         bar goes from the least to the greatest value.</p>",
        escape(&machine.cpu_model),
        machine.n_cpus,
        escape(&machine.kernel),
        escape(machine.go_version.as_deref().unwrap_or("no Go")),
        machine.procs,
        machine.reps
    );
    let _ = writeln!(page, "<p class=\"{class}\">{}</p>", escape(&comparison.verdict.to_string()));
    for line in &comparison.skipped {
        let _ = writeln!(page, "<p><small>skipped: {}</small></p>", escape(line));
    }
    for block in &comparison.blocks {
        chart(&mut page, block);
    }
    page.push_str("</html>\n");
    page
}

fn chart(page: &mut String, block: &Block) {
    let direction = match block.spec.better {
        Better::Lower => "lower is better",
        Better::Higher => "higher is better",
    };
    let _ = writeln!(
        page,
        "<h2>{} <small>{}, {direction}</small></h2>",
        block.spec.name,
        escape(block.spec.unit)
    );
    let height: f64 = block.entries.iter().map(height_px).sum();
    let _ = writeln!(
        page,
        "<svg width=\"{WIDTH_PX}\" height=\"{height}\" role=\"img\" aria-label=\"{}\">",
        block.spec.name
    );
    let greatest =
        block.entries.iter().filter_map(|e| e.summary).map(|s| s.max).fold(0.0, f64::max);
    let best = if block.best_is_noted { "best*" } else { "best" };
    let mut top = 0.0;
    for entry in &block.entries {
        bar(page, entry, top, greatest, best);
        top += height_px(entry);
    }
    page.push_str("</svg>\n");
    if block.best_is_noted {
        let _ = writeln!(page, "<p><small>* {NOTED_BEST}</small></p>");
    }
}

/// Whether the remark has its own line, below the bar.
fn has_note_below(entry: &Entry) -> bool {
    entry.summary.is_some() && entry.remark.is_some()
}

fn height_px(entry: &Entry) -> f64 {
    if has_note_below(entry) { ROW_PX + NOTE_PX } else { ROW_PX }
}

fn bar(page: &mut String, entry: &Entry, top: f64, greatest: f64, best: &str) {
    let baseline = top + 15.0;
    let _ = writeln!(page, "<text x=\"0\" y=\"{baseline}\">{}</text>", escape(&entry.peer));
    if let Some(remark) = &entry.remark {
        let below = if has_note_below(entry) { NOTE_PX } else { 0.0 };
        let _ = writeln!(
            page,
            "<text class=\"remark\" x=\"{LABEL_PX}\" y=\"{}\">{}</text>",
            baseline + below,
            escape(remark)
        );
    }
    let Some(summary) = entry.summary else { return };
    let px = |value: f64| {
        if greatest > 0.0 { value / greatest * BAR_PX } else { 0.0 }
    };
    let class = if entry.peer == OURS { "ours" } else { "bar" };
    let _ = writeln!(
        page,
        "<rect class=\"{class}\" x=\"{LABEL_PX}\" y=\"{}\" width=\"{:.1}\" height=\"16\">\
         <title>{}</title></rect>",
        top + 3.0,
        px(summary.median).max(1.0),
        escape(&format!("{} values, {} to {}", summary.n, summary.min, summary.max))
    );
    let middle = top + 11.0;
    let _ = writeln!(
        page,
        "<line class=\"span\" x1=\"{:.1}\" x2=\"{:.1}\" y1=\"{middle}\" y2=\"{middle}\"/>",
        LABEL_PX + px(summary.min),
        LABEL_PX + px(summary.max)
    );
    let times =
        |label, r: Option<f64>| r.map_or_else(String::new, |r| format!(" · {r:.2}x {label}"));
    let second = entry
        .on_mimalloc
        .map_or_else(String::new, |s| format!(" · {} on mimalloc", figure(s.median)));
    let label = format!(
        "{}{}{}{second}",
        figure(summary.median),
        times(best, entry.to_best),
        times("Go", entry.to_go)
    );
    let _ = writeln!(
        page,
        "<text x=\"{:.1}\" y=\"{baseline}\">{}</text>",
        LABEL_PX + px(summary.max) + 8.0,
        escape(&label)
    );
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use crate::report::Comparison;
    use crate::row::{Row, RunFile, sample};

    fn render(rows: Vec<Row>) -> String {
        let file = RunFile { rows, ..RunFile::default() };
        super::render(&Comparison::of(&[file]).unwrap())
    }

    #[test]
    fn the_note_of_a_figure_can_be_seen() {
        let mut noted = sample("yield", "rayon", 0, 5.0);
        noted.note = Some("differs".to_owned());
        let page = render(vec![noted.clone(), sample("yield", "go", 0, 20.0)]);
        assert!(page.contains("y=\"30\">differs</text>"), "on a line of its own: {page}");
        assert!(page.contains("height=\"59\""), "which makes the picture higher: {page}");
        assert!(!page.contains("x best*"), "{page}");
        let alone = render(vec![noted]);
        assert!(alone.contains("1.00x best*") && alone.contains("<small>* "), "{alone}");
    }

    #[test]
    fn a_page_has_a_bar_per_peer_and_stands_alone() {
        let mut noted = sample("yield", "kanal", 0, 1.0);
        (noted.value, noted.note) = (None, Some("a <channel> & no runtime".to_owned()));
        let rows = vec![sample("yield", "heist", 0, 10.0), sample("yield", "go", 0, 20.0), noted];
        let page = render(rows);
        assert_eq!(page.matches("<rect").count(), 2);
        assert!(page.contains("class=\"ours\""));
        assert!(page.contains("a &lt;channel&gt; &amp; no runtime"));
        assert!(!page.contains("http://") && !page.contains("https://"), "it needs no network");
    }
}
