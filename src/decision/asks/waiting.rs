//! The backlog.

use super::{Asked, Reading, Scene};

/// Scrapes in a row with requests waiting before the signal counts as saturated: one or two are a burst.
const SATURATED_SCRAPES: u32 = 3;

/// `token ask + waiting requests x mean cost / drain time`
///
/// The backlog is counted in replica-seconds of work, not in requests: ten long prompts aren't ten short ones. What it
/// takes to drain it comes on top of what the arrivals take meanwhile, which is the token ask.
///
/// Of the backlog only that part counts upward which a replica ordered now would still find (see
/// [`Coming`](super::super::coming::Coming)).
///
/// Where nothing serves, the activator's queue is the whole backlog and nothing arrives at a replica.
pub(super) fn ask(scene: &Scene<'_>, tokens: Option<&Asked>) -> Reading {
    let Scene { policy, load, capacity, shape, memory, .. } = scene;
    let serving = load.ready + load.unknown;
    if load.waiting.told == 0 && (serving > 0 || load.queued_at_activator.is_none()) {
        return Reading::Missing(if load.ready == 0 {
            "no replica serves".to_owned()
        } else {
            "no replica tells its waiting requests".to_owned()
        });
    }
    let (arrivals_low, arrivals_high) = match tokens {
        Some(tokens) => (tokens.low, tokens.high),
        None if serving == 0 => (0.0, 0.0),
        None if load.waiting.high == 0.0 => {
            return Reading::Silent("nothing waits, and there is no token ask to come on top of".to_owned());
        }
        // Requests wait although replicas serve: those are busy, even where nobody tells how many tokens they make.
        None => (f64::from(if load.waiting.low > 0.0 { load.ready } else { 0 }), f64::from(serving)),
    };
    let drain = policy.signals.waiting.drain.as_secs_f64().max(1e-3);
    let cost = shape.cost(capacity.rates);
    let (low, high) = (scene.backlog() * cost / drain, load.waiting.high * cost / drain);
    let because = if load.waiting.low > 0.0 {
        let queued = load.queued_at_activator.unwrap_or(0.0);
        let of_them = if queued > 0.0 { format!(" ({queued:.0} at the activator)") } else { String::new() };
        format!(
            "{:.0} requests wait{of_them}{}: {:.1} replica-seconds of work / {drain:.0} s = {low:.2}, on top of \
             {arrivals_low:.2}",
            load.waiting.low,
            scene.under_way(),
            scene.backlog() * cost
        )
    } else {
        format!("nothing waits: {arrivals_low:.2} as for tokens")
    };
    Reading::Asks(Asked {
        low: arrivals_low + low,
        high: arrivals_high + high,
        saturated: memory.waiting_scrapes >= SATURATED_SCRAPES && load.waiting.low > 0.0,
        because,
    })
}
