//! What a virtual fleet cost: replica-seconds that were paid, and the price of its late minutes. What is long ago counts
//! less.

use serde::{Deserialize, Serialize};

use super::{BIN_SECONDS, BINS_A_DAY};

/// Bins after which a cost counts half: three and a half days.
const HALF_LIFE: f64 = 3.5 * BINS_A_DAY as f64;

/// The account of one fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Account {
    /// Seconds that it is over, decayed as the rest is.
    seconds: f64,
    /// Replica-seconds.
    paid: f64,
    /// The price of its late minutes, in replica-seconds.
    late: f64,
}

impl Account {
    /// One bin more, with what it came to.
    pub(super) fn add(&mut self, paid: f64, late: f64) {
        let decay = 0.5_f64.powf(1.0 / HALF_LIFE);
        self.seconds = self.seconds * decay + BIN_SECONDS;
        self.paid = self.paid * decay + paid;
        self.late = self.late * decay + late;
    }

    /// See `Loads::rescale`.
    pub(super) fn rescale(&mut self, times: f64) {
        self.paid *= times;
        self.late *= times;
    }

    /// All of it together, replica-seconds, with late minutes at so many times their price.
    pub(super) fn cost(&self, times: f64) -> f64 {
        self.paid + times * self.late
    }

    /// The same in replicas, the mean, with late minutes at so many times their price.
    pub(super) fn mean_cost(&self, times: f64) -> f64 {
        self.replicas() + times * self.late()
    }

    /// So many replica-seconds, spread over the time that counts, in replicas.
    pub(super) fn mean(&self, replica_seconds: f64) -> f64 {
        replica_seconds / self.seconds.max(1.0)
    }

    /// Replicas that were paid for, the mean.
    pub(super) fn replicas(&self) -> f64 {
        self.paid / self.seconds.max(1.0)
    }

    /// The price of its late minutes, in replicas, the mean.
    pub(super) fn late(&self) -> f64 {
        self.late / self.seconds.max(1.0)
    }

    pub(super) fn is_sane(&self) -> bool {
        [self.seconds, self.paid, self.late].iter().all(|number| number.is_finite() && *number >= 0.0)
    }
}
