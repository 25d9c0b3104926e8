//! A scenario of the backtest: one YAML file with the load, the fleet and the policies that are compared.
//!
//! It is read like the server's own file, with every problem told at once, and its policies are tiers of that file: what
//! may stand in a tier may stand there, and means the same.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::file::TIER;
use super::problem::{Place, Problems, Read, Reported};
use super::resolve::{self, Findings};
use super::section::Section;
use super::shape::{Key, Kind, Scalar};
use super::yaml::{self, Content, Entry, Node, Style};
use super::{profiles, shape_check};
use crate::decision::Policy;
use crate::decision::policy::{QueueAllowance, TokenRates};

mod traffic;

pub use traffic::{
    PrometheusSource, TIMEOUTS, Traffic, USUAL_TIMEOUT, YEARS, server_url, tier_id, wall_clock,
};

/// Policies of one comparison: more lines are no table.
pub const MOST_POLICIES: usize = 20;

/// Rivals that can be named.
const MOST_RIVALS: usize = 100;

/// Longer cold starts and queues are slips of the unit.
const LONGEST_SPAN: Duration = Duration::from_hours(1);

const SPAN: Kind = Kind::Scalar(Scalar::Span { least: Duration::ZERO, most: LONGEST_SPAN });

/// The whole file.
const ROOT: &[Key] = &[
    traffic::TRACE,
    traffic::FORMAT,
    traffic::ARRIVALS,
    traffic::HISTORY,
    traffic::PROMETHEUS,
    Key::optional(
        "peakReplicas",
        Kind::Scalar(Scalar::Count { least: 1, most: 500 }),
        "The trace is scaled so that its busiest minute is the work of so many full replicas.",
    ),
    Key::optional(
        "scale",
        Kind::Scalar(Scalar::Number { least: 1e-9, most: 1e9 }),
        "Instead of `peakReplicas`: what arrivals are multiplied by.",
    ),
    Key::optional("coldStart", SPAN, "Of the fleet; also what policies believe that don't say their own."),
    Key::optional(
        "acceptableQueue",
        SPAN,
        "Work that queues longer is late; also for policies that don't say their own.",
    ),
    Key::optional(
        "capacity",
        Kind::Section(RATES),
        "What a replica of the fleet truly serves; also for policies that don't say their own.",
    ),
    Key::optional(
        "days",
        Kind::Scalar(Scalar::Number { least: 6e-5, most: 400.0 }),
        "Only the first so many days of the trace.",
    ),
    Key::optional(
        "begins",
        Kind::Scalar(Scalar::Text { most: 40 }),
        "The wall-clock time at which the trace begins, such as 2026-03-02T00:00:00Z.",
    ),
    Key::optional(
        "scoreFrom",
        Kind::Scalar(Scalar::Span { least: Duration::ZERO, most: Duration::from_hours(24 * 400) }),
        "What comes before is for learning and isn't scored.",
    ),
    Key::optional(
        "seed",
        Kind::Scalar(Scalar::Count { least: 0, most: u32::MAX }),
        "Of whatever is drawn at random.",
    ),
    Key::optional(
        "rivals",
        Kind::Scalars { of: Scalar::Text { most: 100 }, most: MOST_RIVALS },
        "Names of rivals, or `all`.",
    ),
    Key::optional(
        "policies",
        Kind::Sections { keys: POLICY, most: MOST_POLICIES, inherit: None },
        "The policies under test; without any the defaults.",
    ),
];

const RATES: &[Key] = &[
    Key::required(
        "inputTokensPerSecond",
        Kind::Scalar(Scalar::Number { least: 1.0, most: 1e9 }),
        "Uncached input tokens a second of a replica that does only that.",
    ),
    Key::required(
        "outputTokensPerSecond",
        Kind::Scalar(Scalar::Number { least: 1.0, most: 1e9 }),
        "Output tokens a second of a replica that does only that.",
    ),
];

const POLICY: &[Key] = &[
    Key::required("name", Kind::Scalar(Scalar::Text { most: 100 }), "In the report."),
    Key::required(
        "tier",
        Kind::Section(TIER),
        "A tier as in the server's file; `name`, `namespace` and `source` may be absent.",
    ),
];

/// What is played. None is what the file doesn't say.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scenario {
    /// As written; relative paths count from the scenario's folder.
    pub traffic: Option<Traffic>,
    /// The busiest minute in full replicas. Never together with `scale`.
    pub peak_replicas: Option<u32>,
    /// What arrivals are multiplied by.
    pub scale: Option<f64>,
    /// Of the fleet.
    pub cold_start: Option<Duration>,
    /// Work that queues longer is late.
    pub acceptable_queue: Option<Duration>,
    /// What a replica of the fleet truly serves.
    pub rates: Option<TokenRates>,
    /// Only the first so many days.
    pub days: Option<f64>,
    /// The wall-clock time of the trace's beginning.
    pub begins: Option<DateTime<Utc>>,
    /// What comes before isn't scored.
    pub score_from: Option<Duration>,
    /// Of whatever is drawn at random.
    pub seed: Option<u64>,
    /// Names of rivals, or `all` alone.
    pub rivals: Option<Vec<String>>,
    /// The policies with their names, which are unique.
    pub policies: Vec<(String, Policy)>,
}

/// Reads a scenario.
///
/// # Errors
/// All problems, in the order of the file.
pub fn load(text: &str) -> Result<Scenario, Problems> {
    let mut found = Findings::default();
    let Ok(mut root) = yaml::read(text.strip_prefix('\u{feff}').unwrap_or(text), &mut found.problems) else {
        return Err(found.problems.sorted());
    };
    let place = Place { path: String::new(), line: 1 };
    let Content::Map(entries) = &root.content else {
        let what = root.content.kind();
        found.problems.push(&place, format!("the file holds {what}: write at least `trace:`"));
        return Err(found.problems);
    };
    if let Some(tiers) = entries.iter().find(|entry| entry.key == "tiers") {
        let place = Place { path: "tiers".to_owned(), line: tiers.line };
        let told = "this is a server's configuration and no scenario: play its tiers with `--policy FILE`";
        found.problems.push(&place, told);
        return Err(found.problems);
    }
    complete(&mut root);
    let root = Section::new(Some(&root), place, ROOT);
    shape_check::check(&root, &mut found.problems);
    let scenario = resolve(&root, &mut found);
    match scenario {
        Ok(scenario) if found.problems.is_empty() => Ok(scenario),
        _ => Err(found.problems.sorted()),
    }
}

/// Fills in what a tier of a scenario may leave out, and makes lists of `rivals: all` and of a law in one line.
fn complete(root: &mut Node) {
    for key in ["rivals", "arrivals"] {
        if let Some(list) = entry(root, key)
            && matches!(list.content, Content::Scalar(..))
        {
            let alone = list.clone();
            list.content = Content::List(vec![alone]);
        }
    }
    let Some(Node { content: Content::List(policies), .. }) = entry(root, "policies") else { return };
    for (at, policy) in policies.iter_mut().enumerate() {
        let Some(tier) = entry(policy, "tier") else { continue };
        let line = tier.line;
        let Content::Map(keys) = &mut tier.content else { continue };
        let pods = entry_of("kubernetes", line, Content::Map(Vec::new()));
        let text = |text: &str| Content::Scalar(text.to_owned(), Style::Plain);
        for (key, content) in [
            ("name", text(&format!("policy-{at}"))),
            ("namespace", text("backtest")),
            ("source", Content::Map(vec![pods])),
        ] {
            if !keys.iter().any(|there| there.key == key) {
                keys.push(entry_of(key, line, content));
            }
        }
    }
}

fn entry<'n>(node: &'n mut Node, key: &str) -> Option<&'n mut Node> {
    let Content::Map(entries) = &mut node.content else { return None };
    entries.iter_mut().find(|entry| entry.key == key).map(|entry| &mut entry.value)
}

fn entry_of(key: &str, line: usize, content: Content) -> Entry {
    Entry { key: key.to_owned(), line, value: Node { line, content } }
}

fn resolve(root: &Section<'_>, found: &mut Findings) -> Read<Scenario> {
    if root.written("peakReplicas").is_some() && root.written("scale").is_some() {
        found.problems.push(&root.place_of("scale"), "`peakReplicas` says it already: write one of the two");
    }
    let begins = root.optional::<String>("begins").and_then(|text| begins(root, text, &mut found.problems));
    let rates = root.optional_section("capacity").map(|capacity| {
        Ok(TokenRates {
            input_tokens_per_second: capacity.get("inputTokensPerSecond")?,
            output_tokens_per_second: capacity.get("outputTokensPerSecond")?,
        })
    });
    let rivals = root
        .written("rivals")
        .is_some()
        .then(|| root.scalars("rivals").into_iter().map(|(_, name)| name.to_owned()).collect::<Vec<_>>());
    if rivals.as_ref().is_some_and(|names| names.len() > 1 && names.iter().any(|name| name == "all")) {
        found.problems.push(&root.place_of("rivals"), "`all` stands alone: remove the others, or `all`");
    }
    let told = Told {
        cold_start: root.optional("coldStart"),
        acceptable_queue: root.optional("acceptableQueue"),
        rates: rates.transpose(),
    };
    let (policies, traffic) = (policies(root, &told, found), traffic::traffic(root, found));
    Ok(Scenario {
        traffic: traffic?,
        peak_replicas: root.optional("peakReplicas")?,
        scale: root.optional("scale")?,
        cold_start: told.cold_start?,
        acceptable_queue: told.acceptable_queue?,
        rates: told.rates?,
        days: root.optional("days")?,
        begins: begins?,
        score_from: root.optional("scoreFrom")?,
        seed: root.optional::<u32>("seed")?.map(u64::from),
        rivals,
        policies: policies?,
    })
}

/// What the scenario says for policies that don't say it themselves.
struct Told {
    cold_start: Read<Option<Duration>>,
    acceptable_queue: Read<Option<Duration>>,
    rates: Read<Option<TokenRates>>,
}

fn policies(root: &Section<'_>, told: &Told, found: &mut Findings) -> Read<Vec<(String, Policy)>> {
    let sections = root.sections("policies");
    let mut names: Vec<(&str, usize)> = Vec::new();
    for section in &sections {
        let Some(name) = section.text("name") else { continue };
        let place = section.place_of("name");
        if let Some((_, line)) = names.iter().find(|(other, _)| *other == name) {
            let told =
                format!("there is a policy of this name already: rename this one or the one on line {line}");
            found.problems.push(&place, told);
        }
        names.push((name, place.line));
    }
    // All are resolved before the first failure counts: every problem is told at once.
    let resolved: Vec<_> = sections.iter().map(|section| policy(section, told, found)).collect();
    resolved.into_iter().collect()
}

fn policy(section: &Section<'_>, told: &Told, found: &mut Findings) -> Read<(String, Policy)> {
    let tier = section.section("tier");
    let mut policy = resolve::tier(&tier, found)?.policy;
    let says = |key: &str| tier.written(key).is_some();
    if let (false, Ok(Some(cold_start))) = (says("coldStart"), &told.cold_start) {
        policy.cold_start = *cold_start;
    }
    if let (false, Ok(Some(queue))) = (says("acceptableQueue"), &told.acceptable_queue) {
        policy.acceptable_queue = QueueAllowance::Seconds(queue.as_secs_f64());
    }
    let has_rates = policy.capacity.prior_source != profiles::CONSERVATIVE_NAME;
    if let (false, Ok(Some(rates))) = (has_rates, &told.rates) {
        policy.capacity.prior = *rates;
        "configured".clone_into(&mut policy.capacity.prior_source);
    }
    Ok((section.get("name")?, policy))
}

fn begins(root: &Section<'_>, text: Option<String>, problems: &mut Problems) -> Read<Option<DateTime<Utc>>> {
    let Some(text) = text else { return Ok(None) };
    match wall_clock(&text) {
        Ok(time) => Ok(Some(time)),
        Err(message) => {
            problems.push(&root.place_of("begins"), message);
            Err(Reported)
        }
    }
}

#[cfg(test)]
mod tests;
