//! AIBrix's PodAutoscaler on KV cache usage: APA and KPA. Pure.
//!
//! Source: vllm-project/aibrix, `pkg/controller/podautoscaler/algorithm/apa.go` and `kpa.go`, `metrics/client.go`,
//! `context/context.go`, `podautoscaler_controller.go`. Defaults: a tick of 10 s, windows of 180 s and 60 s, rates 2 and 2,
//! tolerances of 10 %, panic from twice the stable mean on; target 0.5 of `gpu_cache_usage_perc` as in its samples. It
//! scrapes the pods itself, and writes replica counts.
//!
//! As published: a pod that can't be scraped counts as 0, so those that start drag the mean down; a pod that starts is not
//! credited, so a full fleet doubles again and again; and while it goes down it takes the least of the recommendations of
//! the last five minutes, where an HPA takes the most. That last one is mended in `aibrix-apa-mended`.

use std::time::Duration;

use super::window::{Every, Window};
use crate::backtest::rival::{Rival, Seen, Wish};
use crate::simulate::Moment;
use crate::simulate::autoscaler::AutoscalerSettings;

/// How often it reconciles.
const TICK: Duration = Duration::from_secs(10);
/// Window of the mean.
const STABLE: Duration = Duration::from_secs(180);
/// Window of the panic mean.
const PANIC: Duration = Duration::from_secs(60);
/// Window in which a smaller count is stabilised.
const DOWN_WINDOW: Duration = Duration::from_secs(300);
/// Largest factor of a step, up and down.
const RATE: f64 = 2.0;
/// Nothing happens this near to the target.
const TOLERANCE: f64 = 0.1;
/// Panic when the short mean is so many times the long one.
const PANIC_THRESHOLD: f64 = 2.0;
/// Target of the mean KV usage.
const TARGET: f64 = 0.5;

/// Which recommendation of the last five minutes counts on the way down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Downward {
    /// The least: what is published.
    Least,
    /// The most: what an HPA does.
    Most,
}

/// Either of the two.
pub(super) struct Aibrix {
    rule: Rule,
    ticks: Every,
    stable: Window,
    panic: Window,
    recommended: Window,
    downward: Downward,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Apa,
    Kpa,
}

impl Aibrix {
    /// Counts times usage over target.
    pub(super) fn apa() -> Self {
        Self::new(Rule::Apa)
    }

    /// APA as it would be with an HPA's way down.
    pub(super) fn apa_mended() -> Self {
        Self { downward: Downward::Most, ..Self::apa() }
    }

    /// Usage of one pod over target, whatever the count: more than two are never asked for but by its bounds of a step.
    pub(super) fn kpa() -> Self {
        Self::new(Rule::Kpa)
    }

    fn new(rule: Rule) -> Self {
        Self {
            rule,
            ticks: Every::new(TICK),
            stable: Window::new(STABLE),
            panic: Window::new(PANIC),
            recommended: Window::new(DOWN_WINDOW),
            downward: Downward::Least,
        }
    }

    fn recommendation(&self, current: f64) -> f64 {
        let stable = self.stable.mean().unwrap_or(0.0);
        match self.rule {
            Rule::Apa => apa(current, stable / TARGET),
            Rule::Kpa => {
                let panic = self.panic.mean().unwrap_or(0.0);
                let calm = kpa(current, stable / TARGET);
                let panics = stable <= 0.0 || panic / stable > PANIC_THRESHOLD;
                if panics { calm.max(kpa(current, panic / TARGET)) } else { calm }
            }
        }
    }

    fn stabilised(&mut self, now: Moment, current: f64, wanted: f64) -> f64 {
        self.recommended.push(now, wanted);
        if wanted >= current {
            return wanted;
        }
        let recent = match self.downward {
            Downward::Least => self.recommended.min(),
            Downward::Most => self.recommended.max(),
        };
        recent.unwrap_or(wanted).min(current)
    }
}

fn apa(current: f64, ratio: f64) -> f64 {
    let wanted = (current * ratio).ceil();
    if ratio > 1.0 + TOLERANCE {
        wanted.min((RATE * current).ceil())
    } else if ratio < 1.0 - TOLERANCE {
        wanted.max((current / RATE).floor())
    } else {
        current
    }
}

fn kpa(current: f64, ratio: f64) -> f64 {
    let is_within = (1.0 - TOLERANCE..=1.0 + TOLERANCE).contains(&ratio);
    let wanted = if is_within { current } else { ratio.ceil() };
    wanted.clamp((current / RATE).floor(), (RATE * current).ceil().max(1.0))
}

impl Rival for Aibrix {
    fn metric_age(&self) -> Duration {
        Duration::ZERO
    }

    fn chain(&self, _: u32, _: u32) -> Option<AutoscalerSettings> {
        None
    }

    fn wish(&mut self, now: Moment, seen: &Seen) -> Wish {
        let Some(usage) = seen.kv_usage() else { return Wish::Keep };
        if !self.ticks.is_due(now) {
            return Wish::Keep;
        }
        // Those that start are scraped in vain, and count as 0.
        let mean = usage / f64::from(seen.status.max(1));
        self.stable.push(now, mean);
        self.panic.push(now, mean);
        let current = f64::from(seen.spec);
        let wanted = self.recommendation(current);
        Wish::Replicas(self.stabilised(now, current, wanted) as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, kv, play, uniform};
    use super::*;

    #[test]
    fn apa_multiplies_the_count_and_at_most_doubles_it() {
        assert_eq!(
            [1.5, 3.0, 1.05, 0.95, 0.7, 0.1].map(|ratio| apa(10.0, ratio)),
            [15.0, 20.0, 10.0, 10.0, 7.0, 5.0]
        );
    }

    #[test]
    fn apa_doubles_a_full_fleet_again_while_the_first_doubling_starts() {
        // Two serve, full; the rest never gets ready.
        let specs = play(Box::new(Aibrix::apa()), (2, 64), 20, |at, spec| {
            let mut seen = uniform(at, spec, kv(1.0, 50.0));
            seen.ready.truncate(2);
            seen
        });
        assert_eq!(changes(&specs)[..3], [(5, 4), (10, 6), (20, 8)], "two were full, and eight are ordered");
    }

    #[test]
    fn apa_goes_down_to_the_least_of_five_minutes_where_an_hpa_keeps_the_most() {
        // A dip of two minutes in a fleet at its target.
        let dip = |rival: Aibrix| {
            let specs = play(Box::new(rival), (10, 20), 72, |at, spec| {
                let usage = if (120.0..240.0).contains(&at) { 0.2 } else { 0.5 };
                uniform(at, spec, kv(usage, 0.0))
            });
            specs.into_iter().min()
        };
        assert!(dip(Aibrix::apa()) < Some(8), "{:?}", dip(Aibrix::apa()));
        assert_eq!(dip(Aibrix::apa_mended()), Some(10));
    }

    #[test]
    fn kpa_asks_for_two_pods_whatever_the_fleet_is() {
        assert_eq!(kpa(10.0, 2.0), 5.0, "2 pods, bounded by half of what there is");
        assert_eq!(kpa(2.0, 1.9), 2.0);
        assert_eq!(kpa(1.0, 1.9), 2.0);
        let specs = play(Box::new(Aibrix::kpa()), (16, 20), 24, |at, spec| uniform(at, spec, kv(1.0, 50.0)));
        assert_eq!(changes(&specs), [(5, 8), (10, 4), (20, 2)], "a full fleet is halved");
    }

    #[test]
    fn without_kv_usage_nothing_is_wished() {
        let nothing = uniform(0.0, 3, crate::backtest::rival::SeenReplica::default());
        assert_eq!(Aibrix::apa().wish(Moment::START, &nothing), Wish::Keep);
    }
}
