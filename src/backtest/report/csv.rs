//! The result as CSV (RFC 4180): a line a policy, the bound the first.

use std::fmt::Write as _;

use super::{Report, Row};
use crate::backtest::score::QueueTimes;

/// The first line.
const HEADER: &str = "policy,gpu_hours,ratio,late_work,late_minutes_a_week,starts,\
    queue_p50_seconds,queue_p95_seconds,queue_p99_seconds,\
    first_token_p50_seconds,first_token_p95_seconds,first_token_p99_seconds,lost_requests";

impl Report {
    /// A line a policy, with all digits. What a policy's model doesn't have is empty.
    #[must_use]
    pub fn csv(&self) -> String {
        let mut out = format!("{HEADER}\nclairvoyant bound,{},1,0,0,,,,,,,,\n", self.bound_gpu_hours);
        for row in &self.policies {
            line(&mut out, row);
        }
        out
    }
}

fn line(out: &mut String, row: &Row) {
    let score = &row.score;
    let queue = times(Some(score.queue_seconds));
    let (first_token, lost) = (times(score.first_token), score.lost.map(|lost| lost.to_string()));
    // Writing to a String doesn't fail.
    writeln!(
        out,
        "{},{},{},{},{},{},{queue},{first_token},{}",
        quoted(&row.policy),
        score.gpu_hours,
        row.ratio,
        score.late_work,
        score.late_minutes_a_week,
        score.starts,
        lost.unwrap_or_default()
    )
    .unwrap_or_default();
}

fn times(times: Option<QueueTimes>) -> String {
    times.map_or_else(|| ",,".to_owned(), |QueueTimes { p50, p95, p99 }| format!("{p50},{p95},{p99}"))
}

fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backtest::score::Score;

    #[test]
    fn names_with_commas_are_quoted_and_every_line_has_all_columns() {
        assert_eq!(quoted("HPA, work at 80 %"), "\"HPA, work at 80 %\"");
        assert_eq!(quoted("a \"b\""), "\"a \"\"b\"\"\"");
        let row = Row { policy: "plain".to_owned(), ratio: 1.5, score: Score::default(), record: None };
        let mut out = String::new();
        line(&mut out, &row);
        assert_eq!(out.matches(',').count(), HEADER.matches(',').count(), "{out}");
        assert_eq!("clairvoyant bound,1,1,0,0,,,,,,,,".matches(',').count(), HEADER.matches(',').count());
    }
}
