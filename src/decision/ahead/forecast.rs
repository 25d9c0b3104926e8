//! What the forecast of the tier asks for, given the replicas that are there.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use serde::Serialize;

use crate::decision::cold_start::Horizon;
use crate::decision::load::Load;
use crate::decision::memory::Memory;
use crate::decision::memory::watched::Watched;
use crate::decision::observation::{Observation, ReplicaState};
use crate::decision::policy::{ForecastPolicy, Policy, QueueAllowance, TokenRates};
use crate::decision::shape::RequestShape;
use crate::forecast::{BudgetUse, CLOCK_DAYS, DialEnd, Frontier, Leader, Outlook, RuleAsk, Standing, Terms};
use crate::units::{format_span, seconds};

/// Smaller parts of an ask aren't worth a word.
const SHOWN_FROM: f64 = 0.05;

/// Nobody is kept awake, or woken, for less than half a replica's work that is only expected: what comes then wakes the
/// tier as it always does.
const WAKES_FROM: f64 = 0.5;

/// Seconds of a bin of the forecast.
const BIN_SECONDS: f64 = 15.0;

/// What the forecast asks for, and why.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecasted {
    /// Replicas.
    pub replicas: u32,
    /// What is known of the next lead.
    pub outlook: Outlook,
    /// Of the replicas, fractions for the expected need, its spread, a jump that may come again, and a backlog.
    pub parts: [f64; 4],
    /// It takes the place of the token target's headroom: it knows a day. Until then it stands beside it.
    pub instead_of_headroom: bool,
    /// The rule that leads, in words.
    pub leads: String,
    /// How long a lower number of that rule must have been enough.
    #[serde(rename = "holdSeconds", with = "seconds")]
    pub hold: Duration,
    /// What that rule would have cost lately, and what fewer late minutes would; None until a day was watched.
    pub frontier: Option<Frontier>,
    /// How much of the late budget was used; None where there is none.
    pub budget: Option<BudgetUse>,
    /// All of it in a sentence.
    pub because: String,
}

impl Forecasted {
    /// It is a reason for replicas. It always asks for one at least: for a tier without work that is one more reason to be
    /// awake than there is.
    pub(in crate::decision) fn counts(&self, load: &Load) -> bool {
        let [_, _, jump, _] = self.parts;
        let in_use = load.in_use || load.maybe_in_use;
        self.outlook.expected.max(jump) >= WAKES_FROM || (in_use && self.replicas > 1)
    }
}

/// The utilisation that the tokens ask keeps to: all of a replica where the forecast has the spare.
pub(in crate::decision) fn token_target(forecast: Option<&Forecasted>, policy: &Policy) -> f64 {
    let instead = forecast.is_some_and(|forecast| forecast.instead_of_headroom);
    if instead { 1.0 } else { policy.signals.tokens.target }
}

/// How long a lower number must have been enough: as the rule that leads has it, and on the first day no less than the
/// tier's own.
pub(in crate::decision) fn hold(forecast: Option<&Forecasted>, own: Duration) -> Duration {
    match forecast {
        Some(forecast) if forecast.instead_of_headroom => forecast.hold,
        Some(forecast) => forecast.hold.max(own),
        None => own,
    }
}

/// The terms that a tier's forecast is made under.
pub(in crate::decision) fn terms(
    policy: &Policy,
    wanted: &ForecastPolicy,
    horizon: &Horizon,
    lately: f64,
    shape: &RequestShape,
    rates: TokenRates,
) -> Terms {
    let work = match policy.acceptable_queue {
        QueueAllowance::Seconds(seconds) => seconds * lately.max(1.0),
        QueueAllowance::Requests(requests) => requests * shape.cost(rates),
        QueueAllowance::Tokens(tokens) => tokens * shape.cost(rates) / (shape.input + shape.output),
    };
    Terms::new(
        horizon.lead.as_secs_f64(),
        horizon.hold.as_secs_f64(),
        (work / lately.max(1.0)).max(0.0),
        wanted.shortage_cost.as_secs_f64() / 60.0,
    )
    .with_late_budget(wanted.late_budget)
    .with_cold_start(horizon.cold_start.as_secs_f64())
}

/// By how many seconds the clocks of the tier's people are ahead of UTC now, and were so many days ago.
pub(in crate::decision) fn clocks(wanted: &ForecastPolicy, now: DateTime<Utc>) -> [i64; CLOCK_DAYS] {
    let Some(zone) = wanted.timezone else { return [0; CLOCK_DAYS] };
    let days_ago = |days: usize| now - TimeDelta::days(i64::try_from(days).unwrap_or_default());
    std::array::from_fn(|days| zone.ahead_of_utc(days_ago(days)).num_seconds())
}

/// Everything that the forecast is asked with.
pub(in crate::decision) struct Asked<'a> {
    pub(in crate::decision) policy: &'a Policy,
    pub(in crate::decision) observation: &'a Observation,
    pub(in crate::decision) memory: &'a Memory,
    pub(in crate::decision) load: &'a Load,
    pub(in crate::decision) shape: &'a RequestShape,
    pub(in crate::decision) rates: TokenRates,
    pub(in crate::decision) horizon: &'a Horizon,
}

impl Asked<'_> {
    /// None where none is wanted, or it has not watched for an hour.
    pub(in crate::decision) fn ask(&self, now: DateTime<Utc>, at: Watched) -> Option<Forecasted> {
        let wanted = self.policy.forecast.as_ref()?;
        let forecast = self.memory.forecast.as_deref()?;
        let outlook = *forecast.outlook()?;
        let terms = terms(self.policy, wanted, self.horizon, outlook.lately, self.shape, self.rates);
        let (leader, ask) = forecast.ask(&self.standing(now, at), &terms)?;
        let budget = forecast.budget_use(&terms);
        let hold = leader.hold_seconds.map_or(self.horizon.hold, Duration::from_secs_f64);
        Some(Forecasted {
            replicas: ask.replicas,
            outlook,
            parts: [ask.expected, ask.spread, ask.jump, ask.backlog],
            instead_of_headroom: forecast.knows_a_day(),
            leads: leader.rule.name(),
            hold,
            frontier: forecast.frontier(&terms),
            budget,
            because: in_words(&outlook, &leader, &ask, budget.as_ref(), self.horizon.lead)
                + &lateness_in_words(forecast.lateness(&terms))
                + if forecast.knows_a_day() { "" } else { "; on its first day beside the token target" },
        })
    }

    fn standing(&self, now: DateTime<Utc>, at: Watched) -> RealStanding {
        let starting = self.observation.replicas.iter().filter(|r| r.state == ReplicaState::Starting);
        let ready_in = starting.filter_map(|replica| {
            let age = self.memory.cold_starts.age(replica, now, at)?;
            let counted = age <= self.horizon.deadline;
            counted.then(|| self.horizon.cold_start.saturating_sub(age).as_secs_f64())
        });
        RealStanding {
            ready: f64::from(self.load.ready + self.load.unknown),
            ready_in: ready_in.collect(),
            queued: self.load.waiting.low * self.shape.cost(self.rates),
        }
    }
}

/// The tier as it is.
struct RealStanding {
    ready: f64,
    /// Seconds until each of those that start serves.
    ready_in: Vec<f64>,
    queued: f64,
}

impl Standing for RealStanding {
    fn ready(&self) -> f64 {
        self.ready
    }

    fn total(&self) -> f64 {
        self.ready + self.ready_in.len() as f64
    }

    fn queued(&self) -> f64 {
        self.queued
    }

    fn ready_after(&self, bins: usize) -> f64 {
        let by_then = (bins as f64 + 0.5) * BIN_SECONDS;
        self.ready + self.ready_in.iter().filter(|left| **left <= by_then).count() as f64
    }
}

/// Where the tier is later than virtual fleets say.
fn lateness_in_words(times: f64) -> String {
    if times < 1.1 {
        String::new()
    } else {
        format!(", late minutes counted {times:.1} times, as requests queued")
    }
}

/// `12.1 now, 13.4 expected in 3m25s, + 1.6 for its spread: price x 0.5 leads`, with a budget `...: safety 1.3, budget
/// used 62 % this week`.
fn in_words(
    outlook: &Outlook,
    leader: &Leader,
    ask: &RuleAsk,
    budget: Option<&BudgetUse>,
    lead: Duration,
) -> String {
    let parts = [
        (ask.spread, "for its spread"),
        (ask.jump, "for a jump at this time yesterday"),
        (ask.backlog, "for what will wait"),
    ];
    let parts: Vec<String> = parts
        .into_iter()
        .filter(|(part, _)| *part >= SHOWN_FROM)
        .map(|(part, what)| format!(", + {part:.1} {what}"))
        .collect();
    let led_by = match budget {
        None => format!("{} leads", leader.rule.name()),
        Some(budget) => {
            let end = match budget.at_end {
                None => "",
                Some(DialEnd::Most) => " (the most: no more spare would keep the budget)",
                Some(DialEnd::Least) => " (the least: hardly anything is late without it)",
            };
            format!("{}{end}, budget used {:.0} % this week", leader.rule.name(), budget.used * 100.0)
        }
    };
    format!(
        "{:.1} now, {:.1} expected in {}{}{}: {led_by}",
        outlook.now,
        outlook.expected,
        format_span(lead),
        parts.concat(),
        if ask.capped { ", capped at a quarter above what was ever needed" } else { "" },
    )
}
