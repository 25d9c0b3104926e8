//! The simulated engine against itself (single steps), against the scheduler's rules, and against a real vLLM's timings.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

use std::time::Duration;

use keda_vllm_scaler::simulate::engine_model::{EngineEvent, EventKind};
use keda_vllm_scaler::simulate::profile::BLOCK_TOKENS;
use keda_vllm_scaler::simulate::{EngineModel, EngineSettings, Moment, Request, StepLaw};
use proptest::prelude::*;

fn at(seconds: f64) -> Moment {
    Moment::from_seconds(seconds)
}

fn request(id: u64, seconds: f64, input: u32, output: u32) -> Request {
    Request { id, arrived: at(seconds), input, cached: 0, output }
}

/// A small engine, so that blocks, slots and budget all bind.
fn small() -> EngineSettings {
    let mut settings = EngineSettings::new(StepLaw::new(10.0, 50.0, 30.0, 80.0, 5.0), 40 * BLOCK_TOKENS);
    settings.max_num_seqs = 6;
    settings.token_budget = 64;
    settings
}

/// A step takes exactly one second, whatever is in it.
fn a_step_a_second(kv_tokens: u32) -> EngineSettings {
    EngineSettings::new(StepLaw::new(1000.0, 0.0, 0.0, 0.0, 0.0), kv_tokens)
}

fn events(engine: &mut EngineModel) -> Vec<EngineEvent> {
    engine.drain_events().collect()
}

fn when(events: &[EngineEvent], id: u64, kind: EventKind) -> Option<f64> {
    events.iter().find(|e| e.request.id == id && e.kind == kind).map(|e| e.at.seconds())
}

#[test]
fn a_token_comes_out_at_the_end_of_the_step_that_computed_it() {
    let mut engine = EngineModel::new(a_step_a_second(1600), Moment::START);
    engine.arrive(request(1, 0.5, 100, 3), at(0.5));
    engine.advance(at(10.0));
    let events = events(&mut engine);
    assert_eq!(when(&events, 1, EventKind::Admitted), Some(0.5));
    assert_eq!(when(&events, 1, EventKind::FirstToken), Some(1.5));
    assert_eq!(when(&events, 1, EventKind::Finished), Some(3.5));
    assert_eq!(engine.metrics().generation_tokens, 3);
    assert_eq!(engine.metrics().gauges.used_blocks, 0);
}

#[test]
fn an_arrival_is_seen_at_the_beginning_of_the_next_step() {
    let mut engine = EngineModel::new(a_step_a_second(1600), Moment::START);
    engine.arrive(request(1, 0.0, 10, 5), at(0.0));
    engine.arrive(request(2, 0.1, 10, 5), at(0.1));
    engine.advance(at(0.9));
    assert_eq!(engine.in_flight(), 2);
    // The page still shows the end of the last step, of which there was none.
    assert_eq!(engine.metrics().gauges.waiting, 0);
    engine.advance(at(1.0));
    assert_eq!(when(&events(&mut engine), 2, EventKind::Admitted), Some(1.0));
}

#[test]
fn long_prompts_are_computed_in_chunks_of_the_token_budget() {
    let mut settings = a_step_a_second(16_000);
    settings.token_budget = 100;
    let mut engine = EngineModel::new(settings, Moment::START);
    engine.arrive(request(1, 0.0, 250, 1), at(0.0));
    engine.advance(at(10.0));
    assert_eq!(when(&events(&mut engine), 1, EventKind::FirstToken), Some(3.0));
}

#[test]
fn without_room_for_the_whole_prompt_a_request_waits_first_come_first_served() {
    // 10 blocks. The first takes 8; the second needs 4, the third 1, and must not overtake.
    let mut engine = EngineModel::new(a_step_a_second(160), Moment::START);
    engine.arrive(request(1, 0.0, 120, 5), at(0.0));
    engine.arrive(request(2, 0.1, 60, 1), at(0.1));
    engine.arrive(request(3, 0.2, 10, 1), at(0.2));
    engine.advance(at(4.5));
    assert_eq!((engine.metrics().gauges.running, engine.metrics().gauges.waiting), (1, 2));
    engine.advance(at(20.0));
    let events = events(&mut engine);
    assert_eq!(when(&events, 1, EventKind::Finished), Some(5.0));
    assert_eq!(when(&events, 2, EventKind::Admitted), Some(5.0));
    assert_eq!(when(&events, 3, EventKind::Admitted), Some(5.0));
}

#[test]
fn when_blocks_run_out_the_last_running_request_is_preempted_and_computed_again() {
    // 4 blocks: both prompts fill 2 each; the first token past 32 has no block left.
    let mut engine = EngineModel::new(a_step_a_second(64), Moment::START);
    engine.arrive(request(1, 0.0, 31, 4), at(0.0));
    engine.arrive(request(2, 0.0, 31, 4), at(0.0));
    engine.advance(at(100.0));
    let events = events(&mut engine);
    assert_eq!(engine.metrics().preemptions, 1);
    assert!(when(&events, 1, EventKind::Finished) < when(&events, 2, EventKind::Finished));
    assert_eq!(engine.metrics().finished, 2);
    assert_eq!(engine.metrics().generation_tokens, 8);
    // Prompt tokens and the first token count once, however often they are computed.
    assert_eq!(engine.metrics().prompt_tokens, 62);
    assert_eq!(engine.metrics().time_to_first_token.count(), 2);
    assert_eq!(engine.metrics().request_preemptions.sum(), 1);
}

#[test]
fn a_request_longer_than_the_model_allows_is_refused() {
    let mut engine = EngineModel::new(a_step_a_second(160), Moment::START);
    engine.arrive(request(1, 0.0, 150, 11), at(0.0));
    engine.arrive(request(2, 0.0, 0, 1), at(0.0));
    assert!(events(&mut engine).iter().all(|e| e.kind == EventKind::Refused));
    assert_eq!(engine.in_flight(), 0);
}

#[test]
fn cached_prompt_tokens_take_blocks_but_no_computing() {
    let mut settings = a_step_a_second(16_000);
    settings.law = StepLaw::new(0.0, 1000.0, 0.0, 0.0, 0.0);
    let mut engine = EngineModel::new(settings, Moment::START);
    engine.arrive(Request { cached: 80, ..request(1, 0.0, 100, 1) }, at(0.0));
    engine.advance(at(1.0));
    let metrics = engine.metrics();
    assert_eq!(when(&events(&mut engine.clone()), 1, EventKind::FirstToken), Some(0.02));
    assert_eq!((metrics.prompt_tokens, metrics.cached_prompt_tokens), (100, 80));
    assert_eq!((metrics.prefix_queries, metrics.prefix_hits), (100, 80));
}

#[test]
fn under_more_load_than_it_can_serve_kv_saturates_and_requests_are_preempted() {
    let mut engine = EngineModel::new(EngineSettings::rtx4090_8b(), Moment::START);
    for n in 0..600 {
        let seconds = f64::from(n) * 0.1;
        engine.arrive(request(u64::from(n as u32), seconds, 1155, 400), at(seconds));
    }
    engine.advance(at(60.0));
    let gauges = engine.metrics().gauges;
    let usage = f64::from(gauges.used_blocks) / f64::from(engine.settings().usable_blocks());
    assert!(usage > 0.9, "{usage}");
    assert!(gauges.waiting > 200, "{}", gauges.waiting);
    assert!(engine.metrics().preemptions > 10, "{}", engine.metrics().preemptions);
}

#[test]
fn what_waits_is_counted_as_it_stands_preempted_requests_included() {
    let mut engine = EngineModel::new(small(), Moment::START);
    for n in 0..60_u32 {
        let sent = f64::from(n) * 0.05;
        engine.advance(at(sent));
        engine.arrive(request(u64::from(n), sent, 50 + n % 40, 60 + n % 40), at(sent));
        let never = engine.never_admitted_requests().count();
        assert_eq!(engine.never_admitted_count(), never);
        let prompts: u64 = engine.never_admitted_requests().map(|request| u64::from(request.input)).sum();
        assert!(engine.waiting_prompt_tokens() >= prompts);
        assert!(never > 0 || engine.metrics().preemptions > 0 || engine.waiting_prompt_tokens() == 0);
    }
    engine.advance(at(3_600.0));
    assert!(engine.metrics().preemptions > 0, "or this shows nothing");
    assert_eq!((engine.never_admitted_count(), engine.waiting_prompt_tokens()), (0, 0));
}

#[test]
fn an_aborted_engine_accounts_for_every_request() {
    let mut engine = EngineModel::new(small(), Moment::START);
    for id in 0..40 {
        engine.arrive(request(id, 0.0, 50, 60), at(0.0));
    }
    engine.advance(at(3.0));
    engine.abort(at(3.0));
    let events = events(&mut engine);
    let count = |kind| events.iter().filter(|e| e.kind == kind).count();
    assert!(count(EventKind::Finished) > 0 && count(EventKind::Aborted) > 0);
    assert_eq!(count(EventKind::Finished) + count(EventKind::Aborted), 40);
    assert_eq!(engine.in_flight(), 0);
    assert_eq!(engine.metrics().gauges.used_blocks, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn macro_steps_and_single_steps_are_equal_to_the_last_digit(
        arrivals in prop::collection::vec((0_u32..3000, 1_u32..300, 1_u32..250, 0_u32..100), 1..60),
        looks in prop::collection::vec(0_u32..20_000, 0..20),
    ) {
        let mut arrivals: Vec<_> = arrivals;
        arrivals.sort_unstable();
        let mut fast = EngineModel::new(small(), Moment::START);
        let mut slow = EngineModel::new(small(), Moment::START).with_single_steps();
        let mut looks: Vec<_> = looks;
        looks.sort_unstable();
        let mut looks = looks.into_iter().peekable();
        let mut refused = 0;
        for (id, (millis, input, output, cached)) in arrivals.iter().enumerate() {
            let when = at(f64::from(*millis) / 1000.0);
            let request = Request { id: id as u64, arrived: when, input: *input, cached: *cached, output: *output };
            while let Some(look) = looks.next_if(|look| look < millis) {
                let moment = at(f64::from(look) / 1000.0);
                fast.advance(moment);
                slow.advance(moment);
                prop_assert_eq!(fast.metrics(), slow.metrics());
                if look % 3 == 0 {
                    fast.refuse(Duration::from_millis(7), moment);
                    slow.refuse(Duration::from_millis(7), moment);
                }
            }
            fast.arrive(request, when);
            slow.arrive(request, when);
        }
        for look in looks {
            let look = at(f64::from(look) / 1000.0);
            fast.advance(look);
            slow.advance(look);
            prop_assert_eq!(fast.metrics(), slow.metrics());
        }
        fast.advance(at(10_000.0));
        slow.advance(at(10_000.0));
        prop_assert_eq!(fast.metrics(), slow.metrics());
        let (fast, slow) = (events(&mut fast), events(&mut slow));
        prop_assert_eq!(&fast, &slow);
        // Nobody is lost.
        refused += fast.iter().filter(|e| e.kind == EventKind::Refused).count();
        let finished = fast.iter().filter(|e| e.kind == EventKind::Finished).count();
        prop_assert_eq!(finished + refused, arrivals.len());
    }
}

/// One request of the real run, seconds.
struct Measured {
    input: u32,
    output: u32,
    queued: f64,
    first_token: f64,
    last_token: f64,
}

fn measured() -> Vec<Measured> {
    let text = include_str!("fixtures/simulate/rtx4090-llama-3.1-8b.csv");
    text.lines()
        .skip(1)
        .map(|line| {
            let mut fields = line.split(',').map(|field| field.parse::<f64>().unwrap());
            let mut next = || fields.next().unwrap();
            Measured {
                input: next() as u32,
                output: next() as u32,
                queued: next(),
                first_token: next(),
                last_token: next(),
            }
        })
        .collect()
}

fn percentile(mut values: Vec<f64>, share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share).round() as usize]
}

#[test]
fn a_real_vllm_run_is_reproduced_within_ten_per_cent() {
    let real = measured();
    let mut settings = EngineSettings::rtx4090_8b();
    settings.max_model_len = 8192;
    let mut engine = EngineModel::new(settings, Moment::START);
    for (id, r) in real.iter().enumerate() {
        engine.arrive(request(id as u64, r.queued, r.input, r.output), at(r.queued));
    }
    engine.advance(at(1000.0));
    let events = events(&mut engine);
    let first: Vec<f64> =
        (0..real.len()).map(|id| when(&events, id as u64, EventKind::FirstToken).unwrap()).collect();
    let last: Vec<f64> =
        (0..real.len()).map(|id| when(&events, id as u64, EventKind::Finished).unwrap()).collect();
    let outputs = |r: &Measured| f64::from(r.output.max(2) - 1);
    let simulated_ttft = real.iter().zip(&first).map(|(r, t)| t - r.queued).collect::<Vec<_>>();
    let real_ttft = real.iter().map(|r| r.first_token - r.queued).collect::<Vec<_>>();
    let simulated_tpot =
        real.iter().zip(first.iter().zip(&last)).map(|(r, (f, l))| (l - f) / outputs(r)).collect::<Vec<_>>();
    let real_tpot = real.iter().map(|r| (r.last_token - r.first_token) / outputs(r)).collect::<Vec<_>>();
    println!("preemptions: {}", engine.metrics().preemptions);
    for (name, simulated, real) in [("TTFT", simulated_ttft, real_ttft), ("TPOT", simulated_tpot, real_tpot)]
    {
        for share in [0.5, 0.9, 0.99] {
            let (s, r) = (percentile(simulated.clone(), share), percentile(real.clone(), share));
            println!(
                "{name} p{}: simulated {s:.4} s, real {r:.4} s, {:+.1} %",
                share * 100.0,
                (s / r - 1.0) * 100.0
            );
            assert!((s / r - 1.0).abs() < 0.10, "{name} p{}: {s} against {r}", share * 100.0);
        }
    }
}
