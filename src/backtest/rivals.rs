//! What the scaler is measured against: policies from elsewhere, each by its published rule. Pure.
//!
//! ```text
//! keda hpa aibrix wva dynamo knative kaito sageserve token_velocity skyserve   the rules, one family a file
//! hindsight   the constant fleet and the oracle        fixed      the sweep of fixed targets
//! actuation   old metrics and an HPA behind any rule   fluid      a rule in charge of a fleet of fluid replicas
//! ```
//!
//! [`ALL`] is the list. A rule says which fields of [`Seen`](super::rival::Seen) it needs; a model of the fleet that
//! doesn't fill them doesn't play it. Every rule is played at its published defaults: none is tuned to a trace, but for
//! those that say so.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::SLOT_SECONDS;
use super::rival::Rival;
use crate::decision::policy::TokenRates;
use crate::simulate::Moment;
use crate::simulate::autoscaler::{Metric, Signal};

pub mod actuation;
mod aibrix;
mod dynamo;
pub(super) mod fixed;
pub(super) mod fluid;
mod hindsight;
mod hpa;
mod kaito;
mod keda;
mod knative;
mod sageserve;
mod skyserve;
#[cfg(test)]
mod testing;
mod token_velocity;
mod window;
mod wva;

/// What the fluid model has besides what all have.
pub const FLUID_FILLS: &[Field] = &[Field::Sweep];

/// What the request-level model has besides what all have.
pub const REQUESTS_FILL: &[Field] = &[Field::Running, Field::KvUsage, Field::KvTokens];

pub use actuation::Actuated;
pub use hindsight::{Constant, Oracle};

pub(super) use fixed::{FixedTarget, best_in_hindsight};
pub(super) use fluid::Chained;
pub(super) use hindsight::{foresee, smallest_constant};

/// The utilisation that most HPAs aim at, and at which every fleet begins.
pub(super) const USUAL_TARGET: f64 = 0.8;

/// How old a metric is that Prometheus, or the metrics server, reads every 15 s.
const SCRAPE_AGE: Duration = Duration::from_secs(15);

/// The beginning of a slot of the fluid model in the rivals' time.
pub(super) fn moment(slot: usize) -> Moment {
    Moment::from_seconds(slot as f64 * SLOT_SECONDS)
}

/// What a rival is set up with: what its user would know of the engine and the trace.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Facts {
    /// What a replica does at full load, as a profile or a calibration tells it.
    pub rates: TokenRates,
    /// Requests a second that a replica serves at full load, for the mean request of the trace.
    pub requests_per_second: f64,
    /// Its engine.
    pub engine: EngineFacts,
    /// Replicas that the busiest minute needs at full load.
    pub peak_replicas: u32,
    /// The tier's `max`.
    pub max: u32,
    /// The wall-clock time at which the trace begins.
    pub begins: DateTime<Utc>,
}

/// What a rival's user knows of the engine that runs in a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EngineFacts {
    /// Requests in flight that a replica should have: what a concurrency target is tuned to.
    pub concurrency: f64,
    /// `--max-num-seqs`.
    pub max_num_seqs: u32,
    /// `--max-num-batched-tokens`.
    pub max_batched_tokens: u32,
}

impl Default for EngineFacts {
    /// vLLM's defaults, and Knative's `container-concurrency-target-default`.
    fn default() -> Self {
        Self { concurrency: 100.0, max_num_seqs: 256, max_batched_tokens: 2048 }
    }
}

/// What not every model of the fleet has: fields of [`Seen`](super::rival::Seen), mostly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field {
    /// Requests in running batches.
    Running,
    /// Usage of the KV cache.
    KvUsage,
    /// Size of the KV cache in tokens.
    KvTokens,
    /// No field: time for some hundred plays.
    Sweep,
}

impl Field {
    /// As an error names it.
    #[must_use]
    pub fn told(self) -> &'static str {
        match self {
            Self::Running => "running requests",
            Self::KvUsage => "KV cache usage",
            Self::KvTokens => "the size of the KV cache",
            Self::Sweep => "a sweep of some hundred plays",
        }
    }
}

/// A rival by its name.
#[derive(Debug)]
pub struct Entry {
    /// Short and stable: flags and reports name it by this.
    pub name: &'static str,
    /// The fields without which it isn't played.
    pub needs: &'static [Field],
    played: Played,
}

/// How a rival comes about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Played {
    /// By a rule that goes by what it sees.
    Rule(fn(&Facts) -> Box<dyn Rival + Send>),
    /// By the smallest constant fleet that is never late.
    StaticPeak,
    /// By the schedule of an oracle.
    Oracle,
    /// By the best of a sweep.
    BestFixed,
}

impl Entry {
    /// The rule, set up; None for those that have to see the whole trace: [`Constant`], [`Oracle`] and the sweep.
    #[must_use]
    pub fn rival(&self, facts: &Facts) -> Option<Box<dyn Rival + Send>> {
        match self.played {
            Played::Rule(rule) => Some(rule(facts)),
            Played::StaticPeak | Played::Oracle | Played::BestFixed => None,
        }
    }

    pub(super) fn played(&self) -> Played {
        self.played
    }

    /// Is it played by a model of the fleet that fills these fields besides those that all fill?
    #[must_use]
    pub fn is_played_with(&self, filled: &[Field]) -> bool {
        self.needs.iter().all(|field| filled.contains(field))
    }
}

const NOTHING: &[Field] = &[];
const KV: &[Field] = &[Field::KvUsage];
const KV_IN_TOKENS: &[Field] = &[Field::KvUsage, Field::KvTokens];
const CONCURRENCY: &[Field] = &[Field::Running];

/// An entry of the list.
const fn rule(
    name: &'static str,
    needs: &'static [Field],
    rule: fn(&Facts) -> Box<dyn Rival + Send>,
) -> Entry {
    Entry { name, needs, played: Played::Rule(rule) }
}

/// Every rival, in the order of reports.
pub static ALL: [Entry; 23] = [
    Entry { name: "best-fixed", needs: &[Field::Sweep], played: Played::BestFixed },
    Entry { name: "oracle", needs: NOTHING, played: Played::Oracle },
    Entry { name: "static-peak", needs: NOTHING, played: Played::StaticPeak },
    rule("hpa-80", NOTHING, |_| Box::new(hpa::ArrivingWork::new())),
    rule("hpa-cpu", NOTHING, |_| Box::new(hpa::MeanOfPods::cpu())),
    rule("hpa-gpu", NOTHING, |_| Box::new(hpa::MeanOfPods::gpu())),
    rule("hpa-kv", KV, |_| Box::new(hpa::MeanOfPods::kv_usage())),
    rule("keda-waiting", NOTHING, |_| Box::new(keda::Sum::waiting())),
    rule("keda-kv", KV, |_| Box::new(keda::Sum::kv_usage())),
    rule("keda-concurrency", CONCURRENCY, |facts| Box::new(keda::Sum::in_flight(facts.engine.concurrency))),
    rule("keda-cron-waiting", NOTHING, |facts| {
        Box::new(keda::CronAndWaiting::new(facts.begins, facts.peak_replicas))
    }),
    rule("keda-kaito", NOTHING, |_| Box::new(kaito::Kaito)),
    rule("token-velocity", NOTHING, |facts| {
        Box::new(token_velocity::TokenVelocity::new(facts.rates.input_tokens_per_second))
    }),
    rule("knative-kpa", CONCURRENCY, |facts| Box::new(knative::Knative::new(facts.engine.concurrency))),
    rule("aibrix-apa", KV, |_| Box::new(aibrix::Aibrix::apa())),
    rule("aibrix-apa-mended", KV, |_| Box::new(aibrix::Aibrix::apa_mended())),
    rule("aibrix-kpa", KV, |_| Box::new(aibrix::Aibrix::kpa())),
    rule("wva-v1", KV, |facts| Box::new(wva::SaturationV1::new(facts.max))),
    rule("wva-v2", KV_IN_TOKENS, |facts| Box::new(wva::SaturationV2::new(facts.engine))),
    rule("sageserve-reactive", KV, |_| Box::<sageserve::Reactive>::default()),
    rule("dynamo-load", KV_IN_TOKENS, |_| Box::new(dynamo::Load::new())),
    rule("dynamo-throughput", NOTHING, |facts| Box::new(dynamo::Throughput::new(facts.rates))),
    rule("skyserve", NOTHING, |facts| {
        Box::new(skyserve::SkyServe::new(USUAL_TARGET * facts.requests_per_second))
    }),
];

/// The names of all rivals, in the order of reports.
pub fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|entry| entry.name)
}

/// As a report names it; `constant` are the replicas of the static peak.
pub(super) fn title(entry: &Entry, constant: u32) -> String {
    match entry.name {
        "hpa-80" => "HPA, work at 80 %".to_owned(),
        "static-peak" => format!("static peak, {constant} replicas"),
        name => name.to_owned(),
    }
}

/// Those that a model of the fleet plays which has these.
#[must_use]
pub fn played_with(filled: &[Field]) -> Vec<&'static Entry> {
    ALL.iter().filter(|entry| entry.is_played_with(filled)).collect()
}

/// Why rivals can't be chosen so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotPlayed {
    /// Nobody has this name.
    #[error("no rival is named {name:?}; this model of the fleet plays {}", played.join(", "))]
    Unknown {
        /// What was asked for.
        name: String,
        /// All that could be.
        played: Vec<&'static str>,
    },
    /// This model of the fleet doesn't tell what it goes by.
    #[error("{name} goes by {needs}, which this model of the fleet doesn't have")]
    Blind {
        /// The rival.
        name: &'static str,
        /// What it can't see.
        needs: String,
    },
}

/// Rivals by a flag's text: `all` that this model of the fleet can play, `none`, or names with commas between them.
///
/// # Errors
/// For a name that nobody has, and one whose rule needs what this model doesn't fill.
pub fn chosen(text: &str, filled: &[Field]) -> Result<Vec<&'static Entry>, NotPlayed> {
    match text.trim() {
        "all" => return Ok(played_with(filled)),
        "none" => return Ok(Vec::new()),
        _ => {}
    }
    let mut chosen = Vec::new();
    for name in text.split(',').map(str::trim) {
        let entry = ALL.iter().find(|entry| entry.name == name);
        let entry = entry.ok_or_else(|| NotPlayed::Unknown {
            name: name.to_owned(),
            played: played_with(filled).into_iter().map(|entry| entry.name).collect(),
        })?;
        let unseen = entry.needs.iter().filter(|field| !filled.contains(field));
        let needs: Vec<&str> = unseen.map(|field| field.told()).collect();
        if !needs.is_empty() {
            return Err(NotPlayed::Blind { name: entry.name, needs: needs.join(" and ") });
        }
        if !chosen.iter().any(|other: &&Entry| other.name == name) {
            chosen.push(entry);
        }
    }
    Ok(chosen)
}

/// An external metric: the sum of something, and what one replica should have of it.
fn external(sum: f64, target: f64) -> Signal {
    Signal::AverageValue(Metric { value_milli: milli(sum), target_milli: milli(target) })
}

/// Thousandths, as Kubernetes passes metrics on.
fn milli(value: f64) -> i64 {
    (value * 1e3).round() as i64
}

#[cfg(test)]
mod tests {
    use super::*;

    const FACTS: Facts = Facts {
        rates: testing::RATES,
        requests_per_second: 2.0,
        engine: EngineFacts { concurrency: 20.0, max_num_seqs: 256, max_batched_tokens: 2048 },
        peak_replicas: 20,
        max: 40,
        begins: DateTime::<Utc>::UNIX_EPOCH,
    };

    #[test]
    fn names_are_short_and_nobody_has_another_ones() {
        let all: Vec<&str> = names().collect();
        for (place, name) in all.iter().enumerate() {
            assert!(
                name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
            );
            assert!(!all[..place].contains(name), "{name}");
        }
    }

    #[test]
    fn every_rule_can_be_set_up_and_has_a_chain_within_the_bounds() {
        for entry in &ALL {
            let Some(rival) = entry.rival(&FACTS) else { continue };
            if let Some(settings) = rival.chain(2, 30) {
                assert_eq!((settings.min, settings.max), (2, 30), "{}", entry.name);
            }
        }
        assert_eq!(ALL.iter().filter(|entry| entry.rival(&FACTS).is_none()).count(), 3);
    }

    #[test]
    fn a_flag_chooses_all_none_or_by_name() {
        let names = |text: &str| -> Vec<&str> {
            chosen(text, FLUID_FILLS).unwrap().into_iter().map(|entry| entry.name).collect()
        };
        assert_eq!(names("none"), Vec::<&str>::new());
        assert_eq!(names("oracle, hpa-80,oracle"), ["oracle", "hpa-80"]);
        assert!(names("all").len() >= 12, "{:?}", names("all"));
        assert!(!names("all").contains(&"hpa-kv"));
        let by_requests = chosen("all", REQUESTS_FILL).unwrap();
        assert_eq!(by_requests.len(), ALL.len() - 1, "but for the sweep");
        assert!(matches!(chosen("best-fixed", REQUESTS_FILL), Err(NotPlayed::Blind { .. })));
    }

    #[test]
    fn an_unknown_name_is_told_who_can_be_played_and_a_blind_rival_what_it_misses() {
        let unknown = chosen("hpa-80,hpa80", FLUID_FILLS).unwrap_err().to_string();
        let told = "no rival is named \"hpa80\"; this model of the fleet plays best-fixed, oracle,";
        assert!(unknown.starts_with(told), "{unknown}");
        assert!(!unknown.contains("wva-v2"), "it goes by what a fluid has not: {unknown}");
        assert!(chosen("", &[]).is_err());
        let blind = chosen("wva-v2", &[Field::KvUsage]).unwrap_err();
        let told = "wva-v2 goes by the size of the KV cache, which this model of the fleet doesn't have";
        assert_eq!(blind.to_string(), told);
    }
}
