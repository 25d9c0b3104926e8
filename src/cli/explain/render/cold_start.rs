//! How long starts take, as text.

use super::super::style::{Side, Style, Table, Tone, bar, plain, push};
use super::super::view::{ColdStart, Decision, PathStarts};
use super::{heading, seconds};
use crate::serve::words::shortened_by;

/// How wide a stage's bar is, were it the whole start.
const BAR_CELLS: usize = 24;

pub(super) fn cold_start(out: &mut String, decision: &Decision, style: Style) {
    let Some(cold_start) = &decision.cold_start else { return };
    heading(out, "cold start", style);
    push(
        out,
        format_args!(
            "  {} in effect: {}\n",
            seconds(cold_start.in_effect_seconds),
            plain(&cold_start.because)
        ),
    );
    if let Some(likely) = cold_start.paths.iter().find(|starts| Some(starts.path) == cold_start.path) {
        stages(out, likely, style);
    }
    paths(out, cold_start, style);
}

fn stages(out: &mut String, starts: &PathStarts, style: Style) {
    let whole: f64 = starts.stages.iter().map(|stage| stage.p50_seconds).sum();
    let Some(longest) = starts.stages.iter().max_by(|a, b| a.p50_seconds.total_cmp(&b.p50_seconds)) else {
        return;
    };
    if whole <= 0.0 {
        return;
    }
    for stage in starts.stages.iter().filter(|stage| stage.p90_seconds > 0.0) {
        let tone = if stage.stage == longest.stage { Tone::Warning } else { Tone::Good };
        push(
            out,
            format_args!(
                "  {:<11}  {} {:>6}  p90 {}\n",
                stage.stage.name(),
                style.paint(tone, &bar(stage.p50_seconds / whole, BAR_CELLS)),
                seconds(stage.p50_seconds),
                seconds(stage.p90_seconds)
            ),
        );
    }
    push(
        out,
        format_args!("  longest is {}: shortened by {}\n", longest.stage.name(), shortened_by(longest.stage)),
    );
}

fn paths(out: &mut String, cold_start: &ColdStart, style: Style) {
    if cold_start.paths.is_empty() {
        return;
    }
    let mut table = Table::new(&[
        ("path", Side::Left),
        ("p50", Side::Right),
        ("p90", Side::Right),
        ("starts", Side::Right),
        ("unfinished", Side::Right),
        ("", Side::Left),
    ]);
    for starts in &cold_start.paths {
        let expected = cold_start.path == Some(starts.path);
        table.row(
            expected.then_some(Tone::Strong),
            &[
                starts.path.words().to_owned(),
                seconds(starts.p50_seconds),
                seconds(starts.p90_seconds),
                starts.starts.to_string(),
                starts.censored.to_string(),
                if expected { "expected".to_owned() } else { String::new() },
            ],
        );
    }
    table.write(out, style);
}
