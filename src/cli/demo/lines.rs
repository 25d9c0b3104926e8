//! The demo without a terminal: a line an interval of simulated time.

use std::io::Write as _;
use std::time::Duration;

use super::picture::Picture;
use super::session::Session;
use crate::supervise::Signals;

/// Prints lines until the time is over or a signal comes; gives the session back.
pub(super) async fn run(mut session: Session, every: Duration, signals: &mut Signals) -> Session {
    if !told(&header()) {
        return session;
    }
    let clock = session.clock();
    loop {
        let left = session.left();
        if left.is_zero() {
            return session;
        }
        tokio::select! {
            () = clock.sleep(every.min(left)) => {}
            _ = signals.next() => return session,
        }
        if !told(&line(&session.picture())) {
            return session;
        }
    }
}

/// False when nobody reads any more: `demo | head` ends the demo.
fn told(line: &str) -> bool {
    writeln!(std::io::stdout(), "{line}").is_ok()
}

fn header() -> String {
    format!(
        "{:<9} {:>7} {:>6} {:>8} {:>5} {:>8} {:>8} {:>6} {:>5}  {}",
        "time", "req/s", "demand", "required", "ready", "starting", "queueing", "wait", "KV", "because"
    )
}

fn line(picture: &Picture) -> String {
    let (world, scaler) = (&picture.world, &picture.scaler);
    let number = |value: Option<f64>| value.map_or("?".to_owned(), |value| format!("{value:.1}"));
    let behind =
        if picture.falls_behind() { format!("  [running at {:.0}x]", picture.pace) } else { String::new() };
    let held = scaler.held.as_ref().map_or(String::new(), |held| format!("; held by {held}"));
    format!(
        "{:<9} {:>7.1} {:>6} {:>8} {:>5} {:>8} {:>8} {:>5.0}s {:>4.0}%  {}{held}{behind}",
        picture.time(),
        world.arrivals_per_second,
        number(scaler.demand),
        scaler.required.map_or("?".to_owned(), |n| n.to_string()),
        world.supply.ready,
        world.supply.starting,
        world.queueing,
        world.longest_wait_seconds,
        world.kv_usage * 100.0,
        scaler.because,
    )
}
