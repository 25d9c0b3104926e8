//! Offered token work.

use super::{Asked, Reading, Scene, replicas};
use crate::decision::shape::sane;

/// `(served + growth of the backlog + refused) / target`, all in replica-seconds a second: each token costs 1 / the rate
/// of its kind.
///
/// A saturated tier serves its capacity, whatever is asked of it. What it doesn't serve shows as a growing backlog or as
/// refusals, so these are counted in, at the mean cost of a request. A backlog that shrinks is not counted out: clients
/// that give up shrink it too, and are still demand. Only while what was ordered lately works it off, the upward view takes
/// it out: a fleet that is full with a backlog serves more than arrives. So, too, the first seconds of a replica that was
/// ordered are no work on top of what the others had in their window.
pub(super) fn ask(scene: &Scene<'_>) -> Reading {
    let Scene { load, capacity, shape, observation, coming, .. } = scene;
    if load.work.told == 0 {
        return Reading::Missing(if load.ready == 0 {
            "no replica serves".to_owned()
        } else {
            "no token rates (they need two pages of a process)".to_owned()
        });
    }
    let target = scene.token_target;
    let cost = shape.cost(capacity.rates);
    // A negative growth is no sane number either.
    let growth = sane(observation.load.waiting_growth_per_second).unwrap_or(0.0);
    // Replicas that take work over count over the same span as what the others had.
    let served = load.work.low - load.work_handed_over;
    let drains = (coming.shrinks(observation.load.waiting_growth_per_second) * cost).min(served);
    let less =
        |work: f64, what: &str| if work > 0.0 { format!(" - {work:.2} {what}") } else { String::new() };
    let part = |work: f64, of: &str| if work > 0.0 { format!(" + {work:.2} {of}") } else { String::new() };
    Reading::Asks(Asked {
        low: (served - drains + (growth + load.refused.low) * cost) / target,
        high: (load.work.high + (growth + load.refused.high) * cost) / target,
        saturated: false,
        because: format!(
            "{} running: {:.2} replica-seconds of tokens a second ({:.0} in, {:.0} out){}{}{}{}, / {target:.2}",
            replicas(load.work.told),
            load.work.low,
            load.input_tokens,
            load.output_tokens,
            less(load.work_handed_over, "taken over from others within the window"),
            less(drains, "of the backlog"),
            part(growth * cost, "backlog growth"),
            part(load.refused.low * cost, "refused"),
        ),
    })
}
