//! How a rival comes into a backtest of fluid replicas: what it is told, where it begins, where it stands. Pure.

use super::Backtest;
use super::rival::Rival;
use super::rivals::{self, EngineFacts, Entry, Facts};

impl Backtest {
    /// A rival, the bounds that it keeps to, and the fleet that it begins with.
    pub(super) fn rival(&self, entry: &Entry) -> (Box<dyn Rival + Send>, (u32, u32), u32) {
        let ((min, max), initial) = (self.bounds(), self.terms.initial);
        match entry.played() {
            rivals::Played::Rule(rule) => (rule(&self.facts()), (min, max), initial),
            rivals::Played::Oracle => {
                let schedule = rivals::foresee(&self.work, &self.terms, max);
                let first = schedule.first().copied().unwrap_or(initial);
                (Box::new(rivals::Oracle::new(schedule)), (min, max), first.clamp(min, max))
            }
            // The sweep is played as so many fixed targets; what they are measured against is constant.
            rivals::Played::StaticPeak | rivals::Played::BestFixed => {
                let replicas = self.constant;
                (Box::new(rivals::Constant { replicas }), (replicas, replicas), replicas)
            }
        }
    }

    fn facts(&self) -> Facts {
        let work = &self.work;
        let requests: f64 = work.slots().iter().map(|slot| slot.requests).sum();
        Facts {
            rates: self.settings.rates,
            requests_per_second: requests / (work.total() as f64 * work.unit_seconds()),
            // No rule that a fluid can be played by goes by its engine.
            engine: EngineFacts::default(),
            peak_replicas: (work.peak - 1e-9).ceil() as u32,
            max: self.bounds().1,
            begins: self.settings.begins,
        }
    }
}

/// Where a rival stands in the report, after the policies under test.
pub(super) fn place(name: &str) -> usize {
    rivals::names().take_while(|other| *other != name).count()
}
