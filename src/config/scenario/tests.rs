use super::*;

const GOOD: &str = "trace: load.csv\npeakReplicas: 8\ncoldStart: 60s\nacceptableQueue: 10s\ndays: 0.5\n\
    begins: 2026-03-02T00:00:00+01:00\nscoreFrom: 1h\nseed: 7\nrivals: all\n\
    capacity: {inputTokensPerSecond: 9000, outputTokensPerSecond: 800}\npolicies:\n\
    - name: as today\n  tier: {replicas: {max: 20}}\n\
    - name: cautious\n  tier: {replicas: {min: 0, max: 20}, coldStart: 5m, signals: {tokens: {target: 0.6}}}\n";

#[track_caller]
fn problems(text: &str) -> String {
    load(text).unwrap_err().to_string()
}

#[test]
fn a_scenario_says_load_fleet_and_policies() {
    let scenario = load(GOOD).unwrap_or_else(|problems| panic!("{problems}"));
    assert_eq!((scenario.peak_replicas, scenario.scale, scenario.seed), (Some(8), None, Some(7)));
    assert_eq!(scenario.begins.unwrap().to_rfc3339(), "2026-03-01T23:00:00+00:00");
    assert_eq!(scenario.rivals, Some(vec!["all".to_owned()]));
    assert_eq!(scenario.score_from, Some(Duration::from_secs(3600)));
    let names: Vec<&str> = scenario.policies.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["as today", "cautious"]);
}

#[test]
fn what_a_policy_doesn_t_say_the_scenario_says() {
    let scenario = load(GOOD).unwrap();
    let [(_, today), (_, cautious)] = &scenario.policies[..] else { panic!() };
    assert_eq!((today.cold_start, cautious.cold_start), (Duration::from_secs(60), Duration::from_secs(300)));
    assert_eq!(today.acceptable_queue, QueueAllowance::Seconds(10.0));
    assert_eq!(Some(cautious.capacity.prior), scenario.rates);
    assert_eq!((cautious.min, cautious.signals.tokens.target), (0, 0.6));
}

#[test]
fn every_problem_is_told_at_once_with_its_path_and_line() {
    let told = problems(
        "trace: load.csv\npeakReplicas: 0\nscale: 2\ncoldstart: 60s\nbegins: noon\npolicies:\n\
         - name: a\n  tier:\n    replicas: {max: 2, min: 5}\n    signals: {tokens: {target: 7}}\n\
         - name: a\n  tier: {}\n- tier: 5\n",
    );
    for expected in [
        "line 2: peakReplicas: ",
        "line 3: scale: `peakReplicas` says it already",
        "line 4: coldstart: unknown key",
        "line 5: begins: ",
        "line 9: policies[0].tier.replicas.min: 5 is above the maximum of 2",
        "line 10: policies[0].tier.signals.tokens.target: ",
        "line 11: policies[1].name: there is a policy of this name already",
        "line 12: policies[1].tier.replicas: missing",
        "policies[2].name: missing",
        "line 13: policies[2].tier: a single value where a mapping belongs",
    ] {
        assert!(told.contains(expected), "{expected}\n{told}");
    }
}

#[test]
fn a_server_s_file_is_told_where_it_belongs() {
    let told = problems("listen: {grpc: ':9090'}\ntiers:\n- name: chat\n");
    assert!(told.contains("line 2") && told.contains("play its tiers with `--policy FILE`"), "{told}");
    assert_eq!(told.lines().count(), 1, "and what else is wrong with it as a scenario is not: {told}");
}

#[test]
fn rivals_are_names_or_all() {
    assert_eq!(load("rivals: [a, b]").unwrap().rivals.unwrap(), ["a", "b"]);
    assert!(problems("rivals: [a, all]").contains("`all` stands alone"));
    assert!(problems("rivals: []").contains("the list is empty"));
}

#[test]
fn what_is_no_scenario_is_refused() {
    assert!(problems("").contains("the file holds nothing"));
    assert!(problems("- a").contains("the file holds a list"));
    assert!(problems("traces: []").contains("unknown key"));
    assert!(problems("a: [").contains("not valid YAML"));
    assert!(problems("capacity: {inputTokensPerSecond: 5}").contains("outputTokensPerSecond: missing"));
}

#[test]
fn the_example_says_every_key() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/examples/backtest.yaml");
    let text = std::fs::read_to_string(file).unwrap();
    load(&text).unwrap_or_else(|problems| panic!("{problems}"));
    // Of those that exclude each other one is said, and the others stand in comments.
    let in_comments = ["scale", "arrivals", "history", "prometheus"];
    for key in ROOT {
        let said = text.lines().any(|line| line.starts_with(&format!("{}:", key.name)));
        let commented = in_comments.contains(&key.name) && text.contains(&format!("{}:", key.name));
        assert!(said || commented, "{}", key.name);
    }
}
