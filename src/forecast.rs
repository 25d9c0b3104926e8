//! What the load will need one lead from now, learned from the load alone, and how much insurance is worth its price.
//!
//! Pure: time is passed in, and state is a value that serialises. Nothing beyond one lead is predicted, because nothing
//! that is ordered now could help before its end, and what is ordered later helps after it.
//!
//! ```text
//! arrivals  what was offered -> bins of 15 s on the grid of the wall clock
//! predict   the need at the end of the lead, its spread, and how often what came was beyond both
//!   least_squares  tail  days
//! rule      from these to replicas: a price on being short, or a plain target
//! fleet     a virtual fleet on the real arrivals: what a rule would have cost
//! bank      rules side by side; the cheapest leads
//! ```

use serde::{Deserialize, Serialize};

mod arrivals;
mod bank;
mod days;
mod fleet;
mod least_squares;
mod packed;
mod predict;
mod rule;
mod tail;

pub use bank::{Frontier, LONGEST_HOLD, Leader};
pub use fleet::Standing;
pub use predict::Outlook;
pub use rule::{Rule, RuleAsk};

use arrivals::Arrivals;
use bank::Bank;
use predict::{MOST_LEAD, Predictor};

/// Seconds of a slot: what a virtual fleet serves at once.
pub(crate) const SLOT_SECONDS: f64 = 5.0;

/// Slots of a bin: what is predicted, and how often is decided. The HPA's sync period.
const SLOTS_A_BIN: usize = 3;

/// Seconds of a bin.
const BIN_SECONDS: f64 = 15.0;

const BINS_A_DAY: usize = 5760;

/// Bins before a forecast says anything: an hour.
const LEARNS_FOR: u64 = 240;

/// What a forecast is made for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// An order that is made by a bin serves so many bins after it.
    lead_bins: usize,
    /// Slots from an order until its replicas serve.
    start_slots: i64,
    /// How long a rule without a hold of its own holds what it asked for.
    hold_slots: i64,
    /// Seconds of the tier's work that may wait.
    slack_seconds: f64,
    /// What a late minute costs, in minutes of the whole tier.
    shortage_minutes: f64,
}

impl Terms {
    /// `lead_seconds` from the end of a bin until what it makes ordered can serve.
    #[must_use]
    pub fn new(lead_seconds: f64, hold_seconds: f64, slack_seconds: f64, shortage_minutes: f64) -> Self {
        let lead_bins = 1 + (lead_seconds / BIN_SECONDS).ceil() as usize;
        Self {
            lead_bins: lead_bins.clamp(2, MOST_LEAD),
            start_slots: ((lead_seconds - BIN_SECONDS) / SLOT_SECONDS).ceil().max(0.0) as i64,
            hold_slots: (hold_seconds / SLOT_SECONDS).ceil() as i64,
            slack_seconds,
            shortage_minutes,
        }
    }
}

/// A tier's forecast: everything that was learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    arrivals: Arrivals,
    predictor: Predictor,
    bank: Option<Bank>,
}

impl Default for Forecast {
    fn default() -> Self {
        Self { arrivals: Arrivals::default(), predictor: Predictor::new(), bank: None }
    }
}

impl Forecast {
    /// `work` replica-seconds were offered since the last round; None where nobody can say. `replicas` are there: the
    /// virtual fleets begin with as many. `at` is in milliseconds since the epoch.
    pub fn learn(&mut self, at: i64, work: Option<f64>, replicas: u32, terms: &Terms) {
        let Self { arrivals, predictor, bank } = self;
        arrivals.add(at, work, |bin| {
            let first_slot = bin.number * SLOTS_A_BIN as i64;
            let bank = bank.get_or_insert_with(|| Bank::new(replicas.max(1), first_slot));
            if bin.seen {
                bank.serve(&bin, predictor.outlook().usual.max(1.0), terms);
            }
            let load = bin.seen.then(|| bin.load());
            predictor.push(bin.number, load, terms.lead_bins, terms.slack_seconds);
            bank.order(bin.number, predictor, terms);
        });
    }

    /// Another process looks from here on.
    pub fn resume(&mut self) {
        self.arrivals.resume();
    }

    /// What is known of the next lead; None until an hour was watched.
    #[must_use]
    pub fn outlook(&self) -> Option<&Outlook> {
        (self.predictor.bins() >= LEARNS_FOR).then(|| self.predictor.outlook())
    }

    /// What the rule that leads asks for a fleet that stands so; None until an hour was watched.
    #[must_use]
    pub fn ask(&self, standing: &impl Standing, terms: &Terms) -> Option<(Leader, RuleAsk)> {
        self.outlook()?;
        let bank = self.bank.as_ref()?;
        let leader = bank.leader();
        Some((leader, leader.rule.ask(&self.predictor, standing, terms, bank.largest())))
    }

    /// What the rule that leads would have cost, and what fewer late minutes would; None until a day was watched.
    #[must_use]
    pub fn frontier(&self, terms: &Terms) -> Option<Frontier> {
        if self.predictor.bins() < BINS_A_DAY as u64 {
            return None;
        }
        let usual = self.outlook()?.usual;
        self.bank.as_ref().map(|bank| bank.frontier(usual, terms))
    }

    /// Reads what was written; None where it can't be calculated with.
    #[must_use]
    pub fn restored(mut self) -> Option<Self> {
        let sane = self.predictor.is_sane() && self.bank.as_ref().is_none_or(Bank::is_sane);
        if !sane {
            return None;
        }
        self.predictor.rebuild();
        Some(self)
    }
}

#[cfg(test)]
mod tests;
