//! Sources, scraping, TLS and listeners.

use keda_vllm_scaler::config;

use super::{load, only_problem, problems, refused, tier_with};

#[test]
fn a_tier_has_exactly_one_source_that_this_version_knows() {
    refused(
        "source: {prometheus: {url: 'http://p'}}",
        "source.prometheus",
        "`prometheus` is not supported by this version: use `kubernetes`, `dns` or `fixed`",
    );
    refused("source: {}", "source", "0 of `kubernetes`, `dns`, `fixed` are given: write exactly one");
    refused(
        "source: {dns: {host: a, port: 1}, fixed: {urls: ['a:1']}}",
        "source",
        "2 of `kubernetes`, `dns`, `fixed` are given: write exactly one",
    );
    refused(
        "source: http://a",
        "source",
        "a single value where a mapping belongs: write `kubernetes`, `dns`, `fixed`",
    );
    refused("source: {static: {urls: ['a:1']}}", "source.static", "unknown key");
}

#[test]
fn bad_urls_are_refused_and_passwords_are_not_repeated() {
    refused("source: {fixed: {urls: ['ftp://a/metrics']}}", "source.fixed.urls[0]", "write http or https");
    refused("source: {fixed: {urls: ['http://a', 'a:80']}}", "source.fixed.urls[1]", "listed twice");
    refused("source: {fixed: {urls: []}}", "source.fixed.urls", "the list is empty");
    let (_, message) = only_problem(&["source: {fixed: {urls: ['http://me:hunter2@a/metrics']}}"]);
    assert!(
        message.contains("credentials don't belong in a URL") && !message.contains("hunter2"),
        "{message}"
    );
    refused("activator: {url: 'file:///etc/passwd', metric: m}", "activator.url", "write http or https");
    refused("activator: {url: 'http://a', metric: 'm{a=\"b\"}'}", "activator.metric", "is no metric name");
    refused(
        "activator: {url: 'http://a', metric: m, labels: {a-b: c}}",
        "activator.labels",
        "is no label name",
    );
}

#[test]
fn urls_that_are_wrong_and_listed_twice_are_told_both_at_once() {
    let url = "ftp://me:hunter2@a/metrics";
    let text = tier_with(&[&format!("source: {{fixed: {{urls: ['{url}', 'a:80', '{url}', 'a:80']}}}}")]);
    let told = problems(&text);
    let twice: Vec<&str> = told
        .iter()
        .filter(|problem| problem.message.contains("listed twice"))
        .map(|problem| problem.path.as_str())
        .collect();
    assert_eq!(twice, ["tiers[0].source.fixed.urls[2]", "tiers[0].source.fixed.urls[3]"], "{told}");
    assert!(!told.to_string().contains("hunter2"), "{told}");
}

#[test]
fn a_bad_value_hides_no_other_problem_of_its_section() {
    let told = problems(&tier_with(&["scrape: {concurrency: 0, clientCert: /a.crt}"]));
    assert_eq!(told.len(), 2, "{told}");
    let told = problems(&tier_with(&["scrape: {ca: '', clientCert: /a.crt}"]));
    assert_eq!(told.len(), 2, "{told}");
    let tier = "- {name: Chat, namespace: a, source: {fixed: {urls: ['h:1']}}, replicas: {max: 8}}\n";
    let told = problems(&format!("tiers:\n{tier}{tier}")).to_string();
    assert!(told.contains("tier `Chat` of `a` is declared twice"), "{told}");
}

#[test]
fn dns_needs_a_name_and_a_port() {
    refused("source: {dns: {host: 10.0.0.1, port: 80}}", "source.dns.host", "list it under `fixed`");
    refused("source: {dns: {host: 'http://a', port: 80}}", "source.dns.host", "without scheme, port or path");
    refused(
        "source: {dns: {host: a, port: metrics}}",
        "source.dns.port",
        "write a number from 1 to 65535, or srv",
    );
    refused("source: {dns: {host: a}}", "source.dns.port", "missing");
    refused("source: {dns: {host: a, port: 80, scheme: ftp}}", "source.dns.scheme", "write http or https");
    refused("source: {dns: {host: a, port: 80, path: metrics}}", "source.dns.path", "such as /metrics");
}

#[test]
fn times_of_scraping_that_contradict_each_other_are_refused() {
    refused(
        "scrape: {timeout: 10s, staleAfter: 15s}",
        "scrape.staleAfter",
        "more than `interval` + `timeout` = 15s",
    );
    refused("scrape: {staleAfter: 2s}", "scrape.staleAfter", "stale before the next can be there");
    refused(
        "scrape: {timeout: 1s, connectTimeout: 2s}",
        "scrape.connectTimeout",
        "longer than the whole `timeout`",
    );
    refused("scrape: {rateWindow: 9s}", "scrape.rateWindow", "write 10s or more");
    refused(
        "scrape: {maxBodyBytes: 8MiB, maxExpandedBytes: 4MiB}",
        "scrape.maxExpandedBytes",
        "less than `maxBodyBytes`",
    );
    refused("scrape: {interval: 10ms}", "scrape.interval", "too short");
    refused("scrape: {concurrency: 0}", "scrape.concurrency", "write a whole number from 1");
}

#[test]
fn derived_times_follow_the_interval() {
    let scrape = load(&tier_with(&["scrape: {interval: 10s}"])).tiers.remove(0).scrape;
    assert_eq!((scrape.stale_after.as_secs(), scrape.rate_window.as_secs()), (30, 60));
    let policy = load(&tier_with(&["scrape: {interval: 10s}"])).tiers.remove(0).policy;
    assert_eq!(policy.control_delay.as_secs(), 30);
    assert_eq!(config::ScrapeSettings::default(), load(&tier_with(&[])).tiers[0].scrape);
}

#[test]
fn a_client_certificate_and_its_key_come_together() {
    refused("scrape: {clientCert: /a.crt}", "scrape.clientCert", "`clientKey` is missing");
    refused("scrape: {clientKey: /a.key}", "scrape.clientKey", "`clientCert` is missing");
}

#[test]
fn a_server_name_comes_with_the_authority_that_vouches_for_it() {
    refused("scrape: {serverName: chat.serving.svc}", "scrape.serverName", "`ca` is missing");
    refused("scrape: {ca: /ca.crt, serverName: 10.0.0.1}", "scrape.serverName", "is an address");
    let tier = load(&tier_with(&["scrape: {ca: /ca.crt, serverName: chat.serving.svc}"])).tiers.remove(0);
    assert_eq!(tier.scrape.tls.server_name.as_deref(), Some("chat.serving.svc"));
}

#[test]
fn two_listeners_on_one_port_are_refused() {
    for (listen, path) in [
        ("{http: '0.0.0.0:6000'}", "listen.http"),
        ("{health: '127.0.0.1:8080'}", "listen.health"),
        ("{grpc: '10.0.0.1:9', http: '10.0.0.1:9'}", "listen.http"),
    ] {
        let told = problems(&format!("listen: {listen}\n{}", tier_with(&[])));
        assert_eq!(told.len(), 1, "{told}");
        assert_eq!(told.iter().next().unwrap().path, path);
        assert!(told.to_string().contains("give each listener a port of its own"), "{told}");
    }
    load(&format!(
        "listen: {{grpc: '127.0.0.1:0', http: '127.0.0.1:0', health: '127.0.0.1:0'}}\n{}",
        tier_with(&[])
    ));
    load(&format!("listen: {{grpc: '10.0.0.1:9', http: '10.0.0.2:9'}}\n{}", tier_with(&[])));
    let told = problems(&format!("listen: {{grpc: ':6000'}}\n{}", tier_with(&[]))).to_string();
    assert!(told.contains("listen.grpc: `:6000` is no address to listen on"), "{told}");
}
