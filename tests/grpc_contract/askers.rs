//! Who asks: odd and refused metadata, the record of calls, and what of it never reaches the log.

use std::sync::{Arc, Mutex};

use keda_vllm_scaler::decision::TierId;
use keda_vllm_scaler::telemetry::Rpc;

use super::CHAT;
use super::grpc::{asker, metrics_of, start, start_with};
use super::published::{publisher, tier};

#[tokio::test]
async fn reserved_keys_are_accepted_and_odd_ones_are_kept_as_warnings() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 7);
    let server = start(&published).await;
    let odd = asker(&[
        ("tier", "chat"),
        ("scalerAddress", "scaler:6000"),
        ("enableTLS", "false"),
        ("colour", "red"),
    ]);
    let answer = server.client().await.get_metrics(metrics_of(odd)).await.unwrap();
    assert_eq!(answer.into_inner().metric_values[0].metric_value, 7);
    let warnings = server.counters.trigger_warnings(&tier("chat"), control_loop.clock.now());
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].starts_with("ScaledObject serving/chat-scaledobject: "), "{warnings:?}");
    assert!(warnings[0].contains("colour") && !warnings[0].contains("red"), "{warnings:?}");
}

#[tokio::test]
async fn an_odd_key_is_gone_with_the_next_ask_without_it() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 7);
    let server = start(&published).await;
    let mut client = server.client().await;
    let warnings = || server.counters.trigger_warnings(&tier("chat"), control_loop.clock.now());
    client.get_metrics(metrics_of(asker(&[("tier", "chat"), ("colour", "red")]))).await.unwrap();
    assert_eq!(warnings().len(), 1);
    client.is_active(asker(CHAT)).await.unwrap();
    assert_eq!(warnings(), Vec::<String>::new(), "mended");
}

#[tokio::test]
async fn a_refused_scaled_object_is_kept_with_its_reason_until_it_is_mended() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 7);
    control_loop.required(&TierId::new("other-team", "secret-launch"), 3);
    let server = start(&published).await;
    let mut client = server.client().await;
    let clock = control_loop.clock;
    let refused = || server.counters.refused(clock.now());
    for (wrong, named) in [
        (&[("tier", "cht")][..], "no tier \"cht\""),
        (&[("tier", "chat"), ("serverAddress", "x")][..], "serverAddress"),
    ] {
        client.get_metrics(metrics_of(asker(wrong))).await.unwrap_err();
        let kept = refused();
        assert_eq!(kept.len(), 1, "{kept:?}");
        assert_eq!(kept[0].0, "serving/chat-scaledobject");
        assert!(kept[0].1.contains(named) && !kept[0].1.contains("secret"), "{kept:?}");
        drop(client.stream_is_active(asker(wrong)).await);
        assert_eq!(refused(), kept, "told once");
    }
    client.get_metrics(metrics_of(asker(CHAT))).await.unwrap();
    assert_eq!(refused(), []);
    control_loop.unknown(&tier("chat"), "all replicas silent");
    client.get_metrics(metrics_of(asker(CHAT))).await.unwrap_err();
    assert_eq!(refused(), [], "the tier is unknown, and the ScaledObject is right");
}

#[tokio::test]
async fn each_call_about_a_tier_is_kept_with_who_made_it() {
    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 0);
    control_loop.required(&tier("other"), 7);
    let server = start(&published).await;
    let mut client = server.client().await;
    let of = |name: &str| published.now().tiers[&tier(name)].asked.list();
    assert_eq!(of("chat"), []);
    let began = control_loop.clock.now();
    client.get_metrics(metrics_of(asker(CHAT))).await.unwrap();
    let list = of("chat");
    assert_eq!(list.len(), 1);
    assert_eq!(list[0].scaled_object, "chat-scaledobject");
    assert!(list[0].get_metrics >= Some(began) && list[0].is_active.is_none(), "{list:?}");
    client.is_active(asker(CHAT)).await.unwrap();
    client.get_metric_spec(asker(CHAT)).await.unwrap();
    let _open = client.stream_is_active(asker(CHAT)).await.unwrap();
    let _open_too = client.stream_metric_spec(asker(CHAT)).await.unwrap();
    let list = of("chat");
    for rpc in Rpc::ALL {
        assert!(list[0].last(rpc) >= Some(began), "{rpc:?}: {list:?}");
    }
    assert_eq!(of("other"), [], "nobody asked about that one");

    // What is refused was asked all the same.
    control_loop.unknown(&tier("other"), "all replicas silent");
    client.get_metrics(metrics_of(asker(&[("tier", "serving/other")]))).await.unwrap_err();
    assert!(of("other")[0].get_metrics.is_some());
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn values_of_metadata_never_reach_the_log() {
    let written = Written::default();
    let writer = written.clone();
    let everything = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(move || writer.clone())
        .finish();
    // The runtime of this test has this one thread.
    let _guard = tracing::subscriber::set_default(everything);

    let (mut control_loop, published) = publisher();
    control_loop.required(&tier("chat"), 7);
    let server = start_with(&published, |options| options.reflection = true).await;
    let mut client = server.client().await;
    let secret = "-----BEGIN PRIVATE KEY-----hunter2";
    for metadata in [
        vec![("tier", "chat"), ("passwordFromEnv", secret), ("caCert", secret), ("colour", secret)],
        vec![("tier", secret)],
        vec![("tier", "chat"), ("serverAddress", secret)],
    ] {
        client.is_active(asker(&metadata)).await.ok();
        client.get_metrics(metrics_of(asker(&metadata))).await.ok();
        client.get_metric_spec(asker(&metadata)).await.ok();
        client.stream_is_active(asker(&metadata)).await.ok();
        client.stream_metric_spec(asker(&metadata)).await.ok();
    }
    server.stop().await;
    let log = String::from_utf8_lossy(&written.0.lock().unwrap()).into_owned();
    assert!(log.contains("odd trigger metadata"), "the log was listened to");
    let own: Vec<_> = log.lines().filter(|line| line.contains("hunter2")).collect();
    assert!(own.is_empty(), "{own:?}");
}
