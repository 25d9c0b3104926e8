//! Values, bounds, floors, signals and capacity.

use super::{load, only_problem, problems, refused, tier_with};

// ---- values

#[test]
fn a_span_without_a_unit_is_refused() {
    refused("coldStart: 180", "coldStart", "`180` has no unit: write 180s for seconds or 180m for minutes");
    refused("holdUnknown: 0", "holdUnknown", "has no unit");
    refused("coldStart: 2 weeks", "coldStart", "expected a number with a unit");
    refused("coldStart: 25h", "coldStart", "too long: write 1d or less");
    refused("coldStart: [3m]", "coldStart", "a list where a single value belongs");
}

#[test]
fn numbers_that_are_not_finite_or_out_of_range_are_refused() {
    for text in ["NaN", ".nan", ".inf", "inf", "-1", "1e9"] {
        refused(
            &format!("signals: {{tokens: {{weight: {text}}}}}"),
            "signals.tokens.weight",
            "write a number from 0",
        );
    }
    refused(
        "capacity: {inputTokensPerSecond: .inf, outputTokensPerSecond: 5}",
        "capacity.inputTokensPerSecond",
        "is no number",
    );
    refused("hpa: {tolerance: 10}", "hpa.tolerance", "write a number from 0 to 1");
}

#[test]
fn a_target_is_above_0_and_at_most_1() {
    for text in ["0", "1.2", "-0.8", "101%", "NaN"] {
        refused(
            &format!("signals: {{kvCache: {{target: {text}}}}}"),
            "signals.kvCache.target",
            "above 0 and at most 1",
        );
    }
    refused("signals: {tokens: {target: 80}}", "signals.tokens.target", "did you mean 80%?");
    let config = load(&tier_with(&["signals: {kvCache: {target: 75%}}"]));
    assert!((config.tiers[0].policy.signals.kv_cache.target - 0.75).abs() < 1e-12);
}

#[test]
fn a_ramp_that_does_not_grow_is_refused() {
    for text in ["1x in 120s", "0.5x in 120s"] {
        refused(&format!("warmPool: {{maxRamp: {text}}}"), "warmPool.maxRamp", "the factor must be above 1");
    }
    refused("warmPool: {maxRamp: 2x in 120}", "warmPool.maxRamp", "`120` has no unit");
    refused("warmPool: {maxRamp: double}", "warmPool.maxRamp", "such as 2x in 120s");
}

#[test]
fn sizes_words_flags_steps_and_allowances_say_what_to_write() {
    refused("scrape: {maxBodyBytes: 8000000}", "scrape.maxBodyBytes", "write a size with a unit");
    refused("combine: sum", "combine", "write max or weighted");
    refused("hpa: {deadBand: hide}", "hpa.deadBand", "write exceed or stay");
    refused("capacity: {learn: yes}", "capacity.learn", "write true or false");
    refused(
        "scaleDown: {maxStep: 0}",
        "scaleDown.maxStep",
        "write a share such as 50% or a number of replicas",
    );
    refused("scaleDown: {hold: never}", "scaleDown.hold", "or auto");
    refused("acceptableQueue: 50", "acceptableQueue", "or write {requests: 50}");
    refused("acceptableQueue: {request: 50}", "acceptableQueue", "`request` is not known here");
    refused("acceptableQueue: {requests: 5, tokens: 7}", "acceptableQueue", "one of requests and tokens");
    refused("acceptableQueue: {requests: -5}", "acceptableQueue", "out of range");
}

#[test]
fn a_number_or_a_boolean_in_quotes_is_refused_as_the_schema_refuses_it() {
    refused("replicas: {max: '12'}", "replicas.max", "in quotes this is a text, not a number: write max: 12");
    refused("source: {dns: {host: a, port: \"8000\"}}", "source.dns.port", "write port: 8000");
    refused("capacity: {learn: 'true'}", "capacity.learn", "not a boolean: write learn: true");
    refused("hpa: {tolerance: '0'}", "hpa.tolerance", "write tolerance: 0");
    refused("signals: {kvCache: {target: '0.8'}}", "signals.kvCache.target", "write target: 0.8");
    refused("scaleDown: {maxStep: '2'}", "scaleDown.maxStep", "write maxStep: 2");
    refused("acceptableQueue: {requests: '50'}", "acceptableQueue", "write requests: 50");
    // Texts may have quotes.
    load(&tier_with(&["signals: {kvCache: {target: '80%'}}", "scaleDown: {maxStep: '50%', hold: '5m'}"]));
}

#[test]
fn a_bare_number_or_boolean_where_a_text_belongs_is_refused_as_the_schema_refuses_it() {
    refused("model: 70", "model", "`70` is a number to YAML, and a text belongs here: write model: \"70\"");
    refused("model: true", "model", "`true` is a boolean to YAML");
    refused(
        "activator: {url: 'http://a', metric: m, labels: {pool: 7}}",
        "activator.labels",
        "write pool: \"7\"",
    );
    refused("source: {fixed: {urls: [8000]}}", "source.fixed.urls[0]", "write \"8000\"");
    assert_eq!(load(&tier_with(&["model: '70'"])).tiers[0].model.as_deref(), Some("70"));
}

// ---- bounds and floors

#[test]
fn a_minimum_above_the_maximum_is_refused() {
    refused("replicas: {min: 9, max: 8}", "replicas.min", "9 is above the maximum of 8");
}

#[test]
fn a_maximum_of_0_is_refused() {
    refused("replicas: {max: 0}", "replicas.max", "write a whole number from 1");
}

#[test]
fn zero_replicas_need_an_activator() {
    refused("replicas: {min: 0, max: 8}", "replicas.min", "0 needs an `activator`");
    let dns = "source: {dns: {host: chat.serving.svc, port: 8000}}";
    let (path, message) = only_problem(&["replicas: {min: 0, max: 8}", dns]);
    assert_eq!(path, "replicas.min", "{message}");
    let config = load(&tier_with(&[
        "replicas: {min: 0, max: 8}",
        dns,
        "activator: {url: 'http://router:9000/metrics', metric: router_queue_length, labels: {pool: chat}}",
    ]));
    assert_eq!(config.tiers[0].policy.min, 0);
    let activator = config.tiers[0].activator.as_ref().unwrap();
    assert_eq!(activator.interval, std::time::Duration::from_millis(500));
    assert_eq!(activator.labels["pool"], "chat");
}

#[test]
fn a_floor_above_the_maximum_is_refused() {
    refused(
        "floors: [{timezone: UTC, start: '0 8 * * *', end: '0 9 * * *', desiredReplicas: 9}]",
        "floors[0].desiredReplicas",
        "9 is above the tier's maximum of 8",
    );
}

#[test]
fn a_floor_of_0_is_refused() {
    refused(
        "floors: [{timezone: UTC, start: '0 8 * * *', end: '0 9 * * *', desiredReplicas: 0}]",
        "floors[0].desiredReplicas",
        "write a whole number from 1",
    );
}

#[test]
fn bad_cron_expressions_zones_and_pairs_are_refused_where_they_stand() {
    for (timezone, start, end, path) in [
        ("Europe/Berlinn", "0 8 * * *", "0 9 * * *", "floors[0].timezone"),
        ("UTC", "99 8 * * *", "0 9 * * *", "floors[0].start"),
        ("UTC", "0 0 8 * * *", "0 9 * * *", "floors[0].start"),
        ("UTC", "0 8 * * *", "never", "floors[0].end"),
        ("UTC", "0 8 31 2 *", "0 9 * * *", "floors[0].start"),
        ("UTC", "0 8 * * *", "0 9 30 2 *", "floors[0].end"),
        ("UTC", "0 8 * * *", "0 8 * * *", "floors[0]"),
    ] {
        let line =
            format!("floors: [{{timezone: {timezone}, start: '{start}', end: '{end}', desiredReplicas: 2}}]");
        let (found, message) = only_problem(&[&line]);
        assert_eq!(found, path, "{line}: {message}");
    }
}

#[test]
fn zone_start_and_end_are_all_told_when_all_are_bad() {
    let text = tier_with(&["floors: [{timezone: Moon, start: x, end: y, desiredReplicas: 2}]"]);
    let told = problems(&text);
    let paths: Vec<&str> = told.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(paths, ["tiers[0].floors[0].timezone", "tiers[0].floors[0].start", "tiers[0].floors[0].end"]);
}

// ---- signals and capacity

#[test]
fn weights_that_sum_to_0_are_refused() {
    refused(
        "signals: {kvCache: {weight: 0}, tokens: {weight: 0}, waiting: {weight: 0}}",
        "signals",
        "the weights sum to 0",
    );
    load(&tier_with(&["signals: {kvCache: {weight: 0}, tokens: {weight: 0}}"]));
}

#[test]
fn a_latency_weight_without_a_target_is_refused() {
    refused("signals: {latency: {weight: 1}}", "signals.latency", "a weight without a target");
}

#[test]
fn half_of_a_capacity_is_refused() {
    refused(
        "capacity: {inputTokensPerSecond: 5}",
        "capacity.inputTokensPerSecond",
        "`outputTokensPerSecond` is missing",
    );
    refused(
        "capacity: {outputTokensPerSecond: 5}",
        "capacity.outputTokensPerSecond",
        "`inputTokensPerSecond` is missing",
    );
    refused("capacity: {gpu: H100}", "capacity.gpu", "`modelSize` is missing");
    refused("capacity: {modelSize: 8B}", "capacity.modelSize", "`gpu` is missing");
    refused("capacity: {precision: fp8}", "capacity.precision", "`gpu` is missing");
    refused("capacity: {gpu: B300, modelSize: 8B}", "capacity.gpu", "is not in the table: write one of");
    refused("capacity: {gpu: H100, modelSize: 400B}", "capacity.gpu", "the table has no 1xH100 with 400B");
    refused("capacity: {gpu: H100, modelSize: 8}", "capacity.modelSize", "such as 8B or 70B");
}

#[test]
fn configured_rates_win_over_declared_hardware() {
    let line = "capacity: {inputTokensPerSecond: 8000, outputTokensPerSecond: 700, gpu: H100, modelSize: 8B}";
    let capacity = load(&tier_with(&[line])).tiers.remove(0).policy.capacity;
    assert_eq!(capacity.prior_source, "configured");
    assert!((capacity.prior.output_tokens_per_second - 700.0).abs() < 1e-9);
    assert_eq!(load(&tier_with(&[])).tiers[0].policy.capacity.prior_source, "profile H100 8B bf16");
}
