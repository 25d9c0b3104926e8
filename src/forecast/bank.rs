//! Rules side by side, each with a virtual fleet on the real arrivals: the cheapest leads.
//!
//! Nobody has to tune: the prices differ around the one that was asked for, and what the forecast must beat, plain
//! targets with short and long holds and the usual HPA, is in the bank as well. A rule's cost is what its fleet was paid
//! plus the price of its late minutes, decayed, plus a handicap for being unlikely to be right.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::arrivals::Bin;
use super::fleet::Fleet;
use super::predict::Predictor;
use super::rule::Rule;
use super::{BINS_A_DAY, SLOT_SECONDS, SLOTS_A_BIN, Terms};

/// How many times the price: from a sixteenth to eight times.
const PRICES: [f64; 11] = [0.06, 0.12, 0.25, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0, 8.0];

/// The price that leads at first, and against which others are handicapped: capacity that is short for a bin is seldom
/// short of a whole replica.
const FIRST: f64 = 0.5;

/// Of a price, for each e-fold that it is away from the first; in minutes of the whole tier.
const PRICE_HANDICAP: f64 = 60.0;

/// Of a plain target; in minutes of the whole tier.
const TARGET_HANDICAP: f64 = 150.0;

const TARGETS: [f64; 8] = [0.35, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95];

/// Holds of the targets, in slots: 60, 180, 600 and 1800 s.
const TARGET_HOLDS: [i64; 4] = [12, 36, 120, 360];

/// The longest of them.
pub const LONGEST_HOLD: Duration = Duration::from_secs(1800);

/// The HPA's: its downward stabilisation is 300 s by default.
const HPA_HOLD: i64 = 60;

/// Bins after which a cost counts half: three and a half days.
const HALF_LIFE: f64 = 3.5 * BINS_A_DAY as f64;

/// Bins from one choice to the next: a quarter of an hour.
const CHOOSE_EVERY: u64 = 60;

/// By how much a rule must be cheaper than the one that leads.
const SWITCH: f64 = 0.01;

/// A rule and its fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Member {
    rule: Rule,
    /// In slots; None is the hold of the tier.
    hold: Option<i64>,
    handicap: f64,
    fleet: Fleet,
    /// Replica-seconds, decayed.
    paid: f64,
    /// The price of its late minutes, in replica-seconds, decayed.
    late: f64,
}

/// The rule that leads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leader {
    /// The rule.
    pub rule: Rule,
    /// How long it holds what it asked for, in seconds; None is the hold of the tier.
    pub hold_seconds: Option<f64>,
}

/// What the rule that leads would have cost in the last days, and what less lateness would.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Frontier {
    /// Replicas paid for, the mean.
    pub replicas: f64,
    /// Late minutes, at the pace of a week.
    pub late_minutes_a_week: f64,
    /// Replica-hours a day more for half the late minutes; None where no rule had so few, or there are hardly any.
    pub halving_replica_hours_a_day: Option<f64>,
}

/// The bank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bank {
    members: Vec<Member>,
    leads: usize,
    bins: u64,
    /// Seconds, decayed as the costs are.
    weight: f64,
    /// The largest need so far.
    largest: f64,
}

impl Bank {
    /// Begins with so many replicas.
    pub(super) fn new(replicas: u32, slot: i64) -> Self {
        let member = |rule, hold, handicap| Member {
            rule,
            hold,
            handicap,
            fleet: Fleet::of(replicas, slot),
            paid: 0.0,
            late: 0.0,
        };
        let prices =
            PRICES.map(|times| member(Rule::Price(times), None, PRICE_HANDICAP * (times / FIRST).ln().abs()));
        let targets = TARGET_HOLDS
            .into_iter()
            .flat_map(|hold| TARGETS.map(|target| member(Rule::Target(target), Some(hold), TARGET_HANDICAP)));
        let hpa = member(Rule::Hpa, Some(HPA_HOLD), TARGET_HANDICAP);
        let members: Vec<Member> = prices.into_iter().chain(targets).chain([hpa]).collect();
        let leads = PRICES.iter().position(|times| *times == FIRST).unwrap_or(0);
        Self { members, leads, bins: 0, weight: 0.0, largest: 1.0 }
    }

    /// Serves a bin that was seen, with what was ordered before it; the predictor has not seen it yet.
    pub(super) fn serve(&mut self, bin: &Bin, usual: f64, terms: &Terms) {
        let decay = 0.5_f64.powf(1.0 / HALF_LIFE);
        self.weight = self.weight * decay + SLOT_SECONDS * SLOTS_A_BIN as f64;
        let late_minute = terms.shortage_minutes * 60.0 * usual;
        for member in &mut self.members {
            member.paid *= decay;
            member.late *= decay;
            for (at, work) in bin.slots.iter().enumerate() {
                let slot = bin.number * SLOTS_A_BIN as i64 + at as i64;
                let (paid, late) = member.fleet.serve(slot, *work, terms.start_slots, terms.slack_seconds);
                member.paid += paid;
                if late {
                    member.late += late_minute;
                }
            }
        }
    }

    /// Orders by what the predictor knows with that bin, and chooses who leads.
    pub(super) fn order(&mut self, bin: i64, predictor: &Predictor, terms: &Terms) {
        self.largest = self.largest.max(predictor.outlook().need);
        // One bin after its end.
        let slot = (bin + 2) * SLOTS_A_BIN as i64;
        for at in 0..self.members.len() {
            let member = &self.members[at];
            let ask = member.rule.ask(predictor, &member.fleet, terms, self.largest);
            let hold = member.hold.unwrap_or(terms.hold_slots);
            self.members[at].fleet.order(ask.replicas, slot, hold);
        }
        self.bins += 1;
        if self.bins.is_multiple_of(CHOOSE_EVERY) {
            let minute = 60.0 * predictor.outlook().usual;
            let cost = |member: &Member| member.paid + member.late + member.handicap * minute;
            let cheapest = (0..self.members.len())
                .min_by(|a, b| cost(&self.members[*a]).total_cmp(&cost(&self.members[*b])));
            if let Some(cheapest) = cheapest
                && cost(&self.members[cheapest]) < (1.0 - SWITCH) * cost(&self.members[self.leads])
            {
                self.leads = cheapest;
            }
        }
    }

    pub(super) fn leader(&self) -> Leader {
        let member = &self.members[self.leads];
        Leader { rule: member.rule, hold_seconds: member.hold.map(|slots| slots as f64 * SLOT_SECONDS) }
    }

    /// The largest need so far.
    pub(super) fn largest(&self) -> f64 {
        self.largest
    }

    /// What the rule that leads would have cost, and what halving its late minutes would.
    pub(super) fn frontier(&self, usual: f64, terms: &Terms) -> Frontier {
        let seconds = self.weight.max(1.0);
        let late_minute = (terms.shortage_minutes * 60.0 * usual).max(1e-9);
        let a_week = 7.0 * 86_400.0 / seconds / late_minute;
        let leader = &self.members[self.leads];
        let late_minutes_a_week = leader.late * a_week;
        let few = self.members.iter().filter(|member| member.late <= leader.late / 2.0);
        let halved = few.map(|member| member.paid).min_by(f64::total_cmp);
        Frontier {
            replicas: leader.paid / seconds,
            late_minutes_a_week,
            halving_replica_hours_a_day: halved
                .filter(|_| late_minutes_a_week >= 1.0)
                .map(|paid| ((paid - leader.paid) / seconds * 24.0).max(0.0)),
        }
    }

    pub(super) fn is_sane(&self) -> bool {
        let member =
            |member: &Member| member.paid.is_finite() && member.late.is_finite() && member.fleet.is_sane();
        self.leads < self.members.len() && self.largest.is_finite() && self.members.iter().all(member)
    }
}
