//! The table at the end: what this run came to, beside the same arrivals under a plain KV target. Pure.

use std::fmt::Write as _;

use crate::simulate::world::Outcome;
use crate::units::format_span;

/// A row's name, and how to fill it.
type Row = (&'static str, fn(&Outcome) -> String);

/// The table; without a rival its column is empty.
pub(super) fn table(ours: &Outcome, rival: Option<&Outcome>) -> String {
    let seconds = |o: &Outcome| o.first_token_p95_seconds.map_or("-".to_owned(), |s| format!("{s:.2} s"));
    let rows: [Row; 8] = [
        ("queueing minutes *", |o| o.queueing_minutes.to_string()),
        ("GPU-hours", |o| format!("{:.2}", o.gpu_hours)),
        ("time to first token, p95", seconds),
        ("replica starts", |o| o.starts.to_string()),
        ("requests", |o| o.requests.to_string()),
        ("  finished", |o| o.finished.to_string()),
        ("  still in flight", |o| o.in_flight.to_string()),
        ("  aborted or refused", |o| (o.aborted + o.refused).to_string()),
    ];
    let span = format_span(whole(ours));
    let mut table = format!("{span:<26} {:>14} {:>20}\n", "this scaler", "plain KV target **");
    for (name, value) in rows {
        let rival = rival.map_or("-".to_owned(), value);
        // Writing to a String can't fail.
        let written = writeln!(table, "{name:<26} {:>14} {rival:>20}", value(ours));
        debug_assert!(written.is_ok());
    }
    table.push_str(
        "\n*  minutes in which a request had been queued for more than 5 s\n\
         ** an HPA on mean KV cache usage of 80 %, defaults of KEDA and Kubernetes, scraped every 15 s\n",
    );
    table
}

/// What to say when the machine did not keep the speed.
pub(super) fn pace_note(slowest: f64, wished: f64) -> Option<String> {
    (slowest < wished * 0.9).then(|| {
        format!(
            "note: this machine ran at {slowest:.0}x at its slowest, below --speed {wished}; \
             try a lower speed before judging the numbers"
        )
    })
}

fn whole(outcome: &Outcome) -> std::time::Duration {
    std::time::Duration::from_secs(outcome.span.as_secs())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_table_has_both_policies_side_by_side() {
        let ours = Outcome {
            span: Duration::from_millis(1_800_400),
            queueing_minutes: 0,
            gpu_hours: 4.256,
            first_token_p95_seconds: Some(0.4321),
            starts: 9,
            requests: 33_000,
            finished: 32_900,
            aborted: 0,
            refused: 1,
            in_flight: 99,
        };
        let rival = Outcome { queueing_minutes: 14, first_token_p95_seconds: None, ..ours };
        let table = table(&ours, Some(&rival));
        let row = |name: &str| {
            let line = table.lines().find(|line| line.contains(name)).unwrap();
            line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(row("queueing minutes *")[3..], ["0", "14"]);
        assert_eq!(row("GPU-hours")[1..], ["4.26", "4.26"]);
        assert_eq!(row("first token")[5..], ["0.43", "s", "-"]);
        assert!(table.starts_with("30m"));
    }

    #[test]
    fn a_slow_machine_is_told() {
        assert!(pace_note(43.0, 60.0).unwrap().contains("43x"));
        assert_eq!(pace_note(59.0, 60.0), None);
    }
}
