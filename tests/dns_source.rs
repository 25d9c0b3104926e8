//! The DNS source against a name server on a loopback port: whole answers become replicas, everything else is unknown.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "common/fake_dns.rs"]
mod fake_dns;

use std::time::Duration;

use chrono::{DateTime, Utc};
use fake_dns::{FakeDns, Reply, a, aaaa, cname, srv};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::RecordType::{A, AAAA, SRV};
use keda_vllm_scaler::clock::Clock;
use keda_vllm_scaler::config::{DnsPort, Scheme, SourceSettings};
use keda_vllm_scaler::sources::dns::{self, DnsSettings, NameServers};
use keda_vllm_scaler::supply::{Discovered, Phase};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const HOST: &str = "vllm.serving.svc.cluster.local";

fn settings(host: &str, port: DnsPort) -> DnsSettings {
    DnsSettings {
        host: host.to_owned(),
        port,
        scheme: Scheme::Http,
        path: "/metrics".to_owned(),
        resolve_every: Duration::from_secs(10),
    }
}

async fn resolve(server: &FakeDns, settings: &DnsSettings) -> Discovered {
    dns::resolve(&server.name_servers(), settings).await
}

fn ids(discovered: &Discovered) -> Vec<String> {
    match discovered {
        Discovered::Targets { targets, authoritative, current, .. } => {
            assert_eq!((*authoritative, *current), (false, None), "DNS can't say zero, nor what is wanted");
            targets.iter().map(|target| target.id.clone()).collect()
        }
        Discovered::Unknown { why } => panic!("unknown: {why}"),
    }
}

fn why(discovered: Discovered) -> String {
    match discovered {
        Discovered::Unknown { why } => why,
        Discovered::Targets { targets, .. } => panic!("{targets:?}"),
    }
}

#[tokio::test]
async fn each_address_is_a_replica_once_and_in_order() {
    let server = FakeDns::start().await;
    let answers = vec![a(HOST, [10, 0, 0, 10]), a(HOST, [10, 0, 0, 9]), a(HOST, [10, 0, 0, 10])];
    server.now_answers(HOST, A, Reply::records(answers));
    let discovered = resolve(&server, &settings(HOST, DnsPort::Number(8000))).await;
    assert_eq!(ids(&discovered), ["10.0.0.9:8000", "10.0.0.10:8000"]);
    let Discovered::Targets { targets, .. } = discovered else { unreachable!() };
    assert_eq!(targets[0].url.as_deref(), Some("http://10.0.0.9:8000/metrics"));
    assert_eq!((targets[0].name.as_str(), targets[0].phase), ("10.0.0.9:8000", Phase::Listed));
}

#[tokio::test]
async fn a_name_with_ipv6_addresses_alone_is_resolved() {
    let server = FakeDns::start().await;
    server.now_answers(HOST, AAAA, Reply::records(vec![aaaa(HOST, "fd00::2"), aaaa(HOST, "fd00::1")]));
    let with_tls = DnsSettings { scheme: Scheme::Https, ..settings(HOST, DnsPort::Number(8000)) };
    let discovered = resolve(&server, &with_tls).await;
    assert_eq!(ids(&discovered), ["[fd00::1]:8000", "[fd00::2]:8000"]);
    let Discovered::Targets { targets, .. } = discovered else { unreachable!() };
    assert_eq!(targets[0].url.as_deref(), Some("https://[fd00::1]:8000/metrics"));
}

#[tokio::test]
async fn a_dual_stack_replica_is_counted_once() {
    let server = FakeDns::start().await;
    server.now_answers(HOST, A, Reply::records(vec![a(HOST, [10, 0, 0, 9])]));
    server.now_answers(HOST, AAAA, Reply::records(vec![aaaa(HOST, "fd00::9")]));
    assert_eq!(ids(&resolve(&server, &settings(HOST, DnsPort::Number(80))).await), ["10.0.0.9:80"]);
}

#[tokio::test]
async fn an_ipv4_failure_does_not_turn_a_dual_stack_tier_over_to_ipv6() {
    let server = FakeDns::start().await;
    server.now_answers(HOST, A, Reply::Code(ResponseCode::ServFail));
    server.now_answers(HOST, AAAA, Reply::records(vec![aaaa(HOST, "fd00::9")]));
    why(resolve(&server, &settings(HOST, DnsPort::Number(80))).await);
}

#[tokio::test]
async fn an_empty_answer_nxdomain_servfail_and_silence_are_unknown_never_zero() {
    let server = FakeDns::start().await;
    for (reply, expected) in [
        (Reply::records(Vec::new()), "an empty answer"),
        (Reply::Code(ResponseCode::NXDomain), "no such name"),
        (Reply::Code(ResponseCode::ServFail), "Server Failure"),
        (Reply::Code(ResponseCode::Refused), "Refused"),
        (Reply::Silence, "no answer in time"),
    ] {
        for kind in [A, AAAA, SRV] {
            server.now_answers(HOST, kind, reply.clone());
        }
        for port in [DnsPort::Number(8000), DnsPort::Srv] {
            let why = why(resolve(&server, &settings(&format!("{HOST}."), port)).await);
            assert!(why.contains(expected), "{reply:?}: {why}");
            assert!(why.contains(HOST), "{why}");
        }
    }
}

#[tokio::test]
async fn an_alias_is_followed() {
    let server = FakeDns::start().await;
    let answers = vec![cname("chat.example", HOST), a(HOST, [10, 0, 0, 9])];
    server.now_answers("chat.example", A, Reply::records(answers));
    assert_eq!(ids(&resolve(&server, &settings("chat.example", DnsPort::Number(80))).await), ["10.0.0.9:80"]);
}

#[tokio::test]
async fn a_short_name_is_looked_up_in_the_search_domains() {
    let server = FakeDns::start().await;
    server.now_answers(HOST, A, Reply::records(vec![a(HOST, [10, 0, 0, 9])]));
    let short = settings("vllm.serving", DnsPort::Number(80));
    assert_eq!(ids(&resolve(&server, &short).await), ["10.0.0.9:80"]);
}

#[tokio::test]
async fn a_failure_in_one_search_domain_is_not_covered_by_another_domain_s_answer() {
    let server = FakeDns::start().await;
    server.now_answers("vllm.serving", A, Reply::Code(ResponseCode::ServFail));
    server.now_answers(HOST, A, Reply::records(vec![a(HOST, [10, 0, 0, 9])]));
    why(resolve(&server, &settings("vllm.serving", DnsPort::Number(80))).await);
}

#[tokio::test]
async fn an_answer_too_large_for_udp_is_asked_for_over_tcp_and_never_published_in_part() {
    let server = FakeDns::start().await;
    let all: Vec<_> = (1..=200).map(|n| a(HOST, [10, 0, 1, n])).collect();
    server.now_answers(HOST, A, Reply::TooLargeForUdp(all));
    assert_eq!(ids(&resolve(&server, &settings(HOST, DnsPort::Number(80))).await).len(), 200);
}

#[tokio::test]
async fn srv_records_give_each_replica_its_port() {
    let server = FakeDns::start().await;
    let name = "_http._tcp.vllm.serving.svc.cluster.local";
    let (zero, one) = ("vllm-0.vllm.serving.svc.cluster.local", "vllm-1.vllm.serving.svc.cluster.local");
    server.now_answers(
        name,
        SRV,
        Reply::Records {
            answers: vec![srv(name, 8001, one), srv(name, 8000, zero)],
            // One host's address comes along, in both families; the other's is looked up.
            additionals: vec![a(zero, [10, 0, 0, 9]), aaaa(zero, "fd00::9")],
        },
    );
    server.now_answers(one, A, Reply::records(vec![a(one, [10, 0, 0, 8])]));
    let discovered = resolve(&server, &settings(name, DnsPort::Srv)).await;
    assert_eq!(ids(&discovered), ["10.0.0.8:8001", "10.0.0.9:8000"]);
    let Discovered::Targets { targets, .. } = discovered else { unreachable!() };
    assert_eq!(targets[1].name, format!("{zero}:8000"));
}

#[tokio::test]
async fn an_srv_target_that_is_gone_is_left_out_and_one_that_fails_makes_the_answer_unknown() {
    let server = FakeDns::start().await;
    let name = "_http._tcp.vllm.serving.svc.cluster.local";
    let (zero, one) = ("vllm-0.vllm.example", "vllm-1.vllm.example");
    server.now_answers(name, SRV, Reply::records(vec![srv(name, 8000, zero), srv(name, 8000, one)]));
    server.now_answers(zero, A, Reply::records(vec![a(zero, [10, 0, 0, 9])]));
    let settings = settings(name, DnsPort::Srv);
    assert_eq!(ids(&resolve(&server, &settings).await), ["10.0.0.9:8000"]);

    server.now_answers(one, A, Reply::Code(ResponseCode::ServFail));
    why(resolve(&server, &settings).await);

    server.now_answers(name, SRV, Reply::records(vec![srv(name, 8000, one)]));
    server.now_answers(one, A, Reply::Code(ResponseCode::NXDomain));
    why(resolve(&server, &settings).await);
}

#[tokio::test]
async fn an_srv_record_that_points_nowhere_is_unknown() {
    let server = FakeDns::start().await;
    let name = "_http._tcp.vllm.example";
    server.now_answers(name, SRV, Reply::records(vec![srv(name, 0, ".")]));
    why(resolve(&server, &settings(name, DnsPort::Srv)).await);
}

#[tokio::test]
async fn literal_addresses_and_localhost_need_no_name_server() {
    let number = DnsPort::Number(8000);
    for (host, id) in [
        ("127.0.0.1", "127.0.0.1:8000"),
        ("::1", "[::1]:8000"),
        ("[::1]", "[::1]:8000"),
        ("localhost", "127.0.0.1:8000"),
    ] {
        assert_eq!(ids(&dns::resolve(&NameServers::System, &settings(host, number)).await), [id]);
    }
    let server = FakeDns::start().await;
    assert_eq!(ids(&resolve(&server, &settings("localhost", number)).await), ["127.0.0.1:8000"]);
    assert_eq!(server.questions(), 0);
}

#[tokio::test]
async fn what_is_no_name_is_unknown() {
    why(dns::resolve(&NameServers::System, &settings("a..b", DnsPort::Number(80))).await);
    why(dns::resolve(&NameServers::System, &settings(&"x".repeat(300), DnsPort::Number(80))).await);
}

#[tokio::test]
async fn the_published_replicas_follow_the_name() {
    let server = FakeDns::start().await;
    let one = a(HOST, [10, 0, 0, 1]);
    let two = a(HOST, [10, 0, 0, 2]);
    server.now_answers(HOST, A, Reply::records(vec![one.clone(), two.clone()]));
    // Ten seconds of this clock are 50 ms.
    let clock = Clock::starting_at(DateTime::<Utc>::UNIX_EPOCH, 200.0);
    let (tx, mut rx) = watch::channel(Discovered::Unknown { why: "not resolved yet".to_owned() });
    let stop = CancellationToken::new();
    let settings = settings(HOST, DnsPort::Number(80));
    let source = tokio::spawn(dns::run_with(server.name_servers(), settings, clock, tx, stop.clone()));

    rx.wait_for(|now| matches!(now, Discovered::Targets { targets, .. } if targets.len() == 2))
        .await
        .unwrap();

    // The same answer in another order is no change.
    server.now_answers(HOST, A, Reply::records(vec![two.clone(), one.clone()]));
    let asked = server.questions();
    tokio::time::timeout(Duration::from_secs(10), async {
        while server.questions() < asked + 4 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await
    .unwrap();
    assert!(!rx.has_changed().unwrap());

    // A smaller answer is published as it is.
    server.now_answers(HOST, A, Reply::records(vec![one.clone()]));
    rx.wait_for(|now| matches!(now, Discovered::Targets { targets, .. } if targets.len() == 1))
        .await
        .unwrap();

    // A failure is unknown, and over when the name server is back.
    server.now_answers(HOST, A, Reply::Code(ResponseCode::ServFail));
    rx.wait_for(|now| matches!(now, Discovered::Unknown { .. })).await.unwrap();
    server.now_answers(HOST, A, Reply::records(vec![one, two]));
    rx.wait_for(|now| matches!(now, Discovered::Targets { targets, .. } if targets.len() == 2))
        .await
        .unwrap();

    stop.cancel();
    source.await.unwrap();
    assert!(rx.changed().await.is_err(), "a stopped source publishes no more");
}

#[test]
fn the_settings_of_a_dns_source_are_taken_from_the_file_and_from_no_other_source() {
    let source = SourceSettings::Dns {
        host: HOST.to_owned(),
        port: DnsPort::Srv,
        scheme: Scheme::Http,
        path: "/metrics".to_owned(),
        resolve_every: Duration::from_secs(10),
    };
    assert_eq!(DnsSettings::of(&source), Some(settings(HOST, DnsPort::Srv)));
    assert_eq!(DnsSettings::of(&SourceSettings::Injected), None);
}
