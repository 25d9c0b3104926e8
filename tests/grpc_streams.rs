//! The streams and the waits, minute by minute on paused time, without a socket.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside their functions")]

#[path = "common/grpc.rs"]
mod grpc;
#[path = "common/published.rs"]
mod published;

use std::task::Poll;
use std::time::Duration;

use futures_util::{StreamExt, poll};
use grpc::{asker, metrics_of};
use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::decision::Answer;
use keda_vllm_scaler::proto::external_scaler_server::ExternalScaler;
use keda_vllm_scaler::proto::{IsActiveResponse, ScaledObjectRef};
use keda_vllm_scaler::serve::external_scaler::Scaler;
use keda_vllm_scaler::snapshot::Published;
use keda_vllm_scaler::telemetry::Counters;
use proptest::prelude::*;
use published::{publisher, tier};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::codegen::BoxStream;
use tonic::{Code, Request, Status};

const CHAT: &[(&str, &str)] = &[("tier", "chat")];

fn scaler(published: &Published, stop: &CancellationToken) -> Scaler {
    let scaler = Scaler::new(published.clone(), Clock::system(), Counters::default(), stop.clone());
    let waking = scaler.clone();
    tokio::spawn(async move { waking.wake_streams().await });
    scaler
}

async fn open(scaler: &Scaler, asker: ScaledObjectRef) -> BoxStream<IsActiveResponse> {
    scaler.stream_is_active(Request::new(asker)).await.unwrap().into_inner()
}

/// Lets time pass, and counts what is pushed meanwhile.
async fn pushes_within(pushes: &mut BoxStream<IsActiveResponse>, span: Duration) -> usize {
    let until = Instant::now() + span;
    let mut count = 0;
    while let Ok(push) = tokio::time::timeout_at(until, pushes.next()).await {
        let Some(push) = push else { break };
        assert!(push.unwrap().result, "false deactivates the object in KEDA before 2.18");
        count += 1;
    }
    count
}

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[tokio::test(start_paused = true)]
async fn true_is_pushed_at_once_and_then_on_a_heartbeat() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 3);
    let mut pushes = open(&scaler(&published, &CancellationToken::new()), asker(CHAT)).await;
    assert_eq!(pushes_within(&mut pushes, Duration::ZERO).await, 1, "at once");
    assert_eq!(pushes_within(&mut pushes, seconds(10)).await, 0, "no more than one in ten seconds");
    assert_eq!(pushes_within(&mut pushes, seconds(10)).await, 1, "the heartbeat");
    assert!((2..=6).contains(&pushes_within(&mut pushes, seconds(60)).await));
}

#[tokio::test(start_paused = true)]
async fn streams_that_were_opened_together_don_t_send_together() {
    const STREAMS: usize = 400;
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 3);
    let scaler = scaler(&published, &CancellationToken::new());
    let mut second_pushes = Vec::new();
    for _ in 0..STREAMS {
        let mut pushes = open(&scaler, asker(CHAT)).await;
        assert_eq!(pushes_within(&mut pushes, Duration::ZERO).await, 1, "at once");
        second_pushes.push(tokio::spawn(async move {
            pushes.next().await.unwrap().unwrap();
            Instant::now()
        }));
    }
    let began = Instant::now();
    let mut in_second = [0; 21];
    for push in second_pushes {
        in_second[usize::try_from((push.await.unwrap() - began).as_secs()).unwrap()] += 1;
    }
    // Ten seconds, 40 a second on the average: 80 are six standard deviations off.
    assert!(in_second.iter().all(|pushes| *pushes < 80), "{in_second:?}");
}

#[tokio::test(start_paused = true)]
async fn an_edge_of_every_tier_at_once_reaches_every_stream_within_a_second() {
    const TIERS: usize = 1000;
    let (mut control_loop, published) = publisher();
    let names: Vec<_> = (0..TIERS).map(|n| format!("tier-{n}")).collect();
    for name in &names {
        control_loop.required(&tier(name), 0);
    }
    let scaler = scaler(&published, &CancellationToken::new());
    let mut waiting = Vec::new();
    for name in &names {
        let mut pushes = open(&scaler, asker(&[("tier", name)])).await;
        assert!(still_open(&mut pushes).await);
        waiting.push(tokio::spawn(async move { pushes_within(&mut pushes, seconds(1)).await }));
    }
    // The watcher has looked, and every stream sleeps.
    tokio::time::sleep(Duration::from_millis(100)).await;
    let (answers, at) = (names.iter().map(|name| tier(name)), control_loop.clock.now());
    let answers: Vec<_> = answers
        .map(|tier| {
            (tier.clone(), published::status(published::policy(&tier), Answer::Required(1), at).into())
        })
        .collect();
    control_loop.publish(|snapshot| snapshot.tiers.extend(answers));
    for pushes in waiting {
        assert_eq!(pushes.await.unwrap(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn steady_publishing_pushes_nothing_beyond_the_heartbeat() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 3);
    let mut pushes = open(&scaler(&published, &CancellationToken::new()), asker(CHAT)).await;
    let mut count = 0;
    for second in 0..59 {
        control_loop.required(&tier("chat"), 3 + second % 5);
        control_loop.required(&tier("other"), second % 2);
        count += pushes_within(&mut pushes, seconds(1)).await;
    }
    assert!((3..=6).contains(&count), "one at once and one in 10 to 20 seconds: {count}");
}

#[tokio::test(start_paused = true)]
async fn each_edge_is_pushed_and_nothing_while_inactive() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 0);
    let mut pushes = open(&scaler(&published, &CancellationToken::new()), asker(CHAT)).await;
    assert_eq!(pushes_within(&mut pushes, seconds(300)).await, 0, "idle");
    for _ in 0..3 {
        control_loop.required(&tier("chat"), 1);
        assert_eq!(pushes_within(&mut pushes, seconds(1)).await, 1, "woken within a second");
        control_loop.required(&tier("chat"), 0);
        assert_eq!(pushes_within(&mut pushes, seconds(5)).await, 0);
    }
    control_loop.unknown(&tier("chat"), "silent");
    assert_eq!(pushes_within(&mut pushes, seconds(60)).await, 0, "nobody knows: open and silent");
}

#[tokio::test(start_paused = true)]
async fn a_tier_that_isnt_there_yet_keeps_its_stream_until_it_is() {
    let (mut control_loop, published) = publisher();
    let mut pushes = open(&scaler(&published, &CancellationToken::new()), asker(CHAT)).await;
    assert_eq!(pushes_within(&mut pushes, seconds(30)).await, 0);
    control_loop.publish(|snapshot| snapshot.waiting.push(tier("chat")));
    assert_eq!(pushes_within(&mut pushes, seconds(30)).await, 0);
    control_loop.required(&tier("chat"), 2);
    assert_eq!(pushes_within(&mut pushes, seconds(1)).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_ok_at_a_random_age() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 0);
    let scaler = scaler(&published, &CancellationToken::new());
    let mut ages = Vec::new();
    for _ in 0..20 {
        let began = Instant::now();
        let mut pushes = open(&scaler, asker(CHAT)).await;
        assert!(pushes.next().await.is_none(), "an error would double KEDA's wait");
        let mut specs = scaler.stream_metric_spec(Request::new(asker(CHAT))).await.unwrap().into_inner();
        ages.push(began.elapsed().as_secs());
        assert!(specs.next().await.is_some_and(|spec| spec.is_ok()), "the spec at once");
        assert!(specs.next().await.is_none(), "then nothing, and OK");
    }
    assert!(ages.iter().all(|age| (600..=1801).contains(age)), "{ages:?}");
    ages.sort_unstable();
    ages.dedup();
    assert!(ages.len() > 10, "they don't all come back at once: {ages:?}");
}

#[tokio::test(start_paused = true)]
async fn the_shutdown_ends_every_stream_with_ok() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 0);
    let stop = CancellationToken::new();
    let scaler = scaler(&published, &stop);
    let mut pushes = open(&scaler, asker(CHAT)).await;
    let mut specs = scaler.stream_metric_spec(Request::new(asker(CHAT))).await.unwrap().into_inner();
    specs.next().await.unwrap().unwrap();
    assert!(still_open(&mut pushes).await);
    stop.cancel();
    let began = Instant::now();
    assert!(pushes.next().await.is_none());
    assert!(specs.next().await.is_none());
    assert_eq!(began.elapsed(), Duration::ZERO);
}

async fn still_open<T>(stream: &mut BoxStream<T>) -> bool {
    matches!(poll!(stream.next()), Poll::Pending)
}

#[tokio::test(start_paused = true)]
async fn a_hung_control_loop_is_answered_within_a_quarter_of_a_second() {
    let (mut control_loop, published) = publisher();
    control_loop.publish(|snapshot| snapshot.config.allow_metadata_tiers = true);
    let scaler = scaler(&published, &CancellationToken::new());
    // Nobody takes declarations: the first ones wait for an answer, later ones for room in the queue.
    for n in 0..20 {
        let mut declaring = asker(&[("minReplicas", "6")]);
        declaring.name = format!("declared-{n}");
        let began = Instant::now();
        let refused = scaler.get_metrics(Request::new(metrics_of(declaring))).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unavailable);
        assert!(began.elapsed() <= Duration::from_millis(250), "{:?}", began.elapsed());
        scaler.get_metric_spec(Request::new(asker(CHAT))).await.unwrap();
        assert!(began.elapsed() <= Duration::from_millis(250));
    }
}

#[tokio::test(start_paused = true)]
async fn a_control_loop_that_refuses_a_declaration_is_not_waited_for() {
    let (mut control_loop, published) = publisher();
    control_loop.publish(|snapshot| snapshot.config.allow_metadata_tiers = true);
    let scaler = scaler(&published, &CancellationToken::new());
    let began = Instant::now();
    let (answer, ()) = tokio::join!(scaler.is_active(Request::new(asker(&[("minReplicas", "6")]))), async {
        drop(control_loop.declared.recv().await);
    },);
    assert_eq!(answer.unwrap_err().code(), Code::Unavailable);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_pushed_trigger_declares_its_tier_and_declares_it_again_when_it_is_lost() {
    let (mut control_loop, published) = publisher();
    control_loop.publish(|snapshot| snapshot.config.allow_metadata_tiers = true);
    let scaler = scaler(&published, &CancellationToken::new());
    let mut pushes = open(&scaler, asker(&[("minReplicas", "6")])).await;
    let (count, ()) = tokio::join!(
        pushes_within(&mut pushes, seconds(5)),
        control_loop.take_declaration(Answer::Required(6)),
    );
    assert_eq!(count, 1);
    control_loop.publish(|snapshot| snapshot.tiers.clear());
    let (count, ()) = tokio::join!(
        pushes_within(&mut pushes, seconds(40)),
        control_loop.take_declaration(Answer::Required(6)),
    );
    assert!(count >= 1, "declared anew on a heartbeat");
}

#[tokio::test(start_paused = true)]
async fn a_declared_tier_that_is_answered_is_declared_again_now_and_then() {
    let (mut control_loop, published) = publisher();
    control_loop.publish(|snapshot| snapshot.config.allow_metadata_tiers = true);
    let scaler = scaler(&published, &CancellationToken::new());
    let declaring = asker(&[("minReplicas", "6")]);
    let (first, ()) = tokio::join!(
        scaler.is_active(Request::new(declaring.clone())),
        control_loop.take_declaration(Answer::Required(6)),
    );
    first.unwrap();
    let mut repeated = 0;
    // An hour of an HPA's syncs: the chance of not one repetition is below 10^-13.
    for _ in 0..240 {
        scaler.get_metrics(Request::new(metrics_of(declaring.clone()))).await.unwrap();
        repeated += usize::from(control_loop.declared.try_recv().is_ok());
    }
    assert!((1..120).contains(&repeated), "{repeated} of 240");
}

fn any_answer() -> impl Strategy<Value = Option<Answer>> {
    prop_oneof![
        Just(None),
        any::<u32>().prop_map(|replicas| Some(Answer::Required(replicas))),
        Just(Some(Answer::Required(0))),
        "[a-z ]{0,20}".prop_map(|why| Some(Answer::Unknown { why })),
    ]
}

async fn both(scaler: &Scaler) -> (Result<bool, Status>, Result<(i64, f64), Status>) {
    let active = scaler.is_active(Request::new(asker(CHAT))).await.map(|response| response.get_ref().result);
    let value = scaler.get_metrics(Request::new(metrics_of(asker(CHAT)))).await.map(|response| {
        let values = &response.get_ref().metric_values;
        assert_eq!(values.len(), 1);
        (values[0].metric_value, values[0].metric_value_float)
    });
    (active, value)
}

proptest! {
    #[test]
    fn activity_value_and_push_never_contradict_each_other(answer in any_answer()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (mut control_loop, published) = publisher();
            match answer.clone() {
                Some(answer) => control_loop.answer(&tier("chat"), answer),
                None => control_loop.publish(|snapshot| snapshot.waiting.push(tier("chat"))),
            }
            let scaler = scaler(&published, &CancellationToken::new());
            let (active, value) = both(&scaler).await;
            let pushed = pushes_within(&mut open(&scaler, asker(CHAT)).await, seconds(1)).await;
            match (active, value) {
                (Ok(active), Ok((int, float))) => {
                    prop_assert_eq!(active, int >= 1);
                    prop_assert!((float - int as f64).abs() < f64::EPSILON && float.is_finite() && float >= 0.0);
                    prop_assert_eq!(pushed, usize::from(active));
                    prop_assert_eq!(answer, Some(Answer::Required(u32::try_from(int).unwrap())));
                }
                (Err(of_activity), Err(of_value)) => {
                    prop_assert_eq!(of_activity.code(), Code::Unavailable);
                    prop_assert_eq!(of_value.code(), Code::Unavailable);
                    prop_assert_eq!(of_activity.message(), of_value.message());
                    prop_assert_eq!(pushed, 0);
                    prop_assert!(!matches!(answer, Some(Answer::Required(_))));
                }
                (active, value) => prop_assert!(false, "{active:?} and {value:?}"),
            }
            Ok(())
        })?;
    }
}
