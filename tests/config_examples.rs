//! The examples and the reference are true: they come from the same table as the reader, and say everything.

#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::{Path, PathBuf};

use assert_cmd::Command;
use keda_vllm_scaler::config::{self, schema};
use keda_vllm_scaler::decision::policy::{ForecastPolicy, Policy, TierId, TokenRates};
use keda_vllm_scaler::schedule::Zone;

fn repository(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(repository(path)).unwrap()
}

fn command(args: &[&str]) -> std::process::Output {
    Command::cargo_bin("keda-vllm-scaler").unwrap().args(args).output().unwrap()
}

fn printed(output: &std::process::Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Every key of a parsed file as the table names it: `tiers[].scrape.interval`.
fn written_paths(value: &serde_json::Value, path: &str, into: &mut Vec<String>) {
    match value {
        serde_json::Value::Object(entries) => {
            for (key, below) in entries {
                let list =
                    if below.as_array().is_some_and(|items| items.iter().all(serde_json::Value::is_object)) {
                        "[]"
                    } else {
                        ""
                    };
                let path =
                    if path.is_empty() { format!("{key}{list}") } else { format!("{path}.{key}{list}") };
                written_paths(below, &path, into);
                into.push(path);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| written_paths(item, path, into)),
        _ => {}
    }
}

#[test]
fn the_full_example_shows_every_key_and_is_good() {
    let text = text("deploy/examples/full.yaml");
    config::load(&text).unwrap_or_else(|problems| panic!("{problems}"));
    let mut written = Vec::new();
    written_paths(&serde_saphyr::from_str(&text).unwrap(), "", &mut written);
    for path in schema::key_paths() {
        assert!(written.contains(&path), "{path} is not in the example");
    }
}

/// Every default of the schema with its path as a JSON pointer into the full example.
fn defaults(schema: &serde_json::Value, pointer: &str, into: &mut Vec<(String, serde_json::Value)>) {
    let schema = schema["anyOf"].get(0).filter(|first| first["type"] != "string").unwrap_or(schema);
    for (key, below) in schema["properties"].as_object().into_iter().flatten() {
        let pointer = format!("{pointer}/{key}");
        if let Some(default) = below.get("default") {
            into.push((pointer.clone(), default.clone()));
        }
        if key != "defaults" {
            defaults(below, &pointer, into);
        }
    }
    if schema["items"].is_object() {
        defaults(&schema["items"], &format!("{pointer}/0"), into);
    }
}

#[test]
fn the_full_example_shows_the_defaults_but_where_it_says_otherwise() {
    let example: serde_json::Value = serde_saphyr::from_str(&text("deploy/examples/full.yaml")).unwrap();
    let mut all = Vec::new();
    defaults(&schema::json_schema(), "", &mut all);
    assert!(all.len() > 35, "{}", all.len());
    let differing: Vec<&str> = all
        .iter()
        .filter(|(pointer, default)| {
            let shown = example.pointer(pointer);
            let same_number =
                shown.and_then(serde_json::Value::as_f64) == default.as_f64() && default.is_number();
            // fixed lists belong to the second tier, and dns to the first.
            shown.is_some() && shown != Some(default) && !same_number
        })
        .map(|(pointer, _)| pointer.as_str())
        .collect();
    // Their lines say `default:`.
    assert_eq!(
        differing,
        ["/tiers/0/hpa/tolerance", "/tiers/0/signals/latency/weight", "/tiers/0/source/dns/scheme"]
    );
}

#[test]
fn the_minimal_example_is_good_and_gets_the_documented_defaults() {
    let config = config::load(&text("deploy/examples/minimal.yaml")).unwrap();
    let policy = &config.tiers[0].policy;
    assert_eq!((policy.min, policy.max), (1, 8));
    assert_eq!(
        (policy.cold_start.as_secs(), policy.control_delay.as_secs(), policy.drain.as_secs()),
        (180, 25, 30)
    );
    assert_eq!(policy.hold().as_secs(), 210);
    assert_eq!(config.listen.grpc.port(), 6000);
}

#[test]
fn a_policy_made_without_a_file_has_the_defaults_of_the_file() {
    let text = "tiers:\n- name: chat\n  namespace: serving\n  source: {fixed: {urls: ['h:1']}}\n  replicas: {max: 8}\n  \
                capacity: {inputTokensPerSecond: 8000, outputTokensPerSecond: 700}\n";
    let rates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };
    assert_eq!(
        config::load(text).unwrap().tiers[0].policy,
        Policy::with_defaults(TierId::new("serving", "chat"), 8, rates)
    );
}

#[test]
fn the_metadata_of_every_scaled_object_example_is_good() {
    let mut seen = 0;
    for entry in std::fs::read_dir(repository("deploy/examples")).unwrap() {
        let path = entry.unwrap().path();
        if !path.file_name().unwrap().to_string_lossy().starts_with("scaledobject") {
            continue;
        }
        let object: serde_json::Value =
            serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let metadata = object["spec"]["triggers"][0]["metadata"].as_object().unwrap();
        let metadata =
            metadata.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap().to_owned())).collect();
        let file_tiers = |_: &keda_vllm_scaler::decision::TierId| false;
        let ctx = config::trigger::TriggerContext { allow_metadata_tiers: true, file_tiers: &file_tiers };
        let (namespace, name) = (&object["metadata"]["namespace"], &object["metadata"]["name"]);
        let trigger =
            config::trigger::resolve(&ctx, namespace.as_str().unwrap(), name.as_str().unwrap(), &metadata)
                .unwrap();
        if let config::trigger::Trigger::Declared { policy, .. } = trigger {
            assert_eq!(policy.floors.len(), 2, "{}", path.display());
        }
        seen += 1;
    }
    assert_eq!(seen, 3);
}

#[test]
fn the_reference_in_the_docs_is_what_the_command_prints() {
    let docs = text("docs/configuration.md");
    let (_, reference) = docs.split_once("<!-- keda-vllm-scaler schema --markdown -->\n").unwrap();
    assert_eq!(
        reference,
        schema::markdown(),
        "replace it by the output of: keda-vllm-scaler schema --markdown"
    );
}

#[test]
fn schema_prints_a_json_schema_that_has_every_key() {
    let output = command(&["schema"]);
    assert!(output.status.success());
    let printed: serde_json::Value = serde_json::from_str(&printed(&output)).unwrap();
    assert_eq!(printed["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let tier = &printed["properties"]["tiers"]["anyOf"][0]["items"];
    assert_eq!(tier["required"], serde_json::json!(["name", "source"]));
    assert_eq!(tier["additionalProperties"], false);
    assert_eq!(tier["properties"]["coldStart"]["default"], "180s");
    let defaults = &printed["properties"]["defaults"]["anyOf"][0];
    assert!(defaults["properties"].get("name").is_none());
    assert!(defaults.get("required").is_none());
}

#[test]
fn check_tells_every_problem_and_exits_with_64() {
    let file = repository("tests/fixtures/configs/everything_wrong.yaml");
    let file = file.to_str().unwrap();
    let output = command(&["check", file]);
    assert_eq!(output.status.code(), Some(64));
    let told = printed(&output);
    let expected = text("tests/fixtures/configs/everything_wrong.problems.txt").trim().lines().count();
    assert_eq!(told.lines().count(), expected + 1, "{told}");
    assert!(
        told.contains(&format!("{file}:9: error: tiers[0].replicas.min: 9 is above the maximum of 4")),
        "{told}"
    );
    assert!(told.ends_with(&format!("{file} is refused: {expected} problems\n")), "{told}");

    let output = command(&["check", "--json", file]);
    assert_eq!(output.status.code(), Some(64));
    let told: serde_json::Value = serde_json::from_str(&printed(&output)).unwrap();
    assert_eq!(told["ok"], false);
    assert_eq!(told["problems"].as_array().unwrap().len(), expected);
    assert_eq!(told["problems"][0]["line"], 2);
    assert_eq!(told["problems"][0]["path"], "listen.http");
}

#[test]
fn check_lets_warnings_pass_unless_strict() {
    let file = repository("deploy/examples/minimal.yaml");
    let file = file.to_str().unwrap();
    let output = command(&["check", file]);
    assert_eq!(output.status.code(), Some(0));
    assert!(printed(&output).ends_with("is good: 1 tier, 1 warning\n"), "{}", printed(&output));
    assert_eq!(command(&["check", "--strict", file]).status.code(), Some(64));
}

#[test]
fn check_warns_of_files_that_are_not_there_and_fails_without_the_file_itself() {
    let file = repository("deploy/examples/full.yaml");
    let told = printed(&command(&["check", file.to_str().unwrap()]));
    assert!(
        told.contains("warning: tiers[0].scrape.ca: /etc/keda-vllm-scaler/tls/ca.crt is not there"),
        "{told}"
    );
    assert_eq!(command(&["check", "/no/such/file.yaml"]).status.code(), Some(1));
}

#[test]
fn the_manifest_of_a_config_map_is_checked_as_the_file_in_it() {
    let manifest = repository("deploy/kubernetes/configmap.yaml");
    let good = command(&["check", manifest.to_str().unwrap()]);
    assert!(good.status.success(), "{}", printed(&good));
    assert!(printed(&good).contains("is good: 1 tier"), "{}", printed(&good));

    let folder = tempfile::tempdir().unwrap();
    let bad = folder.path().join("configmap.yaml");
    let text = text("deploy/kubernetes/configmap.yaml").replace("coldStart:", "coldStrat:");
    std::fs::write(&bad, &text).unwrap();
    let line = 1 + text.lines().position(|line| line.contains("coldStrat")).unwrap();
    let refused = command(&["check", bad.to_str().unwrap()]);
    let printed = printed(&refused);
    assert!(printed.contains(&format!("configmap.yaml:{line}: error: tiers[0].coldStrat")), "{printed}");
    assert_eq!(printed.matches("error:").count(), 1, "{printed}");
}

#[test]
fn the_forecast_goes_by_a_price_or_by_a_budget_and_by_the_days_of_its_people() {
    let forecast = |lines: &str| {
        let text = format!(
            "tiers:\n- name: chat\n  namespace: serving\n  source: {{fixed: {{urls: ['h:1']}}}}\n  replicas: {{max: 8}}\n{lines}"
        );
        config::load(&text).map(|config| config.tiers[0].policy.forecast)
    };
    assert_eq!(forecast("").unwrap(), Some(ForecastPolicy::default()));
    assert_eq!(forecast("  forecast: {mode: off}\n").unwrap(), None);
    let priced = forecast("  forecast: {mode: price, shortageCost: 10m}\n").unwrap().unwrap();
    assert_eq!((priced.shortage_cost.as_secs(), priced.late_budget, priced.timezone), (600, None, None));
    let budget = forecast("  forecast: {mode: budget}\n").unwrap().unwrap();
    assert_eq!(budget.late_budget, Some(0.001));
    let berlin = Zone::parse("Europe/Berlin").unwrap();
    let named =
        forecast("  forecast: {mode: budget, lateBudget: 0.5%, timezone: Europe/Berlin}\n").unwrap().unwrap();
    assert_eq!((named.late_budget, named.timezone), (Some(0.005), Some(berlin)));
    let floor = |zone: &str| {
        format!("  - {{timezone: {zone}, start: \"0 8 * * *\", end: \"0 9 * * *\", desiredReplicas: 2}}\n")
    };
    let lines = format!("  forecast: {{mode: price}}\n  floors:\n{}", floor("Europe/Berlin"));
    assert_eq!(forecast(&lines).unwrap().unwrap().timezone, Some(berlin), "that of the floors");
    let lines = format!("{lines}{}", floor("Asia/Tokyo"));
    assert_eq!(forecast(&lines).unwrap().unwrap().timezone, None, "they differ");
    let wrong = forecast("  forecast: {mode: price, timezone: Europe/Berln}\n").unwrap_err();
    assert!(format!("{wrong:?}").contains("did you mean Europe/Berlin?"), "{wrong:?}");
    assert!(forecast("  forecast: {mode: budget, lateBudget: 0}\n").is_err());
}
