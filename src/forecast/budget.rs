//! The budget mode: a dial on the price of late work turns until the share of work that is late is what it may be.
//!
//! ```text
//! ln safety += gain x (late work / what may be late in a week  -  the share of a week that passed)
//! ```
//!
//! Integral action on the logarithm, after adaptive conformal inference (Gibbs and Candes, `NeurIPS` 2021): over any span
//! the late work differs from the budget by no more than the dial moved, divided by the gain. The gain is in budgets of
//! a week, so that one number fits all budgets: a week without late work, and a week's budget that is used up at once,
//! weigh the same.
//!
//! Late work is the tier's own where its pages tell how long requests queued or what waits, else that of a virtual fleet
//! which follows the dial on the real arrivals.

use serde::{Deserialize, Serialize};

use super::account::Account;
use super::arrivals::Bin;
use super::fleet::{Fleet, Served};
use super::lateness::LateMinutes;
use super::predict::Predictor;
use super::rule::Rule;
use super::{BINS_A_DAY, Terms};
use week::{Sums, Week};

mod week;

/// By how much the logarithm of the dial falls in a week without late work, and rises with a week's budget of it. With 2 it
/// follows loads that differ from week to week too late, with 4 it swings on loads with a few large jumps, and insures more
/// than it has to in between (see `docs/decisions/0002-a-late-budget.md`).
const GAIN: f64 = 3.0;

/// The dial with which a budget of one in a thousand begins. A half is what leads in price mode at first; the share that is
/// late falls about as the price rises, so other budgets begin in proportion.
const FIRST: f64 = 0.5;

/// The budget that belongs to it.
const FIRST_BUDGET: f64 = 0.001;

/// The dial's bounds: of where it began, the least share; and the most. Lower, nearly nothing is saved, and a tier that was
/// calm for ten days meets the eleventh without insurance: on four weeks of the football World Cup of 1998 that alone was
/// twice the budget. Beyond the most, on all loads that were tried, a ten times higher price bought hardly any late work
/// off: what is left can't be foreseen.
const LEAST_OF_FIRST: f64 = 0.3;
const MOST: f64 = 50.0;

/// A dial so near to an end stands at it: between two events it leaves it by a little.
const NEAR_LEAST: f64 = 1.25;
const NEAR_MOST: f64 = 0.5;

/// By how much the logarithm may rise in a day: what is late beyond one and a half week's budgets is an incident, which no
/// spare of the next weeks makes good.
const MOST_RISE_A_DAY: f64 = 1.5 * GAIN;

const BINS_AN_HOUR: i64 = 240;
const BINS_A_WEEK: f64 = 7.0 * BINS_A_DAY as f64;

/// How late work is counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LateCount {
    /// Requests by how long they queued, as the replicas count them.
    QueueTimes,
    /// All of a round in which more waits at the replicas than is acceptable.
    Waiting,
    /// Of a virtual fleet that follows the dial.
    #[default]
    VirtualFleet,
}

/// How long requests queued since the last round, as the tier's own pages tell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Queued {
    /// Requests whose queue time was observed, or which were refused.
    pub requests: f64,
    /// Of them, those that queued for longer than is acceptable, or were refused.
    pub late: f64,
    /// How that was counted.
    #[serde(default)]
    pub by: LateCount,
}

/// How much of the budget was used.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BudgetUse {
    /// The dial: how many times the price of late work that `shortageCost` stands for.
    pub safety: f64,
    /// The dial stands at its end.
    pub at_end: Option<DialEnd>,
    /// Share of the work that may be late.
    pub late_budget: f64,
    /// Share of the work of the last seven days that was.
    pub late_share: f64,
    /// Of what may be late in a week at the present pace, the share that was late in the last seven days.
    pub used: f64,
    /// Late minutes of the last seven days.
    pub late_minutes: f64,
    /// How late work is counted.
    pub counted: LateCount,
}

/// An end of the dial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum DialEnd {
    /// Hardly anything is insured, and less than the budget is late.
    Least,
    /// More is late than the budget allows, and no more insurance helps.
    Most,
}

/// What the rounds since the last bin told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Told {
    rounds: u32,
    silent: u32,
    queued: Queued,
}

impl Told {
    /// One round more; None where nobody can say.
    pub(super) fn add(&mut self, queued: Option<Queued>) {
        self.rounds = self.rounds.saturating_add(1);
        match queued {
            Some(queued) => {
                self.queued.requests += queued.requests;
                self.queued.late += queued.late;
                self.queued.by = queued.by;
            }
            None => self.silent = self.silent.saturating_add(1),
        }
    }

    /// What all of the rounds told together; None where one of them, or nobody, did.
    pub(super) fn take(&mut self) -> Option<Queued> {
        let told = std::mem::take(self);
        (told.rounds > 0 && told.silent == 0).then_some(told.queued)
    }
}

/// The dial and its accounts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Budget {
    safety: f64,
    fleet: Fleet,
    account: Account,
    /// By how much its logarithm rose lately, less what it may rise in that time.
    risen: f64,
    /// Work of a bin, replica-seconds: the mean of the last week.
    mean_work: f64,
    bins: u64,
    /// Work and requests of the last day, decayed, where pages tell how long requests queued: what a request is worth.
    #[serde(default)]
    day_work: f64,
    #[serde(default)]
    day_requests: f64,
    week: Week,
    #[serde(default)]
    minutes: LateMinutes,
    counted: LateCount,
}

/// Where the dial of a budget begins.
fn first(late_budget: f64) -> f64 {
    (FIRST * FIRST_BUDGET / late_budget).min(MOST)
}

fn least(late_budget: f64) -> f64 {
    LEAST_OF_FIRST * first(late_budget)
}

impl Budget {
    /// Begins with so many replicas.
    pub(super) fn new(replicas: u32, slot: i64, late_budget: f64) -> Self {
        Self {
            safety: first(late_budget),
            fleet: Fleet::of(replicas, slot),
            account: Account::default(),
            risen: 0.0,
            mean_work: 0.0,
            bins: 0,
            day_work: 0.0,
            day_requests: 0.0,
            week: Week::new(),
            minutes: LateMinutes::default(),
            counted: LateCount::default(),
        }
    }

    pub(super) fn safety(&self) -> f64 {
        self.safety
    }

    pub(super) fn rule(&self) -> Rule {
        Rule::Safety(self.safety)
    }

    /// Serves a bin that was seen with what was ordered before it, and turns the dial. `told` is what the tier's own pages
    /// say of it.
    pub(super) fn serve(
        &mut self,
        bin: &Bin,
        told: Option<Queued>,
        usual: f64,
        late_budget: f64,
        terms: &Terms,
    ) {
        let Served { paid, mut late_work, mut late_minutes } = self.fleet.serve_bin(bin, terms);
        self.account.add(paid, late_minutes * terms.late_minute(usual));
        let work: f64 = bin.slots.iter().sum();
        self.counted = told.map(|told| told.by).unwrap_or_default();
        if let Some(told) = told {
            late_work = self.late_work(work, told);
            late_minutes = self.minutes.add(bin.number, told);
        }
        self.bins += 1;
        self.mean_work += (work - self.mean_work) / (self.bins as f64).min(BINS_A_WEEK);
        self.week.add(bin.number.div_euclid(BINS_AN_HOUR), work, late_work, late_minutes);
        let may_be_late = (late_budget * self.mean_work * BINS_A_WEEK).max(1e-9);
        self.risen = (self.risen - MOST_RISE_A_DAY / BINS_A_DAY as f64).max(0.0);
        let rise = (GAIN * late_work / may_be_late).min(MOST_RISE_A_DAY - self.risen);
        self.risen += rise;
        self.safety = (self.safety * (rise - GAIN / BINS_A_WEEK).exp()).clamp(least(late_budget), MOST);
    }

    /// Pages tell how long a request queued when it has *finished*, so that the late ones of a burst are told in bins that
    /// have less work than those in which they came: each weighs as a request of the day does, not by the bin's work.
    fn late_work(&mut self, work: f64, told: Queued) -> f64 {
        if told.by != LateCount::QueueTimes {
            return if told.requests > 0.0 {
                work * (told.late / told.requests).clamp(0.0, 1.0)
            } else {
                0.0
            };
        }
        self.day_work += work - self.day_work / BINS_A_DAY as f64;
        self.day_requests += told.requests - self.day_requests / BINS_A_DAY as f64;
        if self.day_requests > 0.0 { told.late * self.day_work / self.day_requests } else { 0.0 }
    }

    /// See `Loads::rescale`.
    pub(super) fn rescale(&mut self, times: f64) {
        self.mean_work *= times;
        self.day_work *= times;
        self.week.rescale(times);
        self.fleet.rescale(times);
        self.account.rescale(times);
    }

    /// Orders for its virtual fleet.
    pub(super) fn order(&mut self, slot: i64, predictor: &Predictor, terms: &Terms, largest: f64) {
        let ask = self.rule().ask(predictor, &self.fleet, terms, largest);
        self.fleet.order(ask.replicas, slot, terms.hold_slots);
    }

    /// What its virtual fleet cost.
    pub(super) fn account(&self) -> Account {
        self.account
    }

    pub(super) fn used(&self, late_budget: f64) -> BudgetUse {
        let Sums { work, late_work, late_minutes } = self.week.sums();
        let share = |of: f64| if of > 0.0 { late_work / of } else { 0.0 };
        let at_end = if self.safety >= NEAR_MOST * MOST {
            Some(DialEnd::Most)
        } else if self.safety <= NEAR_LEAST * least(late_budget) {
            Some(DialEnd::Least)
        } else {
            None
        };
        BudgetUse {
            safety: self.safety,
            at_end,
            late_budget,
            late_share: share(work),
            used: share(late_budget * work.max(self.mean_work * BINS_A_WEEK)),
            late_minutes,
            counted: self.counted,
        }
    }

    /// Can it be calculated with?
    pub(super) fn is_sane(&self) -> bool {
        (f64::MIN_POSITIVE..=MOST).contains(&self.safety)
            && (0.0..=2.0 * MOST_RISE_A_DAY).contains(&self.risen)
            && [self.mean_work, self.day_work, self.day_requests].into_iter().all(f64::is_finite)
            && self.fleet.is_sane()
            && self.account.is_sane()
            && self.week.is_sane()
    }
}

#[cfg(test)]
mod tests;
