//! Readiness, and the order of a shutdown, over real connections.

#![allow(clippy::unwrap_used, reason = "helpers of tests, outside their functions")]

#[path = "common/grpc.rs"]
mod grpc;
#[path = "common/published.rs"]
mod published;

use std::time::Duration;

use grpc::{LOOPBACK, PATIENCE, asker, channel, metrics_of, start, start_with, until};
use keda_vllm_scaler::decision::Answer;
use keda_vllm_scaler::serve::grpc::Drained;
use keda_vllm_scaler::serve::health::{HealthListener, Readiness};
use keda_vllm_scaler::supervise::{Signal, Signals};
use published::{publisher, tier};
use tokio_stream::StreamExt;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use tonic::transport::Channel;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

const CHAT: &[(&str, &str)] = &[("tier", "chat")];

async fn health(client: &mut HealthClient<Channel>, service: &str) -> ServingStatus {
    let request = HealthCheckRequest { service: service.to_owned() };
    client.check(request).await.unwrap().into_inner().status()
}

#[tokio::test]
async fn a_thousand_open_streams_end_with_ok_inside_the_deadline() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 1);
    let server = start(&published).await;
    let mut client = server.client().await;
    let mut open = Vec::new();
    for _ in 0..500 {
        let mut pushes = client.stream_is_active(asker(CHAT)).await.unwrap().into_inner();
        assert!(pushes.message().await.unwrap().unwrap().result);
        let mut specs = client.stream_metric_spec(asker(CHAT)).await.unwrap().into_inner();
        assert!(specs.message().await.unwrap().is_some());
        open.push((pushes, specs));
    }
    let counters = server.counters.clone();
    assert_eq!(counters.streams_open("StreamIsActive") + counters.streams_open("StreamMetricSpec"), 1000);

    assert_eq!(server.stop().await, Drained::Completely, "within the ten seconds of the default");
    for (mut pushes, mut specs) in open {
        assert_eq!(pushes.message().await.unwrap(), None, "an error would double KEDA's wait");
        assert_eq!(specs.message().await.unwrap(), None);
    }
    assert_eq!(counters.streams_open("StreamIsActive") + counters.streams_open("StreamMetricSpec"), 0);
}

#[tokio::test]
async fn a_call_in_flight_is_answered_before_the_end() {
    let (mut control_loop, published) = publisher();
    control_loop.publish(|snapshot| snapshot.config.allow_metadata_tiers = true);
    let server = start(&published).await;
    let mut client = server.client().await;
    let call =
        tokio::spawn(async move { client.get_metrics(metrics_of(asker(&[("minReplicas", "6")]))).await });
    let declare = control_loop.declared.recv().await.unwrap();
    server.shutdown.cancel();
    let mut status = published::status(declare.policy.clone(), Answer::Required(6), control_loop.clock.now());
    status.declared_by_metadata = true;
    control_loop.publish(|snapshot| {
        snapshot.tiers.insert(declare.policy.tier.clone(), status.into());
    });
    declare.done.send(()).unwrap();
    let answer = call.await.unwrap().unwrap().into_inner();
    assert_eq!(answer.metric_values[0].metric_value, 6);
    assert_eq!(server.stop().await, Drained::Completely);
}

#[tokio::test]
async fn a_client_that_holds_on_is_left_at_the_deadline() {
    let (_control_loop, published) = publisher();
    let server = start_with(&published, |options| {
        options.reflection = true;
        options.drain = Duration::from_millis(200);
    })
    .await;
    let question = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    // A conversation that the client never ends.
    let questions = tokio_stream::iter([question]).chain(tokio_stream::pending());
    let mut answers = ServerReflectionClient::new(server.channel().await)
        .server_reflection_info(questions)
        .await
        .unwrap()
        .into_inner();
    assert!(format!("{:?}", answers.message().await.unwrap()).contains("externalscaler.ExternalScaler"));
    let stopped = tokio::time::timeout(PATIENCE, server.stop()).await.unwrap();
    assert_eq!(stopped, Drained::DeadlinePassed);
}

#[tokio::test]
async fn reflection_is_off_unless_asked_for() {
    let (_control_loop, published) = publisher();
    let server = start(&published).await;
    let refused = ServerReflectionClient::new(server.channel().await)
        .server_reflection_info(tokio_stream::iter([ServerReflectionRequest::default()]))
        .await
        .unwrap_err();
    assert_eq!(refused.code(), Code::Unimplemented);
}

#[tokio::test]
async fn the_server_is_ready_from_the_first_round_to_the_shutdown() {
    let (mut control_loop, published) = publisher();
    let stopping = CancellationToken::new();
    let end = CancellationToken::new();
    let readiness = Readiness::new(&published, stopping.clone());
    let listener = HealthListener::bind(LOOPBACK, readiness.clone()).await.unwrap();
    let mut probe_port = HealthClient::new({
        let address = listener.local_addr();
        tokio::spawn(listener.run(end.clone()));
        channel(address).await
    });
    let server = start_with(&published, |options| options.readiness = readiness).await;
    let mut keda_port = HealthClient::new(server.channel().await);
    let follows = ["", "readiness", "externalscaler.ExternalScaler"];

    for client in [&mut probe_port, &mut keda_port] {
        assert_eq!(health(client, "liveness").await, ServingStatus::Serving);
        for service in follows {
            assert_eq!(
                health(client, service).await,
                ServingStatus::NotServing,
                "{service:?} before a round"
            );
        }
        let unknown = HealthCheckRequest { service: "scaler".into() };
        assert_eq!(client.check(unknown).await.unwrap_err().code(), Code::NotFound);
    }

    control_loop.required(&tier("chat"), 1);
    for service in follows {
        assert_eq!(health(&mut probe_port, service).await, ServingStatus::Serving);
        assert_eq!(health(&mut keda_port, service).await, ServingStatus::Serving);
    }

    control_loop.publish(|snapshot| {
        snapshot.ready = false;
        snapshot.tiers.clear();
    });
    assert_eq!(
        health(&mut probe_port, "readiness").await,
        ServingStatus::Serving,
        "falls only at the shutdown"
    );

    stopping.cancel();
    assert_eq!(health(&mut probe_port, "readiness").await, ServingStatus::NotServing);
    assert_eq!(health(&mut probe_port, "liveness").await, ServingStatus::Serving, "no reason to kill it");
}

#[tokio::test]
async fn a_watch_hears_every_change_and_ends_with_the_listener() {
    let (mut control_loop, published) = publisher();
    let stopping = CancellationToken::new();
    let end = CancellationToken::new();
    let listener =
        HealthListener::bind(LOOPBACK, Readiness::new(&published, stopping.clone())).await.unwrap();
    let address = listener.local_addr();
    let served = tokio::spawn(listener.run(end.clone()));
    let request = HealthCheckRequest { service: "readiness".into() };
    let mut watch = HealthClient::new(channel(address).await).watch(request).await.unwrap().into_inner();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    control_loop.required(&tier("chat"), 1);
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::Serving);
    stopping.cancel();
    assert_eq!(watch.message().await.unwrap().unwrap().status(), ServingStatus::NotServing);
    end.cancel();
    assert_eq!(watch.message().await.unwrap(), None);
    assert_eq!(served.await.unwrap().unwrap(), Drained::Completely);
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let (_control_loop, published) = publisher();
    let server = start(&published).await;
    let readiness = Readiness::new(&published, CancellationToken::new());
    let refused = HealthListener::bind(server.address, readiness).await.unwrap_err();
    assert!(refused.to_string().contains(&server.address.to_string()), "{refused}");
}

#[tokio::test]
async fn the_port_is_closed_to_new_connections_at_once() {
    let (_control_loop, published) = publisher();
    let server = start_with(&published, |options| options.reflection = true).await;
    let held = server.channel().await;
    server.shutdown.cancel();
    let address = server.address;
    until("the port is closed", || std::net::TcpStream::connect(address).is_err()).await;
    drop(held);
    assert_eq!(server.stop().await, Drained::Completely);
}

#[tokio::test]
async fn signals_of_the_process_are_heard() {
    let mut signals = Signals::of_the_process().unwrap();
    for (name, expected) in
        [("HUP", Signal::Reload), ("TERM", Signal::Stop("SIGTERM")), ("INT", Signal::Stop("SIGINT"))]
    {
        let sent = std::process::Command::new("kill")
            .args([format!("-{name}"), std::process::id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
        assert_eq!(tokio::time::timeout(PATIENCE, signals.next()).await.unwrap(), expected);
    }
}
