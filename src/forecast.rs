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
//! lateness  how much later the tier is than the fleet of the rule that it follows
//! track     the forecasts of the last hours against what came, to look at
//! what_if   the same under other terms: more queue, shorter starts
//! budget    or: a dial on the price, so that no more is late than may be
//! ```

use serde::{Deserialize, Serialize};

mod account;
mod arrivals;
mod bank;
mod budget;
mod days;
mod experience;
mod fleet;
mod lateness;
mod least_squares;
mod packed;
mod predict;
mod rule;
mod tail;
mod terms;
mod track;
mod what_if;

pub use bank::{Candidate, LONGEST_HOLD, Leader};
pub use budget::{BudgetUse, DialEnd, LateCount, Queued};
pub use experience::Experience;
pub use fleet::Standing;
pub use predict::Outlook;
pub use rule::{Rule, RuleAsk};
pub use terms::{CLOCK_DAYS, Terms};
pub use track::TrackPoint;

use arrivals::{Arrivals, Bin};
use bank::Bank;
use budget::{Budget, Told};
use days::Loads;
use predict::Predictor;
use what_if::WhatIf;

/// Seconds of a slot: what a virtual fleet serves at once.
pub(crate) const SLOT_SECONDS: f64 = 5.0;

/// Slots of a bin: what is predicted, and how often is decided. The HPA's sync period.
const SLOTS_A_BIN: usize = 3;

/// Seconds of a bin.
const BIN_SECONDS: f64 = 15.0;

const BINS_A_DAY: usize = 5760;

/// Bins that another process may have seen and this one didn't, and which are passed as bins that nobody saw: ten minutes.
/// After longer gaps what is remembered of the minutes before is of another time.
const MOST_MISSED: i64 = 40;

/// Bins before a forecast says anything: an hour.
const LEARNS_FOR: u64 = 240;

/// Changes of the unit below this are noise of its measurement.
const RESCALED_FROM: f64 = 0.01;

/// By how much the unit may change at once, up or down: a capacity that was written in another unit is corrected by a
/// thousand. Beyond, it isn't one.
const MOST_RESCALED: f64 = 1e6;

/// What a replica is: replica-seconds that a token takes.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Unit {
    /// Of an input token that has to be computed.
    pub input_token: f64,
    /// Of an output token.
    pub output_token: f64,
}

impl Unit {
    fn work(self, input: f64, output: f64) -> f64 {
        input * self.input_token + output * self.output_token
    }
}

/// What the rule that leads would have cost in the last days, and what less lateness, more queue or shorter starts would.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Frontier {
    /// Replicas paid for, the mean.
    pub replicas: f64,
    /// Late minutes, at the pace of a week.
    pub late_minutes_a_week: f64,
    /// Replica-hours a day more for half the late minutes; None where no rule had so few, or there are hardly any.
    pub halving_replica_hours_a_day: Option<f64>,
    /// Replica-hours a day that the cheapest rule would have saved if 30 s more might queue, with late minutes at their
    /// price; None until that was watched for a day.
    pub more_queue_saves_replica_hours_a_day: Option<f64>,
    /// The same for a cold start of 60 s; None where it isn't longer either.
    pub short_start_saves_replica_hours_a_day: Option<f64>,
}

/// A tier's forecast: everything that was learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Forecast {
    arrivals: Arrivals,
    predictor: Predictor,
    bank: Option<Bank>,
    days: Loads,
    /// There once there was a budget to keep.
    #[serde(default)]
    budget: Option<Budget>,
    /// If 30 s more might queue.
    #[serde(default)]
    more_queue: Option<WhatIf>,
    /// If replicas started in a minute.
    #[serde(default)]
    short_start: Option<WhatIf>,
    /// What a replica is, in which all of it is told; None until the first round.
    #[serde(default)]
    unit: Option<Unit>,
    #[serde(default)]
    told: Told,
    #[serde(default)]
    experience: Experience,
}

impl Default for Forecast {
    fn default() -> Self {
        Self {
            arrivals: Arrivals::default(),
            predictor: Predictor::new(),
            bank: None,
            days: Loads::new(),
            budget: None,
            more_queue: None,
            short_start: None,
            unit: None,
            told: Told::default(),
            experience: Experience::default(),
        }
    }
}

impl Forecast {
    /// `work` replica-seconds were offered since the last round; None where nobody can say. `replicas` are there: the
    /// virtual fleets begin with as many. `at` is in milliseconds since the epoch.
    pub fn learn(&mut self, at: i64, work: Option<f64>, replicas: u32, terms: &Terms) {
        let mut arrivals = self.arrivals;
        if arrivals.is_behind(at) {
            self.experience.forget_the_last();
        }
        arrivals.add(at, work, |bin| self.take_late(&bin, replicas.max(1), terms));
        self.arrivals = arrivals;
    }

    /// Takes a bin in that is over, and before it those that nobody saw because another process watched, or none.
    fn take_late(&mut self, bin: &Bin, replicas: u32, terms: &Terms) {
        let missed = self.experience.behind(bin.number);
        if (1..=MOST_MISSED).contains(&missed) {
            (bin.number - missed..bin.number)
                .for_each(|number| self.take(&Bin::unseen(number), replicas, terms));
        }
        self.take(bin, replicas, terms);
    }

    fn take(&mut self, bin: &Bin, replicas: u32, terms: &Terms) {
        let told = self.told.take();
        if !self.experience.take(bin.number, bin.seen) {
            return;
        }
        let speaks = self.watched() >= LEARNS_FOR;
        let Self { predictor, bank, days, budget, more_queue, short_start, .. } = self;
        let first_slot = bin.number * SLOTS_A_BIN as i64;
        let bank = bank.get_or_insert_with(|| Bank::new(replicas, first_slot));
        let usual = predictor.outlook().usual.max(1.0);
        let load = bin.seen.then(|| bin.load());
        if bin.seen {
            // With a budget to keep it is the dial that the tier follows.
            bank.serve(bin, told.filter(|_| terms.late_budget.is_none()), usual, terms);
        }
        predictor.push(bin.number, load, days, terms);
        bank.order(bin.number, predictor, terms);
        // Before the forecast speaks the dial has nothing to do with what is late.
        if let Some(late_budget) = terms.late_budget.filter(|_| speaks) {
            let budget = budget.get_or_insert_with(|| Budget::new(replicas, first_slot, late_budget));
            if bin.seen {
                budget.serve(bin, told, usual, late_budget, terms);
            }
            budget.order((bin.number + 2) * SLOTS_A_BIN as i64, predictor, terms, bank.largest());
        }
        let other_terms = [Some(terms.with_more_queue()), terms.with_short_starts()];
        for (what_if, terms) in [more_queue, short_start].into_iter().zip(other_terms) {
            let Some(terms) = terms else {
                *what_if = None;
                continue;
            };
            let what_if = what_if.get_or_insert_with(|| WhatIf::new(replicas, first_slot));
            what_if.take(bin, usual, days, &terms);
        }
        days.push(bin.number, load);
    }

    /// A replica is this from here on; `input` and `output` tokens of a request say what its two prices weigh. What was
    /// learned is kept, in the new unit: else the days before would look like another load.
    pub fn reprice(&mut self, unit: Unit, input: f64, output: f64) {
        let Some(before) = self.unit else {
            self.unit = Some(unit);
            return;
        };
        let times = unit.work(input, output) / before.work(input, output);
        if !(1.0 / MOST_RESCALED..=MOST_RESCALED).contains(&times) || times.ln().abs() < RESCALED_FROM {
            return;
        }
        self.unit = Some(unit);
        self.arrivals.rescale(times);
        self.predictor.rescale(times);
        self.days.rescale(times);
        self.bank.iter_mut().for_each(|bank| bank.rescale(times));
        self.budget.iter_mut().for_each(|budget| budget.rescale(times));
        let what_ifs = [&mut self.more_queue, &mut self.short_start];
        what_ifs.into_iter().flatten().for_each(|what_if| what_if.rescale(times));
    }

    /// How long requests queued since the last round; None where not all of the tier tells. Before [`Forecast::learn`].
    /// Where nobody ever tells, virtual fleets stand in.
    pub fn tell(&mut self, queued: Option<Queued>) {
        self.told.add(queued);
    }

    /// Seconds since the last round; None before the first, and after the clock was set back.
    #[must_use]
    pub fn seconds_since(&self, at: i64) -> Option<f64> {
        self.arrivals.millis_since(at).map(|millis| millis as f64 / 1e3)
    }

    /// Another process looks from here on.
    pub fn resume(&mut self) {
        self.arrivals.resume();
        self.experience.resume();
    }

    /// Nothing was seen since longer ago than it remembers days.
    #[must_use]
    pub fn is_outdated(&self, at: i64) -> bool {
        self.experience.behind(arrivals::bin_of(at)) > (days::LOAD_DAYS * BINS_A_DAY) as i64
    }

    /// How much it has seen.
    #[must_use]
    pub fn experience(&self) -> Experience {
        self.experience
    }

    /// Takes another scaler's over, which saw the same tier; what came since its last bin was seen by nobody. False where
    /// it can't be calculated with.
    pub fn take_over(&mut self, other: Self) -> bool {
        let Some(other) = other.restored() else { return false };
        // Since when the present bin is being watched is this process's own.
        *self = Self { arrivals: self.arrivals, told: Told::default(), ..other };
        true
    }

    /// Bins that were watched, with the one in which that began: what nobody saw is no experience.
    fn watched(&self) -> u64 {
        self.experience.bins() + 1
    }

    /// A day was watched: a forecast that doesn't know the hours of the day yet is no reason to have no headroom.
    #[must_use]
    pub fn knows_a_day(&self) -> bool {
        self.watched() >= BINS_A_DAY as u64
    }

    /// What is known of the next lead; None until an hour was watched.
    #[must_use]
    pub fn outlook(&self) -> Option<&Outlook> {
        (self.watched() >= LEARNS_FOR).then(|| self.predictor.outlook())
    }

    /// The forecasts of the last six hours against what came, a point a minute, oldest first.
    #[must_use]
    pub fn track(&self) -> Vec<TrackPoint> {
        self.predictor.track()
    }

    /// The rules that would have been cheapest lately, the cheapest first and the one that leads among them; none before a
    /// day was watched.
    #[must_use]
    pub fn candidates(&self) -> Vec<Candidate> {
        let bank = self.bank.as_ref().filter(|_| self.knows_a_day());
        bank.map(|bank| bank.candidates(self.predictor.outlook().usual)).unwrap_or_default()
    }

    /// What the rule that leads asks for a fleet that stands so; None until an hour was watched.
    #[must_use]
    pub fn ask(&self, standing: &impl Standing, terms: &Terms) -> Option<(Leader, RuleAsk)> {
        self.outlook()?;
        let bank = self.bank.as_ref()?;
        let of_budget = |budget: &Budget| Leader { rule: budget.rule(), hold_seconds: None };
        let leader = self.budget_of(terms).map_or_else(|| bank.leader(), of_budget);
        Some((leader, leader.rule.ask(&self.predictor, standing, terms, bank.largest())))
    }

    /// How many times as late as virtual fleets say the tier is, by its own requests' queue times; at least 1, and 1 where a
    /// budget leads.
    #[must_use]
    pub fn lateness(&self, terms: &Terms) -> f64 {
        let bank = self.bank.as_ref().filter(|_| self.budget_of(terms).is_none());
        bank.map_or(1.0, Bank::lateness)
    }

    /// How much of the budget was used, where there is one.
    #[must_use]
    pub fn budget_use(&self, terms: &Terms) -> Option<BudgetUse> {
        self.budget_of(terms).zip(terms.late_budget).map(|(budget, late)| budget.used(late))
    }

    /// The dial, where there is a budget to keep. It stays where it was while there is none.
    fn budget_of(&self, terms: &Terms) -> Option<&Budget> {
        self.budget.as_ref().filter(|_| terms.late_budget.is_some())
    }

    /// What the rule that leads would have cost, and what fewer late minutes, more queue or shorter starts would; None until
    /// a day was watched.
    #[must_use]
    pub fn frontier(&self, terms: &Terms) -> Option<Frontier> {
        if !self.knows_a_day() {
            return None;
        }
        let usual = self.outlook()?.usual;
        let bank = self.bank.as_ref()?;
        let budget = self.budget_of(terms);
        let leader = budget.map_or_else(|| bank.account(), Budget::account);
        // Where a budget makes late minutes dearer than their price they are, and where the tier is later than its fleets say.
        let lateness = self.lateness(terms);
        let times = budget.map_or(lateness, |budget| budget.safety().max(1.0));
        let late_minutes_a_week =
            lateness * leader.late() * 7.0 * 86_400.0 / terms.late_minute(usual).max(1e-9);
        let hours_a_day = |replicas: f64| (replicas * 24.0).max(0.0);
        let saves = |what_if: &Option<WhatIf>| {
            let least = what_if.as_ref()?.least_cost(times)?;
            Some(hours_a_day(leader.mean_cost(times) - least))
        };
        let halved = bank.cheapest(leader.late() / 2.0).filter(|_| late_minutes_a_week >= 1.0);
        Some(Frontier {
            replicas: leader.replicas(),
            late_minutes_a_week,
            halving_replica_hours_a_day: halved.map(|replicas| hours_a_day(replicas - leader.replicas())),
            more_queue_saves_replica_hours_a_day: saves(&self.more_queue),
            short_start_saves_replica_hours_a_day: saves(&self.short_start),
        })
    }

    /// Reads what was written; None where it can't be calculated with.
    #[must_use]
    pub fn restored(mut self) -> Option<Self> {
        let what_ifs = [&self.more_queue, &self.short_start];
        let sane = self.predictor.is_sane()
            && self.days.is_sane()
            && self.bank.as_ref().is_none_or(Bank::is_sane)
            && self.budget.as_ref().is_none_or(Budget::is_sane)
            && what_ifs.into_iter().flatten().all(WhatIf::is_sane);
        if !sane {
            return None;
        }
        self.predictor.rebuild();
        [&mut self.more_queue, &mut self.short_start].into_iter().flatten().for_each(WhatIf::rebuild);
        Some(self)
    }
}

#[cfg(test)]
mod tests;
