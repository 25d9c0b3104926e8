//! What a metadata key means, by its name alone.

use super::declared;
use crate::config::problem::nearest;

/// Keys of KEDA's own that it copies to us (KEDA, `external_scaler.go`): the connection's, in every version.
const RESERVED: &[&str] =
    &["scalerAddress", "enableTLS", "unsafeSsl", "tlsCertFile", "caCert", "tlsClientCert", "tlsClientKey"];

/// Keys that people know from elsewhere, and where they belong.
const ELSEWHERE: &[(&str, &str)] = &[
    ("metricType", "belongs beside `metadata` in the trigger, and must be AverageValue, its default"),
    ("useCachedMetrics", "belongs beside `metadata` in the trigger"),
    ("activationThreshold", "has no effect: a tier is active whenever it requires a replica or has work"),
    ("threshold", "has no effect: the target is always 1, the answer is the number of replicas"),
    ("targetValue", "has no effect: the target is always 1, the answer is the number of replicas"),
    ("metricName", "has no effect: the metric's name is always the same"),
    ("pollingInterval", "belongs in the ScaledObject's spec"),
    ("cooldownPeriod", "belongs in the ScaledObject's spec"),
    ("minReplicaCount", "belongs in the ScaledObject's spec; a declared tier has `minReplicas`"),
    ("maxReplicaCount", "belongs in the ScaledObject's spec; a declared tier has `maxReplicas`"),
];

/// Words of a key that names a place to ask. None of ours has one.
const SOURCE_WORDS: &[&str] = &[
    "url",
    "urls",
    "uri",
    "query",
    "queries",
    "promql",
    "selector",
    "selectors",
    "address",
    "addresses",
    "endpoint",
    "endpoints",
    "host",
    "hosts",
    "hostname",
    "dns",
    "source",
];

/// What a key means.
pub(super) enum Meaning {
    /// KEDA's own.
    Reserved,
    /// `tier`.
    Tier,
    /// Declares a part of a tier.
    Declares,
    /// `INVALID_ARGUMENT`.
    Refused(String),
    /// A warning.
    NoEffect(String),
}

pub(super) fn meaning(key: &str) -> Meaning {
    if RESERVED.contains(&key) {
        return Meaning::Reserved;
    }
    // KEDA puts the value of an environment variable of the target there, or drops the key when that is empty. A tier
    // whose floors come and go with a pod's environment would surprise everybody.
    if let Some(base) = key.strip_suffix("FromEnv") {
        return match meaning(base) {
            Meaning::Tier | Meaning::Declares | Meaning::Refused(_) => {
                Meaning::NoEffect("environment variables are not read: write the value itself".to_owned())
            }
            Meaning::Reserved | Meaning::NoEffect(_) => Meaning::Reserved,
        };
    }
    if key == "tier" {
        return Meaning::Tier;
    }
    if declared::path(key).is_some() {
        return Meaning::Declares;
    }
    if let Some(base) = declared::misnumbered_floor(key) {
        return Meaning::Refused(format!(
            "the first floor's key is `{base}`, the next ones' are `{base}2` to `{base}{}`",
            declared::MAX_FLOORS
        ));
    }
    if let Some((_, where_to)) = ELSEWHERE.iter().find(|(name, _)| *name == key) {
        return Meaning::NoEffect((*where_to).to_owned());
    }
    if words(key).iter().any(|word| SOURCE_WORDS.contains(&word.as_str())) {
        return Meaning::Refused(
            "a ScaledObject can't say where to look: sources are declared in the server's file; remove the key".to_owned(),
        );
    }
    let known = declared::names().chain(["tier"]).chain(RESERVED.iter().copied());
    Meaning::NoEffect(match nearest(key, known) {
        Some(near) => format!("unknown key: did you mean `{near}`?"),
        None => "unknown key, without effect".to_owned(),
    })
}

/// `serverAddress`, `server_address` and `ServerAddress2` are the words server and address.
fn words(key: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before_lower = false;
    for c in key.chars().take(200) {
        if !c.is_alphabetic() || (c.is_uppercase() && before_lower) {
            words.push(String::new());
        }
        before_lower = c.is_lowercase();
        if let Some(word) = words.last_mut().filter(|_| c.is_alphabetic()) {
            word.extend(c.to_lowercase());
        }
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_split_into_words() {
        for key in ["serverAddress", "server_address", "ServerAddress2", "server-address"] {
            assert_eq!(&words(key)[..2], ["server", "address"], "{key}");
        }
        assert_eq!(words("URL"), ["url"]);
    }

    #[test]
    fn keys_that_name_a_place_are_refused_whatever_their_spelling() {
        for key in [
            "url",
            "URL",
            "urls",
            "query",
            "selector",
            "podSelector",
            "serverAddress",
            "prometheusAddress",
            "endpoint",
            "metricsEndpoint",
            "address",
            "host",
            "metrics_url",
            "promql",
            "dns",
            "source",
        ] {
            assert!(matches!(meaning(key), Meaning::Refused(_)), "{key}");
        }
    }

    #[test]
    fn no_key_of_ours_looks_like_a_place() {
        for key in declared::names() {
            assert!(matches!(meaning(key), Meaning::Declares), "{key}");
        }
    }
}
