//! The output while a step runs: bars on a terminal, plain lines elsewhere.

use super::figures;
use super::lanes::{self, Lane};
use super::report::{Report, Verdict};
use super::steps::Step;
use console::style;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;
use std::time::Duration;

const SPIN_EVERY: Duration = Duration::from_millis(100);
/// Puts the bars of the Ps below the bar of the step.
const INDENT: &str = "       ";

/// The stream on which progress is shown: stderr, so that stdout holds the results alone.
pub enum Screen {
    Bars(MultiProgress),
    Lines,
}

impl Screen {
    pub fn new() -> Self {
        if io::stderr().is_terminal() { Self::Bars(MultiProgress::new()) } else { Self::Lines }
    }

    /// Prints a line that stays.
    pub fn say(&self, text: &str) {
        match self {
            // If the terminal is gone, the text is lost.
            Self::Bars(all) => drop(all.println(text)),
            Self::Lines => drop(writeln!(io::stderr(), "{text}")),
        }
    }

    /// Begins to show a step.
    pub fn scene(&self, step: &'static Step) -> Scene<'_> {
        let bar = match self {
            Self::Bars(all) => {
                let bar = all.add(ProgressBar::new(1));
                bar.set_style(step_style());
                bar.set_prefix(step.name);
                bar.set_message(step.title);
                bar.enable_steady_tick(SPIN_EVERY);
                bar
            }
            Self::Lines => {
                self.say(&format!("{}: {}", step.name, step.title));
                ProgressBar::hidden()
            }
        };
        Scene { screen: self, step, bar, lanes: Mutex::default() }
    }
}

/// The bars of one step.
pub struct Scene<'a> {
    screen: &'a Screen,
    step: &'static Step,
    bar: ProgressBar,
    lanes: Mutex<Vec<ProgressBar>>,
}

impl Scene<'_> {
    /// A part of the step begins, with `n` items.
    pub fn phase(&self, text: &str, total: u64) {
        self.bar.set_message(text.to_owned());
        self.bar.set_position(0);
        self.bar.set_length(total);
    }

    /// `done` items of the part are done, and `lanes` has the counters of each P so far.
    pub fn show(&self, done: u64, state: &[Lane]) {
        self.bar.set_position(done);
        let Screen::Bars(all) = self.screen else {
            return;
        };
        let mut bars = self.lanes.lock().unwrap_or_else(|poison| poison.into_inner());
        for (at, line) in lanes::draw(state).into_iter().enumerate() {
            if at == bars.len() {
                let bar = all.add(ProgressBar::new(1));
                bar.set_style(lane_style());
                bars.push(bar);
            }
            bars[at].set_message(format!("{INDENT}{line}"));
        }
    }

    /// Runs `f`, which writes to stderr by itself.
    pub fn aside<T>(&self, f: impl FnOnce() -> T) -> T {
        match self.screen {
            Screen::Bars(all) => all.suspend(f),
            Screen::Lines => f(),
        }
    }

    /// Replaces the bars by one line.
    pub fn finish(self, report: &Report) {
        self.clear();
        let name = self.step.name;
        let time = figures::time(report.time);
        let text = match (self.screen, report.verdict()) {
            (Screen::Lines, Verdict::Ok) => format!("{name}: OK, {time}, {}", report.each),
            (Screen::Lines, Verdict::Wrong) => {
                format!("{name}: WRONG, {}", report.wrong.join("; "))
            }
            (Screen::Bars(_), Verdict::Ok) => {
                let tick = style("✔").for_stderr().green();
                format!("{tick} {name:<10} {time:>8}  {}", report.done)
            }
            (Screen::Bars(_), Verdict::Wrong) => {
                let cross = style("✘").for_stderr().red();
                format!("{cross} {name:<10} {time:>8}  {}", report.wrong.join("; "))
            }
        };
        self.screen.say(&text);
    }

    fn clear(&self) {
        let bars = self.lanes.lock().unwrap_or_else(|poison| poison.into_inner());
        for bar in bars.iter() {
            bar.finish_and_clear();
        }
        self.bar.finish_and_clear();
    }
}

fn step_style() -> ProgressStyle {
    ProgressStyle::with_template(
        "{spinner:.cyan} {prefix:<10.bold}{bar:32.green/dim} {human_pos:>11} / {human_len}  {wide_msg}",
    )
    .expect("the template is right")
    .progress_chars("█▉▊▋▌▍▎▏░")
}

fn lane_style() -> ProgressStyle {
    ProgressStyle::with_template("{wide_msg}").expect("the template is right")
}

#[test]
fn the_templates_are_right() {
    step_style();
    lane_style();
}
