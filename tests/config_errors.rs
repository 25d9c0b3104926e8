//! A configuration is refused with all of its problems at once, each with its path, its line and what to write.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use proptest::prelude::*;

use keda_vllm_scaler::config::{self, Config, LoadError, Problems, schema};

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// A good tier with other lines added or put in the place of its own.
fn tier_with(lines: &[&str]) -> String {
    let mut text = "tiers:\n- name: chat\n  namespace: serving\n".to_owned();
    let own = [
        "source: {fixed: {urls: ['10.0.0.1:8000']}}",
        "replicas: {max: 8}",
        "capacity: {gpu: H100, modelSize: 8B}",
    ];
    let key = |line: &str| line.split(':').next().unwrap().to_owned();
    for line in own.iter().filter(|own| lines.iter().all(|line| key(line) != key(own))).chain(lines) {
        text.extend(["  ", line, "\n"]);
    }
    text
}

fn load(text: &str) -> Config {
    config::load(text).unwrap_or_else(|problems| panic!("{problems}\n{text}"))
}

fn problems(text: &str) -> Problems {
    config::load(text).expect_err(text)
}

/// The one problem of a tier with these lines: its path without `tiers[0].`, and its message.
fn only_problem(lines: &[&str]) -> (String, String) {
    let text = tier_with(lines);
    let problems = problems(&text);
    assert_eq!(problems.len(), 1, "{text}\n{problems}");
    let problem = problems.iter().next().unwrap();
    let path = problem.path.strip_prefix("tiers[0].").unwrap_or(&problem.path);
    (path.to_owned(), problem.message.clone())
}

/// Refused for one reason, at this path, with this in the message.
#[track_caller]
fn refused(line: &str, path: &str, part: &str) {
    let (found_path, message) = only_problem(&[line]);
    assert_eq!(found_path, path, "{line}: {message}");
    assert!(message.contains(part), "{line}: {message}");
}

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

// ---- the file as a whole

#[test]
fn everything_that_is_wrong_is_told_at_once_with_path_and_line() {
    let text = std::fs::read_to_string(repository("tests/fixtures/configs/everything_wrong.yaml")).unwrap();
    let expected =
        std::fs::read_to_string(repository("tests/fixtures/configs/everything_wrong.problems.txt")).unwrap();
    assert_eq!(problems(&text).to_string().trim(), expected.trim());
}

#[test]
fn the_line_is_that_of_the_value_or_of_the_unknown_key() {
    let text = "tiers:\n- name: chat\n  namespace: serving\n  source:\n    fixed:\n      urls:\n      - a:1\n      - \
                ftp://b\n  replicas:\n    max: 5\n\n  coldstart: 3m\n";
    let told: Vec<(String, usize)> =
        problems(text).iter().map(|problem| (problem.path.clone(), problem.line)).collect();
    assert_eq!(
        told,
        [("tiers[0].source.fixed.urls[1]".to_owned(), 8), ("tiers[0].coldstart".to_owned(), 12)]
    );
}

#[test]
fn an_empty_file_no_mapping_and_no_yaml_are_refused() {
    for (text, part) in [
        ("", "line 1: the file holds nothing: write at least `tiers:`"),
        ("- a\n", "the file holds a list"),
        ("tiers: [\n", "not valid YAML"),
        ("listen: {}\n", "no tiers: write at least one"),
        ("tiers: []\n", "no tiers: write at least one"),
        ("tiers: {}\n", "a mapping where a list belongs"),
        ("tiers:\n- chat\n", "tiers[0]: a single value where a mapping belongs"),
    ] {
        let told = problems(text).to_string();
        assert!(told.contains(part), "{text:?}: {told}");
    }
}

#[test]
fn a_file_without_tiers_is_good_where_metadata_may_declare_them() {
    assert!(load("allowMetadataTiers: true\n").tiers.is_empty());
}

#[test]
fn a_file_that_is_too_large_or_no_text_is_refused_unparsed() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("config.yaml");
    std::fs::write(&file, "#".repeat(1 << 20) + "\n").unwrap();
    assert!(matches!(config::load_file(&file), Err(LoadError::TooLarge)));
    std::fs::write(&file, b"a: \xff\n").unwrap();
    assert!(matches!(config::load_file(&file), Err(LoadError::NotText(3))));
    assert!(matches!(config::load_file(folder.path().join("none")), Err(LoadError::Io(_))));
    std::fs::write(&file, tier_with(&[])).unwrap();
    assert_eq!(config::load_file(&file).unwrap().tiers.len(), 1);
}

// ---- keys

#[test]
fn an_unknown_key_is_refused_in_every_section_of_the_schema() {
    fn walk(path: &mut Vec<String>, schema: &serde_json::Value, visit: &mut dyn FnMut(&[String])) {
        for choice in schema["anyOf"].as_array().into_iter().flatten() {
            walk(path, choice, visit);
        }
        if schema["type"] == "array" {
            path.push("[]".to_owned());
            walk(path, &schema["items"], visit);
            path.pop();
        }
        if let Some(properties) = schema["properties"].as_object() {
            visit(path);
            for (key, below) in properties {
                path.push(key.clone());
                walk(path, below, visit);
                path.pop();
            }
        }
    }
    let mut seen = 0;
    walk(&mut Vec::new(), &schema::json_schema(), &mut |path| {
        let mut text = "{zzz: 1}".to_owned();
        for step in path.iter().rev() {
            text = if step == "[]" { format!("[{text}]") } else { format!("{{{step}: {text}}}") };
        }
        let told = problems(&text);
        let unknown = told
            .iter()
            .any(|problem| problem.path.ends_with("zzz") && problem.message.contains("unknown key"));
        // An allowance is a value, not a section.
        let is_value = path.last().is_some_and(|key| key == "acceptableQueue");
        assert!(unknown || is_value, "{text}: {told}");
        seen += 1;
    });
    assert!(seen > 30, "{seen}");
}

#[test]
fn an_unknown_key_comes_with_the_key_that_was_meant() {
    refused("flors: []", "flors", "unknown key `flors`: did you mean `floors`?");
    refused("cold_start: 3m", "cold_start", "did you mean `coldStart`?");
    refused("tolerance: 0", "tolerance", "it belongs under `hpa`");
    refused("kvCache: {target: 0.8}", "kvCache", "it belongs under `signals`");
    refused("weight: 1", "weight", "it belongs under `signals.kvCache` or `signals.tokens` or `signals.waiting`");
    refused("timezone: UTC", "timezone", "it belongs under `floors[]`");
    refused("signals: {coldStart: 3m}", "signals.coldStart", "it belongs under `tiers[]`");
    refused("signals: {allowMetadataTiers: true}", "signals.allowMetadataTiers", "at the top of the file");
    refused("warmPool: {maxRamp: 2x in 2m, price: 3}", "warmPool.price", "write one of `maxRamp`");
}

#[test]
fn words_of_keda_and_the_hpa_come_with_the_key_and_its_level() {
    for (word, of_a_tier) in [
        ("minReplicas", "`replicas.min`"),
        ("minReplicaCount", "`replicas.min`"),
        ("maxReplicas", "`replicas.max`"),
        ("maxReplicaCount", "`replicas.max`"),
        ("desiredReplicas", "`floors[].desiredReplicas`"),
        ("threshold", "`signals.kvCache.target` or `signals.tokens.target`"),
        ("targetValue", "`signals.kvCache.target` or `signals.tokens.target`"),
        ("stabilizationWindowSeconds", "`scaleDown.hold`"),
    ] {
        refused(&format!("{word}: 1"), word, &format!("unknown key `{word}`: did you mean {of_a_tier}?"));
        let told = problems(&format!("{word}: 1\n{}", tier_with(&[]))).to_string();
        let of_the_file = of_a_tier.replace("or `", "or `tiers[].").replacen('`', "`tiers[].", 1);
        assert!(told.starts_with(&format!("line 1: {word}: unknown key `{word}`: did you mean {of_the_file}?")), "{told}");
    }
    for word in ["cooldownPeriod", "pollingInterval", "triggers", "fallback"] {
        refused(&format!("{word}: 30"), word, "it belongs in the ScaledObject's spec");
    }
    refused("replicas: {max: 8, minReplicas: 2}", "replicas.minReplicas", "did you mean `min`?");
    refused("signals: {kvCache: {threshold: 0.8}}", "signals.kvCache.threshold", "did you mean `target`?");
}

#[test]
fn a_key_that_is_written_twice_is_refused() {
    let text = tier_with(&["coldStart: 3m"]) + "  coldStart: 4m\n";
    let told = problems(&text).to_string();
    assert_eq!(told, "line 8: tiers[0].coldStart: written twice: remove this one or the one on line 7");
}

#[test]
fn missing_keys_are_named_with_what_to_write() {
    let told = problems("tiers:\n- {}\n");
    let told: Vec<&str> = told.iter().map(|problem| problem.path.as_str()).collect();
    assert_eq!(told, ["tiers[0].name", "tiers[0].namespace", "tiers[0].source", "tiers[0].replicas"]);
    refused("replicas: {min: 1}", "replicas.max", "missing: write it (whole number, 1 to 10000)");
    refused("warmPool: {}", "warmPool.maxRamp", "missing: write it (ramp, such as `2x in 120s`)");
}

#[test]
fn a_tier_that_is_declared_twice_is_refused() {
    let tier = "- name: chat\n  namespace: a\n  source: {fixed: {urls: ['h:1']}}\n  replicas: {max: 8}\n";
    let told = problems(&format!("tiers:\n{tier}{tier}")).to_string();
    assert_eq!(
        told,
        "line 6: tiers[1].name: tier a/chat is declared twice: rename this one or the one on line 2"
    );
    // The same name in another namespace is another tier.
    assert_eq!(
        load(&format!("tiers:\n{tier}{}", tier.replace("namespace: a", "namespace: b"))).tiers.len(),
        2
    );
}

#[test]
fn names_that_kubernetes_does_not_take_are_refused() {
    let text =
        "tiers:\n- {name: Chat_H100, namespace: a.b, source: {fixed: {urls: ['h:1']}}, replicas: {max: 1}}\n";
    let told = problems(text).to_string();
    assert!(told.contains("tiers[0].name: `Chat_H100` is no Kubernetes name"), "{told}");
    assert!(told.contains("tiers[0].namespace: `a.b` is no namespace"), "{told}");
}

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

// ---- sources, scraping, listeners

#[test]
fn a_tier_has_exactly_one_source_that_this_version_knows() {
    for (kind, value) in [("kubernetes", "{port: metrics}"), ("prometheus", "{url: 'http://p'}")] {
        refused(
            &format!("source: {{{kind}: {value}}}"),
            &format!("source.{kind}"),
            &format!("`{kind}` is not supported by this version: use `dns` or `fixed`"),
        );
    }
    refused("source: {}", "source", "0 of `dns`, `fixed` are given: write exactly one");
    refused(
        "source: {dns: {host: a, port: 1}, fixed: {urls: ['a:1']}}",
        "source",
        "2 of `dns`, `fixed` are given: write exactly one",
    );
    refused("source: http://a", "source", "a single value where a mapping belongs: write `dns`, `fixed`");
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
    warned("signals: {kvCache: {target: 0.97}}", "signals.kvCache.target", "is above 0.95");
    warned("acceptableQueue: 0s", "acceptableQueue", "nothing may queue");
    warned("acceptableQueue: {requests: 0}", "acceptableQueue", "nothing may queue");
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

// ---- any text

/// Either good, or refused with reasons that name a place in the file.
fn answers_sensibly(text: &str) {
    if let Err(problems) = config::load(text) {
        assert!(!problems.is_empty());
        for problem in &problems {
            assert!((1..=text.lines().count().max(1) + 1).contains(&problem.line), "{problem}\n{text}");
            assert!(!problem.message.contains("defect"), "{problem}\n{text}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_damaged_file_is_good_or_refused_with_reasons(
        from in 0..110_usize,
        lines in 0..4_usize,
        indent in 0..6_usize,
        value in prop::sample::select(vec!["null", "[]", "{}", "7", "0", "-1", ".nan", "x", "''", "&a 1", "*a", "[", "5s", "!!str 1"]),
    ) {
        let example = std::fs::read_to_string(repository("deploy/examples/full.yaml")).unwrap();
        let mut damaged: Vec<String> = example.lines().map(str::to_owned).collect();
        let from = from.min(damaged.len() - 1);
        if let Some((key, _)) = damaged[from].clone().split_once(':') {
            damaged[from] = format!("{key}: {value}");
        }
        let until = (from + 1 + lines).min(damaged.len());
        damaged.drain(from + 1..until);
        answers_sensibly(&damaged.join("\n"));
        damaged[from] = " ".repeat(indent) + damaged[from].trim_start();
        answers_sensibly(&damaged.join("\n"));
    }

    #[test]
    fn any_text_at_all_is_good_or_refused_with_reasons(text in "[a-z:{}\\[\\] \n\\-*&!#\"',0-9]{0,200}") {
        answers_sensibly(&text);
    }
}

#[test]
fn a_file_that_could_block_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("tiers.yaml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Opening it would wait for a writer for ever.
    let error = config::load_file(&pipe).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}
