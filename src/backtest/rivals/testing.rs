//! Made-up fleets for the rivals' tests.

use super::actuation::Actuated;
use crate::backtest::rival::{Rates, Rival, Seen, SeenReplica, Wish};
use crate::backtest::trace::{Arrivals, Trace};
use crate::backtest::work::{Size, Work};
use crate::decision::policy::TokenRates;
use crate::simulate::Moment;
use crate::simulate::autoscaler::PodCount;

/// So many seconds after the beginning.
pub(super) fn seconds(seconds: f64) -> Moment {
    Moment::from_seconds(seconds)
}

/// A fleet with this spec, of which these serve.
pub(super) fn seen(at: f64, spec: u32, ready: &[SeenReplica]) -> Seen {
    Seen {
        at: seconds(at),
        spec,
        status: spec,
        ready: ready.to_vec(),
        offered: Rates::default(),
        served: Rates::default(),
        first_token_p95_seconds: None,
        inter_token_seconds: None,
    }
}

/// A fleet that is all ready, every replica the same.
pub(super) fn uniform(at: f64, replicas: u32, each: SeenReplica) -> Seen {
    seen(at, replicas, &vec![each; replicas as usize])
}

/// A replica with this share of its KV cache in use, and so many requests waiting.
pub(super) fn kv(kv_usage: f64, waiting: f64) -> SeenReplica {
    SeenReplica {
        waiting,
        running: Some(10.0),
        kv_usage: Some(kv_usage),
        kv_tokens: Some(100_000.0),
        waiting_prompt_tokens: waiting * 1000.0,
        busy: 1.0,
    }
}

/// What a rival tells its HPA, or writes, at once; its periods are due.
pub(super) fn wish(rival: &mut dyn Rival, seen: &Seen) -> Wish {
    rival.wish(seen.at, seen)
}

/// Runs a rival behind its chain over slots of 5 s: `fleet` tells what is seen at these seconds with this spec. Replicas
/// start at once where it says so. The spec after each slot.
pub(super) fn play(
    rival: Box<dyn Rival + Send>,
    (initial, max): (u32, u32),
    slots: u32,
    mut fleet: impl FnMut(f64, u32) -> Seen,
) -> Vec<u32> {
    let mut actuated = Actuated::new(rival, 1, max);
    let (mut spec, mut ready) = (initial, initial);
    let mut specs = Vec::new();
    for slot in 0..slots {
        let begins = f64::from(slot) * 5.0;
        spec = actuated.replicas(seconds(begins), PodCount { spec, status: spec, ready: ready.min(spec) });
        specs.push(spec);
        let seen = fleet(begins + 5.0, spec);
        ready = seen.ready.len() as u32;
        actuated.note(seen);
    }
    specs
}

/// The changes of a spec: seconds and what it became.
pub(super) fn changes(specs: &[u32]) -> Vec<(u32, u32)> {
    let pairs = specs.windows(2).zip(1_u32..);
    pairs.filter(|(pair, _)| pair[0] != pair[1]).map(|(pair, slot)| (slot * 5, pair[1])).collect()
}

/// What a replica does a second in these tests.
pub(super) const RATES: TokenRates =
    TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };

/// Replicas' worth of work, slot by slot; the peak is the largest minute.
pub(super) fn work(replicas: &[f64], peak: u32) -> Work {
    let slot = |replicas: &f64| Arrivals {
        requests: 1.0,
        input_tokens: replicas * 5.0 * 4000.0,
        output_tokens: replicas * 5.0 * 350.0,
    };
    let trace = Trace { slots: replicas.iter().map(slot).collect(), bin_seconds: 5.0, ..Trace::default() };
    Work::of(&trace, RATES, Size::Peak(peak), 5.0).unwrap()
}
