use super::*;
use crate::config::scenario::load;

fn traffic_of(text: &str) -> Traffic {
    load(text).unwrap_or_else(|problems| panic!("{problems}")).traffic.unwrap()
}

#[track_caller]
fn problems(text: &str, expected: &[&str]) {
    let told = load(text).unwrap_err().to_string();
    for words in expected {
        assert!(told.contains(words), "{words}\n{told}");
    }
}

#[test]
fn a_scenario_takes_its_traffic_from_wherever_the_flags_do() {
    assert_eq!(
        traffic_of("trace: load.csv\nformat: azure"),
        Traffic::Trace { file: "load.csv".into(), format: Format::named("azure") }
    );
    let law = "poisson rate=5 for=10m; ramp from=5 to=20 for=20m";
    let expected = Traffic::Arrivals(ArrivalLaw::parse(law).unwrap());
    assert_eq!(traffic_of(&format!("arrivals: {law}")), expected);
    assert_eq!(traffic_of("arrivals:\n- poisson rate=5 for=10m\n- ramp from=5 to=20 for=20m\n"), expected);
    assert_eq!(
        traffic_of("history: {folder: store, tier: serving/chat}"),
        Traffic::History { folder: "store".into(), tier: TierId::new("serving", "chat") }
    );
    assert_eq!(traffic_of("prometheus: {file: month.json}"), Traffic::Saved("month.json".into()));
}

#[test]
fn a_live_prometheus_is_asked_with_the_tier_s_credentials_and_paths_count_from_the_scenario() {
    let text = "prometheus:\n  url: https://prometheus:9090/prom\n  model: llama\n  from: 2026-03-01T00:00:00Z\n  \
        to: 2026-03-31T00:00:00Z\n  step: 5m\n  ca: ca.pem\n  bearerTokenFile: /run/token\n";
    let Traffic::Prometheus(source) = traffic_of(text).beside(Path::new("/plans")) else { panic!() };
    assert_eq!(source.url, "https://prometheus:9090/prom");
    assert_eq!(source.range.step(), 300);
    assert!(source.range.query().contains("model_name=\"llama\""));
    assert_eq!(source.tls.ca_file, Some("/plans/ca.pem".into()));
    assert_eq!((source.bearer_token_file, source.timeout), (Some("/run/token".into()), USUAL_TIMEOUT));
}

#[test]
fn a_query_may_have_several_lines() {
    let text = "prometheus:\n  url: http://p\n  from: 2026-03-01T00:00:00Z\n  to: 2026-03-31T00:00:00Z\n  step: 5m\n  \
        query: |\n    sum(a)\n    or\n    sum(b)\n";
    let Traffic::Prometheus(source) = traffic_of(text) else { panic!() };
    assert_eq!(source.range.query(), "sum(a)\nor\nsum(b)");
}

#[test]
fn every_problem_of_the_traffic_is_told_at_once_with_its_line() {
    problems(
        "trace: a.csv\narrivals:\n- poisson rate=x for=10m\n- ramp from=1 to=2\nhistory:\n  folder: s\n  tier: chat\n\
         prometheus:\n  url: ftp://p\n  query: up\n  model: m\n  from: noon\n  step: 100ms\n",
        &[
            "line 3: arrivals: `trace` says it already: write one of trace, arrivals, history, prometheus",
            "line 3: arrivals[0]: `poisson rate=x for=10m`: rate=x is no number",
            "line 4: arrivals[1]: `ramp from=1 to=2`: ramp needs for=",
            "line 6: history: `trace` says it already",
            "line 7: history.tier: write NAMESPACE/NAME",
            "line 9: prometheus.url: ",
            "line 11: prometheus.model: `query` says it already",
            "line 12: prometheus.from: ",
            "prometheus.to: `to` is missing",
            "line 13: prometheus.step: ",
        ],
    );
    problems("format: azure\n", &["line 1: format: there is no `trace`"]);
    problems("trace: a\nformat: parquet\n", &["line 2: format: "]);
    problems("prometheus: {file: a.json, step: 5m}\n", &["prometheus.step: `file` is a saved answer"]);
    problems(
        "prometheus: {url: \"http://p\", from: 2026-03-01T00:00:00Z}\n",
        &["prometheus.query: missing", "`step` is missing"],
    );
    problems(
        "prometheus:\n  url: http://p\n  query: up\n  from: 2026-03-02T00:00:00Z\n  to: 2026-03-01T00:00:00Z\n  step: 1m\n  clientCert: c\n",
        &["line 1: prometheus: the range ends before it begins", "`clientKey` is missing"],
    );
    problems("arrivals: poisson rate=0 for=1m\n", &["line 1: arrivals: nothing arrives"]);
}
