//! KEDA's contract, as a client on a real connection sees it.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside their functions")]

#[path = "common/grpc.rs"]
mod grpc;
#[path = "common/published.rs"]
mod published;

#[path = "grpc_contract/askers.rs"]
mod askers;

use std::sync::Arc;
use std::time::Duration;

use grpc::{asker, metrics_of, start};
use keda_vllm_scaler::decision::{Answer, TierId};
use keda_vllm_scaler::proto::{GetMetricSpecResponse, GetMetricsRequest, MetricSpec, ScaledObjectRef};
use published::{publisher, status, tier};
use tonic::{Code, Status};

const CHAT: &[(&str, &str)] = &[("tier", "chat")];

fn the_spec() -> GetMetricSpecResponse {
    GetMetricSpecResponse {
        metric_specs: vec![MetricSpec {
            metric_name: "required-replicas".into(),
            target_size: 1,
            target_size_float: 1.0,
        }],
    }
}

#[tokio::test]
async fn the_spec_is_the_same_whatever_is_asked_and_known() {
    let (mut control_loop, published) = publisher();
    let server = start(&published).await;
    let mut client = server.client().await;
    for asker in
        [asker(CHAT), asker(&[("tier", "nobody")]), asker(&[("url", "http://x")]), ScaledObjectRef::default()]
    {
        let spec = client.get_metric_spec(asker).await.unwrap().into_inner();
        assert_eq!(spec, the_spec(), "nothing is known");
    }
    control_loop.unknown(&tier("chat"), "all replicas silent");
    assert_eq!(client.get_metric_spec(asker(CHAT)).await.unwrap().into_inner(), the_spec());
}

#[tokio::test]
async fn one_value_is_answered_in_both_fields_with_its_name() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 7);
    let server = start(&published).await;
    let mut client = server.client().await;
    for name in ["required-replicas", ""] {
        let request = GetMetricsRequest { scaled_object_ref: Some(asker(CHAT)), metric_name: name.into() };
        let values = client.get_metrics(request).await.unwrap().into_inner().metric_values;
        assert_eq!(values.len(), 1, "the HPA adds up what it gets");
        assert_eq!(values[0].metric_name, "required-replicas");
        assert_eq!(values[0].metric_value, 7);
        assert!((values[0].metric_value_float - 7.0).abs() < f64::EPSILON);
    }
}

#[tokio::test]
async fn an_unknown_metric_is_refused_naming_ours() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 7);
    let server = start(&published).await;
    let request = GetMetricsRequest { scaled_object_ref: Some(asker(CHAT)), metric_name: "replicas".into() };
    let refused = server.client().await.get_metrics(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("required-replicas"), "{}", refused.message());
}

/// The errors of IsActive and GetMetrics, which must be the same one.
async fn refusal(server: &grpc::Running, asker: ScaledObjectRef) -> Status {
    let mut client = server.client().await;
    let from_metrics = client.get_metrics(metrics_of(asker.clone())).await.unwrap_err();
    let from_activity = client.is_active(asker).await.unwrap_err();
    assert_eq!(from_metrics.code(), from_activity.code());
    assert_eq!(from_metrics.message(), from_activity.message());
    from_metrics
}

#[tokio::test]
async fn bad_metadata_is_an_invalid_argument_that_names_the_key() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 7);
    let server = start(&published).await;
    let bad = asker(&[("tier", "chat"), ("serverAddress", "http://prometheus:9090")]);
    let refused = refusal(&server, bad.clone()).await;
    assert_eq!(refused.code(), Code::InvalidArgument);
    assert!(refused.message().contains("serverAddress"), "{}", refused.message());
    assert!(!refused.message().contains("prometheus:9090"), "the value is not repeated");
    let pushed = server.client().await.stream_is_active(bad).await.unwrap_err();
    assert_eq!(pushed.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn a_reference_without_a_namespace_is_an_invalid_argument() {
    let (_control_loop, published) = publisher();
    let server = start(&published).await;
    let mut nameless = asker(CHAT);
    nameless.namespace.clear();
    assert_eq!(refusal(&server, nameless).await.code(), Code::InvalidArgument);
    let nobody = GetMetricsRequest { scaled_object_ref: None, metric_name: String::new() };
    let refused = server.client().await.get_metrics(nobody).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument);
}

#[tokio::test]
async fn an_unknown_tier_is_not_found_and_names_only_the_askers_own_tiers() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 7);
    control_loop.required(&TierId::new("other-team", "secret-launch"), 3);
    control_loop.publish(|snapshot| snapshot.waiting.push(tier("embed")));
    let server = start(&published).await;
    let refused = refusal(&server, asker(&[("tierr", "chat")])).await;
    assert_eq!(refused.code(), Code::NotFound);
    let found = "no tier \"chat-scaledobject\" in namespace \"serving\"; it has chat, embed; ";
    assert!(refused.message().starts_with(found), "{}", refused.message());
    assert!(refused.message().contains("tierr"), "a typo shows: {}", refused.message());
    let refused = refusal(&server, asker(&[("tier", "secret-launch")])).await;
    assert_eq!(refused.code(), Code::NotFound, "another namespace's tier doesn't exist");
}

#[tokio::test]
async fn a_not_found_names_a_bounded_number_of_tiers() {
    let (mut control_loop, published) = publisher();
    for n in 0..500 {
        control_loop.required(&tier(&format!("tier-{n:03}")), 1);
    }
    let server = start(&published).await;
    let refused = refusal(&server, asker(CHAT)).await;
    assert!(refused.message().contains("tier-009 and 490 more"), "{}", refused.message());
}

#[tokio::test]
async fn not_knowing_is_unavailable_with_its_reason() {
    let (mut control_loop, published) = publisher();
    control_loop.publish(|snapshot| snapshot.waiting.push(tier("chat")));
    let server = start(&published).await;
    let refused = refusal(&server, asker(CHAT)).await;
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::Unavailable, "tier serving/chat: no decision yet")
    );

    control_loop.unknown(&tier("chat"), "2 of 5 replicas known for 10m");
    let refused = refusal(&server, asker(CHAT)).await;
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::Unavailable, "tier serving/chat: 2 of 5 replicas known for 10m")
    );

    control_loop.required(&tier("chat"), 2);
    let mut client = server.client().await;
    assert!(client.is_active(asker(CHAT)).await.unwrap().into_inner().result, "known again");
}

#[tokio::test]
async fn a_decision_that_is_never_renewed_stops_being_an_answer() {
    let (mut control_loop, published) = publisher();
    let server = start(&published).await;
    let policy = published::policy(&tier("chat"));
    let held = policy.hold_unknown + Duration::from_mins(1);
    for (age, known) in [(held, true), (held + Duration::from_mins(2), false)] {
        let decided_at = control_loop.clock.now() - age;
        let old = status(policy.clone(), Answer::Required(7), decided_at);
        control_loop.publish(|snapshot| {
            snapshot.tiers.insert(tier("chat"), Arc::new(old));
        });
        let answer = server.client().await.get_metrics(metrics_of(asker(CHAT))).await;
        assert_eq!(answer.is_ok(), known, "{age:?}: {answer:?}");
    }
    let refused = refusal(&server, asker(CHAT)).await;
    assert_eq!(refused.code(), Code::Unavailable);
    assert!(refused.message().contains("the last decision is 13m"), "{}", refused.message());
}

/// KEDA before 2.17: its proto has no float fields.
mod before_2_17 {
    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct MetricValue {
        #[prost(string, tag = "1")]
        pub(crate) metric_name: String,
        #[prost(int64, tag = "2")]
        pub(crate) metric_value: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct GetMetricsResponse {
        #[prost(message, repeated, tag = "1")]
        pub(crate) metric_values: Vec<MetricValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct MetricSpec {
        #[prost(string, tag = "1")]
        pub(crate) metric_name: String,
        #[prost(int64, tag = "2")]
        pub(crate) target_size: i64,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(crate) struct GetMetricSpecResponse {
        #[prost(message, repeated, tag = "1")]
        pub(crate) metric_specs: Vec<MetricSpec>,
    }
}

async fn call<Request, Response>(server: &grpc::Running, method: &str, request: Request) -> Response
where
    Request: prost::Message + Default + 'static,
    Response: prost::Message + Default + 'static,
{
    let mut client = tonic::client::Grpc::new(server.channel().await);
    client.ready().await.unwrap();
    let path = format!("/externalscaler.ExternalScaler/{method}").parse().unwrap();
    let codec = tonic_prost::ProstCodec::<Request, Response>::default();
    client.unary(tonic::Request::new(request), path, codec).await.unwrap().into_inner()
}

#[tokio::test]
async fn old_and_new_clients_read_the_same_numbers() {
    let (mut control_loop, published) = publisher();
    let server = start(&published).await;
    for replicas in [0, 1, 2, 999, u32::MAX] {
        control_loop.required(&tier("chat"), replicas);
        let old: before_2_17::GetMetricsResponse = call(&server, "GetMetrics", metrics_of(asker(CHAT))).await;
        assert_eq!(old.metric_values[0].metric_value, i64::from(replicas));

        let new = server.client().await.get_metrics(metrics_of(asker(CHAT))).await.unwrap().into_inner();
        let value = &new.metric_values[0];
        // The rule of KEDA 2.17 and later, external_scaler.go.
        let read =
            if value.metric_value_float > 0.0 { value.metric_value_float } else { value.metric_value as f64 };
        assert!((read - f64::from(replicas)).abs() < f64::EPSILON);
    }
    let old: before_2_17::GetMetricSpecResponse = call(&server, "GetMetricSpec", asker(CHAT)).await;
    assert_eq!(old.metric_specs[0].target_size, 1);
}

#[tokio::test]
async fn demand_wakes_an_open_stream_within_a_second() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 0);
    let server = start(&published).await;
    let mut pushes = server.client().await.stream_is_active(asker(CHAT)).await.unwrap().into_inner();
    control_loop.required(&tier("chat"), 1);
    let push = tokio::time::timeout(Duration::from_secs(1), pushes.message()).await.unwrap().unwrap();
    assert!(push.unwrap().result);
    assert_eq!(server.counters.streams_open("StreamIsActive"), 1);
}

#[tokio::test]
async fn the_spec_is_streamed_at_once_and_the_stream_stays_open() {
    let (_control_loop, published) = publisher();
    let server = start(&published).await;
    let mut specs =
        server.client().await.stream_metric_spec(asker(&[("url", "bad")])).await.unwrap().into_inner();
    assert_eq!(specs.message().await.unwrap(), Some(the_spec()));
    server.shutdown.cancel();
    assert_eq!(specs.message().await.unwrap(), None, "ends with OK, and only at the shutdown");
}

#[tokio::test]
async fn a_declared_tier_is_answered_as_soon_as_it_is_decided() {
    let (mut control_loop, published) = publisher();
    control_loop.publish(|snapshot| snapshot.config.allow_metadata_tiers = true);
    let server = start(&published).await;
    let mut client = server.client().await;
    let declaring = asker(&[("minReplicas", "6")]);
    let (answer, ()) = tokio::join!(
        client.get_metrics(metrics_of(declaring.clone())),
        control_loop.take_declaration(Answer::Required(6)),
    );
    assert_eq!(answer.unwrap().into_inner().metric_values[0].metric_value, 6);

    // Nobody takes declarations any more: the tier is known, so nobody has to.
    let again = client.is_active(declaring).await.unwrap().into_inner();
    assert!(again.result);
}

#[tokio::test]
async fn two_declarations_of_one_tier_are_told_apart() {
    let (mut control_loop, published) = publisher();
    control_loop.publish(|snapshot| snapshot.config.allow_metadata_tiers = true);
    let server = start(&published).await;
    let mut client = server.client().await;
    let six = asker(&[("minReplicas", "6")]);
    let two = asker(&[("minReplicas", "2")]);
    let (first, ()) =
        tokio::join!(client.get_metrics(metrics_of(six)), control_loop.take_declaration(Answer::Required(6)));
    first.unwrap();
    let refused = client.get_metrics(metrics_of(two)).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unavailable, "never the other's number");
}
