//! The HTTP port, the page and `explain`, over real sockets on made-up snapshots.

#[path = "status_page/explain.rs"]
mod explain;

use std::process::Command;
use std::sync::Arc;

use keda_vllm_scaler::decision::{BlockedCapacity, BlockedReason, TierId};
use keda_vllm_scaler::serve::http;
use keda_vllm_scaler::snapshot::{Snapshot, TierStatus};
use reqwest::StatusCode;
use tokio::sync::watch;

#[path = "common/forecasted.rs"]
mod forecasted;
#[path = "common/snapshots.rs"]
mod snapshots;

struct Server {
    address: String,
    sender: watch::Sender<Arc<Snapshot>>,
}

impl Server {
    async fn with(snapshot: Snapshot) -> Self {
        Self::at("127.0.0.1:0", snapshot, snapshots::clock()).await
    }

    async fn at(listen: &str, snapshot: Snapshot, clock: keda_vllm_scaler::clock::Clock) -> Self {
        let (published, sender) = snapshots::publish(snapshot);
        let metrics = Arc::new(|| "vllm_scaler_up 1\n# EOF\n".to_owned());
        let listener = tokio::net::TcpListener::bind(listen).await.expect("a port");
        let address = listener.local_addr().expect("bound").to_string();
        let router = http::router(published, metrics, clock);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { address, sender }
    }

    async fn get(&self, path: &str) -> Reply {
        // Another test of this process may have installed it.
        drop(rustls::crypto::ring::default_provider().install_default());
        let client = reqwest::Client::builder().no_proxy().build().expect("client");
        let response = client.get(format!("http://{}{path}", self.address)).send().await.expect("an answer");
        let header = |name: &str| {
            response
                .headers()
                .get(name)
                .map(|value| value.to_str().expect("text").to_owned())
                .unwrap_or_default()
        };
        Reply {
            status: response.status(),
            content_type: header("content-type"),
            policy: header("content-security-policy"),
            body: response.text().await.expect("body"),
        }
    }

    async fn json(&self, path: &str) -> serde_json::Value {
        let reply = self.get(path).await;
        assert_eq!(reply.content_type, "application/json");
        serde_json::from_str(&reply.body).expect("JSON")
    }

    /// Runs `explain` against this server: exit code, standard output, standard error.
    async fn explain(&self, arguments: &[&str]) -> (i32, String, String) {
        explain_at(&format!("http://{}", self.address), arguments).await
    }
}

async fn explain_at(server: &str, arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keda-vllm-scaler"));
    command.arg("explain").args(arguments).env("KEDA_VLLM_SCALER_SERVER", server).env_remove("HTTP_PROXY");
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("joined").expect("runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("exits"), text(output.stdout), text(output.stderr))
}

struct Reply {
    status: StatusCode,
    content_type: String,
    policy: String,
    body: String,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_tier_is_told_whole_in_json() {
    let server = Server::with(snapshots::rich()).await;
    let tier = server.json("/v1/tiers/serving/chat-h100").await;
    assert_eq!(tier["decision"]["answer"]["required"], 8);
    assert_eq!(tier["decision"]["winner"]["kind"], "floor");
    assert_eq!(tier["decision"]["leadSeconds"], 230.0);
    assert_eq!(tier["decision"]["coldStart"]["inEffectSeconds"], 180.0);
    assert_eq!(tier["decision"]["coldStart"]["paths"][0]["path"], "newNodeImagePulled");
    assert_eq!(tier["decision"]["coldStart"]["paths"][0]["stages"][2]["p90Seconds"], 70.0);
    assert_eq!(tier["policy"]["coldStartSeconds"], 180.0);
    assert_eq!(tier["policy"]["floors"][0]["window"]["start"], "0 9 * * 1-5");
    assert_eq!(tier["observation"]["replicas"][7]["state"], "silent");
    assert_eq!(tier["observation"]["replicas"][7]["load"], serde_json::Value::Null);
    assert_eq!(tier["floorsAhead"][1]["replicas"], 10);
    assert_eq!(tier["config"]["file"], "/etc/keda-vllm-scaler/config.yaml");
    let recent = tier["recent"].as_object().expect("object");
    assert_eq!(recent.len(), 11);
    assert!(recent.values().all(|array| array.as_array().expect("array").len() == 340));
    assert!(
        recent["demand"].as_array().expect("array").contains(&serde_json::Value::Null),
        "unknown is null"
    );
}

#[tokio::test]
async fn all_tiers_are_told_in_order_without_their_history() {
    let server = Server::with(snapshots::rich()).await;
    let all = server.json("/v1/tiers").await;
    let names: Vec<&str> = all["tiers"]
        .as_array()
        .expect("array")
        .iter()
        .filter_map(|t| t["decision"]["tier"]["name"].as_str())
        .collect();
    assert_eq!(names, ["notebook", "chat-h100", "code-a100", "vision-l4"]);
    assert_eq!(all["waiting"][0]["name"], "embeddings");
    assert_eq!(all["ready"], true);
    assert!(all["tiers"][0].get("recent").is_none());
}

#[tokio::test]
async fn a_tier_that_is_not_there_is_404_and_one_without_a_decision_503() {
    let server = Server::with(snapshots::rich()).await;
    let missing = server.get("/v1/tiers/serving/nobody").await;
    assert_eq!(missing.status, StatusCode::NOT_FOUND);
    assert_eq!(missing.body, r#"{"error":"no tier serving/nobody"}"#);
    let waiting = server.get("/v1/tiers/batch/embeddings").await;
    assert_eq!(waiting.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(waiting.body.contains("no decision yet"));
    assert_eq!(server.get("/tiers/serving/nobody").await.status, StatusCode::NOT_FOUND);
    assert_eq!(server.get("/tiers/batch/embeddings").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(server.get("/nowhere").await.status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn metrics_have_the_openmetrics_content_type() {
    let server = Server::with(snapshots::rich()).await;
    let metrics = server.get("/metrics").await;
    assert_eq!(metrics.content_type, "application/openmetrics-text; version=1.0.0; charset=utf-8");
    assert_eq!(metrics.body, "vllm_scaler_up 1\n# EOF\n");
}

#[tokio::test]
async fn readiness_is_the_snapshots_and_liveness_the_control_loops() {
    let server = Server::with(snapshots::empty()).await;
    assert_eq!(server.get("/readyz").await.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(server.get("/livez").await.status, StatusCode::OK);
    server.sender.send_replace(Arc::new(snapshots::rich()));
    assert_eq!(server.get("/readyz").await.status, StatusCode::OK);
    let Server { address, sender } = server;
    drop(sender);
    let (_, sender) = snapshots::publish(snapshots::empty());
    let server = Server { address, sender };
    assert_eq!(
        server.get("/livez").await.status,
        StatusCode::SERVICE_UNAVAILABLE,
        "the control loop has ended"
    );
}

#[tokio::test]
async fn the_page_of_a_tier_says_the_number_and_its_reason_first() {
    let server = Server::with(snapshots::rich()).await;
    let page = server.get("/tiers/serving/chat-h100").await;
    assert_eq!(page.status, StatusCode::OK);
    assert_eq!(page.content_type, "text/html; charset=utf-8");
    assert!(page.body.contains("<title>8 required · chat-h100"));
    let order = [
        "<strong>8</strong>",
        "working day promises 8 until Mon 18:00",
        "6 ready · 1 starting · 1 silent",
        "2 short",
        "did you mean desiredReplicas?",
        "1 replica is silent",
        "<svg class=\"plot\"",
        "4.27 replicas' KV cache",
        "Bounds",
        "evening news",
        "connection refused",
        "starting<span class=\"muted\"> pulling</span>",
        "learned: p90 of 12 starts (new node, image pulled",
        "Longest is <b>pulling</b>. Shortened by images pulled to the nodes beforehand, or a smaller image.",
        "≤ 300 ms",
        "Online fit",
        "loaded Mon 05:52 UTC",
    ];
    let places: Vec<usize> = order
        .iter()
        .map(|text| page.body.find(text).unwrap_or_else(|| panic!("{text} is not on the page")))
        .collect();
    assert!(places.is_sorted(), "{places:?}");
    assert!(
        page.body.contains("3m cold start, 50s on the way"),
        "the lead is told with the learned cold start"
    );
}

#[tokio::test]
async fn the_page_loads_nothing_and_runs_nothing() {
    let server = Server::with(snapshots::rich()).await;
    for path in ["/", "/tiers/serving/chat-h100"] {
        let page = server.get(path).await;
        assert!(page.policy.starts_with("default-src 'none'"), "{}", page.policy);
        for forbidden in ["<script", "http://", "https://", "@import", "url("] {
            let at = page.body.find(forbidden).map(|at| &page.body[at..(at + 60).min(page.body.len())]);
            assert_eq!(at, None, "{path} has {forbidden}");
        }
        assert!(page.body.contains("http-equiv=\"refresh\""));
        assert!(!server.get(&format!("{path}?refresh=off")).await.body.contains("http-equiv"));
    }
}

#[tokio::test]
async fn an_unknown_answer_is_never_shown_as_a_number() {
    let server = Server::with(snapshots::rich()).await;
    let page = server.get("/tiers/serving/code-a100").await.body;
    assert!(page.contains("<strong>?</strong>"));
    assert!(page.contains("KEDA is told an error, so the HPA holds the 4 that it has"));
    assert!(page.contains("NXDOMAIN"));
    assert!(page.contains("No history yet"));
    assert!(page.contains("replicas unknown") && !page.contains("0 ready"), "absent is not zero");
}

#[tokio::test]
async fn without_a_tier_the_page_says_what_to_do() {
    let server = Server::with(snapshots::empty()).await;
    let page = server.get("/").await.body;
    for text in
        ["No tier yet", "/etc/keda-vllm-scaler/config.yaml", "allowMetadataTiers: true", "coldStart: 180s"]
    {
        assert!(page.contains(text), "{text}");
    }
}

#[tokio::test]
async fn alarms_of_the_scaler_itself_are_on_every_page() {
    let mut snapshot = snapshots::rich();
    snapshot.config.rejected = Some("tiers[0].floors[0].start (line 12): hour 24 is above 23".to_owned());
    snapshot.store.alarm = Some("the disk is full.".to_owned());
    snapshot.config.warnings.push("tiers[0]: hold is shorter than the cold start".to_owned());
    snapshot.at -= chrono::TimeDelta::minutes(7);
    let server = Server::with(snapshot).await;
    for path in ["/", "/tiers/serving/chat-h100"] {
        let page = server.get(path).await.body;
        for text in [
            "A newer configuration was refused",
            "hour 24 is above 23",
            "The store is not used",
            "the disk is full.",
            "hold is shorter",
            "This is 7m02s old",
        ] {
            assert!(page.contains(text), "{path}: {text}");
        }
    }
    let (_, text, _) = server.explain(&[]).await;
    assert!(text.contains("A NEWER CONFIGURATION WAS REFUSED"), "{text}");
    assert!(text.contains("THE STORE IS NOT USED: the disk is full."), "{text}");
}

/// A tier in which every text tries to leave its place.
fn hostile() -> TierStatus {
    let attack = "</title><script>alert(1)</script><img src=x onerror=alert(2)> \" ' \u{1b}[2J";
    let mut status = snapshots::busy();
    let id = TierId::new("<script>ns", "\"><script>alert(0)</script>");
    let mut policy = (*status.policy).clone();
    policy.tier = id.clone();
    attack.clone_into(&mut policy.floors[0].name);
    status.policy = Arc::new(policy);
    status.decision.tier = id;
    attack.clone_into(&mut status.decision.winner.because);
    status.decision.held = Some(status.decision.winner.clone());
    status.decision.notes = vec![attack.to_owned()];
    attack.clone_into(&mut status.decision.capacity.source);
    attack.clone_into(&mut status.decision.capacity.fit);
    status.warnings = vec![attack.to_owned()];
    for ask in &mut status.decision.asks {
        attack.clone_into(&mut ask.because);
    }
    for bound in &mut status.decision.bounds {
        attack.clone_into(&mut bound.because);
    }
    for replica in &mut status.observation.replicas {
        attack.clone_into(&mut replica.name);
        replica.error = Some(attack.to_owned());
        if let Some(start) = &mut replica.start {
            start.blocked = Some(attack.to_owned());
        }
    }
    attack.clone_into(&mut status.decision.cold_start.because);
    status.decision.blocked =
        vec![BlockedCapacity { reason: BlockedReason::Other, replicas: 1, because: attack.to_owned() }];
    status.observation.replicas_unknown = Some(attack.to_owned());
    attack.clone_into(&mut status.floors_ahead[0].name);
    status
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_from_elsewhere_never_becomes_markup_nor_moves_the_cursor() {
    let mut snapshot = snapshots::of(vec![hostile()]);
    snapshot.config.file = "<script>file".to_owned();
    snapshot.config.rejected = Some("<script>rejected\u{1b}[2J".to_owned());
    snapshot.config.warnings = vec!["<script>warning".to_owned()];
    snapshot.store.alarm = Some("<script>alarm\u{1b}[2J".to_owned());
    snapshot.store.path = Some("<script>path".to_owned());
    snapshot.waiting.push(TierId::new("<script>", "<img src=x>"));
    let server = Server::with(snapshot).await;
    let tier_path = "/tiers/%3Cscript%3Ens/%22%3E%3Cscript%3Ealert%280%29%3C%2Fscript%3E";
    assert!(server.get("/").await.body.contains(tier_path), "the link leads to the tier");
    for path in ["/", tier_path, "/tiers/%3Cscript%3E/%3Cscript%3E", "/tiers/%3Cscript%3E/%3Cimg%20src=x%3E"]
    {
        let page = server.get(path).await.body;
        assert!(page.contains("&lt;script"), "{path} shows the text");
        assert!(!page.contains("<script") && !page.contains("<img"), "{path}");
    }
    let (code, text, error) = server.explain(&["<script>ns/\"><script>alert(0)</script>"]).await;
    assert_eq!((code, error.as_str()), (0, ""));
    assert!(text.contains("<script>alert(1)"), "a terminal runs no markup");
    assert!(!text.contains('\u{1b}'), "no escape sequence comes through");
}

#[tokio::test]
async fn the_same_snapshot_gives_the_same_bytes() {
    let (first, second) = (Server::with(snapshots::rich()).await, Server::with(snapshots::rich()).await);
    for path in ["/", "/tiers/serving/chat-h100"] {
        let (one, two) = (first.get(path).await.body, second.get(path).await.body);
        assert_eq!(one, two, "{path}");
    }
    let page = first.get("/tiers/serving/chat-h100").await.body;
    assert!(!page.contains("NaN"), "gaps are not drawn");
    let ready =
        page.split("class=\"ready\" d=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a path");
    assert_eq!(ready.matches('M').count(), 2, "one gap, two runs: {ready}");
}

/// Not a test: serves a made-up snapshot to look at, `LOOK=127.0.0.1:18080 cargo test --test status_page -- --ignored`.
#[tokio::test]
#[ignore = "serves until it is stopped"]
async fn serve_a_snapshot_to_look_at() {
    let mut snapshot = snapshots::rich();
    if std::env::var_os("LOOK_ALARMS").is_some() {
        snapshot.config.rejected = Some(
            "tiers[0].floors[0].start (line 12): hour 24 is above 23 (use 0)\ntiers[1].replicas.min (line 31): 50 is above max (40)".to_owned(),
        );
        snapshot.store.alarm = Some("/var/lib/keda-vllm-scaler: no space left on device.".to_owned());
        snapshot.config.warnings =
            vec!["tiers[0].scaleDown.hold (line 20): 60s is shorter than the cold start (180s)".to_owned()];
    }
    if std::env::var_os("LOOK_EMPTY").is_some() {
        snapshot = snapshots::empty();
    }
    let listen = std::env::var("LOOK").unwrap_or_else(|_| "127.0.0.1:0".to_owned());
    let server = Server::at(&listen, snapshot, snapshots::clock()).await;
    println!("http://{}/", server.address);
    std::future::pending::<()>().await;
}
