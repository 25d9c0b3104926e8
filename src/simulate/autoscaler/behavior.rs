//! `spec.behavior` of the HPA: stabilisation windows and rate limits. Pure.
//!
//! Source: Kubernetes' `horizontal.go` (`stabilizeRecommendationWithBehaviors`,
//! `convertDesiredReplicasWithBehaviorRate`, `calculateScaleUpLimitWithScalingRules`); defaults from `autoscaling/v2`.

use std::collections::VecDeque;
use std::time::Duration;

use crate::simulate::moment::Moment;

/// Events and recommendations older than this are forgotten: the API allows no longer window or period (one hour for a
/// stabilisation window, half an hour for a policy).
const KEPT: Duration = Duration::from_secs(3600);

/// Rules for both directions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behavior {
    /// Upward.
    pub scale_up: Rules,
    /// Downward.
    pub scale_down: Rules,
}

/// Rules for one direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    /// `stabilizationWindowSeconds`; None downward is the controller's own window.
    pub stabilization: Option<Duration>,
    /// How fast.
    pub policies: Vec<Policy>,
    /// Which of the policies counts.
    pub select: Select,
}

/// A rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Of what.
    pub kind: PolicyKind,
    /// How many.
    pub value: u32,
    /// In how long.
    pub period: Duration,
}

/// What a policy's value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyKind {
    /// Replicas.
    Pods,
    /// Per cent of the replicas at the beginning of the period.
    Percent,
}

/// `selectPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The one that allows the largest change.
    Max,
    /// The one that allows the smallest.
    Min,
    /// None at all.
    Disabled,
}

impl Default for Behavior {
    /// What the API server fills in once `behavior` is set at all.
    fn default() -> Self {
        let period = Duration::from_secs(15);
        let percent = Policy { kind: PolicyKind::Percent, value: 100, period };
        Self {
            scale_up: Rules {
                stabilization: Some(Duration::ZERO),
                policies: vec![Policy { kind: PolicyKind::Pods, value: 4, period }, percent],
                select: Select::Max,
            },
            scale_down: Rules { stabilization: None, policies: vec![percent], select: Select::Max },
        }
    }
}

impl Behavior {
    /// Up to `max` replicas within one sync; downward the defaults.
    #[must_use]
    pub fn at_once_up(max: u32) -> Self {
        let mut behavior = Self::default();
        let period = Duration::from_secs(15);
        behavior.scale_up.policies = vec![Policy { kind: PolicyKind::Pods, value: max, period }];
        behavior
    }
}

/// What an HPA remembers.
#[derive(Clone, Debug, Default)]
pub(super) struct BehaviorState {
    /// Recommendations before stabilisation.
    pub(super) recommendations: VecDeque<(Moment, u32)>,
    ups: VecDeque<(Moment, u32)>,
    downs: VecDeque<(Moment, u32)>,
}

impl BehaviorState {
    pub(super) fn record_recommendation(&mut self, now: Moment, replicas: u32, kept: Duration) {
        self.recommendations.push_back((now, replicas));
        forget(&mut self.recommendations, now, kept.max(KEPT));
    }

    pub(super) fn record_change(&mut self, now: Moment, from: u32, to: u32) {
        let events = if to > from { &mut self.ups } else { &mut self.downs };
        events.push_back((now, to.abs_diff(from)));
        forget(events, now, KEPT);
    }

    /// Upward the least that was wanted over the window, downward the most; then the wish of now is recorded.
    pub(super) fn stabilized(
        &mut self,
        now: Moment,
        current: u32,
        wanted: u32,
        behavior: &Behavior,
        default_down: Duration,
    ) -> u32 {
        let up_window = behavior.scale_up.stabilization.unwrap_or(Duration::ZERO);
        let down_window = behavior.scale_down.stabilization.unwrap_or(default_down);
        let within = |window: Duration| {
            let recent = self.recommendations.iter();
            recent.filter(move |(at, _)| now.since(*at) < window).map(|(_, replicas)| *replicas)
        };
        let up = within(up_window).min().map_or(wanted, |least| least.min(wanted));
        let down = within(down_window).max().map_or(wanted, |most| most.max(wanted));
        self.record_recommendation(now, wanted, default_down);
        current.max(up).min(down)
    }

    /// What the policies allow of a change.
    pub(super) fn rate_limited(
        &self,
        now: Moment,
        current: u32,
        wanted: u32,
        behavior: &Behavior,
        min: u32,
        max: u32,
    ) -> u32 {
        if wanted > current {
            let limit = self.up_limit(now, current, &behavior.scale_up).max(current);
            return wanted.min(limit.min(max));
        }
        if wanted < current {
            let limit = self.down_limit(now, current, &behavior.scale_down).min(current);
            return wanted.max(limit.max(min));
        }
        wanted
    }

    fn up_limit(&self, now: Moment, current: u32, rules: &Rules) -> u32 {
        let limits = rules.policies.iter().map(|policy| {
            let start = self.at_period_start(now, current, policy.period);
            match policy.kind {
                PolicyKind::Pods => start.saturating_add(policy.value),
                PolicyKind::Percent => {
                    (f64::from(start) * (1.0 + f64::from(policy.value) / 100.0)).ceil() as u32
                }
            }
        });
        match rules.select {
            Select::Disabled => current,
            Select::Max => limits.max().unwrap_or(current),
            Select::Min => limits.min().unwrap_or(current),
        }
    }

    fn down_limit(&self, now: Moment, current: u32, rules: &Rules) -> u32 {
        let limits = rules.policies.iter().map(|policy| {
            let start = self.at_period_start(now, current, policy.period);
            match policy.kind {
                PolicyKind::Pods => start.saturating_sub(policy.value),
                PolicyKind::Percent => {
                    // Kubernetes truncates here.
                    (f64::from(start) * (1.0 - f64::from(policy.value) / 100.0)).max(0.0) as u32
                }
            }
        });
        match rules.select {
            Select::Disabled => current,
            Select::Max => limits.min().unwrap_or(current),
            Select::Min => limits.max().unwrap_or(current),
        }
    }

    /// The replicas at the beginning of the period that ends now.
    fn at_period_start(&self, now: Moment, current: u32, period: Duration) -> u32 {
        let changed = |events: &VecDeque<(Moment, u32)>| -> u32 {
            events.iter().filter(|(at, _)| now.since(*at) < period).map(|(_, change)| change).sum()
        };
        (current + changed(&self.downs)).saturating_sub(changed(&self.ups))
    }
}

/// The largest recommendation of the window, the wish of now included: stabilisation without a `behavior`.
pub(super) fn recorded_max(
    recommendations: &VecDeque<(Moment, u32)>,
    now: Moment,
    window: Duration,
    wanted: u32,
) -> u32 {
    let recent = recommendations.iter().filter(|(at, _)| now.since(*at) <= window);
    recent.map(|(_, replicas)| *replicas).fold(wanted, u32::max)
}

fn forget(events: &mut VecDeque<(Moment, u32)>, now: Moment, kept: Duration) {
    while events.front().is_some_and(|(at, _)| now.since(*at) > kept) {
        events.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn moment(seconds: u64) -> Moment {
        Moment::from_duration(at(seconds))
    }

    #[test]
    fn a_policy_counts_the_changes_of_its_period() {
        let mut behavior = Behavior::default();
        behavior.scale_up.policies = vec![Policy { kind: PolicyKind::Pods, value: 4, period: at(60) }];
        let mut state = BehaviorState::default();
        assert_eq!(state.rate_limited(moment(0), 10, 30, &behavior, 1, 100), 14);
        state.record_change(moment(0), 10, 14);
        assert_eq!(state.rate_limited(moment(15), 14, 30, &behavior, 1, 100), 14);
        assert_eq!(state.rate_limited(moment(60), 14, 30, &behavior, 1, 100), 18);
    }

    #[test]
    fn the_selected_policy_is_the_most_or_the_least_generous() {
        let mut behavior = Behavior::default();
        let state = BehaviorState::default();
        assert_eq!(state.rate_limited(moment(0), 10, 99, &behavior, 1, 100), 20);
        behavior.scale_up.select = Select::Min;
        assert_eq!(state.rate_limited(moment(0), 10, 99, &behavior, 1, 100), 14);
        behavior.scale_up.select = Select::Disabled;
        assert_eq!(state.rate_limited(moment(0), 10, 99, &behavior, 1, 100), 10);
        behavior.scale_down.policies = vec![
            Policy { kind: PolicyKind::Pods, value: 1, period: at(60) },
            Policy { kind: PolicyKind::Percent, value: 25, period: at(60) },
        ];
        assert_eq!(state.rate_limited(moment(0), 10, 1, &behavior, 1, 100), 7);
        behavior.scale_down.select = Select::Min;
        assert_eq!(state.rate_limited(moment(0), 10, 1, &behavior, 1, 100), 9);
    }

    #[test]
    fn an_up_window_takes_the_least_that_was_wanted() {
        let mut behavior = Behavior::default();
        behavior.scale_up.stabilization = Some(at(60));
        let mut state = BehaviorState::default();
        assert_eq!(state.stabilized(moment(0), 5, 5, &behavior, at(300)), 5);
        assert_eq!(state.stabilized(moment(15), 5, 9, &behavior, at(300)), 5);
        assert_eq!(state.stabilized(moment(45), 5, 8, &behavior, at(300)), 5);
        assert_eq!(state.stabilized(moment(60), 5, 9, &behavior, at(300)), 8);
    }
}
