//! The same world under the policy that most teams begin with: an HPA on mean KV cache usage. Pure, in virtual time.
//!
//! KEDA's Prometheus trigger with `sum(vllm:kv_cache_usage_perc)` and a target of 0.80 as `AverageValue`, everything else
//! at its defaults; Prometheus scrapes every 15 s, the HPA syncs every 15 s.

use std::time::Duration;

use super::autoscaler::{Autoscaler, AutoscalerSettings, Metric};
use super::moment::Moment;
use super::world::{Adjustment, Outcome, World, WorldSettings};

/// Prometheus' usual scrape interval in Kubernetes set-ups.
const SCRAPE_INTERVAL: Duration = Duration::from_secs(15);
/// The HPA's syncs are not in step with the scrapes: the data are this old on average.
const SCRAPE_AGE: Duration = Duration::from_secs(7);
/// `threshold` of the trigger, thousandths.
const TARGET_MILLI: i64 = 800;

/// Runs the world until `until` with the same adjustments at the same instants.
#[must_use]
pub fn plain_kv_target(
    settings: WorldSettings,
    adjustments: &[(Moment, Adjustment)],
    max: u32,
    until: Moment,
) -> Outcome {
    let mut world = World::new(settings);
    // KV usage of nothing is nothing: this policy can't wake a tier from zero, so it never lets it go there.
    let mut autoscaler = Autoscaler::new(AutoscalerSettings::defaults(1, max), Moment::START);
    let mut ahead = adjustments;
    let mut scrape_at = Moment::START;
    while world.now() < until {
        run(&mut world, scrape_at.min(until), &mut ahead);
        let status = world.status();
        let sum = status.kv_usage * f64::from(status.supply.ready);
        run(&mut world, scrape_at.plus(SCRAPE_AGE).min(until), &mut ahead);
        let metric = Metric { value_milli: (sum * 1000.0).round() as i64, target_milli: TARGET_MILLI };
        let (spec, created) = (world.cluster().spec(), world.cluster().status());
        if let Some(replicas) = autoscaler.hpa_sync(world.now(), spec, created, Some(metric)) {
            world.scale(replicas);
        }
        scrape_at = scrape_at.plus(SCRAPE_INTERVAL);
    }
    world.outcome()
}

/// Advances to an instant, with the adjustments on the way at their own instants: later ones are left in `ahead`.
fn run(world: &mut World, until: Moment, ahead: &mut &[(Moment, Adjustment)]) {
    while let Some(((at, adjustment), rest)) = ahead.split_first().filter(|((at, _), _)| *at <= until) {
        world.advance(*at);
        world.adjust(*adjustment);
        *ahead = rest;
    }
    world.advance(until);
}
