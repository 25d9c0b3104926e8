//! Keys that this section doesn't have: what was meant, and at which level it belongs.

use super::file;
use super::problem::nearest;
use super::quantity::quoted;
use super::shape::{Key, Kind};

/// Places that one message names: `weight` and `timeout` stand in many sections.
const MOST_PLACES: usize = 3;

/// What a word of KEDA's or the HPA's means here.
enum Meant {
    /// One of these keys of a tier.
    Keys(&'static [&'static str]),
    /// Not a matter of this file.
    Elsewhere(&'static str),
}

const THE_SCALED_OBJECT: &str = "it belongs in the ScaledObject's spec";

/// Words that people bring along (KEDA 2.21's `ScaledObject` and triggers, the HPA's `autoscaling/v2`).
const FAMILIAR: &[(&str, Meant)] = &[
    ("minReplicaCount", Meant::Keys(&["replicas.min"])),
    ("minReplicas", Meant::Keys(&["replicas.min"])),
    ("maxReplicaCount", Meant::Keys(&["replicas.max"])),
    ("maxReplicas", Meant::Keys(&["replicas.max"])),
    ("desiredReplicas", Meant::Keys(&["floors[].desiredReplicas"])),
    ("threshold", Meant::Keys(&["signals.kvCache.target", "signals.tokens.target"])),
    ("targetValue", Meant::Keys(&["signals.kvCache.target", "signals.tokens.target"])),
    ("targetAverageValue", Meant::Keys(&["signals.kvCache.target", "signals.tokens.target"])),
    ("averageValue", Meant::Keys(&["signals.kvCache.target", "signals.tokens.target"])),
    ("averageUtilization", Meant::Keys(&["signals.kvCache.target", "signals.tokens.target"])),
    ("stabilizationWindowSeconds", Meant::Keys(&["scaleDown.hold"])),
    (
        "activationThreshold",
        Meant::Elsewhere("a tier is active whenever it requires a replica: leave it out"),
    ),
    ("cooldownPeriod", Meant::Elsewhere(THE_SCALED_OBJECT)),
    ("initialCooldownPeriod", Meant::Elsewhere(THE_SCALED_OBJECT)),
    ("idleReplicaCount", Meant::Elsewhere(THE_SCALED_OBJECT)),
    (
        "pollingInterval",
        Meant::Elsewhere("it belongs in the ScaledObject's spec; pages are read every `scrape.interval`"),
    ),
    ("scaleTargetRef", Meant::Elsewhere(THE_SCALED_OBJECT)),
    ("triggers", Meant::Elsewhere(THE_SCALED_OBJECT)),
    (
        "fallback",
        Meant::Elsewhere(
            "it belongs in the ScaledObject's spec; here `holdUnknown` says how long an answer stands",
        ),
    ),
    ("advanced", Meant::Elsewhere(THE_SCALED_OBJECT)),
    (
        "behavior",
        Meant::Elsewhere(
            "it belongs in the ScaledObject's spec; what the HPA does to the answer stands under `hpa`",
        ),
    ),
    ("metricType", Meant::Elsewhere("it belongs in the ScaledObject's trigger, and must be AverageValue")),
];

/// What to write instead of an unknown key: the familiar word's own, a near name here, the same name at another level,
/// or all that may be written.
pub(super) fn unknown_key(word: &str, keys: &'static [Key]) -> String {
    let unknown = format!("unknown key {}", quoted(word));
    if let Some(hint) = familiar(word, keys) {
        return format!("{unknown}: {hint}");
    }
    if let Some(near) = nearest(word, keys.iter().map(|key| key.name)) {
        return format!("{unknown}: did you mean `{near}`?");
    }
    if let Some(hint) = elsewhere(word, keys) {
        return format!("{unknown}: {hint}");
    }
    let all: Vec<String> = keys.iter().map(|key| format!("`{}`", key.name)).collect();
    format!("{unknown}: write one of {}", all.join(", "))
}

fn familiar(word: &str, keys: &'static [Key]) -> Option<String> {
    let (_, meant) = FAMILIAR.iter().find(|(name, _)| *name == word)?;
    let paths = match meant {
        Meant::Elsewhere(hint) => return Some((*hint).to_owned()),
        Meant::Keys(paths) => *paths,
    };
    // `minReplicas` under `replicas` is its `min`; `desiredReplicas` in a floor is no unknown key at all.
    let has = |name: &str| keys.iter().any(|key| key.name == name);
    let last = |path: &&'static str| path.rsplit('.').next().unwrap_or(path);
    if let Some(name) = paths.iter().map(last).find(|name| has(name)) {
        return Some(format!("did you mean `{name}`?"));
    }
    let from_here = if is_tier(keys) { "" } else { "tiers[]." };
    Some(format!("did you mean {}?", choice(paths.iter().map(|path| format!("{from_here}{path}")))))
}

/// The same name at another level: below this section, else anywhere in the file.
fn elsewhere(word: &str, keys: &'static [Key]) -> Option<String> {
    let below = sections_with(word, keys, "");
    if !below.is_empty() {
        return Some(format!("it belongs under {}", choice(below)));
    }
    if file::ROOT.iter().any(|key| key.name == word) {
        return Some("it belongs at the top of the file".to_owned());
    }
    let anywhere = sections_with(word, file::ROOT, "");
    (!anywhere.is_empty()).then(|| format!("it belongs under {}", choice(anywhere)))
}

/// The sections below `keys` that have such a key, the nearest first.
fn sections_with(word: &str, keys: &'static [Key], path: &str) -> Vec<String> {
    let mut found = Vec::new();
    for key in keys {
        // What `defaults` holds is told where it holds for a tier.
        if matches!(key.kind, Kind::Partial(_)) {
            continue;
        }
        let list = if matches!(key.kind, Kind::Sections { .. }) { "[]" } else { "" };
        let dot = if path.is_empty() { "" } else { "." };
        let here = format!("{path}{dot}{}{list}", key.name);
        if key.children().iter().any(|child| child.name == word) {
            found.push(here.clone());
        }
        found.extend(sections_with(word, key.children(), &here));
    }
    found.sort_by_key(|path| path.matches('.').count());
    found
}

fn is_tier(keys: &[Key]) -> bool {
    keys.iter().any(|key| key.name == "replicas")
}

fn choice(paths: impl IntoIterator<Item = String>) -> String {
    let shown: Vec<String> = paths.into_iter().take(MOST_PLACES).map(|path| format!("`{path}`")).collect();
    shown.join(" or ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_familiar_word_leads_to_a_key_that_is_there() {
        let paths = crate::config::schema::key_paths();
        for (word, meant) in FAMILIAR {
            let Meant::Keys(keys) = meant else { continue };
            for key in *keys {
                assert!(paths.contains(&format!("tiers[].{key}")), "{word}: {key}");
            }
        }
    }
}
