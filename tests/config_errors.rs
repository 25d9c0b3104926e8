//! A configuration is refused with all of its problems at once, each with its path, its line and what to write.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "config_errors/any_text.rs"]
mod any_text;
#[path = "config_errors/inherited.rs"]
mod inherited;
#[path = "config_errors/sources.rs"]
mod sources;
#[path = "config_errors/values.rs"]
mod values;

use std::path::{Path, PathBuf};

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
    refused(
        "weight: 1",
        "weight",
        "it belongs under `signals.kvCache` or `signals.tokens` or `signals.waiting`",
    );
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
        assert!(
            told.starts_with(&format!("line 1: {word}: unknown key `{word}`: did you mean {of_the_file}?")),
            "{told}"
        );
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

#[test]
fn a_file_that_could_block_is_not_opened() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("tiers.yaml");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    // Opening it would wait for a writer for ever.
    let error = config::load_file(&pipe).unwrap_err();
    assert!(error.to_string().contains("not a regular file"), "{error}");
}
