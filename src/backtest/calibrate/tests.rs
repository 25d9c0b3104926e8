//! Laws that are known are found again; real runs of vLLM are met within what is promised.

use super::*;

/// A made-up log: what an engine of this law would have served.
fn made_up(settings: EngineSettings, requests: u32, gap_seconds: f64) -> RequestLog {
    let mut logged: Vec<LoggedRequest> = (0..requests)
        .map(|n| LoggedRequest {
            arrived_seconds: f64::from(n) * gap_seconds,
            input: 100 + n * 7919 % 1900,
            output: 20 + n * 104_729 % 300,
            ..LoggedRequest::default()
        })
        .collect();
    let measured = vec![Times::default(); logged.len()];
    let (times, _) =
        Trial { requests: &logged, measured: &measured, until: f64::INFINITY }.simulated(settings).unwrap();
    for (request, times) in logged.iter_mut().zip(times) {
        request.first_token_seconds = request.arrived_seconds + times.first_token;
        request.last_token_seconds = request.arrived_seconds + times.end_to_end;
    }
    RequestLog { requests: logged }
}

#[track_caller]
fn within(calibration: &Calibration, most: f64) {
    for score in &calibration.scores {
        assert!(score.error.abs() <= most, "{score:?}\n{calibration:#?}");
    }
}

#[test]
fn the_law_behind_a_log_is_found_again() {
    let settings = EngineSettings::rtx4090_8b();
    let log = made_up(settings, 120, 0.28);
    let stated = StatedLimits { kv_tokens: Some(41_408), max_num_seqs: Some(256), token_budget: Some(2048) };
    let found = calibrate(&log, stated).unwrap();
    within(&found, 0.03);
    assert_eq!(found.max_num_seqs, Limit { value: Some(256), known: Known::Stated });
    assert_eq!(found, calibrate(&log, stated).unwrap(), "the same log gives the same law");
    let prefill = found.input_tokens_per_second / settings.input_tokens_per_second();
    assert!((prefill - 1.0).abs() < 0.1, "{prefill}");
}

#[test]
fn a_log_that_can_t_teach_is_refused() {
    let log = made_up(EngineSettings::rtx4090_8b(), 20, 1.0);
    assert!(calibrate(&log, StatedLimits::default()).unwrap_err().contains("at least 40"));
    let log = made_up(EngineSettings::rtx4090_8b(), 60, 1.0);
    let tiny = StatedLimits { kv_tokens: Some(512), ..StatedLimits::default() };
    assert!(calibrate(&log, tiny).unwrap_err().contains("doesn't fit the KV cache"));
}

#[test]
fn a_law_that_is_known_is_scored_on_another_run() {
    let log = made_up(EngineSettings::rtx4090_8b(), 60, 0.5);
    assert!(score(&log, EngineSettings::rtx4090_8b()).unwrap().iter().all(|score| score.error.abs() < 1e-9));
    assert!(score(&log, EngineSettings::h100_8b()).unwrap().iter().any(|score| score.error < -0.3));
}
