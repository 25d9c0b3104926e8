//! What holds for every tier, whatever it does.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

#[path = "common/timeline.rs"]
mod timeline;

use std::time::Duration;

use chrono::TimeDelta;
use keda_vllm_scaler::decision::policy::{Combine, DeadBand, InsideBand, Step};
use keda_vllm_scaler::decision::{
    ActivatorObservation, Answer, CountedTotals, Memory, Observation, Policy, ReplicaLoad, ReplicaState,
    TierLoad, decide,
};
use keda_vllm_scaler::quantile::Quantile;
use keda_vllm_scaler::supply::{Stage, Start};
use proptest::prelude::*;
use timeline::{doubles_in, floor, instant, policy, replica};

/// Any number a page may lead to, broken ones included.
fn number(most: f64) -> impl Strategy<Value = Option<f64>> {
    prop_oneof![
        8 => (0.0..=most).prop_map(Some),
        2 => Just(Some(0.0)),
        2 => Just(None),
        1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(-1.0), Just(1e300)].prop_map(Some),
    ]
}

fn load() -> impl Strategy<Value = ReplicaLoad> {
    (number(256.0), number(500.0), number(1.0), number(20_000.0), number(2_000.0), number(20.0), number(20.0))
        .prop_map(|(running, waiting, kv_usage, input, output, finished, rejected)| ReplicaLoad {
            running,
            waiting,
            kv_usage,
            kv_tokens: Some(400_000.0),
            uncached_input_tokens_per_second: input,
            output_tokens_per_second: output,
            requests_per_second: finished,
            rejected_per_second: rejected,
            ..ReplicaLoad::default()
        })
}

fn state() -> impl Strategy<Value = ReplicaState> {
    prop_oneof![
        6 => Just(ReplicaState::Ready),
        1 => Just(ReplicaState::Starting),
        1 => Just(ReplicaState::Blocked),
        1 => Just(ReplicaState::Terminating),
        1 => Just(ReplicaState::Asleep),
        2 => Just(ReplicaState::Silent),
    ]
}

/// A start around the time of the tests, in any order that clocks may give it.
fn start() -> impl Strategy<Value = Start> {
    (-600_i64..4_000, proptest::array::uniform3(proptest::option::of(-5_i64..900)), 0.0..200.0, 0_u32..2)
        .prop_map(|(age, [scheduled, ran, ready], init_seconds, restarts)| {
            let created = instant("06:00") - TimeDelta::seconds(age);
            let after = |seconds: Option<i64>| seconds.map(|seconds| created + TimeDelta::seconds(seconds));
            Start {
                created,
                scheduled: after(scheduled),
                initialised: None,
                init_seconds,
                container_started: after(ran),
                ready: after(ready),
                stage: None,
                blocked: None,
                restarts,
            }
        })
}

fn as_its_state_is(start: Start, state: ReplicaState) -> Start {
    let starts = matches!(state, ReplicaState::Starting | ReplicaState::Blocked);
    Start { ready: start.ready.filter(|_| !starts), stage: starts.then_some(Stage::Loading), ..start }
}

prop_compose! {
    fn observation()(
        replicas in proptest::collection::vec((state(), load(), proptest::option::of(start())), 0..12),
        unknown in proptest::bool::weighted(0.1),
        authoritative in any::<bool>(),
        current in proptest::option::of(0_u32..60),
        growth in number(30.0),
        input in number(4_000.0),
        output in number(1_000.0),
        queue_time in number(20.0),
        activator in proptest::option::of(number(200.0)),
        spans in proptest::collection::vec(proptest::option::of(1_u64..60), 12),
    ) -> Observation {
        // A p95 is of requests that finished: a tier that does nothing for longer than its window has none.
        let idle = replicas.iter().all(|(_, load, _)| load.running == Some(0.0) && !load.waiting.is_some_and(|n| n > 0.0));
        let replicas = replicas
            .into_iter()
            .enumerate()
            .map(|(n, (state, load, start))| {
                let mut replica = replica(&format!("r{n}"), state);
                replica.start = start.map(|start| as_its_state_is(start, state));
                if replica.load.is_some() {
                    let rates_over = spans[n].map(Duration::from_secs);
                    replica.load = Some(ReplicaLoad { rates_over, ..load });
                }
                replica
            })
            .collect();
        Observation {
            replicas,
            replicas_unknown: unknown.then(|| "nobody knows".to_owned()),
            authoritative,
            current,
            scale: None,
            load: TierLoad {
                waiting_growth_per_second: growth,
                rates_over: spans.iter().flatten().max().copied().map(Duration::from_secs),
                mean_input_tokens: input,
                mean_output_tokens: output,
                queue_time_p95_seconds: queue_time.filter(|_| !idle).map(Quantile::between),
                ..TierLoad::default()
            },
            activator: activator.map(|queued| ActivatorObservation { queued, age: None, error: None }),
            totals: CountedTotals::default(),
        }
    }
}

prop_compose! {
    fn any_policy()(
        min in 0_u32..4,
        span in 0_u32..50,
        weighted in any::<bool>(),
        weights in proptest::array::uniform5(prop_oneof![Just(0.0), 0.1_f64..3.0]),
        ramp in any::<bool>(),
        floors in proptest::collection::vec((0_u32..24, 1_u32..24, 0_u32..12), 0..4),
        share in 0.0_f64..=1.0,
        exceed in any::<bool>(),
        tolerance in prop_oneof![Just(0.0), Just(0.1), 0.0_f64..0.5],
    ) -> Policy {
        let mut policy = policy();
        policy.min = min;
        policy.max = (min + span).max(1);
        policy.combine = if weighted { Combine::Weighted } else { Combine::Max };
        policy.signals.kv_cache.weight = weights[0].max(0.1);
        policy.signals.tokens.weight = weights[1];
        policy.signals.waiting.weight = weights[2];
        policy.signals.batch.weight = weights[3];
        policy.signals.latency.weight = weights[4];
        policy.signals.latency.queue_time_p95 = Some(Duration::from_secs(2));
        policy.max_ramp = ramp.then(|| doubles_in(120));
        policy.floors = floors
            .into_iter()
            .map(|(start, hours, replicas)| {
                floor("f", &format!("0 {start} * * *"), &format!("30 {} * * *", (start + hours) % 24), replicas)
            })
            .collect();
        policy.scale_down.max_step = Step::Share(share);
        let inside = if exceed { InsideBand::Exceed } else { InsideBand::Stay };
        policy.dead_band = DeadBand { tolerance, inside };
        policy
    }
}

/// Rounds with the seconds that pass before each; some jump.
fn rounds() -> impl Strategy<Value = Vec<(i64, Observation)>> {
    let wait = prop_oneof![10 => 0_i64..60, 1 => -200_000_i64..200_000];
    proptest::collection::vec((wait, observation()), 1..24)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn every_answer_is_bounded_finite_and_repeatable(
        policy in any_policy(), rounds in rounds(), fresh_start in any::<bool>()
    ) {
        let mut now = instant("06:00");
        let mut memory = if fresh_start { Memory::started(now) } else { Memory::default() };
        for (wait, seen) in rounds {
            now += TimeDelta::seconds(wait);
            memory.learn(&policy, &seen, now);
            let decision = decide(&policy, &seen, &memory, now);
            prop_assert_eq!(&decision, &decide(&policy, &seen, &memory, now), "twice the same");

            let restarted = Memory::from_bytes(&memory.to_bytes()).unwrap();
            prop_assert_eq!(&decision, &decide(&policy, &seen, &restarted, now), "the same after a restart");

            if let Answer::Required(n) = decision.answer {
                prop_assert!(n <= policy.max && n >= policy.min, "{n}");
                prop_assert!(decision.before_dead_band().unwrap() <= n);
            }
            let numbers = decision.asks.iter().map(|ask| ask.replicas).chain([decision.demand, decision.ahead]);
            prop_assert!(numbers.flatten().all(|n| n.is_finite() && n >= 0.0));
            let cold_start = decision.cold_start.in_effect;
            prop_assert!((Duration::from_secs(1)..=Duration::from_hours(1)).contains(&cold_start), "{cold_start:?}");
            prop_assert_eq!(decision.lead, policy.lead_with(cold_start));
            let words = decision.asks.iter().map(|ask| &ask.because).chain([&decision.winner.because, &decision.binding().because]);
            for words in words {
                prop_assert!(!words.is_empty() && !words.contains("NaN") && !words.contains("inf "), "{words}");
            }
            memory.record(&decision);
            prop_assert_eq!(Memory::from_bytes(&memory.to_bytes()).unwrap().to_bytes(), memory.to_bytes());
        }
    }

    /// From one state on, one tier is seen whole and the other loses sight of some replicas and some signals. With
    /// everything else equal, the second is never answered less than the first, for as long as it is answered.
    #[test]
    fn losing_sight_of_replicas_or_signals_never_lowers_an_answer(
        policy in any_policy(), seen in observation(), lost in any::<u16>(), signals in 0_u8..64
    ) {
        let mut policy = policy;
        // The dead band answers the HPA, not the load.
        policy.dead_band.tolerance = 0.0;
        let mut now = instant("06:00");
        let mut seen = seen;
        seen.replicas_unknown = None;
        let mut whole = Memory::default();
        for _ in 0..3 {
            now += TimeDelta::seconds(5);
            whole.learn(&policy, &seen, now);
            let decision = decide(&policy, &seen, &whole, now);
            whole.record(&decision);
        }
        let Some(last) = decide(&policy, &seen, &whole, now).required() else { return Ok(()) };
        let mut partial = whole.clone();
        let mut half_seen = seen.clone();
        for (n, replica) in half_seen.replicas.iter_mut().enumerate() {
            if replica.state == ReplicaState::Ready && lost & (1 << n) != 0 {
                replica.state = ReplicaState::Silent;
                replica.load = None;
            }
            let Some(load) = &mut replica.load else { continue };
            for (bit, field) in [
                &mut load.kv_usage,
                &mut load.running,
                &mut load.waiting,
                &mut load.output_tokens_per_second,
                &mut load.rejected_per_second,
            ]
            .into_iter()
            .enumerate()
            {
                if signals & (1 << bit) != 0 {
                    *field = None;
                }
            }
        }
        if signals & 32 != 0 {
            half_seen.load.queue_time_p95_seconds = None;
        }
        for _ in 0..80 {
            now += TimeDelta::seconds(5);
            let answer = |memory: &mut Memory, seen: &Observation| {
                memory.learn(&policy, seen, now);
                let decision = decide(&policy, seen, memory, now);
                memory.record(&decision);
                decision
            };
            let of_whole = answer(&mut whole, &seen);
            let of_partial = answer(&mut partial, &half_seen);
            if let (Some(more), Some(less)) = (of_whole.required(), of_partial.required()) {
                prop_assert!(less >= more.min(last), "{less} against {more}: {of_partial:#?} against {of_whole:#?}");
            }
        }
    }

    /// Whatever happens, an answer falls only to where the load of the last hold has been, by steps, and never while
    /// too little is known.
    #[test]
    fn an_answer_never_falls_without_knowledge(policy in any_policy(), rounds in rounds()) {
        let mut policy = policy;
        policy.floors.clear();
        policy.dead_band.tolerance = 0.0;
        let mut now = instant("06:00");
        let mut memory = Memory::default();
        let mut last = None;
        for (wait, seen) in rounds {
            now += TimeDelta::seconds(wait.abs());
            memory.learn(&policy, &seen, now);
            let decision = decide(&policy, &seen, &memory, now);
            memory.record(&decision);
            let known = decision.known;
            if let (Some(answer), Some(last)) = (decision.required(), last)
                && (seen.replicas_unknown.is_some() || known.known * 2 < known.expected)
                && last > 0
            {
                prop_assert!(answer >= last, "{answer} after {last}: {decision:#?}");
            }
            last = decision.required().or(last);
        }
    }
}
