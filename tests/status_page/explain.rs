//! The command `explain` beside the page.

use keda_vllm_scaler::snapshot::RefusedAsker;
use keda_vllm_scaler::telemetry::Rpc;

use super::{Server, explain_at, forecasted, snapshots};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_floor_is_told_in_its_own_zone_even_where_another_has_its_name() {
    let mut status = snapshots::busy();
    let name = status.floors_ahead[0].name.clone();
    status.floors_ahead[1].name = name;
    status.floors_ahead[1].timezone = chrono_tz::America::New_York;
    let server = Server::with(snapshots::of(vec![status])).await;
    let page = server.get("/tiers/serving/chat-h100").await.body;
    let (_, text, _) = server.explain(&["chat-h100"]).await;
    for (shown, what) in [(page, "the page"), (text, "explain")] {
        for part in ["Europe/Berlin", "Mon 18:00", "America/New_York", "Mon 13:45"] {
            assert!(shown.contains(part), "{what}: {part} is missing\n{shown}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_budget_and_what_other_terms_would_save_are_told_on_the_page_in_explain_and_in_the_api() {
    let mut status = snapshots::busy();
    status.decision.forecast = Some(forecasted::forecasted());
    let server = Server::with(snapshots::of(vec![status])).await;
    let page = server.get("/tiers/serving/chat-h100").await.body;
    let (_, text, _) = server.explain(&["chat-h100"]).await;
    for (shown, what) in [(page, "the page"), (text, "explain")] {
        for part in [
            "12.1 now, 13.4 expected in 3m25s, + 2.6 for its spread: safety 1.3, budget used 62 % this week",
            "of the work of the last seven days 0.062 % was late and 0.1 % may be: 62 % of the budget used, 7 late minutes",
            "as the replicas count them",
            "half of them would cost 1.4 replica-hours a day more",
            "30 s more acceptable queue would save 6.2 replica-hours a day",
            "a cold start of 60 s would save 3.1 replica-hours a day",
        ] {
            assert!(shown.contains(part), "{what}: {part} is missing\n{shown}");
        }
    }
    let api: serde_json::Value =
        serde_json::from_str(&server.get("/v1/tiers/serving/chat-h100").await.body).expect("JSON");
    let forecast = &api["decision"]["forecast"];
    assert_eq!(forecast["budget"]["lateShare"], 0.00062);
    assert_eq!(forecast["frontier"]["moreQueueSavesReplicaHoursADay"], 6.2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_says_everything_about_a_tier() {
    let server = Server::with(snapshots::rich()).await;
    let (code, text, error) = server.explain(&["chat-h100"]).await;
    assert_eq!((code, error.as_str()), (0, ""));
    for part in [
        "serving/chat-h100",
        "required  8",
        "binds     floor: working day promises 8",
        "6 ready, 1 starting, 1 silent, demand 6.5",
        "load known of 6 of 7",
        "KV cache",
        "█",
        "[saturated] 9 waiting requests",
        "[off] no target is given",
        "warm pool",
        "evening news",
        "Mon 19:45 (in 9h52m)",
        "Europe/Berlin",
        "connection refused",
        "did you mean desiredReplicas?",
        "(learned)",
        "starting, pulling",
        "3m in effect: learned: p90 of 12 starts (new node, image pulled, 1 not seen to their end)",
        "longest is pulling: shortened by images pulled to the nodes beforehand",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(!text.contains('\u{1b}'), "no colour into a pipe");
    assert_eq!(server.explain(&["serving/chat-h100"]).await.1, text);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_asks_and_when_and_who_is_refused_is_told_everywhere() {
    let (status, dry_run) = (snapshots::busy(), snapshots::quiet());
    let ago = |seconds| snapshots::morning() - chrono::TimeDelta::seconds(seconds);
    status.asked.note(Rpc::GetMetrics, "chat", ago(3));
    status.asked.note(Rpc::IsActive, "chat", ago(200));
    let mut snapshot = snapshots::of(vec![status, dry_run]);
    let (scaled_object, why) =
        ("serving/cht".to_owned(), "no tier \"cht\" in namespace \"serving\"".to_owned());
    snapshot.refused = vec![RefusedAsker { scaled_object, why }];
    let server = Server::with(snapshot).await;

    let (_, text, _) = server.explain(&["chat-h100"]).await;
    assert!(text.contains("asked     by chat: GetMetrics 3s ago, IsActive 3m20s ago"), "{text}");
    let page = server.get("/tiers/serving/chat-h100").await.body;
    assert!(page.contains("GetMetrics 3s ago, IsActive 3m20s ago"), "{page}");
    let json = server.json("/v1/tiers/serving/chat-h100").await;
    assert_eq!(json["asked"][0]["scaledObject"], "chat");
    assert_eq!(json["asked"][0]["getMetricSpec"], serde_json::Value::Null, "never is not zero");

    let (_, text, _) = server.explain(&["vision-l4"]).await;
    assert!(text.contains("asked     by no ScaledObject since the scaler began"), "{text}");
    assert!(server.get("/tiers/serving/vision-l4").await.body.contains("this is a dry run"));

    let (_, text, _) = server.explain(&[]).await;
    assert!(text.contains("refused: ScaledObject serving/cht: no tier \"cht\""), "{text}");
    let page = server.get("/").await.body;
    assert!(page.contains("Refused ScaledObjects") && page.contains("serving/cht"), "{page}");
    assert_eq!(server.json("/v1/tiers").await["refused"][0]["scaledObject"], "serving/cht");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_lists_all_tiers_and_prints_json() {
    let server = Server::with(snapshots::rich()).await;
    let (code, text, _) = server.explain(&[]).await;
    assert_eq!(code, 0);
    let row = |name: &str| {
        text.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{name}:\n{text}"))
    };
    assert!(row("serving/chat-h100").contains("working day promises 8"));
    assert!(row("serving/code-a100").contains('?'));
    assert!(row("batch/embeddings").contains("waits for its first round"));
    let (_, json, _) = server.explain(&["chat-h100", "--json"]).await;
    let value: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(value["decision"]["answer"]["required"], 8);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn explain_fails_with_one_clear_line() {
    let server = Server::with(snapshots::rich()).await;
    let (code, text, error) = server.explain(&["nobody"]).await;
    assert_eq!((code, text.as_str()), (1, ""));
    assert!(error.contains("no tier nobody: there is research/notebook, serving/chat-h100"), "{error}");
    let (code, _, error) = server.explain(&["serving/nobody"]).await;
    assert_eq!((code, error.as_str()), (1, "error: no tier serving/nobody\n"));
    let (code, _, error) = explain_at("http://127.0.0.1:1", &[]).await;
    assert_eq!(code, 1);
    assert!(error.starts_with("error: no scaler answers at http://127.0.0.1:1/: is it running"), "{error}");
    let (code, _, error) = explain_at(&format!("http://{}/nowhere", server.address), &[]).await;
    assert_eq!(code, 1);
    assert!(error.contains("answers 404"), "{error}");
}
