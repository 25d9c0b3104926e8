//! What to play, from the flags and the scenario. A flag goes before what the scenario says.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use chrono::{DateTime, Utc};

use super::Args;
use super::inputs::Arrived;
use super::requests::Fidelity;
use crate::backtest::rivals::{self, Entry};
use crate::backtest::work::{self, Size};
use crate::backtest::{Contender, MOST_REPLICAS, SLOT_SECONDS, Settings};
use crate::cli::BadFlag;
use crate::config::scenario::{self, MOST_POLICIES, Scenario, Traffic};
use crate::config::{self, LoadError};
use crate::decision::policy::{DeadBand, InsideBand, QueueAllowance, TokenRates};
use crate::decision::{Policy, TierId};
use crate::simulate::autoscaler::{AutoscalerSettings, Tolerances};
use crate::units::{format_span, parse_span};

/// Without a policy and a capacity; the cost of a token only matters against that of the other kind, as the trace is
/// scaled.
const USUAL_RATES: TokenRates =
    TokenRates { input_tokens_per_second: 8_000.0, output_tokens_per_second: 700.0 };

/// Request by request, unless told: a day of millions of requests is seconds a policy.
const USUAL_DAYS_OF_REQUESTS: f64 = 1.0;

/// A fleet of more replicas is several tiers.
const MOST_PEAK_REPLICAS: u32 = 500;

/// Longer cold starts and queues are slips of the unit.
const LONGEST_SPAN: Duration = Duration::from_hours(1);

/// Of the row of a single policy.
const OURS: &str = "keda-vllm-scaler";

/// Everything but the trace itself.
pub(super) struct Plan {
    /// Where the load is.
    pub(super) traffic: Traffic,
    /// Only so many slots of it.
    pub(super) most_slots: Option<usize>,
    size: Size,
    rates: Option<TokenRates>,
    cold_start: Option<Duration>,
    acceptable_queue: Option<Duration>,
    begins: Option<DateTime<Utc>>,
    score_from: Duration,
    seed: u64,
    policies: Vec<(String, Policy)>,
    rivals: Vec<&'static Entry>,
    details: bool,
    split: bool,
}

impl Plan {
    /// Reads the scenario and the policies.
    ///
    /// # Errors
    /// When a file can't be read; [`BadFlag`] for everything that is written wrong.
    pub(super) fn of(args: &Args) -> anyhow::Result<Self> {
        let told = match &args.scenario {
            Some(file) => read_scenario(file)?,
            None => Scenario::default(),
        };
        let traffic = args.traffic.traffic(&args.details)?;
        let of_scenario = told.traffic.map(|traffic| traffic.beside(folder(args.scenario.as_deref())));
        let traffic = traffic.or(of_scenario).ok_or_else(no_traffic)?;
        let rivals = rivals_of(args.fidelity, args.rivals.as_deref(), told.rivals.as_deref())?;
        let usual_days = (args.fidelity == Fidelity::Requests).then_some(USUAL_DAYS_OF_REQUESTS);
        let policies = if args.policy.is_empty() { told.policies } else { named(&args.policy)? };
        if policies.len() > MOST_POLICIES {
            let told = format!("--policy: {} policies; at most {MOST_POLICIES} are compared", policies.len());
            return Err(BadFlag(told).into());
        }
        let span = |flag: &str, text: Option<&str>| -> anyhow::Result<Option<Duration>> {
            let bad = |error| BadFlag(format!("{flag} {}: {error}", text.unwrap_or_default()));
            Ok(text.map(|text| parse_span(text).map_err(bad)).transpose()?)
        };
        Ok(Self {
            traffic,
            most_slots: most_slots(args.days.or(told.days).or(usual_days))?,
            size: size(args, told.peak_replicas, told.scale)?,
            rates: told.rates,
            cold_start: span("--cold-start", args.cold_start.as_deref())?.or(told.cold_start),
            acceptable_queue: span("--acceptable-queue", args.acceptable_queue.as_deref())?
                .or(told.acceptable_queue),
            begins: args.begins.or(told.begins),
            score_from: span("--score-from", args.score_from.as_deref())?
                .or(told.score_from)
                .unwrap_or_default(),
            seed: args.seed.or(told.seed).unwrap_or_default(),
            policies,
            rivals,
            details: args.report.is_some(),
            split: args.split,
        })
    }

    /// Nobody says what a replica carries: what is found out is believed.
    pub(super) fn believes_in_no_capacity(&self) -> bool {
        self.rates.is_none() && self.policies.is_empty()
    }

    /// What to play of this traffic.
    ///
    /// # Errors
    /// [`BadFlag`] for what no fleet here can be.
    pub(super) fn settings(self, arrived: &Arrived) -> anyhow::Result<Settings> {
        let first = self.policies.first().map(|(_, policy)| policy);
        let rates = self.rates.or(first.map(|policy| policy.capacity.prior)).unwrap_or(USUAL_RATES);
        let (_, peak) = self.size.of(work::busiest(&arrived.trace, rates));
        if peak.is_finite() && peak > f64::from(MOST_PEAK_REPLICAS) {
            let told = format!("--scale: a peak of {peak:.0} replicas; at most {MOST_PEAK_REPLICAS}");
            return Err(BadFlag(told).into());
        }
        let cold_start = self.cold_start.or(first.map(|policy| policy.cold_start));
        let cold_start = short(cold_start.unwrap_or(Duration::from_secs(180)), "a cold start")?;
        let acceptable_queue = match (self.acceptable_queue, first.map(|policy| policy.acceptable_queue)) {
            (Some(span), _) => span,
            (None, Some(QueueAllowance::Seconds(seconds))) => Duration::try_from_secs_f64(seconds)?,
            (None, None) => Duration::from_secs(5),
            (None, Some(_)) => {
                let told = "--acceptable-queue: needed, because the policy's is no span of time";
                return Err(BadFlag(told.to_owned()).into());
            }
        };
        let acceptable_queue = short(acceptable_queue, "an acceptable queue")?;
        let mut policies = self.policies;
        if policies.is_empty() {
            // Without work the trace is refused, whatever the policy.
            let most = if peak.is_finite() { (peak.ceil() as u32).max(1) * 2 } else { 1 };
            policies.push((OURS.to_owned(), usual_policy(most, rates, cold_start, acceptable_queue)));
        }
        Ok(Settings {
            policies: policies.into_iter().map(contender).collect::<Result<_, _>>()?,
            rivals: self.rivals,
            rates,
            size: self.size,
            cold_start,
            acceptable_queue,
            begins: self.begins.or(arrived.begins).unwrap_or(USUAL_BEGINNING),
            score_from: self.score_from,
            seed: self.seed,
            details: self.details,
            split: self.split,
        })
    }
}

/// A Monday.
const USUAL_BEGINNING: DateTime<Utc> = match DateTime::from_timestamp(1_704_067_200, 0) {
    Some(monday) => monday,
    None => DateTime::UNIX_EPOCH,
};

fn needed(flag: &str, key: &str) -> BadFlag {
    BadFlag(format!("{flag}: needed, unless a scenario says `{key}`"))
}

/// Paths of the scenario count from its own folder.
fn folder(scenario: Option<&Path>) -> &Path {
    scenario.and_then(Path::parent).unwrap_or_else(|| Path::new(""))
}

fn no_traffic() -> BadFlag {
    let told = "one of --trace, --arrivals, --history or --prometheus is needed, unless a scenario says it";
    BadFlag(told.to_owned())
}

/// The flag's, else the scenario's, else all that the model can play.
fn rivals_of(
    fidelity: Fidelity,
    flag: Option<&str>,
    told: Option<&[String]>,
) -> Result<Vec<&'static Entry>, BadFlag> {
    let (names, place) = match (flag, told) {
        (Some(names), _) => (names.to_owned(), "--rivals"),
        (None, Some(names)) => (names.join(","), "rivals:"),
        (None, None) => ("all".to_owned(), "--rivals"),
    };
    let filled = match fidelity {
        Fidelity::Fluid => rivals::FLUID_FILLS,
        Fidelity::Requests => rivals::REQUESTS_FILL,
    };
    rivals::chosen(&names, filled).map_err(|error| BadFlag(format!("{place} {names}: {error}")))
}

fn size(args: &Args, peak_replicas: Option<u32>, scale: Option<f64>) -> Result<Size, BadFlag> {
    let size = match (args.peak_replicas, args.scale) {
        (Some(replicas), _) => Size::Peak(replicas),
        (None, Some(scale)) => Size::Scale(scale),
        (None, None) => {
            let told = peak_replicas.map(Size::Peak).or(scale.map(Size::Scale));
            told.ok_or_else(|| needed("--peak-replicas or --scale", "peakReplicas"))?
        }
    };
    match size {
        Size::Peak(replicas) if !(1..=MOST_PEAK_REPLICAS).contains(&replicas) => {
            Err(BadFlag(format!("--peak-replicas {replicas}: between 1 and {MOST_PEAK_REPLICAS}")))
        }
        Size::Scale(scale) if !(1e-9..=1e9).contains(&scale) => {
            Err(BadFlag(format!("--scale {scale}: above 0 and at most a billion")))
        }
        size => Ok(size),
    }
}

fn short(span: Duration, what: &str) -> Result<Duration, BadFlag> {
    if span > LONGEST_SPAN {
        return Err(BadFlag(format!("{what} of {}: at most 1h", format_span(span))));
    }
    Ok(span)
}

fn most_slots(days: Option<f64>) -> Result<Option<usize>, BadFlag> {
    let Some(days) = days else { return Ok(None) };
    if !(days.is_finite() && days * 86_400.0 >= SLOT_SECONDS && days <= 400.0) {
        let told = format!("--days {days}: from 0.00006, which is one slot of {SLOT_SECONDS} s, to 400");
        return Err(BadFlag(told));
    }
    Ok(Some((days * 86_400.0 / SLOT_SECONDS).round() as usize))
}

/// The defaults, behind an HPA as the documentation recommends it.
fn usual_policy(max: u32, rates: TokenRates, cold_start: Duration, queue: Duration) -> Policy {
    let defaults = Policy::with_defaults(TierId::new("backtest", "trace"), max, rates);
    Policy {
        cold_start,
        acceptable_queue: QueueAllowance::Seconds(queue.as_secs_f64()),
        dead_band: DeadBand { tolerance: 0.0, inside: InsideBand::Exceed },
        ..defaults
    }
}

/// A policy with the HPA that its tolerance belongs to.
fn contender((name, policy): (String, Policy)) -> Result<Contender, BadFlag> {
    let floors = policy.floors.iter().map(|floor| floor.replicas);
    let most = floors.max().unwrap_or(0).max(policy.min);
    if most > MOST_REPLICAS {
        let told = format!("{name}: promises {most} replicas; at most {MOST_REPLICAS} are played");
        return Err(BadFlag(told));
    }
    let policy = Policy { max: policy.max.min(MOST_REPLICAS), ..policy };
    let tolerance = policy.dead_band.tolerance;
    let chain = AutoscalerSettings {
        tolerances: Tolerances { up: tolerance, down: tolerance },
        ..AutoscalerSettings::recommended(policy.min, policy.max)
    };
    Ok(Contender { name, policy, chain })
}

fn read_scenario(file: &Path) -> anyhow::Result<Scenario> {
    let text = match config::read_text(file) {
        Ok(text) => text,
        Err(LoadError::Io(error)) => return Err(error).with_context(|| file.display().to_string()),
        Err(error) => return Err(BadFlag(format!("{}: {error}", file.display())).into()),
    };
    let bad = |problems| BadFlag(format!("{}:\n{problems}", file.display()));
    Ok(scenario::load(&text).map_err(bad)?)
}

/// The tiers of these files; a single one needs no name of its own.
fn named(files: &[PathBuf]) -> anyhow::Result<Vec<(String, Policy)>> {
    let mut policies = Vec::new();
    for (at, file) in files.iter().enumerate() {
        if files[..at].contains(file) {
            return Err(BadFlag(format!("--policy {}: given twice", file.display())).into());
        }
        for policy in policies_of(file)? {
            policies.push((format!("{}:{}", file.display(), policy.tier.name), policy));
        }
    }
    if let [(name, _)] = &mut policies[..] {
        OURS.clone_into(name);
    }
    Ok(policies)
}

fn is_scenario(file: &Path) -> bool {
    config::read_text(file).is_ok_and(|text| scenario::load(&text).is_ok())
}

fn policies_of(file: &Path) -> anyhow::Result<Vec<Policy>> {
    let bad = |what: String| BadFlag(format!("--policy {}: {what}", file.display()));
    let config = match config::load_file(file) {
        Ok(config) => config,
        Err(LoadError::Io(error)) => return Err(error).with_context(|| file.display().to_string()),
        Err(error) if is_scenario(file) => {
            return Err(bad(format!("a scenario: play it without --policy\n{error}")).into());
        }
        Err(error) => return Err(bad(error.to_string()).into()),
    };
    if config.tiers.is_empty() {
        return Err(bad("it has no tier to play".to_owned()).into());
    }
    Ok(config.tiers.into_iter().map(|tier| tier.policy).collect())
}
