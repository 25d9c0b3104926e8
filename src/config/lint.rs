//! What is legal but probably wrong. Each warning says what happens and what to write.

use std::time::Duration;

use chrono::{DateTime, Utc};

use super::problem::{Place, Problem, Problems};
use super::profiles;
use super::section::Section;
use super::settings::{Config, FloorReference, TierSettings};
use crate::decision::policy::{Hold, Policy, QueueAllowance};
use crate::decision::warm_pool;
use crate::schedule;
use crate::units::format_span;

/// Above this a KV cache counts as saturated: vLLM then preempts, and usage can't show the load any more.
const KV_SATURATED: f64 = 0.95;
/// The HPA's own sync period: a slower scrape lets it act on the same number twice.
const HPA_SYNC: Duration = Duration::from_secs(15);
/// From here on one replica is within the HPA's default tolerance of 10 % (Kubernetes HPA, `replica_calculator.go`).
const SWALLOWED_FROM: u32 = 10;
/// A minute of a week, about.
const LEAST_BUDGET: f64 = 0.0001;
/// How far `check` looks ahead for days on which KEDA's cron trigger differs: a year and both changes of the clock.
pub(super) const KEDA_LOOK_AHEAD_DAYS: u32 = 400;

/// Warnings about one tier.
pub(super) fn tier(section: &Section<'_>, tier: &TierSettings, warnings: &mut Problems) {
    let policy = &tier.policy;
    policy_warnings(section, policy, warnings);
    scrape_warnings(&section.section("scrape"), tier, warnings);
    if policy.min == 0 && tier.activator.is_none() {
        warnings.push(
            &section.section("replicas").place_of("min"),
            "nothing wakes this tier from 0 but its floors and other triggers of its ScaledObject: write an `activator`, the queue in front of it",
        );
    }
    if policy.capacity.prior_source == profiles::CONSERVATIVE_NAME {
        let rates = policy.capacity.prior;
        let meanwhile = if policy.capacity.learn { " until it is learned" } else { "" };
        warnings.push(
            section.section("capacity").place(),
            format!(
                "no capacity is configured: the conservative default of {} input and {} output tokens/s a replica counts{meanwhile}; write `inputTokensPerSecond` and `outputTokensPerSecond`, or `gpu` and `modelSize`",
                rates.input_tokens_per_second, rates.output_tokens_per_second
            ),
        );
    }
}

/// Warnings that a tier of the file and one of a ScaledObject's metadata share.
pub(super) fn policy_warnings(section: &Section<'_>, policy: &Policy, warnings: &mut Problems) {
    if let Hold::Fixed(hold) = policy.scale_down.hold
        && hold < policy.cold_start
    {
        warnings.push(
            &section.section("scaleDown").place_of("hold"),
            format!(
                "{} is shorter than the cold start of {}: a replica given back in a lull is missed for longer than it was spared; write auto, or at least the cold start",
                format_span(hold),
                format_span(policy.cold_start)
            ),
        );
    }
    let kv_cache = policy.signals.kv_cache;
    if kv_cache.weight > 0.0 && kv_cache.target > KV_SATURATED {
        warnings.push(
            &section.section("signals").section("kvCache").place_of("target"),
            format!("{} is above {KV_SATURATED}, where the KV cache is saturated and requests are preempted: write 0.8 to 0.9", kv_cache.target),
        );
    }
    if nothing_may_queue(policy.acceptable_queue) {
        warnings.push(
            &section.place_of("acceptableQueue"),
            "nothing may queue, so that every burst needs a spare replica: a few seconds are far cheaper, such as 5s",
        );
    }
    if policy.dead_band.tolerance >= 0.1 && policy.max >= SWALLOWED_FROM && policy.max > policy.min {
        warnings.push(
            &section.section("hpa").place_of("tolerance"),
            format!(
                "from {SWALLOWED_FROM} replicas on a change of one disappears in the HPA's 10 % tolerance: set behavior.scaleUp.tolerance: \"0\" and behavior.scaleDown.tolerance: \"0\" in the ScaledObject (Kubernetes 1.35, KEDA 2.18), and hpa.tolerance: 0 here"
            ),
        );
    }
    let latency = policy.signals.latency;
    if latency.weight == 0.0
        && (latency.queue_time_p95.is_some() || latency.time_to_first_token_p95.is_some())
    {
        warnings.push(
            section.section("signals").section("latency").place(),
            "has a target but weight 0, so it is off: give it a weight above 0 or remove the target",
        );
    }
    pool_beyond_max(section, policy, warnings);
    late_budget(&section.section("forecast"), policy, warnings);
    for (written, floor) in section.sections("floors").iter().zip(&policy.floors) {
        if floor.replicas <= policy.min {
            warnings.push(
                &written.place_of("desiredReplicas"),
                format!(
                    "{} is no more than the minimum of {}: this floor changes nothing",
                    floor.replicas, policy.min
                ),
            );
        }
    }
}

fn late_budget(section: &Section<'_>, policy: &Policy, warnings: &mut Problems) {
    if section.written("lateBudget").is_none() {
        return;
    }
    let place = section.place_of("lateBudget");
    match policy.forecast.as_ref().and_then(|forecast| forecast.late_budget) {
        None => warnings.push(&place, "not used: it is what `mode: budget` keeps; write that mode or remove it"),
        Some(budget) if budget < LEAST_BUDGET => warnings.push(
            &place,
            "less than a minute of a week: a single jump uses up the budgets of weeks, and no spare keeps it; write 0.1% or so",
        ),
        Some(_) => {}
    }
}

fn nothing_may_queue(allowance: QueueAllowance) -> bool {
    let (QueueAllowance::Seconds(amount) | QueueAllowance::Requests(amount) | QueueAllowance::Tokens(amount)) =
        allowance;
    amount <= 0.0
}

fn pool_beyond_max(section: &Section<'_>, policy: &Policy, warnings: &mut Problems) {
    let Some(ramp) = policy.max_ramp else { return };
    let slack = match policy.acceptable_queue {
        QueueAllowance::Seconds(seconds) => seconds,
        QueueAllowance::Requests(_) | QueueAllowance::Tokens(_) => 0.0,
    };
    let multiple = warm_pool(1.0, ramp, policy.lead().as_secs_f64(), slack);
    let least = policy.min.max(1);
    let needed = (multiple * f64::from(least)).ceil();
    if needed > f64::from(policy.max) {
        warnings.push(
            &section.section("warmPool").place_of("maxRamp"),
            format!(
                "over a lead of {} this ramp needs {multiple:.2} times the capacity of now: {needed} replicas for the load of {least}, but the maximum is {}; raise `replicas.max`, or declare a gentler ramp",
                format_span(policy.lead()),
                policy.max
            ),
        );
    }
}

fn scrape_warnings(section: &Section<'_>, tier: &TierSettings, warnings: &mut Problems) {
    let scrape = &tier.scrape;
    if scrape.interval > HPA_SYNC {
        warnings.push(
            &section.place_of("interval"),
            format!(
                "{} is slower than the HPA's sync of 15s: growth is seen late and every lead is longer; write 15s or less",
                format_span(scrape.interval)
            ),
        );
    }
    if scrape.timeout > scrape.interval {
        warnings.push(
            &section.place_of("timeout"),
            format!(
                "longer than the interval of {}: a replica that hangs misses rounds; write the interval or less",
                format_span(scrape.interval)
            ),
        );
    }
}

/// Credentials that are not used, or go out in the clear.
pub(super) fn tls_without_https(section: &Section<'_>, warnings: &mut Problems) {
    for name in ["ca", "serverName", "clientCert", "clientKey"] {
        if section.written(name).is_some() {
            warnings.push(&section.place_of(name), "not used: the pages are http; write https or remove it");
        }
    }
    if section.written("bearerTokenFile").is_some() {
        warnings.push(
            &section.place_of("bearerTokenFile"),
            "the token goes out in the clear: the pages are http",
        );
    }
}

pub(super) fn metadata_tiers(place: &Place, warnings: &mut Problems) {
    warnings.push(
        place,
        "whoever may write a ScaledObject may declare floors and bounds in its namespace, and so buy replicas there up to its maxReplicaCount",
    );
}

pub(super) fn no_store(place: &Place, warnings: &mut Problems) {
    warnings.push(
        place,
        "without a store the demand history and what is learned end with the process: write {path: ...}",
    );
}

/// Where KEDA's own cron trigger would answer something else than the floors, within 400 days from `from`. For whoever
/// moves a cron trigger's keys into the file.
#[must_use]
pub fn keda_differences(config: &Config, from: DateTime<Utc>) -> Vec<Problem> {
    config.floors.iter().filter_map(|floor| keda_difference(floor, from)).collect()
}

fn keda_difference(floor: &FloorReference, from: DateTime<Utc>) -> Option<Problem> {
    let differences = schedule::keda_differences(&floor.window, from, KEDA_LOOK_AHEAD_DAYS);
    let first = differences.first()?;
    // With the offset's own letters: most differences are in an hour that comes twice.
    let show = |at: DateTime<Utc>| floor.window.told(at, "%Y-%m-%d %H:%M (%Z)");
    let (theirs, ours) = if first.keda_open { ("open", "closed") } else { ("closed", "open") };
    let times = match differences.len() {
        1 => "once".to_owned(),
        n => format!("{n} times"),
    };
    Some(Problem {
        path: floor.path.clone(),
        line: floor.line,
        message: format!(
            "KEDA's own cron trigger differs {times} in {KEDA_LOOK_AHEAD_DAYS} days, first from {} to {}: there it is {theirs}, here the floor is {ours}",
            show(first.from),
            show(first.to)
        ),
    })
}
