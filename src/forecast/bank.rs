//! Rules side by side, each with a virtual fleet on the real arrivals: the cheapest leads.
//!
//! Nobody has to tune: the prices differ around the one that was asked for, and what the forecast must beat, plain
//! targets with short and long holds and the usual HPA, is in the bank as well. A rule's cost is what its fleet was paid
//! plus the price of its late minutes, decayed, plus a handicap for being unlikely to be right. Where the tier's own pages
//! tell that it is later than the fleet of the rule that it follows, late minutes of all rules are dearer by as much.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::account::Account;
use super::arrivals::Bin;
use super::budget::{LateCount, Queued};
use super::fleet::Fleet;
use super::lateness::Lateness;
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

/// Bins from one choice to the next: a quarter of an hour.
const CHOOSE_EVERY: u64 = 60;

/// By how much a rule must be cheaper than the one that leads.
const SWITCH: f64 = 0.01;

/// Candidates that are told.
const SHOWN: usize = 4;

/// A rule and its fleet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Member {
    rule: Rule,
    /// In slots; None is the hold of the tier.
    hold: Option<i64>,
    handicap: f64,
    fleet: Fleet,
    account: Account,
}

impl Member {
    fn leader(&self) -> Leader {
        Leader { rule: self.rule, hold_seconds: self.hold.map(|slots| slots as f64 * SLOT_SECONDS) }
    }
}

/// The rule that leads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Leader {
    /// The rule.
    pub rule: Rule,
    /// How long it holds what it asked for, in seconds; None is the hold of the tier.
    pub hold_seconds: Option<f64>,
}

/// A rule with what it would have cost lately.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Candidate {
    /// The rule, and its hold.
    pub leader: Leader,
    /// Replicas paid for, the mean.
    pub replicas: f64,
    /// The price of its late minutes, in replicas.
    pub late: f64,
    /// Its handicap for being unlikely to be right, as spread over the days that count, in replicas.
    pub handicap: f64,
    /// It leads.
    pub leads: bool,
}

/// The bank.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Bank {
    members: Vec<Member>,
    leads: usize,
    bins: u64,
    /// The largest need so far.
    largest: f64,
    #[serde(default)]
    lateness: Lateness,
}

impl Bank {
    /// Begins with so many replicas.
    pub(super) fn new(replicas: u32, slot: i64) -> Self {
        let fleet = || Fleet::of(replicas, slot);
        let member = |rule, hold, handicap| {
            let account = Account::default();
            Member { rule, hold, handicap, fleet: fleet(), account }
        };
        let prices =
            PRICES.map(|times| member(Rule::Price(times), None, PRICE_HANDICAP * (times / FIRST).ln().abs()));
        let targets = TARGET_HOLDS
            .into_iter()
            .flat_map(|hold| TARGETS.map(|target| member(Rule::Target(target), Some(hold), TARGET_HANDICAP)));
        let hpa = member(Rule::Hpa, Some(HPA_HOLD), TARGET_HANDICAP);
        let members: Vec<Member> = prices.into_iter().chain(targets).chain([hpa]).collect();
        let leads = PRICES.iter().position(|times| *times == FIRST).unwrap_or(0);
        Self { members, leads, bins: 0, largest: 0.0, lateness: Lateness::default() }
    }

    /// Serves a bin that was seen, with what was ordered before it; the predictor has not seen it yet. `told` is how long the
    /// tier's own requests queued, where the tier follows the rule that leads.
    pub(super) fn serve(&mut self, bin: &Bin, told: Option<Queued>, usual: f64, terms: &Terms) {
        let late_minute = terms.late_minute(usual);
        let mut of_leader = 0.0;
        for (at, member) in self.members.iter_mut().enumerate() {
            let served = member.fleet.serve_bin(bin, terms);
            member.account.add(served.paid, served.late_minutes * late_minute);
            if at == self.leads {
                of_leader = served.late_minutes;
            }
        }
        // On the first day the tier has its headroom beside the forecast, and what waits shows no single replica's queue.
        let told = told.filter(|told| told.by == LateCount::QueueTimes);
        if let Some(told) = told.filter(|_| self.bins >= BINS_A_DAY as u64) {
            self.lateness.add(bin.number, told, of_leader);
        }
    }

    /// Orders by what the predictor knows with that bin, and chooses who leads.
    pub(super) fn order(&mut self, bin: i64, predictor: &Predictor, terms: &Terms) {
        self.largest = self.largest.max(predictor.outlook().need);
        // One bin after its end.
        let slot = (bin + 2) * SLOTS_A_BIN as i64;
        for at in 0..self.members.len() {
            let member = &self.members[at];
            let ask = member.rule.ask(predictor, &member.fleet, terms, self.largest());
            let hold = member.hold.unwrap_or(terms.hold_slots);
            self.members[at].fleet.order(ask.replicas, slot, hold);
        }
        self.bins += 1;
        if self.bins.is_multiple_of(CHOOSE_EVERY) {
            let minute = 60.0 * predictor.outlook().usual;
            let lateness = self.lateness();
            let cost = |member: &Member| member.account.cost(lateness) + member.handicap * minute;
            let cheapest = (0..self.members.len())
                .min_by(|a, b| cost(&self.members[*a]).total_cmp(&cost(&self.members[*b])));
            if let Some(cheapest) = cheapest
                && cost(&self.members[cheapest]) < (1.0 - SWITCH) * cost(&self.members[self.leads])
            {
                self.leads = cheapest;
            }
        }
    }

    /// See `Loads::rescale`.
    pub(super) fn rescale(&mut self, times: f64) {
        self.largest *= times;
        for member in &mut self.members {
            member.fleet.rescale(times);
            member.account.rescale(times);
        }
    }

    /// How many times as late as its virtual fleet the tier is.
    pub(super) fn lateness(&self) -> f64 {
        self.lateness.times()
    }

    pub(super) fn leader(&self) -> Leader {
        self.members[self.leads].leader()
    }

    /// The cheapest, and the one that leads where it isn't among them.
    pub(super) fn candidates(&self, usual: f64) -> Vec<Candidate> {
        let lateness = self.lateness();
        let candidate = |(at, member): (usize, &Member)| Candidate {
            leader: member.leader(),
            replicas: member.account.replicas(),
            late: lateness * member.account.late(),
            handicap: member.account.mean(member.handicap * 60.0 * usual),
            leads: at == self.leads,
        };
        let mut all: Vec<Candidate> = self.members.iter().enumerate().map(candidate).collect();
        let cost = |candidate: &Candidate| candidate.replicas + candidate.late + candidate.handicap;
        all.sort_by(|a, b| cost(a).total_cmp(&cost(b)));
        let mut place = 0;
        all.retain(|candidate| {
            place += 1;
            place <= SHOWN || candidate.leads
        });
        all
    }

    /// The largest need so far.
    pub(super) fn largest(&self) -> f64 {
        self.largest.max(1.0)
    }

    /// What the rule that leads cost.
    pub(super) fn account(&self) -> Account {
        self.members[self.leads].account
    }

    /// Replicas that the cheapest rule was paid for which was no more late than that (the price of it, in replicas).
    pub(super) fn cheapest(&self, late: f64) -> Option<f64> {
        let enough = self.members.iter().filter(|member| member.account.late() <= late);
        enough.map(|member| member.account.replicas()).min_by(f64::total_cmp)
    }

    /// What the cheapest rule cost, in replicas, with late minutes at so many times their price.
    pub(super) fn least_cost(&self, times: f64) -> Option<f64> {
        self.members.iter().map(|member| member.account.mean_cost(times)).min_by(f64::total_cmp)
    }

    pub(super) fn is_sane(&self) -> bool {
        let member = |member: &Member| member.account.is_sane() && member.fleet.is_sane();
        self.leads < self.members.len()
            && self.largest.is_finite()
            && self.lateness.is_sane()
            && self.members.iter().all(member)
    }
}
