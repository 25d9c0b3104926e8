//! Offered token work.

use super::{Asked, Reading, Scene, replicas};

/// Refused requests count as demand only up to so many times the served ones. Clients that come back at once multiply
/// refusals: in the AWS back-off simulator a hundred contending clients make 3 times the calls without jitter that they
/// make with it.
const MOST_REFUSED_PER_SERVED: f64 = 3.0;

/// `(served + growth of the backlog + refused) / target`, all in replica-seconds a second: each token costs 1 / the rate
/// of its kind.
///
/// A saturated tier serves its capacity, whatever is asked of it. What it doesn't serve shows as a growing backlog or as
/// refusals, so these are counted in, at the mean cost of a request. A backlog that shrinks is not counted out: clients
/// that give up shrink it too, and are still demand.
pub(super) fn ask(scene: &Scene<'_>) -> Reading {
    let Scene { policy, load, capacity, shape, observation, .. } = scene;
    if load.work.told == 0 {
        return Reading::Missing(if load.ready == 0 {
            "no replica serves".to_owned()
        } else {
            "no token rates (they need two pages of a process)".to_owned()
        });
    }
    let target = policy.signals.tokens.target;
    let cost = shape.cost(capacity.rates);
    let growth = observation.load.waiting_growth_per_second.filter(|g| g.is_finite() && *g > 0.0).unwrap_or(0.0);
    let refused = load.finished.map_or(load.rejected, |finished| {
        load.rejected.min(finished * MOST_REFUSED_PER_SERVED)
    });
    let unserved = (growth + refused) * cost;
    let mut because = format!(
        "{} running: {:.2} replica-seconds of tokens a second ({:.0} in, {:.0} out)",
        replicas(load.work.told),
        load.work.low,
        load.input_tokens,
        load.output_tokens
    );
    if growth > 0.0 {
        because.push_str(&format!(" + {:.2} backlog growth", growth * cost));
    }
    if refused > 0.0 {
        because.push_str(&format!(" + {:.2} refused", refused * cost));
    }
    because.push_str(&format!(", / {target:.2}"));
    Reading::Asks(Asked {
        low: (load.work.low + unserved) / target,
        high: (load.work.high + unserved) / target,
        saturated: false,
        because,
    })
}
