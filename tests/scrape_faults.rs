//! Every way a replica's page can fail on a real socket: each is an error of its class, in bounded time.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/fake_engine.rs"]
mod fake_engine;
#[path = "common/fake_tls.rs"]
mod fake_tls;
#[path = "scrape_faults/tls.rs"]
mod tls;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use fake_engine::{Answer, FakeEngine, full_backlog, refusing_address};
use fake_tls::{Authority, FakeTls};
use flate2::Compression;
use flate2::write::GzEncoder;
use keda_vllm_scaler::aggregate::{FailureKind, PageFailure};
use keda_vllm_scaler::config::{ScrapeSettings, TlsSettings};
use keda_vllm_scaler::scrape::{Client, ClientError, Page, ScrapeError};
use tokio::time::Instant;

const TIMEOUT: Duration = Duration::from_millis(400);
/// Room for a slow machine; what it catches is a wait without a bound.
const BOUNDED: Duration = Duration::from_secs(5);

fn settings() -> ScrapeSettings {
    ScrapeSettings {
        interval: Duration::from_secs(5),
        timeout: TIMEOUT,
        connect_timeout: Duration::from_millis(200),
        stale_after: Duration::from_secs(15),
        rate_window: Duration::from_mins(1),
        concurrency: 8,
        max_body_bytes: 100_000,
        max_expanded_bytes: 200_000,
        tls: TlsSettings::default(),
        bearer_token_file: None,
    }
}

async fn fetch_with(settings: &ScrapeSettings, url: &str) -> Result<Page, ScrapeError> {
    let began = Instant::now();
    fake_tls::install_provider();
    let result = Client::new(settings).unwrap().fetch(url).await;
    assert!(began.elapsed() < BOUNDED, "took {:?}", began.elapsed());
    result
}

/// The failure's class, and that it has a message for people.
async fn failure(url: &str) -> FailureKind {
    let failure = PageFailure::from(fetch_with(&settings(), url).await.unwrap_err());
    assert!(!failure.message.is_empty());
    failure.kind
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn gzip_answer(body: &[u8]) -> Answer {
    let head = format!("HTTP/1.1 200 OK\nContent-Encoding: gzip\nContent-Length: {}", body.len());
    Answer::Raw(Answer::with_head(&head, body))
}

#[tokio::test]
async fn a_page_comes_with_its_content_type_whatever_its_version() {
    let engine = FakeEngine::start(Answer::page("vllm:num_requests_running 1\n")).await;
    let page = fetch_with(&settings(), &engine.url()).await.unwrap();
    assert_eq!(page.body, b"vllm:num_requests_running 1\n");
    assert_eq!(page.content_type.as_deref(), Some("text/plain; version=1.0.0; charset=utf-8"));
    let head = engine.heads()[0].to_lowercase();
    assert!(head.starts_with("get /metrics http/1.1"), "{head}");
    assert!(head.contains("accept-encoding: gzip"), "{head}");
    assert!(!head.contains("openmetrics"), "vLLM renames its series for who asks for OpenMetrics: {head}");
    assert!(!head.contains("authorization"), "{head}");
}

#[tokio::test]
async fn a_gzip_page_is_expanded() {
    let engine = FakeEngine::start(gzip_answer(&gzip(&vec![b'a'; 150_000]))).await;
    assert_eq!(fetch_with(&settings(), &engine.url()).await.unwrap().body, vec![b'a'; 150_000]);
}

#[tokio::test]
async fn refused() {
    let addr = refusing_address().await;
    assert_eq!(failure(&format!("http://{addr}/metrics")).await, FailureKind::Refused);
}

#[tokio::test]
async fn a_full_backlog_is_a_connect_time_out() {
    let (addr, _guard) = full_backlog().await;
    let error = fetch_with(&settings(), &format!("http://{addr}/metrics")).await.unwrap_err();
    assert_eq!(error, ScrapeError::ConnectTimeout(Duration::from_millis(200)));
    assert_eq!(error.kind(), FailureKind::Connect);
}

#[tokio::test]
async fn a_host_name_that_does_not_resolve_is_no_address() {
    assert_eq!(failure("http://no-such-host.invalid:8000/metrics").await, FailureKind::NoAddress);
}

#[tokio::test]
async fn accepted_and_never_answered_is_a_time_out() {
    let engine = FakeEngine::start(Answer::RawThenSilence(Vec::new())).await;
    let error = fetch_with(&settings(), &engine.url()).await.unwrap_err();
    assert_eq!(error, ScrapeError::Timeout(TIMEOUT));
}

#[tokio::test]
async fn a_page_that_drips_is_a_time_out() {
    let head = Answer::with_head("HTTP/1.1 200 OK\nContent-Length: 90000", b"");
    let engine = FakeEngine::start(Answer::Drip { head, every: Duration::from_millis(20) }).await;
    assert_eq!(failure(&engine.url()).await, FailureKind::Timeout);
}

#[tokio::test]
async fn headers_that_drip_are_a_time_out() {
    let head = b"HTTP/1.1 200 OK\r\nX-Slow: ".to_vec();
    let engine = FakeEngine::start(Answer::Drip { head, every: Duration::from_millis(20) }).await;
    assert_eq!(failure(&engine.url()).await, FailureKind::Timeout);
}

#[tokio::test]
async fn status_500_and_204_are_refused() {
    for (status, code) in
        [("500 Internal Server Error", 500), ("204 No Content", 204), ("404 Not Found", 404)]
    {
        let head = format!("HTTP/1.1 {status}\nContent-Length: 0");
        let engine = FakeEngine::start(Answer::Raw(Answer::with_head(&head, b""))).await;
        let error = fetch_with(&settings(), &engine.url()).await.unwrap_err();
        assert_eq!(error, ScrapeError::Status(code));
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let other = FakeEngine::start(Answer::page("vllm:num_requests_running 1\n")).await;
    let head = format!("HTTP/1.1 302 Found\nLocation: {}\nContent-Length: 0", other.url());
    let engine = FakeEngine::start(Answer::Raw(Answer::with_head(&head, b""))).await;
    let error = fetch_with(&settings(), &engine.url()).await.unwrap_err();
    assert_eq!(error, ScrapeError::Status(302));
    assert!(error.to_string().contains("not followed"));
    assert_eq!(other.connections(), 0);
}

#[tokio::test]
async fn html_with_status_200_is_fetched_and_left_to_the_reader_to_refuse() {
    let html = b"<!doctype html><title>login</title>".to_vec();
    let engine = FakeEngine::start(Answer::Page { body: html.clone(), content_type: "text/html" }).await;
    let page = fetch_with(&settings(), &engine.url()).await.unwrap();
    assert_eq!(page.body, html);
    keda_vllm_scaler::engines::read_page(&page.body, page.content_type.as_deref(), None).unwrap_err();
}

#[tokio::test]
async fn gzip_that_ends_early_is_a_bad_page() {
    let whole = gzip(&vec![b'a'; 100_000]);
    let engine = FakeEngine::start(gzip_answer(&whole[..whole.len() - 9])).await;
    assert_eq!(failure(&engine.url()).await, FailureKind::BadPage);
}

#[tokio::test]
async fn a_gzip_bomb_is_too_large() {
    let bomb = gzip(&vec![0; 50_000_000]);
    assert!(bomb.len() < 100_000);
    let engine = FakeEngine::start(gzip_answer(&bomb)).await;
    let error = fetch_with(&settings(), &engine.url()).await.unwrap_err();
    assert_eq!(error, ScrapeError::ExpandedTooLarge(200_000));
    assert_eq!(error.kind(), FailureKind::TooLarge);
}

#[tokio::test]
async fn an_endless_body_is_too_large() {
    let head = Answer::with_head("HTTP/1.1 200 OK\nContent-Type: text/plain", b"");
    let engine = FakeEngine::start(Answer::Endless(head)).await;
    assert_eq!(failure(&engine.url()).await, FailureKind::TooLarge);
}

#[tokio::test]
async fn a_length_above_the_bound_is_refused_before_the_body() {
    let head = Answer::with_head("HTTP/1.1 200 OK\nContent-Length: 300000000", b"");
    let engine = FakeEngine::start(Answer::RawThenSilence(head)).await;
    assert_eq!(failure(&engine.url()).await, FailureKind::TooLarge);
}

#[tokio::test]
async fn a_body_shorter_than_its_length_is_a_bad_page() {
    let short = Answer::with_head("HTTP/1.1 200 OK\nContent-Length: 500", b"vllm:num_requests_running 1\n");
    let engine = FakeEngine::start(Answer::Raw(short)).await;
    let error = fetch_with(&settings(), &engine.url()).await.unwrap_err();
    assert_eq!(error, ScrapeError::CutShort);
    assert_eq!(error.kind(), FailureKind::BadPage);
}

#[tokio::test]
async fn a_chunked_body_without_its_last_chunk_is_a_bad_page() {
    let cut = Answer::with_head("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", b"5\r\nhello\r\n");
    let engine = FakeEngine::start(Answer::Raw(cut)).await;
    assert_eq!(failure(&engine.url()).await, FailureKind::BadPage);
}

#[tokio::test]
async fn an_answer_that_is_not_http_is_a_connect_failure() {
    let engine = FakeEngine::start(Answer::Raw(b"SSH-2.0-OpenSSH_9.2\r\n".to_vec())).await;
    assert_eq!(failure(&engine.url()).await, FailureKind::Connect);
}

#[tokio::test]
async fn a_url_that_is_none_and_another_scheme_are_errors() {
    for url in ["", "metrics", "ftp://127.0.0.1/metrics", "http://"] {
        let error = fetch_with(&settings(), url).await.unwrap_err();
        assert!(matches!(error, ScrapeError::BadUrl(_)), "{url}: {error}");
    }
}

#[tokio::test]
async fn plain_http_dials_anew_for_each_page_and_keeps_no_connection() {
    // This one resets a connection that is used again.
    let engine = FakeEngine::start(Answer::PageThenReset(b"a 1\n".to_vec())).await;
    fake_tls::install_provider();
    let client = Client::new(&settings()).unwrap();
    for _ in 0..3 {
        assert_eq!(client.fetch(&engine.url()).await.unwrap().body, b"a 1\n");
    }
    assert_eq!((engine.requests(), engine.connections()), (3, 3));
}

#[tokio::test]
async fn a_replica_that_resets_a_new_connection_is_not_asked_again() {
    let engine = FakeEngine::start(Answer::Reset).await;
    assert_eq!(failure(&engine.url()).await, FailureKind::Connect);
    assert_eq!(engine.requests(), 1);
}

#[tokio::test]
async fn a_bearer_token_is_sent_and_a_rotated_one_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    std::fs::write(&file, "first\n").unwrap();
    let engine = FakeEngine::start(Answer::page("a 1\n")).await;
    let with_token = ScrapeSettings { bearer_token_file: Some(file.clone()), ..settings() };
    fake_tls::install_provider();
    let mut client = Client::new(&with_token).unwrap();
    assert!(!format!("{client:?}").contains("first"), "a token must not show in logs");
    client.fetch(&engine.url()).await.unwrap();

    std::fs::write(&file, "second-token").unwrap();
    assert_eq!(client.refresh(), Ok(false), "files are looked at once in ten seconds");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    assert_eq!(client.refresh(), Ok(true));
    client.fetch(&engine.url()).await.unwrap();

    std::fs::write(&file, "").unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    assert!(matches!(client.refresh(), Err(ClientError::File { .. })), "an empty token is no token");
    client.fetch(&engine.url()).await.unwrap();

    let tokens: Vec<_> = engine.heads().iter().map(|head| token_of(head)).collect();
    assert_eq!(tokens, ["Bearer first", "Bearer second-token", "Bearer second-token"]);
}

fn token_of(head: &str) -> String {
    let line = head.lines().find(|line| line.to_lowercase().starts_with("authorization:")).unwrap();
    line.split_once(':').unwrap().1.trim().to_owned()
}

#[tokio::test]
async fn credential_files_that_cannot_be_used_are_named() {
    fake_tls::install_provider();
    let folder = tempfile::tempdir().unwrap();
    let garbage = folder.path().join("garbage.pem");
    std::fs::write(&garbage, "not pem").unwrap();
    let missing = folder.path().join("missing");
    let tls = |ca: Option<PathBuf>, cert: Option<PathBuf>, key: Option<PathBuf>| ScrapeSettings {
        tls: TlsSettings {
            ca_file: ca,
            client_cert_file: cert,
            client_key_file: key,
            ..TlsSettings::default()
        },
        ..settings()
    };
    let named = |settings: &ScrapeSettings| Client::new(settings).unwrap_err().to_string();
    assert!(named(&tls(Some(garbage.clone()), None, None)).contains("garbage.pem"));
    assert!(named(&tls(Some(missing.clone()), None, None)).contains("missing"));
    assert!(named(&tls(None, Some(garbage.clone()), Some(garbage.clone()))).contains("garbage.pem"));
    assert_eq!(Client::new(&tls(None, Some(garbage), None)).unwrap_err(), ClientError::HalfIdentity);
    let token = ScrapeSettings { bearer_token_file: Some(missing), ..settings() };
    assert!(named(&token).contains("missing"));
}

#[tokio::test]
async fn a_rotated_authority_is_taken_up() {
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new("old"), Authority::new("the new one"));
    let server = FakeTls::start(&new, None, "a 1\n");
    let file = folder.path().join("ca.pem");
    std::fs::copy(old.write_ca(folder.path()), &file).unwrap();
    let rotating = ScrapeSettings {
        tls: TlsSettings { ca_file: Some(file.clone()), ..TlsSettings::default() },
        ..settings()
    };
    let mut client = Client::new(&rotating).unwrap();
    assert_eq!(client.fetch(&server.url()).await.unwrap_err().kind(), FailureKind::Tls);

    std::fs::copy(new.write_ca(folder.path()), &file).unwrap();
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(11)).await;
    tokio::time::resume();
    assert_eq!(client.refresh(), Ok(true));
    assert_eq!(client.fetch(&server.url()).await.unwrap().body, b"a 1\n");
}

/// The parent runs the child with proxy variables that lead to a counting server.
#[tokio::test]
async fn proxy_variables_are_ignored() {
    let proxy = FakeEngine::start(Answer::page("from the proxy 1\n")).await;
    let engine = FakeEngine::start(Answer::page("from the engine 1\n")).await;
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "child_behind_a_proxy", "--ignored"]).env("FETCH_URL", engine.url());
    for variable in ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "HTTPS_PROXY"] {
        child.env(variable, format!("http://{}", proxy.addr));
    }
    child.env_remove("NO_PROXY").env_remove("no_proxy");
    let output = tokio::task::spawn_blocking(move || child.output().unwrap()).await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!((proxy.connections(), engine.requests()), (0, 1));
}

#[tokio::test]
#[ignore = "run by proxy_variables_are_ignored"]
async fn child_behind_a_proxy() {
    let url = std::env::var("FETCH_URL").unwrap();
    assert_eq!(fetch_with(&settings(), &url).await.unwrap().body, b"from the engine 1\n");
}
