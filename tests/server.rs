//! The whole server in one process: a fake replica's page over a socket, the control loop, gRPC, the file watch, the store.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop there")]

mod common {
    pub mod fake_engine;
    pub mod server;
    pub mod vllm_page;
}

use std::collections::HashMap;
use std::path::PathBuf;

use common::fake_engine::{Answer, FakeEngine};
use common::server::{start, until};
use common::vllm_page::Load;
use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::config;
use keda_vllm_scaler::decision::{Answer as Answered, BoundKind, TierId};
use keda_vllm_scaler::proto::external_scaler_client::ExternalScalerClient;
use keda_vllm_scaler::proto::{GetMetricsRequest, ScaledObjectRef};
use keda_vllm_scaler::server::{self, Running, ServerOptions};
use keda_vllm_scaler::snapshot::{Snapshot, TierStatus};
use tonic::transport::Channel;
use tonic::{Code, Status};

fn page(running: u32, waiting: u32, kv_usage: f64, tokens: u32) -> Answer {
    let generation_tokens = f64::from(tokens) / 4.0;
    Load { running, waiting, kv_usage, prompt_tokens: tokens, generation_tokens }.page()
}

struct File(tempfile::TempDir);

impl File {
    fn new(text: &str) -> Self {
        let file = Self(tempfile::tempdir().unwrap());
        file.write(text);
        file
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("tiers.yaml")
    }

    fn write(&self, text: &str) {
        std::fs::write(self.path(), text).unwrap();
    }
}

fn text(replica: &FakeEngine, tier: &str, rest: &str) -> String {
    format!(
        "listen: {{grpc: \"127.0.0.1:0\", http: \"127.0.0.1:0\", health: \"127.0.0.1:0\"}}\n\
         tiers:\n\
         - name: {tier}\n  namespace: serving\n  source: {{fixed: {{urls: [\"{}\"]}}}}\n  \
         scrape: {{interval: 1s, timeout: 500ms, staleAfter: 4s}}\n  {rest}\n",
        replica.url()
    )
}

fn tier<'a>(snapshot: &'a Snapshot, name: &str) -> Option<&'a TierStatus> {
    snapshot.tiers.get(&TierId::new("serving", name)).map(AsRef::as_ref)
}

fn required(snapshot: &Snapshot, name: &str) -> Option<u32> {
    tier(snapshot, name)?.decision.required()
}

async fn client(running: &Running) -> ExternalScalerClient<Channel> {
    ExternalScalerClient::connect(format!("http://{}", running.grpc_addr)).await.unwrap()
}

async fn ask(
    client: &mut ExternalScalerClient<Channel>,
    name: &str,
    metadata: &[(&str, &str)],
) -> Result<i64, Status> {
    let scaler_metadata = metadata.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
    let scaled_object_ref =
        Some(ScaledObjectRef { name: name.to_owned(), namespace: "serving".to_owned(), scaler_metadata });
    let request = GetMetricsRequest { scaled_object_ref, metric_name: String::new() };
    Ok(client.get_metrics(request).await?.into_inner().metric_values[0].metric_value)
}

#[tokio::test]
async fn a_replicas_page_becomes_keda_s_answer() {
    let replica = FakeEngine::start(page(4, 0, 0.9, 1000)).await;
    let file = File::new(&text(&replica, "chat", "replicas: {min: 1, max: 8}"));
    let running = start(&file.path()).await;
    // 0.9 of one KV cache at a target of 0.8.
    until(&running, "2 replicas", |s| (s.ready && required(s, "chat") == Some(2)).then_some(())).await;
    let mut keda = client(&running).await;
    assert_eq!(ask(&mut keda, "chat", &[]).await.unwrap(), 2, "the ScaledObject's own name");
    assert_eq!(ask(&mut keda, "any", &[("tier", "chat")]).await.unwrap(), 2);
    let unknown = ask(&mut keda, "other", &[]).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_replica_that_dies_leaves_the_answer_where_it_was() {
    let replica = FakeEngine::start(page(4, 0, 0.9, 1000)).await;
    let file = File::new(&text(&replica, "chat", "replicas: {min: 1, max: 8}"));
    let running = start(&file.path()).await;
    until(&running, "2 replicas", |s| (required(s, "chat") == Some(2)).then_some(())).await;
    replica.now_answers(Answer::Reset);
    let held = until(&running, "blind", |s| {
        let decision = &tier(s, "chat")?.decision;
        (decision.known.known == 0).then(|| decision.clone())
    })
    .await;
    assert_eq!(held.answer, Answered::Required(2), "{:?}", held.bounds);
    assert!(held.bounds.iter().any(|bound| bound.kind == BoundKind::TooFewKnown), "{:?}", held.bounds);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_changed_file_comes_into_force_and_a_wrong_one_is_shown_and_refused() {
    let replica = FakeEngine::start(page(0, 0, 0.0, 1000)).await;
    let file = File::new(&text(&replica, "chat", "replicas: {min: 1, max: 8}"));
    let running = start(&file.path()).await;
    until(&running, "1 replica", |s| (required(s, "chat") == Some(1)).then_some(())).await;

    file.write(&text(&replica, "chat", "replicas: {min: 3, max: 8}"));
    until(&running, "3 replicas", |s| (required(s, "chat") == Some(3)).then_some(())).await;

    file.write(&text(&replica, "chat", "replicas: {min: 9, max: 8}"));
    let rejected = until(&running, "refusal", |s| s.config.rejected.clone()).await;
    assert!(rejected.contains("tiers[0].replicas"), "{rejected}");
    assert_eq!(required(&running.published.now(), "chat"), Some(3), "the old one stays");

    file.write(&text(&replica, "code", "replicas: {min: 2, max: 8}"));
    until(&running, "the other tier", |s| {
        (s.config.rejected.is_none() && required(s, "code") == Some(2)).then_some(())
    })
    .await;
    let mut keda = client(&running).await;
    assert_eq!(ask(&mut keda, "chat", &[]).await.unwrap_err().code(), Code::NotFound, "removed");
    assert_eq!(ask(&mut keda, "code", &[]).await.unwrap(), 2);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn an_unchanged_tier_keeps_its_memory_over_a_reload() {
    let replica = FakeEngine::start(page(4, 0, 0.9, 1000)).await;
    let one = text(&replica, "chat", "replicas: {min: 1, max: 8}");
    let file = File::new(&one);
    let running = start(&file.path()).await;
    until(&running, "2 replicas", |s| (required(s, "chat") == Some(2)).then_some(())).await;
    // The load goes, and another tier comes: the hold of the first goes on where it was.
    replica.now_answers(page(0, 0, 0.0, 1000));
    let second = text(&replica, "code", "replicas: {min: 1, max: 8}");
    file.write(&format!("{one}{}", second.split_once("tiers:\n").unwrap().1));
    until(&running, "the second tier", |s| required(s, "code")).await;
    let held = until(&running, "no load any more", |s| {
        let status = tier(s, "chat")?;
        (status.decision.demand? < 0.5).then(|| status.decision.clone())
    })
    .await;
    assert_eq!(held.required(), Some(2), "{:?}", held.winner);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_scaled_object_declares_a_tier_and_two_triggers_of_it_don_t_disturb_each_other() {
    let replica = FakeEngine::start(page(0, 0, 0.0, 0)).await;
    let file = File::new(&format!(
        "allowMetadataTiers: true\n{}",
        text(&replica, "chat", "replicas: {min: 1, max: 8}")
    ));
    let running = start(&file.path()).await;
    until(&running, "a first round", |s| s.ready.then_some(())).await;
    let mut keda = client(&running).await;
    let open = |replicas| {
        [("timezone", "UTC"), ("start", "0 0 * * *"), ("end", "59 23 31 12 *"), ("desiredReplicas", replicas)]
    };
    for _ in 0..3 {
        assert_eq!(ask(&mut keda, "batch", &open("3")).await.unwrap(), 3);
        assert_eq!(ask(&mut keda, "batch", &open("5")).await.unwrap(), 5);
    }
    let wrong =
        ask(&mut keda, "batch", &[("desiredReplicas", "3"), ("start", "whenever")]).await.unwrap_err();
    assert_eq!(wrong.code(), Code::InvalidArgument);
    assert!(wrong.message().contains("start"), "{}", wrong.message());
    running.stop().await.unwrap();
}

#[tokio::test]
async fn what_was_answered_is_still_answered_after_a_restart() {
    let replica = FakeEngine::start(page(4, 0, 0.9, 1000)).await;
    let store = tempfile::tempdir().unwrap();
    let file = File::new(&format!(
        "store: {{path: {:?}}}\n{}",
        store.path(),
        text(&replica, "chat", "replicas: {min: 1, max: 8}")
    ));
    let running = start(&file.path()).await;
    until(&running, "2 replicas", |s| (required(s, "chat") == Some(2)).then_some(())).await;
    running.stop().await.unwrap();

    // The load is gone when the next process begins; it has not watched that being so for one hold.
    replica.now_answers(page(0, 0, 0.0, 1000));
    let running = start(&file.path()).await;
    let first = until(&running, "a decision with a page", |s| {
        let status = tier(s, "chat")?;
        (status.decision.known.known == 1).then(|| status.decision.clone())
    })
    .await;
    assert_eq!(first.required(), Some(2), "{:?}", first.winner);
    assert_eq!(running.published.now().store.alarm, None);
    running.stop().await.unwrap();
}

#[tokio::test]
async fn a_busy_port_is_an_error_that_names_the_key() {
    let busy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let replica = FakeEngine::start(page(0, 0, 0.0, 0)).await;
    let text = text(&replica, "chat", "replicas: {min: 1, max: 8}").replacen(
        "http: \"127.0.0.1:0\"",
        &format!("http: \"{}\"", busy.local_addr().unwrap()),
        1,
    );
    let error = server::start(ServerOptions {
        config: config::load(&text).unwrap(),
        config_file: None,
        clock: Clock::system(),
        injected: HashMap::new(),
    })
    .await
    .unwrap_err();
    assert!(format!("{error:#}").contains("listen.http"), "{error:#}");
}
