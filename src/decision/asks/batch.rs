//! The running batch.

use super::{Asked, Reading, Scene};

/// `(running + waiting) / B*`, with `B*` the largest batch that a replica can run (see
/// [`BatchBound`](super::super::capacity::BatchBound)).
///
/// Names what binds: the latency of a token, the KV cache, or the engine's own limit.
pub(super) fn ask(scene: &Scene<'_>) -> Reading {
    let Scene { load, capacity, .. } = scene;
    if load.running.told == 0 {
        return Reading::Missing(if load.ready == 0 {
            "no replica serves".to_owned()
        } else {
            "no replica tells its running requests".to_owned()
        });
    }
    let Some(bound) = capacity.batch else {
        return Reading::Silent(
            "no bound of the batch is known (KV tokens, maxRunning, or an inter-token latency with a learned step)"
                .to_owned(),
        );
    };
    Reading::Asks(Asked {
        low: (load.running.low + scene.backlog()) / bound.size,
        high: (load.running.high + load.waiting.high) / bound.size,
        saturated: false,
        because: format!(
            "({:.0} running + {:.0} waiting{}) / {:.0} a replica ({})",
            load.running.low,
            load.waiting.low,
            scene.under_way(),
            bound.size,
            bound.binds
        ),
    })
}
