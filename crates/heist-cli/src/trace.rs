//! `heist trace`: reads execution traces.

use crate::cli::{
    CheckOptions, ConvertOptions, Format, RecordOptions, SummaryOptions, TraceCommand,
};
use heist_trace::check::{Limits, check_with_progress};
use heist_trace::file::Trace;
use heist_trace::{go, perfetto, summary};
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;
use std::process::{Command, ExitCode};

/// A rule is broken.
const BROKEN: u8 = 1;
/// The command cannot do what it was asked.
const UNUSABLE: u8 = 2;

/// Files below this size are read at once.
const LONG_FILE: u64 = 20 << 20;

pub fn run(command: &TraceCommand) -> ExitCode {
    let outcome = match command {
        TraceCommand::Check(options) => check(options),
        TraceCommand::Convert(options) => convert(options),
        TraceCommand::Summary(options) => summarise(options),
        TraceCommand::Record(options) => record(options),
    };
    outcome.unwrap_or_else(|message| {
        eprintln!("heist: {message}");
        ExitCode::from(UNUSABLE)
    })
}

/// A bar for what takes long, or nothing.
fn bar(length: u64, is_long: bool, what: &'static str) -> ProgressBar {
    if !is_long {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{msg:12} {bar:40} {percent:>3} %")
        .expect("the template is valid");
    ProgressBar::new(length).with_style(style).with_message(what)
}

struct Loaded {
    trace: Trace,
    is_long: bool,
}

impl Loaded {
    /// A bar for a pass over all events.
    fn pass(&self, what: &'static str) -> ProgressBar {
        bar(self.trace.n_records() as u64, self.is_long, what)
    }
}

fn load(path: &Path) -> Result<Loaded, String> {
    let name = path.display();
    let file = File::open(path).map_err(|e| format!("{name}: {e}"))?;
    let length = file.metadata().map_or(0, |data| data.len());
    let is_long = length > LONG_FILE;
    let bar = bar(length, is_long, "reading");
    let trace = Trace::read(BufReader::with_capacity(1 << 20, file), |offset| {
        bar.set_position(offset);
    })
    .map_err(|e| format!("{name}: {e}"))?;
    bar.finish_and_clear();
    if let Some(offset) = trace.truncated {
        eprintln!("heist: {name}: the file ends early, at byte {offset}; the rest is used");
    }
    Ok(Loaded { trace, is_long })
}

fn check(options: &CheckOptions) -> Result<ExitCode, String> {
    let loaded = load(&options.file)?;
    let bar = loaded.pass("checking");
    let limits = Limits { wait_ns: options.wait_ms.saturating_mul(1_000_000), ..Limits::default() };
    let report = check_with_progress(&loaded.trace, &limits, |n| bar.set_position(n));
    bar.finish_and_clear();
    for finding in &report.findings {
        println!("{finding}");
    }
    let hidden = report.n_findings - report.findings.len();
    if hidden > 0 {
        println!("and {hidden} more");
    }
    println!(
        "{} events checked, {} findings, {} gaps",
        report.n_events, report.n_findings, report.n_gaps
    );
    if let Some(from) = report.uncertain_from {
        let seconds = from as f64 / 1e9;
        println!(
            "Events are missing: after {seconds:.6} s only rules about one thread are checked."
        );
    }
    Ok(if report.n_findings == 0 { ExitCode::SUCCESS } else { ExitCode::from(BROKEN) })
}

fn convert(options: &ConvertOptions) -> Result<ExitCode, String> {
    let loaded = load(&options.input)?;
    let name = options.output.display();
    let cannot_write = |e| format!("{name}: {e}");
    let out = BufWriter::new(File::create(&options.output).map_err(cannot_write)?);
    let bar = loaded.pass("converting");
    let progress = |n| bar.set_position(n);
    match options.to {
        Format::Go => {
            let (mut out, written) =
                go::convert(&loaded.trace, out, progress).map_err(cannot_write)?;
            out.flush().map_err(cannot_write)?;
            bar.finish_and_clear();
            println!("{name}: {} events for `go tool trace`", written.n_events);
            if written.n_left_out > 0 {
                println!("{} annotations have no place in Go's format", written.n_left_out);
            }
        }
        Format::Perfetto => {
            let (mut out, n_packets) =
                perfetto::convert(&loaded.trace, out, progress).map_err(cannot_write)?;
            out.flush().map_err(cannot_write)?;
            bar.finish_and_clear();
            println!("{name}: {n_packets} packets for Perfetto");
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn summarise(options: &SummaryOptions) -> Result<ExitCode, String> {
    let loaded = load(&options.file)?;
    let bar = loaded.pass("reading");
    let summary = summary::summarise(&loaded.trace, |n| bar.set_position(n));
    bar.finish_and_clear();
    print!("{summary}");
    Ok(ExitCode::SUCCESS)
}

/// Runs a program that records itself.
fn record(options: &RecordOptions) -> Result<ExitCode, String> {
    let (program, args) = options.command.split_first().ok_or("there is no program to run")?;
    let status = Command::new(program)
        .args(args)
        .env("HEIST_TRACE", &options.output)
        .status()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    if options.output.exists() {
        eprintln!("heist: the trace is in {}", options.output.display());
    } else {
        let name = program.display();
        eprintln!("heist: {name} wrote no trace; it starts no runtime of heist");
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}
