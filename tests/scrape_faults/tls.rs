//! Https: authorities, client certificates, names, and connections that are kept.

use std::path::Path;

use super::fake_tls::{Authority, FakeTls};
use keda_vllm_scaler::aggregate::FailureKind;
use keda_vllm_scaler::config::{ScrapeSettings, TlsSettings};
use keda_vllm_scaler::scrape::Client;

use super::{failure, fetch_with, settings};

/// Settings that trust this authority.
fn trusting(authority: &Authority, folder: &Path) -> ScrapeSettings {
    let tls = TlsSettings { ca_file: Some(authority.write_ca(folder)), ..TlsSettings::default() };
    ScrapeSettings { tls, ..settings() }
}

#[tokio::test]
async fn an_https_connection_that_stays_open_is_used_again() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("ours"));
    let server = FakeTls::answering(&authority, 10, "a 1\n");
    let client = Client::new(&trusting(&authority, folder.path())).unwrap();
    for _ in 0..3 {
        client.fetch(&server.url()).await.unwrap();
    }
    assert_eq!((server.requests(), server.connections()), (3, 1));
}

#[tokio::test]
async fn an_https_connection_closed_while_idle_is_dialled_anew() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("ours"));
    let server = FakeTls::answering(&authority, 1, "a 1\n");
    let client = Client::new(&trusting(&authority, folder.path())).unwrap();
    client.fetch(&server.url()).await.unwrap();
    // The second request meets an end on the pooled connection and succeeds on its own.
    assert_eq!(client.fetch(&server.url()).await.unwrap().body, b"a 1\n");
    assert_eq!((server.requests(), server.connections()), (3, 2));
}

#[tokio::test]
async fn an_https_server_that_never_answers_is_tried_twice_and_no_more() {
    let (folder, authority) = (tempfile::tempdir().unwrap(), Authority::new("ours"));
    let server = FakeTls::answering(&authority, 0, "");
    let error = fetch_with(&trusting(&authority, folder.path()), &server.url()).await.unwrap_err();
    assert_ne!(error.kind(), FailureKind::Timeout, "{error}");
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn a_certificate_without_the_address_is_taken_by_its_server_name_and_by_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let server = FakeTls::named(&ours, "chat.serving.svc", "a 1\n");
    let named = |authority: &Authority, name: Option<&str>| {
        let mut settings = trusting(authority, folder.path());
        settings.tls.server_name = name.map(str::to_owned);
        settings
    };
    let fetched = fetch_with(&named(&ours, Some("chat.serving.svc")), &server.url()).await;
    assert_eq!(fetched.unwrap().body, b"a 1\n");
    for (authority, name) in
        [(&ours, None), (&ours, Some("code.serving.svc")), (&other, Some("chat.serving.svc"))]
    {
        let error = fetch_with(&named(authority, name), &server.url()).await.unwrap_err();
        assert_eq!(error.kind(), FailureKind::Tls, "{name:?}: {error}");
    }
}

#[tokio::test]
async fn a_server_name_and_a_client_certificate_go_together() {
    let folder = tempfile::tempdir().unwrap();
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = FakeTls::start(&servers, Some(&clients), "a 1\n");
    let (cert, key) = clients.write_identity(folder.path());
    let mut with = trusting(&servers, folder.path());
    with.tls = TlsSettings {
        client_cert_file: Some(cert),
        client_key_file: Some(key),
        server_name: Some("localhost".to_owned()),
        ..with.tls
    };
    assert_eq!(fetch_with(&with, &server.url()).await.unwrap().body, b"a 1\n");
}

#[tokio::test]
async fn https_with_its_own_authority_is_trusted_and_any_other_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let server = FakeTls::start(&ours, None, "a 1\n");
    let trusting = |authority: &Authority| trusting(authority, folder.path());
    assert_eq!(fetch_with(&trusting(&ours), &server.url()).await.unwrap().body, b"a 1\n");

    let error = fetch_with(&trusting(&other), &server.url()).await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::Tls, "{error}");
    // Without a CA file only the system's roots are trusted.
    assert_eq!(failure(&server.url()).await, FailureKind::Tls);
    // http to a TLS port is no page either.
    assert_ne!(failure(&server.url().replace("https", "http")).await, FailureKind::Tls);
}

#[tokio::test]
async fn a_server_that_asks_for_a_client_certificate_gets_it() {
    let folder = tempfile::tempdir().unwrap();
    let (servers, clients) = (Authority::new("servers"), Authority::new("clients"));
    let server = FakeTls::start(&servers, Some(&clients), "a 1\n");
    let ca_file = Some(servers.write_ca(folder.path()));
    let without = ScrapeSettings {
        tls: TlsSettings { ca_file: ca_file.clone(), ..TlsSettings::default() },
        ..settings()
    };
    let error = fetch_with(&without, &server.url()).await.unwrap_err();
    assert_eq!(error.kind(), FailureKind::Tls, "{error}");

    let (cert, key) = clients.write_identity(folder.path());
    let with = ScrapeSettings {
        tls: TlsSettings {
            ca_file,
            client_cert_file: Some(cert),
            client_key_file: Some(key),
            ..TlsSettings::default()
        },
        ..settings()
    };
    assert_eq!(fetch_with(&with, &server.url()).await.unwrap().body, b"a 1\n");
}
