//! How `heist top` looks.

use super::model::{Model, Proc};
use ratatui::Frame;
use ratatui::backend::TestBackend;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Paragraph, Row, Table};

const SOFT: Style = Style::new().fg(Color::DarkGray);
const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);

/// The width of the bar of a queue.
const BAR: usize = 10;

/// The columns of the screen as text.
const PLAIN_WIDTH: u16 = 120;

/// The screen as text.
pub fn plain(model: &mut Model) -> String {
    let height = (model.now.ps.len() + model.now.groups.len().min(12) + 13) as u16;
    let mut terminal =
        ratatui::Terminal::new(TestBackend::new(PLAIN_WIDTH, height)).expect("memory cannot fail");
    terminal.draw(|frame| draw(frame, model)).expect("memory cannot fail");
    let buffer = terminal.backend().buffer();
    let lines = buffer.content().chunks(PLAIN_WIDTH.into()).map(|line| {
        let text: String = line.iter().map(ratatui::buffer::Cell::symbol).collect();
        format!("{}\n", text.trim_end())
    });
    lines.collect()
}

pub fn draw(frame: &mut Frame<'_>, model: &Model) {
    let lanes = model.now.ps.len() as u16 + 2;
    let lanes = lanes.min(frame.area().height / 2);
    let [head, middle, rates, groups, keys] = Layout::vertical([
        Constraint::Length(4),
        Constraint::Length(lanes),
        Constraint::Length(4),
        Constraint::Min(4),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(header(model), head);
    draw_lanes(frame, model, middle);
    frame.render_widget(Paragraph::new(summary(model)).block(titled("Per second")), rates);
    draw_groups(frame, model, groups);
    frame.render_widget(keys_line(model), keys);
}

fn titled(title: &str) -> Block<'_> {
    Block::new().borders(Borders::TOP).border_style(SOFT).title(Span::styled(title, STRONG))
}

fn header(model: &Model) -> Paragraph<'_> {
    let now = &model.now;
    let up = now.uptime_ns / 1_000_000_000;
    let first = Line::from(vec![
        Span::styled(format!("{} ", now.name), STRONG),
        Span::raw(format!(
            "process {}, up {}:{:02}:{:02}",
            now.pid,
            up / 3600,
            up / 60 % 60,
            up % 60
        )),
        Span::styled(format!("  {}", model.target), SOFT),
    ]);
    let states = &now.states;
    let second = Line::from(vec![
        Span::raw(format!("{} goroutines: ", now.goroutines)),
        Span::styled(format!("{} running", states.running), color_of("running")),
        Span::raw(", "),
        Span::styled(format!("{} runnable", states.runnable), color_of("runnable")),
        Span::raw(", "),
        Span::styled(format!("{} blocked", states.blocked), color_of("blocked")),
        Span::raw(format!(", {} waiting", states.waiting)),
    ]);
    let third = Line::from(format!(
        "{} processors, {} idle, {} searching; {} threads, {} idle; global queue {}",
        now.procs, now.procs_idle, now.spinning, now.threads, now.threads_idle, now.global_queue
    ));
    let shown = now.reasons.iter().take(6);
    let doing: Vec<_> = shown.map(|reason| format!("{} {}", reason.count, reason.state)).collect();
    let fourth = Line::styled(doing.join(", "), SOFT);
    Paragraph::new(vec![first, second, third, fourth])
}

fn color_of(state: &str) -> Style {
    Style::new().fg(match state {
        "running" => Color::Green,
        "runnable" => Color::Yellow,
        "blocked" => Color::Magenta,
        "spinning" | "scheduling" => Color::Cyan,
        "stopped" => Color::Red,
        "idle" => Color::DarkGray,
        _ => Color::Blue,
    })
}

fn draw_lanes(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let most = model.now.ps.iter().map(queued).max().unwrap_or(0).max(16);
    let rows = model.now.ps.iter().map(|pp| {
        let (switches, stolen) = model.rates_of(pp);
        Row::new([
            Cell::from(format!("P{}", pp.id)),
            Cell::from(Span::styled(pp.state.clone(), color_of(&pp.state))),
            Cell::from(Span::styled(bar(queued(pp), most), color_of("runnable"))),
            right(format!("{}", queued(pp))),
            right(number(switches)),
            right(number(stolen)),
            Cell::from(what(pp)),
        ])
    });
    let widths = [
        Constraint::Length(5),
        Constraint::Length(11),
        Constraint::Length(BAR as u16),
        Constraint::Length(5),
        Constraint::Length(9),
        Constraint::Length(8),
        Constraint::Fill(1),
    ];
    let names = ["P", "state", "queue", "", "switches", "stolen", "runs"];
    let names = Row::new(names.iter().enumerate().map(|(at, name)| match at {
        3..=5 => right((*name).to_owned()),
        _ => Cell::from(*name),
    }));
    let table = Table::new(rows, widths).header(names.style(SOFT)).block(titled("Processors"));
    frame.render_widget(table, area);
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).alignment(Alignment::Right))
}

const fn queued(pp: &Proc) -> u64 {
    pp.queue + pp.yielded + pp.next as u64
}

fn bar(n: u64, most: u64) -> String {
    let full = (n as f64 / most as f64 * BAR as f64).ceil() as usize;
    format!("{}{}", "█".repeat(full.min(BAR)), "·".repeat(BAR - full.min(BAR)))
}

fn what(pp: &Proc) -> String {
    let Some(g) = &pp.g else { return String::new() };
    let name = if g.name.is_empty() { String::new() } else { format!("{} ", g.name) };
    let seen = pp.seen_ns.unwrap_or_default() as f64 / 1e9;
    let held = if seen >= 0.5 { format!(", {seen:.1} s or longer") } else { String::new() };
    format!("{name}goroutine {}{held}  {}", g.id, short(&g.site))
}

/// A spawn site without its folders but the last, so that a lane fits into a line.
fn short(site: &str) -> &str {
    let mut slashes = site.rmatch_indices('/').map(|(at, _)| at);
    slashes.nth(1).map_or(site, |at| &site[at + 1..])
}

fn number(n: f64) -> String {
    match n {
        n if n >= 1e6 => format!("{:.1}M", n / 1e6),
        n if n >= 1e4 => format!("{:.1}k", n / 1e3),
        n if n >= 10.0 || n == 0.0 => format!("{n:.0}"),
        n => format!("{n:.1}"),
    }
}

fn duration(seconds: f64) -> String {
    match seconds {
        s if s.is_infinite() => "longer".to_owned(),
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s if s >= 1e-6 => format!("{:.1} us", s * 1e6),
        s => format!("{:.0} ns", s * 1e9),
    }
}

fn summary(model: &Model) -> Vec<Line<'static>> {
    let rate = |name: &str| number(model.rate(name));
    let latency = |share| model.latency(share).map_or_else(|| "-".to_owned(), duration);
    vec![
        Line::from(format!(
            "spawned {}   ended {}   switches {}   parks {}   yields {}",
            rate("/sched/goroutines-created:goroutines"),
            rate("/heist/goroutines/finished:goroutines"),
            rate("/heist/sched/executed:events"),
            rate("/heist/sched/parks:events"),
            rate("/heist/sched/yields:events"),
        )),
        Line::from(format!(
            "stolen {} in {} of {} looks   preempted {}, forced {}   polls {}   thread wake-ups {}",
            rate("/heist/steal/goroutines:goroutines"),
            rate("/heist/steal/successes:events"),
            rate("/heist/steal/attempts:events"),
            rate("/heist/preempt/asked:events"),
            rate("/heist/preempt/forced:events"),
            rate("/heist/poll/waits:events"),
            rate("/heist/threads/unparks:events"),
        )),
        Line::from(vec![
            Span::raw("from runnable to running: "),
            Span::styled(format!("p50 {}  ", latency(0.5)), STRONG),
            Span::styled(format!("p99 {}  ", latency(0.99)), STRONG),
            Span::styled(format!("p99.9 {}", latency(0.999)), STRONG),
        ]),
    ]
}

fn draw_groups(frame: &mut Frame<'_>, model: &Model, area: Rect) {
    let rows = model.groups().into_iter().map(|group| {
        Row::new([
            right(group.count.to_string()),
            Cell::from(Span::styled(group.state.clone(), color_of(&group.state))),
            Cell::from(group.site.clone()),
        ])
    });
    let widths = [Constraint::Length(9), Constraint::Length(24), Constraint::Fill(1)];
    let names =
        Row::new([right("count".to_owned()), Cell::from("state"), Cell::from("spawned at")]);
    let title = format!("Goroutines by {}", model.sort.name());
    let table = Table::new(rows, widths).header(names.style(SOFT)).block(titled(&title));
    frame.render_widget(table, area);
}

fn keys_line(model: &Model) -> Paragraph<'_> {
    Paragraph::new(match &model.trouble {
        Some(trouble) => Line::styled(trouble.clone(), Style::new().fg(Color::Red)),
        None if model.paused => Line::styled("paused   q quit  p continue  s sort", STRONG),
        None => Line::styled("q quit  p pause  s sort", SOFT),
    })
}

#[test]
fn the_screen_shows_lanes_rates_and_groups() {
    use super::model::example;
    let mut model = Model::new("127.0.0.1:1".into(), example(100, 1_000_000_000, "[0,0,0]"));
    model.take(example(3100, 2_000_000_000, "[0,90,10]"));
    let screen = plain(&mut model);
    for part in [
        "shop process 7, up 0:00:02",
        "12 goroutines: 1 running, 4 runnable, 1 blocked, 6 waiting",
        "till goroutine 9, 2.5 s or longer  src/a.rs:1:2",
        "switches 3000",
        "p50 1.0 us  p99 1.0 ms",
        "        6 sleep                    src/b.rs:3:4",
    ] {
        assert!(screen.contains(part), "{part}:\n{screen}");
    }
}
