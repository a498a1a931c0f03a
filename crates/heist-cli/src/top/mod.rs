//! `heist top`: the scheduler of a running program, once a second.

mod model;
mod view;

use crate::attach::{Target, report};
use crate::cli::TopOptions;
use model::{Model, Sample};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a key asks for.
enum Wish {
    Nothing,
    Redraw,
    Quit,
}

pub fn run(options: &TopOptions) -> ExitCode {
    let first = Target::find(options.attach.target.as_deref()).and_then(|target| {
        let sample = ask(&target)?;
        Ok((target, sample))
    });
    let (target, sample) = match first {
        Ok(first) => first,
        Err(message) => return report(&message),
    };
    let interval = Duration::from_secs_f64(options.interval.clamp(0.1, 3600.0));
    let mut model = Model::new(target.to_string(), sample);
    if options.once {
        std::thread::sleep(interval);
        match ask(&target) {
            Ok(sample) => model.take(sample),
            Err(message) => return report(&message),
        }
        print!("{}", view::plain(&mut model));
        return ExitCode::SUCCESS;
    }
    let mut terminal = ratatui::init();
    let ended = live(&mut terminal, &target, &mut model, interval);
    ratatui::restore();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report(&error.to_string()),
    }
}

fn ask(target: &Target) -> Result<Sample, String> {
    let body = target.get("/debug/sched.json", PATIENCE)?;
    serde_json::from_slice(&body).map_err(|error| format!("{target}: {error}"))
}

fn live(
    terminal: &mut ratatui::DefaultTerminal,
    target: &Target,
    model: &mut Model,
    interval: Duration,
) -> std::io::Result<()> {
    let mut next = Instant::now();
    loop {
        if !model.paused && Instant::now() >= next {
            match ask(target) {
                Ok(sample) => model.take(sample),
                Err(message) => model.trouble = Some(message),
            }
            next = Instant::now() + interval;
        }
        terminal.draw(|frame| view::draw(frame, model))?;
        let wait = if model.paused { interval } else { next - Instant::now() };
        if event::poll(wait.max(Duration::from_millis(10)))?
            && let Event::Key(key) = event::read()?
            && key.kind == KeyEventKind::Press
        {
            let is_interrupt = key.modifiers.contains(KeyModifiers::CONTROL);
            match wish_of(key.code, is_interrupt, model) {
                Wish::Quit => return Ok(()),
                Wish::Redraw | Wish::Nothing => {}
            }
        }
    }
}

fn wish_of(key: KeyCode, with_control: bool, model: &mut Model) -> Wish {
    match key {
        KeyCode::Char('q') | KeyCode::Esc => return Wish::Quit,
        KeyCode::Char('c') if with_control => return Wish::Quit,
        KeyCode::Char('p' | ' ') => model.paused = !model.paused,
        KeyCode::Char('s') => model.sort = model.sort.next(),
        _ => return Wish::Nothing,
    }
    Wish::Redraw
}
