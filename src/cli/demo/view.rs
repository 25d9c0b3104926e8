//! The live view in a terminal: numbers of now, why, and up to two hours as a plot.

use std::time::Duration;

use anyhow::Context;
use crossterm::event::{self, Event};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Block, Chart, Dataset, GraphType, Paragraph, Wrap};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::keys::{self, Wish};
use super::options::DemoFloor;
use super::picture::{Picture, Sample, Samples};
use super::session::Session;
use crate::supervise::Signals;
use crate::units::format_span;

/// Between two pictures, real time.
const FRAME_TIME: Duration = Duration::from_millis(200);
/// How long a look for a key may take: the reading thread ends within this.
const KEY_PATIENCE: Duration = Duration::from_millis(100);
/// The plot shows at least this much.
const SHORTEST_PLOT_MINUTES: f64 = 30.0;
/// Wishes that are not taken yet; more keys than that are lost.
const KEY_QUEUE: usize = 16;

/// Shows the session until it is over, somebody quits or a signal comes; gives it back with the terminal as it was.
pub(super) async fn run(session: Session, signals: &mut Signals) -> anyhow::Result<Session> {
    let mut terminal = ratatui::try_init().context("the terminal can't be drawn on: try --no-tui")?;
    let stop = CancellationToken::new();
    let wishes = read_keys(stop.clone());
    let ended = show(session, &mut terminal, wishes, signals).await;
    stop.cancel();
    ratatui::restore();
    ended
}

async fn show(
    mut session: Session,
    terminal: &mut ratatui::DefaultTerminal,
    mut wishes: mpsc::Receiver<Wish>,
    signals: &mut Signals,
) -> anyhow::Result<Session> {
    let mut samples = Samples::default();
    let mut frames = tokio::time::interval(FRAME_TIME);
    while !session.left().is_zero() {
        let wish = tokio::select! {
            _ = frames.tick() => None,
            wish = wishes.recv() => wish,
            // A terminal that is closed hangs up: that is an end too.
            _ = signals.next() => Some(Wish::Quit),
        };
        match wish {
            Some(Wish::Quit) => break,
            Some(Wish::Turn(switch)) => session.switch(switch).await?,
            None => {}
        }
        let picture = session.picture();
        samples.note(&picture);
        terminal.draw(|frame| draw(frame, &picture, &samples))?;
    }
    Ok(session)
}

/// Keys come from a thread of their own: reading a terminal blocks.
fn read_keys(stop: CancellationToken) -> mpsc::Receiver<Wish> {
    let (send, receive) = mpsc::channel(KEY_QUEUE);
    std::thread::spawn(move || {
        while !stop.is_cancelled() {
            match event::poll(KEY_PATIENCE) {
                Ok(false) => continue,
                Ok(true) => {}
                Err(_) => return,
            }
            let Ok(Event::Key(key)) = event::read() else { continue };
            if let Some(wish) = keys::wish(key)
                && send.blocking_send(wish).is_err()
            {
                return;
            }
        }
    });
    receive
}

fn draw(frame: &mut Frame<'_>, picture: &Picture, samples: &Samples) {
    let [title, now, why, plot, switches, help] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(6),
        Constraint::Length(6),
        Constraint::Min(8),
        Constraint::Length(2),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(title_line(picture), title);
    let [capacity, users] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(now);
    frame.render_widget(block("replicas", capacity_lines(picture)), capacity);
    frame.render_widget(block("users", user_lines(picture)), users);
    frame.render_widget(block("why", why_lines(picture)).wrap(Wrap { trim: true }), why);
    draw_plot(frame, plot, samples);
    frame.render_widget(Paragraph::new(switch_lines(picture)), switches);
    frame.render_widget(Line::styled(keys::HELP, Style::new().add_modifier(Modifier::REVERSED)), help);
}

fn block<'a>(title: &'a str, lines: Vec<Line<'a>>) -> Paragraph<'a> {
    Paragraph::new(lines).block(Block::bordered().title(title))
}

fn title_line(picture: &Picture) -> Line<'_> {
    let pace = if picture.falls_behind() {
        Span::styled(
            format!("running at {:.0}x of {:.0}x: this machine is too slow", picture.pace, picture.speed),
            Style::new().fg(Color::Red),
        )
    } else {
        Span::raw(format!("{:.0}x", picture.speed))
    };
    Line::from(vec![
        Span::styled("keda-vllm-scaler demo  ", Style::new().add_modifier(Modifier::BOLD)),
        Span::styled(picture.time(), Style::new().fg(Color::Cyan)),
        Span::raw("  "),
        pace,
        Span::raw(format!("  {}", picture.page_url)),
    ])
}

fn capacity_lines(picture: &Picture) -> Vec<Line<'_>> {
    let supply = picture.world.supply;
    let demand = picture.scaler.demand.map_or("?".to_owned(), |demand| format!("{demand:.1}"));
    let required = picture.scaler.required.map_or("?".to_owned(), |required| required.to_string());
    let color =
        if supply.ready < picture.scaler.required.unwrap_or(0) { Color::Yellow } else { Color::Green };
    vec![
        Line::from(format!("demand {demand}    required {required}    in spec {}", picture.world.spec)),
        Line::styled(format!("ready capacity {}", supply.ready), Style::new().fg(color)),
        Line::from(format!("cold starts in flight {}", supply.starting)),
        Line::from(format!("draining {}", supply.terminating)),
    ]
}

fn user_lines(picture: &Picture) -> Vec<Line<'_>> {
    let world = &picture.world;
    let late = world.longest_wait_seconds > crate::simulate::tally::LATE_AFTER_SECONDS;
    let style = if late { Style::new().fg(Color::Red) } else { Style::new() };
    vec![
        Line::from(format!("requests {:.1}/s    in service {}", world.arrivals_per_second, world.running)),
        Line::styled(format!("users queueing {} ({} at the router)", world.queueing, world.held), style),
        Line::styled(format!("longest wait {:.0} s", world.longest_wait_seconds), style),
        Line::from(format!("KV cache {:.0} %", world.kv_usage * 100.0)),
    ]
}

fn why_lines(picture: &Picture) -> Vec<Line<'_>> {
    let says = &picture.scaler;
    let asks: Vec<String> = says
        .asks
        .iter()
        .map(|(name, ask)| ask.map_or(format!("{name} ?"), |ask| format!("{name} {ask:.1}")))
        .collect();
    let mut lines = vec![Line::from(says.because.as_str()), Line::from(format!("asks: {}", asks.join(", ")))];
    if let Some(held) = &says.held {
        lines.push(Line::from(format!("held by {held}")));
    }
    if let Some(change) = picture.keda.last_scale {
        let at = change.at.format("%H:%M:%S");
        lines.push(Line::from(format!(
            "last scale {} -> {} by {} at {at}",
            change.from, change.to, change.by
        )));
    }
    if let Some(error) = &picture.keda.error {
        lines.push(Line::styled(format!("KEDA holds: {error}"), Style::new().fg(Color::Red)));
    }
    lines
}

fn switch_lines(picture: &Picture) -> Vec<Line<'_>> {
    let options = &picture.options;
    let floor = match options.floor {
        None => "none".to_owned(),
        Some(DemoFloor { replicas, window: None }) => format!("{replicas} all day"),
        Some(DemoFloor { replicas, window: Some((from, to)) }) => {
            format!("{replicas} from {} to {}", from.format("%H:%M"), to.format("%H:%M"))
        }
    };
    vec![
        Line::default(),
        Line::from(format!(
            "cold start {}   floor {floor}   signal {}   min {}   max {}   traffic x{:.2}",
            format_span(options.cold_start),
            options.signal.name(),
            options.min,
            options.max,
            picture.load_factor
        )),
    ]
}

fn draw_plot(frame: &mut Frame<'_>, area: Rect, samples: &Samples) {
    let Some(last) = samples.iter().last().map(|sample| sample.at) else { return };
    let points = |value: fn(&Sample) -> f64| -> Vec<(f64, f64)> {
        samples.iter().map(|s| ((s.at - last).num_seconds() as f64 / 60.0, value(s))).collect()
    };
    let (demand, required, ready) = (points(|s| s.demand), points(|s| s.required), points(|s| s.ready));
    let queueing: Vec<(f64, f64)> = points(|s| s.queueing)
        .into_iter()
        .filter(|(_, queueing)| *queueing >= 1.0)
        .map(|(x, _)| (x, 0.2))
        .collect();
    // The plot grows with the run, up to what is kept.
    let oldest = demand.first().map_or(0.0, |(minutes, _)| *minutes).min(-SHORTEST_PLOT_MINUTES);
    let top = [&demand, &required, &ready].into_iter().flatten().map(|(_, y)| *y).fold(4.0, f64::max).ceil();
    let lines = [
        ("demand", &demand, Color::Cyan, GraphType::Line),
        ("required", &required, Color::Yellow, GraphType::Line),
        ("ready", &ready, Color::Green, GraphType::Line),
        ("users queue", &queueing, Color::Red, GraphType::Scatter),
    ];
    // A legend inside the chart would lie over the newest data; as the title it covers nothing.
    let legend = lines.iter().flat_map(|(name, _, color, _)| {
        [Span::raw("  "), Span::styled(format!("\u{2501} {name}"), Style::new().fg(*color))]
    });
    let title: Line<'_> = [Span::raw("replicas over the last minutes")].into_iter().chain(legend).collect();
    let datasets = lines
        .iter()
        .map(|(_, data, color, kind)| {
            Dataset::default()
                .marker(Marker::Braille)
                .graph_type(*kind)
                .style(Style::new().fg(*color))
                .data(data)
        })
        .collect();
    let chart = Chart::new(datasets)
        .block(Block::bordered().title(title))
        .legend_position(None)
        .x_axis(Axis::default().bounds([oldest, 0.0]).labels([
            format!("{oldest:.0} min"),
            format!("{:.0}", oldest / 2.0),
            "now".to_owned(),
        ]))
        .y_axis(Axis::default().bounds([0.0, top]).labels(["0".to_owned(), format!("{top}")]));
    frame.render_widget(chart, area);
}

#[cfg(test)]
mod tests {
    use chrono::TimeZone as _;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::options::tests::options;
    use super::super::picture::ScalerSays;
    use super::*;
    use crate::simulate::cluster::Supply;
    use crate::simulate::standin::StandinStatus;
    use crate::simulate::{Moment, world::WorldStatus};

    fn picture() -> Picture {
        Picture {
            at: chrono::Utc.with_ymd_and_hms(2026, 3, 4, 9, 2, 30).unwrap(),
            pace: 43.0,
            speed: 60.0,
            world: WorldStatus {
                now: Moment::from_seconds(1350.0),
                supply: Supply { starting: 6, ready: 4, terminating: 0 },
                spec: 10,
                queueing: 17,
                held: 2,
                running: 90,
                longest_wait_seconds: 7.0,
                kv_usage: 0.83,
                arrivals_per_second: 21.5,
            },
            load_factor: 1.0,
            options: options("").unwrap().tier,
            scaler: ScalerSays {
                required: Some(10),
                demand: Some(4.6),
                because: "floor: 10 replicas from 09:00".to_owned(),
                held: None,
                asks: vec![("kvCache", Some(4.6)), ("tokens", None)],
            },
            keda: StandinStatus::default(),
            page_url: "http://127.0.0.1:8080/tiers/demo/chat".to_owned(),
        }
    }

    fn screen(width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let picture = picture();
        let mut samples = Samples::default();
        samples.note(&picture);
        terminal.draw(|frame| draw(frame, &picture, &samples)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let cells: Vec<&str> = buffer.content().iter().map(ratatui::buffer::Cell::symbol).collect();
        cells.chunks(width as usize).map(|row| row.concat() + "\n").collect()
    }

    #[test]
    fn the_view_shows_demand_capacity_starts_users_and_why() {
        let screen = screen(100, 32);
        for text in [
            "09:02:30",
            "running at 43x of 60x",
            "demand 4.6    required 10",
            "ready capacity 4",
            "cold starts in flight 6",
            "users queueing 17 (2 at the router)",
            "longest wait 7 s",
            "floor: 10 replicas from 09:00",
            "asks: kvCache 4.6, tokens ?",
            "floor 10 from 09:00 to 18:00",
            "q quit",
        ] {
            assert!(screen.contains(text), "{text:?} is missing\n{screen}");
        }
    }

    #[test]
    fn the_legend_covers_none_of_the_plot() {
        let screen = screen(100, 32);
        let named =
            |name: &str| screen.lines().filter(|line| line.contains(&format!("\u{2501} {name}"))).count();
        for name in ["demand", "required", "ready", "users queue"] {
            assert_eq!(named(name), 1, "{name}\n{screen}");
        }
        let title = screen.lines().position(|line| line.contains("replicas over the last minutes")).unwrap();
        let plot: Vec<&str> =
            screen.lines().skip(title + 1).take_while(|line| !line.starts_with('└')).collect();
        assert!(plot.len() > 10, "{screen}");
        for line in plot.iter().filter(|line| !line.contains("now")) {
            assert!(!line.contains(|c: char| c.is_ascii_lowercase()), "{line}\n{screen}");
        }
    }

    #[test]
    fn a_small_terminal_is_no_reason_to_panic() {
        for (width, height) in [(1, 1), (20, 5), (40, 12), (300, 80)] {
            screen(width, height);
        }
    }
}
