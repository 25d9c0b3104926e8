//! What tiers inherit, what is warned of, and what a reload changes.

use keda_vllm_scaler::config;

use super::{load, problems, tier_with};

fn warnings(text: &str) -> Vec<String> {
    load(text).warnings.iter().map(ToString::to_string).collect()
}

/// Warned of at this path, with this in the message; and without the line there is no such warning.
#[track_caller]
fn warned(line: &str, path: &str, part: &str) {
    let matching = |lines: &[&str]| {
        let config = load(&tier_with(lines));
        config.warnings.into_iter().filter(|warning| warning.message.contains(part)).collect::<Vec<_>>()
    };
    let found = matching(&[line]);
    assert_eq!(found.len(), 1, "{line}: {found:?}");
    assert_eq!(found[0].path, format!("tiers[0].{path}"), "{line}");
    assert_eq!(matching(&[]), [], "{line}");
}

// ---- defaults

#[test]
fn a_tier_inherits_defaults_key_by_key() {
    let text = "defaults:\n  namespace: serving\n  coldStart: 5m\n  scrape: {interval: 10s, timeout: 3s}\n  \
                warmPool: {maxRamp: 2x in 2m}\n  replicas: {max: 8}\ntiers:\n- name: a\n  \
                source: {fixed: {urls: ['h:1']}}\n  scrape: {timeout: 4s}\n- name: b\n  \
                source: {fixed: {urls: ['h:1']}}\n  coldStart: null\n  warmPool: null\n  replicas: {min: 2}\n";
    let config = load(text);
    let [a, b] = config.tiers.as_slice() else { panic!("two tiers") };
    assert_eq!(a.policy.tier.to_string(), "serving/a");
    assert_eq!((a.scrape.interval.as_secs(), a.scrape.timeout.as_secs()), (10, 4));
    assert_eq!(a.policy.cold_start.as_secs(), 300);
    assert!(a.policy.max_ramp.is_some());
    // A null takes back what would be inherited.
    assert_eq!(b.policy.cold_start.as_secs(), 180);
    assert!(b.policy.max_ramp.is_none());
    assert_eq!((b.policy.min, b.policy.max), (2, 8));
}

#[test]
fn a_problem_in_defaults_is_told_once_and_there() {
    let text = "defaults: {coldStart: 180, name: x}\ntiers:\n- {name: a, namespace: n, source: {fixed: {urls: \
                ['h:1']}}, replicas: {max: 1}}\n- {name: b, namespace: n, source: {fixed: {urls: ['h:1']}}, replicas: \
                {max: 1}}\n";
    let told: Vec<String> = problems(text).iter().map(|problem| problem.path.clone()).collect();
    assert_eq!(told, ["defaults.name", "defaults.coldStart"]);
}

// ---- warnings

#[test]
fn what_is_legal_but_wrong_is_warned_of() {
    warned("scaleDown: {hold: 60s}", "scaleDown.hold", "shorter than the cold start of 3m");
    warned("scaleDown: {hold: 20s}", "scaleDown.hold", "shorter than `scrape.rateWindow`: 30s are held");
    warned("signals: {kvCache: {target: 0.97}}", "signals.kvCache.target", "is above 0.95");
    warned("acceptableQueue: 0s", "acceptableQueue", "nothing may queue");
    warned("acceptableQueue: {requests: 0}", "acceptableQueue", "nothing may queue");
    warned("forecast: {lateBudget: 1%}", "forecast.lateBudget", "not used");
    warned("forecast: {mode: off, lateBudget: 1%}", "forecast.lateBudget", "not used");
    warned(
        "forecast: {mode: budget, lateBudget: 0.001%}",
        "forecast.lateBudget",
        "less than a minute of a week",
    );
    warned("scrape: {interval: 20s}", "scrape.interval", "slower than the HPA's sync");
    warned("scrape: {timeout: 6s}", "scrape.timeout", "longer than the interval");
    warned("capacity: {learn: false}", "capacity", "conservative default of 6000 input and 1000 output");
    warned("replicas: {max: 10}", "hpa.tolerance", "disappears in the HPA's 10 % tolerance");
    warned("signals: {latency: {queueTimeP95: 2s}}", "signals.latency", "weight 0, so it is off");
    warned("scrape: {ca: /a.crt}", "scrape.ca", "not used: the pages are http");
    warned("scrape: {bearerTokenFile: /t}", "scrape.bearerTokenFile", "in the clear");
    warned(
        "floors: [{timezone: UTC, start: '0 8 * * *', end: '0 9 * * *', desiredReplicas: 1}]",
        "floors[0].desiredReplicas",
        "changes nothing",
    );
    assert!(
        warnings(&tier_with(&["replicas: {max: 10}", "hpa: {tolerance: 0}"]))
            .iter()
            .all(|w| !w.contains("hpa"))
    );
    let kept = warnings(&tier_with(&["forecast: {mode: budget, lateBudget: 0.1%}"])).join("\n");
    assert!(!kept.contains("lateBudget"), "{kept}");
}

#[test]
fn a_warm_pool_that_the_maximum_cannot_hold_is_warned_of() {
    let pool = "warmPool: {maxRamp: 2x in 120s}";
    // 2x in 120s over a lead of 205 s with 5 s of queue is 2.84 x: five replicas become 15.
    let told = warnings(&tier_with(&[pool, "replicas: {min: 5, max: 9}"])).join("\n");
    assert!(told.contains("tiers[0].warmPool.maxRamp: over a lead of 3m25s this ramp needs 2.8"), "{told}");
    assert!(!warnings(&tier_with(&[pool, "replicas: {min: 2, max: 9}"])).join("\n").contains("warmPool"));
}

#[test]
fn metadata_tiers_and_a_missing_store_are_warned_of() {
    let told = warnings(&format!("allowMetadataTiers: true\n{}", tier_with(&[])));
    assert!(told[0].starts_with("line 1: allowMetadataTiers: whoever may write a ScaledObject"), "{told:?}");
    assert!(told.iter().any(|warning| warning.contains("store: without a store")), "{told:?}");
    let told = warnings(&format!("store: {{path: /data}}\n{}", tier_with(&[])));
    assert_eq!(told, Vec::<String>::new());
}

#[test]
fn a_floor_that_kedas_own_trigger_reads_otherwise_is_told_with_its_line() {
    // The end is skipped when the clock goes forward: KEDA loses that night's window.
    let night = "{timezone: Europe/Berlin, start: '0 22 * * *', end: '30 2 * * *', desiredReplicas: 3}";
    let office = "{timezone: Europe/Berlin, start: '0 8 * * 1-5', end: '0 18 * * 1-5', desiredReplicas: 3}";
    let config = load(&tier_with(&[&format!("floors: [{night}, {office}]")]));
    let from = "2026-11-29T00:00:00Z".parse().unwrap();
    let told = config::keda_differences(&config, from);
    let differing: Vec<&config::FloorReference> = config
        .floors
        .iter()
        .filter(|floor| !keda_vllm_scaler::schedule::keda_differences(&floor.window, from, 400).is_empty())
        .collect();
    assert_eq!(told.len(), differing.len(), "{told:?}");
    for (told, floor) in told.iter().zip(differing) {
        assert_eq!((&told.path, told.line), (&floor.path, floor.line));
        assert!(
            told.message.starts_with("KEDA's own cron trigger differs once in 400 days"),
            "{}",
            told.message
        );
    }
}

// ---- reload

#[test]
fn a_reload_knows_which_tiers_stay_change_come_and_go() {
    let file =
        |tiers: &str| load(&format!("defaults: {{namespace: n, replicas: {{max: 9}}}}\ntiers:\n{tiers}"));
    let tier =
        |name: &str, more: &str| format!("- {{name: {name}, source: {{fixed: {{urls: ['h:1']}}}}{more}}}\n");
    let old = file(&(tier("stays", "") + &tier("changes", "") + &tier("goes", "")));
    // The order of the file, comments and spelling are no change.
    let new = file(
        &("# a comment\n".to_owned()
            + &tier("comes", "")
            + &tier("changes", ", coldStart: 4m")
            + &tier("stays", ", coldStart: 3m")),
    );
    let changes = new.changes_from(&old);
    let names = |tiers: &[keda_vllm_scaler::decision::TierId]| -> Vec<String> {
        tiers.iter().map(|tier| tier.name.clone()).collect()
    };
    assert_eq!(names(&changes.unchanged), ["stays"]);
    assert_eq!(names(&changes.changed), ["changes"]);
    assert_eq!(names(&changes.added), ["comes"]);
    assert_eq!(names(&changes.removed), ["goes"]);
    assert_eq!(changes.restart_needed, Vec::<&str>::new());
    let moved = load(&format!("listen: {{grpc: '0.0.0.0:7000'}}\nstore: {{path: /d}}\n{}", tier_with(&[])));
    assert_eq!(moved.changes_from(&old).restart_needed, ["listen", "store"]);
}
