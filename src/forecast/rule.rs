//! The rules that the bank chooses from: a price on the spread of the forecast, plain targets, and the usual HPA.

use serde::{Deserialize, Serialize};

use super::Terms;
use super::fleet::{Standing, queued_ahead};
use super::predict::{Outlook, Predictor};

/// Late minutes that a bin in which capacity is short makes: 0.3 to 0.5 on all loads that were tried.
const LATE_MINUTES_A_BIN: f64 = 0.4;

/// Bins in a minute: a replica for a bin is a quarter of a replica-minute.
const BINS_A_MINUTE: f64 = 4.0;

/// A backlog is worked off in so many seconds once what it takes is there.
const DRAIN_SECONDS: f64 = 15.0;

/// Nothing is given back while more waits than this share of what may.
const BEHIND: f64 = 0.5;

/// The usual target of an HPA.
const HPA_TARGET: f64 = 0.8;

/// A rule.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Rule {
    /// The whole number at which one more replica costs more than the late minutes that it saves, at so many times the
    /// price.
    Price(f64),
    /// The same at so many times the price of late *work*: a minute that is late counts by the load in it, so that a
    /// peak is worth more than a valley.
    Safety(f64),
    /// The load over a target, whatever is expected.
    Target(f64),
    /// An HPA at 80 %: the same without anything for a backlog.
    Hpa,
}

/// What a rule asks for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct RuleAsk {
    /// Replicas.
    pub replicas: u32,
    /// Of them, fractions for: the forecast, its spread, a jump that may come again, and a backlog.
    pub expected: f64,
    /// See `expected`.
    pub spread: f64,
    /// See `expected`.
    pub jump: f64,
    /// See `expected`.
    pub backlog: f64,
    /// More than this was never needed, and a quarter.
    pub capped: bool,
}

impl Rule {
    /// What it asks for now. `largest` is the largest need that was ever seen.
    pub(super) fn ask(
        self,
        predictor: &Predictor,
        standing: &impl Standing,
        terms: &Terms,
        largest: f64,
    ) -> RuleAsk {
        let outlook = predictor.outlook();
        let mut ask = match self {
            Self::Hpa => RuleAsk { expected: predictor.last(2) / HPA_TARGET, ..RuleAsk::default() },
            Self::Target(target) => RuleAsk { expected: predictor.last(2) / target, ..RuleAsk::default() },
            Self::Price(times) => priced(times, predictor, terms, most(largest)),
            Self::Safety(times) => {
                let times = times * outlook.expected.max(0.0) / outlook.usual;
                priced(times, predictor, terms, most(largest))
            }
        };
        if self != Self::Hpa {
            ask.backlog = backlog(&ask, outlook, standing, terms, largest);
        }
        let most = most(largest);
        let wanted = (ask.total() - 1e-9).ceil().max(1.0);
        ask.capped = wanted > most;
        ask.replicas = wanted.min(most) as u32;
        ask
    }

    /// In words.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Price(times) => format!("price x {times}"),
            Self::Safety(times) => format!("safety {}", two_digits(times)),
            Self::Target(target) => format!("target {:.0} %", target * 100.0),
            Self::Hpa => "HPA 80 %".to_owned(),
        }
    }
}

/// To two digits: `0.042`, `1.3`, `28`.
fn two_digits(number: f64) -> String {
    let decimals = (1.0 - number.abs().max(1e-9).log10().floor()).clamp(0.0, 6.0) as usize;
    format!("{number:.decimals$}")
}

impl RuleAsk {
    fn total(&self) -> f64 {
        self.expected + self.spread + self.jump + self.backlog
    }
}

/// No ask is above a quarter more than was ever needed, and one.
fn most(largest: f64) -> f64 {
    (1.25 * largest + 1.0).ceil().max(1.0)
}

/// `argmin over whole N of N + price x beyond((N - expected) / spread)`, in replica-bins: one bin more of a replica
/// against the price of the late minutes that a bin short of it makes.
fn priced(times: f64, predictor: &Predictor, terms: &Terms, most: f64) -> RuleAsk {
    let outlook = predictor.outlook();
    let price = terms.shortage_minutes * BINS_A_MINUTE * LATE_MINUTES_A_BIN * times * outlook.usual;
    let above = |replicas: f64| (replicas - outlook.expected) / outlook.spread.max(1e-6);
    let cost = |replicas: f64| replicas + price * predictor.beyond(above(replicas));
    let mut replicas = outlook.expected.max(1.0).ceil();
    let (mut best, mut least) = (replicas, cost(replicas));
    // From where the replicas alone cost more than the best, nothing can be better; and more than the most isn't asked for.
    while replicas < least.min(most) {
        // One by one up to a thousand, then in steps that nobody would tell apart.
        replicas += (replicas / 1000.0).floor().max(1.0);
        let cost = cost(replicas);
        if cost < least {
            (best, least) = (replicas, cost);
        }
    }
    let expected = outlook.expected.clamp(0.0, best);
    // A jump that was within the spread is in it already.
    let jump = if outlook.jump_spreads > above(best).max(1.0) { (outlook.jump - best).max(0.0) } else { 0.0 };
    RuleAsk { expected, spread: best - expected, jump, ..RuleAsk::default() }
}

/// What a backlog takes beyond that.
fn backlog(ask: &RuleAsk, outlook: &Outlook, standing: &impl Standing, terms: &Terms, largest: f64) -> f64 {
    let wanted = ask.total();
    let mut with = wanted;
    if standing.queued() > 0.0 || outlook.expected > standing.ready() {
        let from = outlook.lately.max(outlook.now);
        let queued = queued_ahead(standing, from, outlook.expected, terms.lead_bins);
        let too_much = queued - terms.slack_seconds * wanted.max(1.0);
        if too_much > 0.0 {
            with = (wanted + too_much / DRAIN_SECONDS).min(wanted.max(1.25 * largest + 1.0));
        }
    }
    if standing.queued() > BEHIND * terms.slack_seconds * standing.ready() {
        with = with.max(standing.total() - 0.5);
    }
    with - wanted
}
