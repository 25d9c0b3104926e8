//! Who asked about a tier, and when: a ScaledObject that can't reach the scaler is seen by its silence alone.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize, Serializer};

use crate::units::shortened;

/// ScaledObjects that are kept per tier. One asks; two are a mistake that shows; more are somebody who makes names up.
const MAX_ASKERS: usize = 8;

/// Characters kept of a ScaledObject's name: Kubernetes' own bound for names of objects.
const MAX_NAME: usize = 253;

/// A call of KEDA's service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rpc {
    /// Asked by KEDA's poll, and with each `GetMetrics`.
    IsActive,
    /// Asked when the HPA syncs, and by KEDA's poll.
    GetMetrics,
    /// Asked before each `GetMetrics`.
    GetMetricSpec,
    /// Held open; counts as asked for as long as it is open.
    StreamIsActive,
    /// Held open; counts as asked when it is opened.
    StreamMetricSpec,
}

impl Rpc {
    /// All, in the order in which they are shown.
    pub const ALL: [Self; 5] =
        [Self::GetMetrics, Self::IsActive, Self::StreamIsActive, Self::GetMetricSpec, Self::StreamMetricSpec];

    /// Its name in KEDA's proto.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::IsActive => "IsActive",
            Self::GetMetrics => "GetMetrics",
            Self::GetMetricSpec => "GetMetricSpec",
            Self::StreamIsActive => "StreamIsActive",
            Self::StreamMetricSpec => "StreamMetricSpec",
        }
    }
}

/// When one ScaledObject last asked about a tier, call by call; None where it never did since the process began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AskedBy {
    /// Its name; its namespace is the tier's.
    pub scaled_object: String,
    /// Last `GetMetrics`.
    pub get_metrics: Option<DateTime<Utc>>,
    /// Last `IsActive`.
    pub is_active: Option<DateTime<Utc>>,
    /// When its `StreamIsActive` was last seen open.
    pub stream_is_active: Option<DateTime<Utc>>,
    /// Last `GetMetricSpec`.
    pub get_metric_spec: Option<DateTime<Utc>>,
    /// When it last opened `StreamMetricSpec`.
    pub stream_metric_spec: Option<DateTime<Utc>>,
}

impl AskedBy {
    /// When this call was last made.
    #[must_use]
    pub fn last(&self, rpc: Rpc) -> Option<DateTime<Utc>> {
        match rpc {
            Rpc::IsActive => self.is_active,
            Rpc::GetMetrics => self.get_metrics,
            Rpc::GetMetricSpec => self.get_metric_spec,
            Rpc::StreamIsActive => self.stream_is_active,
            Rpc::StreamMetricSpec => self.stream_metric_spec,
        }
    }

    /// When any call was last made.
    #[must_use]
    pub fn newest(&self) -> Option<DateTime<Utc>> {
        Rpc::ALL.iter().filter_map(|rpc| self.last(*rpc)).max()
    }

    fn note(&mut self, rpc: Rpc, now: DateTime<Utc>) {
        let last = match rpc {
            Rpc::IsActive => &mut self.is_active,
            Rpc::GetMetrics => &mut self.get_metrics,
            Rpc::GetMetricSpec => &mut self.get_metric_spec,
            Rpc::StreamIsActive => &mut self.stream_is_active,
            Rpc::StreamMetricSpec => &mut self.stream_metric_spec,
        };
        *last = Some(now);
    }
}

/// Who asked about one tier. Clones are the same record: the servers note in it, everybody else reads it.
#[derive(Clone, Debug, Default)]
pub struct Asked(Arc<Mutex<Vec<AskedBy>>>);

impl Asked {
    /// Notes a call. Never waits: where another call is noting at this instant, this one is as good as that.
    pub fn note(&self, rpc: Rpc, scaled_object: &str, now: DateTime<Utc>) {
        let mut askers = match self.0.try_lock() {
            Ok(askers) => askers,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return,
        };
        let scaled_object = shortened(scaled_object, MAX_NAME);
        if let Some(asker) = askers.iter_mut().find(|asker| asker.scaled_object == scaled_object) {
            return asker.note(rpc, now);
        }
        if askers.len() >= MAX_ASKERS {
            let oldest = (0..askers.len()).min_by_key(|at| askers[*at].newest());
            askers.swap_remove(oldest.unwrap_or(0));
        }
        let mut asker = AskedBy { scaled_object, ..AskedBy::default() };
        asker.note(rpc, now);
        askers.push(asker);
    }

    /// Nobody has asked since the process began.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// Those who asked, by name.
    #[must_use]
    pub fn list(&self) -> Vec<AskedBy> {
        let mut askers = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        askers.sort_by(|a, b| a.scaled_object.cmp(&b.scaled_object));
        askers
    }

    /// When anybody last made this call.
    #[must_use]
    pub fn last(&self, rpc: Rpc) -> Option<DateTime<Utc>> {
        let askers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        askers.iter().filter_map(|asker| asker.last(rpc)).max()
    }
}

impl Serialize for Asked {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.list().serialize(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(second, 0).unwrap()
    }

    #[test]
    fn each_call_of_each_scaled_object_keeps_its_last_time() {
        let asked = Asked::default();
        assert!(asked.is_empty());
        asked.note(Rpc::GetMetrics, "chat", at(1));
        asked.note(Rpc::IsActive, "chat", at(2));
        asked.note(Rpc::GetMetrics, "beside", at(3));
        asked.clone().note(Rpc::GetMetrics, "chat", at(16));
        let list = asked.list();
        let names: Vec<&str> = list.iter().map(|asker| asker.scaled_object.as_str()).collect();
        assert_eq!(names, ["beside", "chat"]);
        assert_eq!((list[1].get_metrics, list[1].is_active), (Some(at(16)), Some(at(2))));
        assert_eq!(list[1].get_metric_spec, None, "never asked is not zero");
        assert_eq!(asked.last(Rpc::GetMetrics), Some(at(16)));
        assert_eq!(asked.last(Rpc::StreamIsActive), None);
    }

    #[test]
    fn names_that_somebody_makes_up_push_out_the_oldest_and_no_more() {
        let asked = Asked::default();
        for second in 0..1_000 {
            asked.note(Rpc::IsActive, &"x".repeat(1_000), at(second));
            asked.note(Rpc::IsActive, &format!("made-up-{second}"), at(second));
        }
        assert_eq!(asked.list().len(), MAX_ASKERS);
        assert!(asked.list().iter().all(|asker| asker.scaled_object.chars().count() <= MAX_NAME));
        assert_eq!(asked.last(Rpc::IsActive), Some(at(999)));
    }
}
