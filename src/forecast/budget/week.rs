//! Work and late work of the last week, hour by hour.

use serde::{Deserialize, Serialize};

use crate::forecast::packed;

/// Hours that are accounted for: a week.
const HOURS: usize = 168;

/// The week.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Week {
    /// The hour that is being filled, counted from the epoch.
    hour: Option<i64>,
    #[serde(with = "packed")]
    work: Vec<f32>,
    #[serde(with = "packed")]
    late_work: Vec<f32>,
    #[serde(with = "packed")]
    late_minutes: Vec<f32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Sums {
    pub(super) work: f64,
    pub(super) late_work: f64,
    pub(super) late_minutes: f64,
}

impl Week {
    pub(super) fn new() -> Self {
        let nothing = || vec![0.0; HOURS];
        Self { hour: None, work: nothing(), late_work: nothing(), late_minutes: nothing() }
    }

    pub(super) fn add(&mut self, hour: i64, work: f64, late_work: f64, late_minutes: f64) {
        let last = self.hour.unwrap_or(hour);
        for empty in last.max(hour - HOURS as i64)..hour {
            let at = place(empty + 1);
            (self.work[at], self.late_work[at], self.late_minutes[at]) = (0.0, 0.0, 0.0);
        }
        self.hour = Some(hour.max(last));
        let at = place(hour);
        self.work[at] += work as f32;
        self.late_work[at] += late_work as f32;
        self.late_minutes[at] += late_minutes as f32;
    }

    /// See `Loads::rescale`.
    pub(super) fn rescale(&mut self, times: f64) {
        for list in [&mut self.work, &mut self.late_work] {
            for work in list {
                *work = (f64::from(*work) * times) as f32;
            }
        }
    }

    pub(super) fn sums(&self) -> Sums {
        let sum = |list: &[f32]| list.iter().copied().map(f64::from).sum();
        Sums { work: sum(&self.work), late_work: sum(&self.late_work), late_minutes: sum(&self.late_minutes) }
    }

    pub(super) fn is_sane(&self) -> bool {
        [&self.work, &self.late_work, &self.late_minutes]
            .into_iter()
            .all(|list| list.len() == HOURS && list.iter().all(|n| n.is_finite() && *n >= 0.0))
    }
}

fn place(hour: i64) -> usize {
    hour.rem_euclid(HOURS as i64) as usize
}
