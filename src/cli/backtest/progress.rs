//! How far it is, and how long it will take, on standard error: a bar on a terminal, elsewhere a line now and then.

use std::io::IsTerminal as _;
use std::sync::mpsc;
use std::time::Duration;

use tokio::time::Instant;

use crate::cli::print::{aside, aside_in_line};
use crate::units::format_span;

/// How often a bar is drawn.
const DRAWN_EVERY: Duration = Duration::from_millis(250);

/// How often a line is written where there is no terminal, which nothing can be drawn over.
const WRITTEN_EVERY: Duration = Duration::from_secs(30);

/// Before that share nobody can say how long it will take.
const FIRST_GUESS: f64 = 0.02;

/// Signs of the bar.
const WIDE: usize = 30;

/// Runs, and tells how far it is.
pub(super) fn with_progress<T>(progress: impl Fn() -> f64 + Sync, run: impl FnOnce() -> T) -> T {
    let (ended, running) = mpsc::channel::<()>();
    let progress = &progress;
    let tell = if std::io::stderr().is_terminal() { draw } else { write };
    std::thread::scope(|scope| {
        scope.spawn(move || tell(&running, progress));
        let played = run();
        drop(ended);
        played
    })
}

/// Until the sender is gone.
fn draw(running: &mpsc::Receiver<()>, progress: &dyn Fn() -> f64) {
    let (begun, mut longest) = (Instant::now(), 0);
    while running.recv_timeout(DRAWN_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
        let text = bar(progress(), begun.elapsed());
        longest = longest.max(text.len());
        aside_in_line(format_args!("\r{text:longest$}"));
    }
    aside_in_line(format_args!("\r{:longest$}\r", ""));
}

/// Until the sender is gone.
fn write(running: &mpsc::Receiver<()>, progress: &dyn Fn() -> f64) {
    let begun = Instant::now();
    while running.recv_timeout(WRITTEN_EVERY) == Err(mpsc::RecvTimeoutError::Timeout) {
        aside(format_args!("{}", bar(progress(), begun.elapsed())));
    }
}

fn bar(share: f64, elapsed: Duration) -> String {
    let full = (share * WIDE as f64).round() as usize;
    let bar = format!("{}{}", "#".repeat(full.min(WIDE)), "-".repeat(WIDE.saturating_sub(full)));
    let mut text = format!("playing [{bar}] {:3.0} %", share * 100.0);
    if share >= FIRST_GUESS {
        let left = elapsed.as_secs_f64() * (1.0 - share) / share;
        let left = Duration::from_secs(left.ceil() as u64);
        text = format!("{text}, {} left", format_span(left));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_left_follows_from_the_share_that_is_done() {
        let second = Duration::from_secs(10);
        assert_eq!(bar(0.25, second), "playing [########----------------------]  25 %, 30s left");
        assert_eq!(bar(0.0, second), "playing [------------------------------]   0 %");
        assert_eq!(bar(1.0, second), "playing [##############################] 100 %, 0s left");
    }
}
