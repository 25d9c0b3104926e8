//! A ScaledObject's metadata: it names a tier or declares one, and every mistake names its key.

use std::collections::HashMap;
use std::time::Duration;

use proptest::prelude::*;

use keda_vllm_scaler::config::trigger::{Trigger, TriggerContext, TriggerError, resolve};
use keda_vllm_scaler::decision::policy::{Policy, QueueAllowance, TierId};

fn metadata(pairs: &[(&str, &str)]) -> HashMap<String, String> {
    let address = ("scalerAddress", "keda-vllm-scaler.keda-vllm-scaler.svc:6000");
    pairs.iter().chain([&address]).map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// The server's file declares `serving/chat` and `secret/other`.
fn asked(allow_metadata_tiers: bool, name: &str, pairs: &[(&str, &str)]) -> Result<Trigger, TriggerError> {
    let file_tiers = |tier: &TierId| {
        assert_eq!(tier.namespace, "serving", "asked about another namespace");
        tier.name == "chat"
    };
    let ctx = TriggerContext { allow_metadata_tiers, file_tiers: &file_tiers };
    resolve(&ctx, "serving", name, &metadata(pairs))
}

fn named(pairs: &[(&str, &str)]) -> (String, Vec<String>) {
    match asked(false, "chat", pairs) {
        Ok(Trigger::Named { tier, warnings }) => (tier.to_string(), warnings),
        other => panic!("{pairs:?}: {other:?}"),
    }
}

fn declared(pairs: &[(&str, &str)]) -> (Policy, Vec<String>) {
    match asked(true, "night", pairs) {
        Ok(Trigger::Declared { policy, warnings }) => (*policy, warnings),
        other => panic!("{pairs:?}: {other:?}"),
    }
}

fn refused(pairs: &[(&str, &str)]) -> TriggerError {
    asked(true, "night", pairs).expect_err("should be refused")
}

const FLOOR: [(&str, &str); 4] = [
    ("timezone", "Europe/Berlin"),
    ("start", "0 8 * * 1-5"),
    ("end", "0 18 * * 1-5"),
    ("desiredReplicas", "6"),
];

fn with_floor(more: &[(&'static str, &'static str)]) -> Vec<(&'static str, &'static str)> {
    FLOOR.iter().chain(more).copied().collect()
}

// ---- naming

#[test]
fn without_a_key_the_tier_is_the_scaled_objects_own() {
    assert_eq!(named(&[]), ("serving/chat".to_owned(), vec![]));
}

#[test]
fn tier_names_one_in_the_askers_own_namespace() {
    assert_eq!(named(&[("tier", "chat-h100")]).0, "serving/chat-h100");
    assert_eq!(named(&[("tier", "serving/chat-h100")]).0, "serving/chat-h100");
}

#[test]
fn a_tier_of_another_namespace_is_refused_in_the_same_words_whether_it_exists_or_not() {
    let exists = refused(&[("tier", "secret/other")]);
    let does_not = refused(&[("tier", "secret/nothing")]);
    assert_eq!(exists, does_not);
    assert_eq!(exists.key, "tier");
    assert_eq!(
        exists.message,
        "`tier`: a ScaledObject may ask only for tiers of its own namespace: write a name in serving"
    );
}

#[test]
fn a_tier_that_is_no_name_is_refused() {
    for text in ["", "Chat", "serving/", "serving/a/b", "a b"] {
        assert_eq!(refused(&[("tier", text)]).key, "tier", "{text}");
    }
}

// ---- keys that are not ours

#[test]
fn keys_that_keda_keeps_for_itself_are_accepted_in_silence() {
    let (tier, warnings) = named(&[
        ("enableTLS", "true"),
        ("unsafeSsl", "false"),
        ("tlsCertFile", "/c"),
        ("caCert", "-----BEGIN CERTIFICATE-----"),
        ("tlsClientCert", "x"),
        ("tlsClientKey", "x"),
        ("passwordFromEnv", "hunter2"),
    ]);
    assert_eq!((tier.as_str(), warnings), ("serving/chat", vec![]));
}

#[test]
fn keys_that_name_a_place_to_ask_are_refused() {
    for key in [
        "url",
        "query",
        "selector",
        "serverAddress",
        "prometheusAddress",
        "endpoint",
        "address",
        "metricsUrl",
    ] {
        for allowed in [false, true] {
            let error = asked(allowed, "chat", &[(key, "http://169.254.169.254/")]).unwrap_err();
            assert_eq!(error.key, key);
            assert!(error.message.contains("sources are declared in the server's file"), "{error}");
            assert!(!error.message.contains("169.254"), "{error}");
        }
    }
}

#[test]
fn an_unknown_key_is_a_warning_that_names_the_near_key_and_never_the_value() {
    let (_, warnings) = named(&[("teir", "hunter2"), ("password", "hunter2"), ("startt", "hunter2")]);
    assert_eq!(
        warnings,
        [
            "`password`: unknown key, without effect",
            "`startt`: unknown key: did you mean `start`?",
            "`teir`: unknown key: did you mean `tier`?",
        ]
    );
}

#[test]
fn keys_that_belong_elsewhere_are_warned_of_with_their_place() {
    let (_, warnings) = named(&[("metricType", "Value"), ("activationThreshold", "5"), ("tierFromEnv", "x")]);
    assert_eq!(warnings.len(), 3);
    assert!(
        warnings.iter().any(|w| w.starts_with("`metricType`: belongs beside `metadata`")),
        "{warnings:?}"
    );
    assert!(
        warnings.iter().any(|w| w.starts_with("`tierFromEnv`: environment variables are not read")),
        "{warnings:?}"
    );
}

#[test]
fn no_end_of_keys_makes_a_bounded_answer() {
    let many: Vec<(String, String)> = (0..250).map(|n| (format!("nonsense{n:04}"), "x".to_owned())).collect();
    let pairs: Vec<(&str, &str)> = many.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let (_, warnings) = named(&pairs);
    assert_eq!((warnings.len(), warnings[20].as_str()), (21, "and 230 more"));
    let long = "url\n".to_owned() + &"u".repeat(50_000);
    let message = refused(&[(&long, "x")]).message;
    assert!(message.len() < 300 && message.lines().count() == 1, "{message}");
}

// ---- declaring

#[test]
fn kedas_cron_keys_declare_a_floor() {
    let (policy, warnings) = declared(&FLOOR);
    assert_eq!(policy.tier, TierId::new("serving", "night"));
    assert!(policy.floors_only);
    assert_eq!((policy.min, policy.max), (1, 100));
    assert_eq!(policy.floors.len(), 1);
    assert_eq!(policy.floors[0].replicas, 6);
    assert_eq!(policy.floors[0].window.timezone, "Europe/Berlin");
    assert_eq!(policy.floors[0].window.start, "0 8 * * 1-5");
    assert!(warnings.iter().all(|warning| warning.starts_with("`tolerance`")), "{warnings:?}");
}

#[test]
fn further_floors_have_numbers_and_the_first_ones_zone_unless_they_say_another() {
    let (policy, _) = declared(&with_floor(&[
        ("start2", "0 22 * * *"),
        ("end2", "0 2 * * *"),
        ("desiredReplicas2", "12"),
        ("timezone7", "Asia/Tokyo"),
        ("start7", "0 1 * * *"),
        ("end7", "0 2 * * *"),
        ("desiredReplicas7", "3"),
    ]));
    let floors: Vec<(&str, &str, u32)> = policy
        .floors
        .iter()
        .map(|floor| (floor.window.timezone.as_str(), floor.window.start.as_str(), floor.replicas))
        .collect();
    assert_eq!(
        floors,
        [
            ("Europe/Berlin", "0 8 * * 1-5", 6),
            ("Europe/Berlin", "0 22 * * *", 12),
            ("Asia/Tokyo", "0 1 * * *", 3),
        ]
    );
}

#[test]
fn bounds_targets_and_warm_pool_are_declared_with_units() {
    let (policy, _) = declared(&with_floor(&[
        ("minReplicas", "2"),
        ("maxReplicas", "40"),
        ("coldStart", "4m"),
        ("maxRamp", "2x in 120s"),
        ("kvTarget", "0.7"),
        ("tokensTarget", "75%"),
        ("acceptableQueue", "50 requests"),
        ("hold", "10m"),
        ("tolerance", "0"),
    ]));
    assert_eq!((policy.min, policy.max), (2, 40));
    assert_eq!(policy.cold_start, Duration::from_mins(4));
    assert!((policy.max_ramp.unwrap().factor - 2.0).abs() < 1e-12);
    assert!((policy.signals.kv_cache.target - 0.7).abs() < 1e-12);
    assert!((policy.signals.tokens.target - 0.75).abs() < 1e-12);
    assert_eq!(policy.acceptable_queue, QueueAllowance::Requests(50.0));
    assert_eq!(policy.hold(), Duration::from_mins(10));
    assert!(policy.dead_band.tolerance.abs() < 1e-12);
}

#[test]
fn declaring_is_refused_where_the_file_does_not_allow_it() {
    let error = asked(false, "night", &FLOOR).unwrap_err();
    assert_eq!(error.key, "desiredReplicas");
    assert!(error.message.contains("ask its operator for allowMetadataTiers"), "{error}");
    for key in ["timezone", "start", "end", "desiredReplicas"] {
        assert!(error.message.contains(&format!("`{key}`")), "{error}");
    }
}

#[test]
fn declaring_a_tier_of_the_file_is_refused() {
    let error = asked(true, "chat", &[("maxReplicas", "9")]).unwrap_err();
    assert_eq!(error.key, "maxReplicas");
    assert!(error.message.contains("the server's file declares serving/chat"), "{error}");
}

#[test]
fn naming_one_tier_and_declaring_another_is_refused() {
    let error = refused(&[("tier", "chat"), ("maxReplicas", "9")]);
    assert_eq!(error.key, "maxReplicas");
    assert!(error.message.contains("but `tier` names chat: remove one of them"), "{error}");
    // Its own name is no contradiction.
    assert!(asked(true, "night", &with_floor(&[("tier", "night")])).is_ok());
}

#[test]
fn a_bad_value_is_refused_with_its_key_and_what_to_write() {
    for (key, value, part) in [
        ("minReplicas", "0", "it can't tell idle from unknown; write 1 or more"),
        ("minReplicas", "41", "41 is above the maximum of 40: lower it or raise `maxReplicas`"),
        ("desiredReplicas", "41", "41 is above the tier's maximum of 40: lower it or raise `maxReplicas`"),
        ("desiredReplicas", "six", "write a whole number from 1"),
        ("desiredReplicas", "0", "write a whole number from 1"),
        ("coldStart", "180", "write 180s for seconds"),
        ("kvTarget", "80", "did you mean 80%?"),
        ("kvTarget", "NaN", "above 0 and at most 1"),
        ("maxRamp", "1x in 2m", "the factor must be above 1"),
        ("hold", "long", "or auto"),
        ("acceptableQueue", "50", "or write {requests: 50}"),
        ("deadBand", "x", "write exceed or stay"),
        ("timezone", "Mars/Olympus", "time zone"),
        ("start", "99 8 * * *", ""),
        ("end", "0 8 31 2 *", ""),
    ] {
        let mut pairs: HashMap<&str, &str> = with_floor(&[("maxReplicas", "40")]).into_iter().collect();
        pairs.insert(key, value);
        let pairs: Vec<(&str, &str)> = pairs.into_iter().collect();
        let error = refused(&pairs);
        assert_eq!(error.key, key, "{error}");
        assert!(error.message.starts_with(&format!("`{key}`: ")), "{error}");
        assert!(error.message.contains(part), "{error}");
    }
}

#[test]
fn an_incomplete_floor_names_the_missing_key_with_its_number() {
    let error = refused(&with_floor(&[("start3", "0 22 * * *"), ("desiredReplicas3", "4")]));
    assert_eq!(error.key, "end3");
    assert!(error.message.starts_with("`end3`: missing"), "{error}");
    assert_eq!(
        refused(&[("start", "0 8 * * *"), ("end", "0 9 * * *"), ("desiredReplicas", "2")]).key,
        "timezone"
    );
}

#[test]
fn a_start_that_is_its_end_is_refused_at_the_start() {
    let mut pairs = FLOOR;
    pairs[2].1 = pairs[1].1;
    assert_eq!(refused(&pairs).key, "start");
}

#[test]
fn a_floor_with_a_number_that_none_has_is_refused_and_not_lost() {
    for key in ["start1", "start02", "end0", "desiredReplicas51"] {
        let error = refused(&with_floor(&[(key, "5")]));
        assert_eq!(error.key, key);
        assert!(error.message.contains("the next ones' are"), "{error}");
    }
}

#[test]
fn several_problems_are_told_together_and_the_first_is_the_key() {
    let error = refused(&with_floor(&[("maxReplicas", "4"), ("coldStart", "180"), ("url", "x")]));
    assert_eq!(error.key, "url");
    for key in ["url", "coldStart", "desiredReplicas"] {
        assert!(error.message.contains(&format!("`{key}`: ")), "{error}");
    }
    assert_eq!(error.message.lines().count(), 1);
}

#[test]
fn what_is_legal_but_wrong_is_warned_of() {
    let (_, warnings) = declared(&with_floor(&[("hold", "30s"), ("kvTarget", "0.99"), ("tolerance", "0")]));
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].starts_with("`hold`: 30s is shorter than the cold start of 3m"), "{warnings:?}");
    assert!(warnings[1].starts_with("`kvTarget`: 0.99 is above 0.95"), "{warnings:?}");
    let (_, warnings) = declared(&[("minReplicas", "3"), ("maxReplicas", "9")]);
    assert_eq!(
        warnings,
        [
            "no floor is declared (timezone, start, end, desiredReplicas): the answer is always 3, unless the file has a \
          `kubernetes` section, by which the target's pods are seen"
        ]
    );
}

#[test]
fn the_order_of_the_map_changes_nothing() {
    let first = refused(&with_floor(&[("maxReplicas", "4"), ("coldStart", "180"), ("hold", "x")]));
    for _ in 0..20 {
        assert_eq!(refused(&with_floor(&[("hold", "x"), ("maxReplicas", "4"), ("coldStart", "180")])), first);
    }
}

proptest! {
    #[test]
    fn any_metadata_is_read_or_refused_in_one_line_with_a_key(
        pairs in prop::collection::hash_map(
            prop_oneof![
                prop::sample::select(vec!["tier", "timezone", "start", "end", "desiredReplicas", "start2", "end3",
                    "desiredReplicas2", "minReplicas", "maxReplicas", "coldStart", "hold", "maxRamp", "acceptableQueue",
                    "kvTarget", "tolerance", "deadBand", "url"]).prop_map(str::to_owned),
                ".{0,20}",
            ],
            prop_oneof![
                prop::sample::select(vec!["", "0", "1", "7", "10000", "UTC", "0 8 * * *", "0 9 * * *", "5m", "2x in 2m",
                    "0.5", "auto", "stay", "NaN", "night", "5 tokens"]).prop_map(str::to_owned),
                ".{0,20}",
            ],
            0..12,
        )
    ) {
        let pairs: Vec<(&str, &str)> = pairs.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        if let Err(error) = asked(true, "night", &pairs) {
            prop_assert!(!error.key.is_empty() || pairs.iter().any(|(key, _)| key.is_empty()));
            prop_assert!(error.message.contains(&error.key));
            prop_assert_eq!(error.message.lines().count(), 1, "{}", error.message);
        }
    }
}

#[test]
fn metadata_is_bounded_before_anything_is_worked_out() {
    let file_tiers = |_: &TierId| false;
    let ctx = TriggerContext { allow_metadata_tiers: true, file_tiers: &file_tiers };
    let many: HashMap<_, _> = (0..60_000).map(|n| (format!("desiredReplica{n}"), "1".to_owned())).collect();
    let error = resolve(&ctx, "serving", "chat", &many).unwrap_err();
    assert_eq!(error.key, "scalerMetadata");
    assert!(error.message.contains("60000 keys"), "{}", error.message);
    let long = HashMap::from([("note".to_owned(), "x".repeat(70_000))]);
    assert_eq!(resolve(&ctx, "serving", "chat", &long).unwrap_err().key, "scalerMetadata");
}
