//! KV cache.

use super::{Asked, Reading, Scene, replicas};

/// Usage from which on the signal can't tell more: vLLM preempts instead of filling the last blocks.
const SATURATED: f64 = 0.95;

/// `(sum over replicas of mean-over-ranks usage + waiting x mean context / KV tokens of a replica) / target`
///
/// The KV cache is a stock: what is in use now, plus what the requests that wait will take once they run. It ends at
/// 1.0, so it can't stand alone: a tier that is far too small shows the same 1.0 as one that is a little too small.
pub(super) fn ask(scene: &Scene<'_>) -> Reading {
    let Scene { policy, load, capacity, shape, .. } = scene;
    if load.kv.told == 0 {
        return Reading::Missing(if load.ready == 0 {
            "no replica serves".to_owned()
        } else {
            "no replica tells its KV usage".to_owned()
        });
    }
    let target = policy.signals.kv_cache.target;
    let per_request = capacity.kv_tokens.map_or(0.0, |tokens| shape.mean_context() / tokens);
    let (waiting_low, waiting_high) = (scene.backlog() * per_request, load.waiting.high * per_request);
    let waiting = if waiting_low > 0.0 {
        format!(" + {waiting_low:.2} for {:.0} waiting requests{}", load.waiting.low, scene.under_way())
    } else if load.waiting.low > 0.0 && per_request > 0.0 {
        format!(", {:.0} waiting requests{}", load.waiting.low, scene.under_way())
    } else if load.waiting.low > 0.0 {
        ", the waiting requests' part is unknown".to_owned()
    } else {
        String::new()
    };
    Reading::Asks(Asked {
        low: (load.kv.low + waiting_low) / target,
        high: (load.kv.high + waiting_high) / target,
        saturated: load.kv.low / f64::from(load.kv.told) >= SATURATED,
        because: format!(
            "{:.2} KV caches in use on {}{waiting}, / {target:.2}",
            load.kv.low,
            replicas(load.kv.told)
        ),
    })
}
