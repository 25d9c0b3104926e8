//! What other terms would cost: the same load, forecast and served as if more might queue, or replicas started sooner.

use serde::{Deserialize, Serialize};

use super::arrivals::Bin;
use super::bank::Bank;
use super::days::Loads;
use super::predict::Predictor;
use super::{BINS_A_DAY, Terms};

/// Seconds by which more might queue.
pub(super) const MORE_QUEUE_SECONDS: f64 = 30.0;

/// A cold start that images on the nodes, a compile cache and weights close by make possible, seconds.
pub(super) const SHORT_START_SECONDS: f64 = 60.0;

/// A forecast under other terms, with the fleets of all rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WhatIf {
    predictor: Predictor,
    bank: Bank,
    /// Bins that were seen.
    #[serde(default)]
    seen: u64,
}

impl WhatIf {
    /// Begins with so many replicas.
    pub(super) fn new(replicas: u32, slot: i64) -> Self {
        Self { predictor: Predictor::new(), bank: Bank::new(replicas, slot), seen: 0 }
    }

    /// Takes a bin in, as the forecast itself does. `usual` is the forecast's own, so that late minutes have one price.
    pub(super) fn take(&mut self, bin: &Bin, usual: f64, days: &Loads, terms: &Terms) {
        if bin.seen {
            self.seen += 1;
            self.bank.serve(bin, None, usual, terms);
        }
        self.predictor.push(bin.number, bin.seen.then(|| bin.load()), days, terms);
        self.bank.order(bin.number, &self.predictor, terms);
    }

    /// What the cheapest rule cost under these terms, in replicas, with late minutes at so many times their price; None
    /// until a day was watched.
    pub(super) fn least_cost(&self, times: f64) -> Option<f64> {
        if self.seen + 1 < BINS_A_DAY as u64 {
            return None;
        }
        self.bank.least_cost(times)
    }

    /// See `Loads::rescale`.
    pub(super) fn rescale(&mut self, times: f64) {
        self.predictor.rescale(times);
        self.bank.rescale(times);
    }

    pub(super) fn rebuild(&mut self) {
        self.predictor.rebuild();
    }

    pub(super) fn is_sane(&self) -> bool {
        self.predictor.is_sane() && self.bank.is_sane()
    }
}
