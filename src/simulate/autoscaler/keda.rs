//! KEDA's executor for one ScaledObject: the way between zero and one. Pure.
//!
//! Source: KEDA 2.21, `pkg/scaling/executor/scale_scaledobjects.go`.

use std::time::Duration;

use crate::simulate::moment::Moment;

/// What KEDA knows of a trigger after asking it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activity {
    /// `IsActive` said true, or a push did.
    Active,
    /// `IsActive` said false. A pushed false is not this: KEDA ignores it.
    Inactive,
    /// An error: nothing happens.
    Unknown,
}

/// The part of a ScaledObject that concerns zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KedaSettings {
    /// `minReplicaCount`.
    pub min: u32,
    /// `cooldownPeriod`.
    pub cooldown: Duration,
    /// `initialCooldownPeriod`.
    pub initial_cooldown: Duration,
}

/// The state of one ScaledObject.
#[derive(Clone, Debug)]
pub struct Keda {
    settings: KedaSettings,
    created: Moment,
    last_active: Option<Moment>,
}

impl Keda {
    /// A ScaledObject created at `now`.
    #[must_use]
    pub fn new(settings: KedaSettings, now: Moment) -> Self {
        Self { settings, created: now, last_active: None }
    }

    /// Edits it.
    pub fn set_settings(&mut self, settings: KedaSettings) {
        self.settings = settings;
    }

    /// Takes note of an activity. The new `spec.replicas`, if it changes.
    pub fn observe(&mut self, now: Moment, spec: u32, activity: Activity) -> Option<u32> {
        match activity {
            Activity::Unknown => None,
            Activity::Active => {
                self.last_active = Some(now);
                (spec == 0).then_some(self.settings.min.max(1))
            }
            Activity::Inactive if self.settings.min == 0 => (spec > 0 && self.cooled_down(now)).then_some(0),
            Activity::Inactive => (spec < self.settings.min).then_some(self.settings.min),
        }
    }

    /// One write to zero, from any count, past the HPA.
    fn cooled_down(&self, now: Moment) -> bool {
        match self.last_active {
            Some(active) => now > active.plus(self.settings.cooldown),
            None => now > self.created.plus(self.settings.initial_cooldown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keda(min: u32) -> Keda {
        let settings =
            KedaSettings { min, cooldown: Duration::from_secs(300), initial_cooldown: Duration::ZERO };
        Keda::new(settings, Moment::START)
    }

    #[test]
    fn activity_wakes_from_zero_to_the_minimum_or_one() {
        let at = Moment::from_seconds;
        assert_eq!(keda(0).observe(at(1.0), 0, Activity::Active), Some(1));
        assert_eq!(keda(3).observe(at(1.0), 0, Activity::Active), Some(3));
        assert_eq!(keda(0).observe(at(1.0), 4, Activity::Active), None);
    }

    #[test]
    fn zero_comes_only_after_the_cooldown_and_from_any_count() {
        let at = Moment::from_seconds;
        let mut keda = keda(0);
        assert_eq!(keda.observe(at(10.0), 7, Activity::Active), None);
        assert_eq!(keda.observe(at(40.0), 7, Activity::Inactive), None);
        assert_eq!(keda.observe(at(310.0), 7, Activity::Inactive), None);
        assert_eq!(keda.observe(at(311.0), 7, Activity::Inactive), Some(0));
    }

    #[test]
    fn a_new_scaled_object_that_is_inactive_goes_to_zero_on_the_first_poll() {
        assert_eq!(keda(0).observe(Moment::from_seconds(1.0), 2, Activity::Inactive), Some(0));
    }

    #[test]
    fn an_error_changes_nothing() {
        let at = Moment::from_seconds;
        let mut keda = keda(0);
        keda.observe(at(10.0), 7, Activity::Active);
        assert_eq!(keda.observe(at(9_999.0), 7, Activity::Unknown), None);
        assert_eq!(keda.observe(at(9_999.0), 0, Activity::Unknown), None);
    }

    #[test]
    fn above_zero_a_minimum_is_kept() {
        assert_eq!(keda(2).observe(Moment::from_seconds(1.0), 5, Activity::Inactive), None);
        assert_eq!(keda(2).observe(Moment::from_seconds(1.0), 1, Activity::Inactive), Some(2));
    }
}
