//! NVIDIA Dynamo's planner for aggregated engines: load-based ("easy", optimised for throughput) and by throughput. Pure.
//!
//! Source: ai-dynamo/dynamo, planner `core/load_scaling.py`, `config/defaults.py`; the frontend's `metrics.rs`. Both write
//! replica counts.
//!
//! - *Load*: a tick of 5 s; does nothing while the count isn't the ready one; one more when any engine holds more than its
//!   KV cache (scheduled and queued tokens over the cache), one less when all hold less than 0.6 of it.
//! - *Throughput*: a tick of 180 s; next interval's requests as the last one's (its constant predictor; the default, ARIMA,
//!   looks one interval ahead as well), over what an engine does at its service level by its profile. Its frontend counts a
//!   request when it ends: a full fleet looks as busy as it can be, and grows by a quarter an interval. An interval without requests is skipped.
//!
//! Its budget of 8 GPUs is the tier's `max` here. The least is one.

use std::time::Duration;

use super::window::{Every, Window};
use crate::backtest::rival::{Rival, Seen, SeenReplica, Wish};
use crate::decision::policy::TokenRates;
use crate::simulate::Moment;
use crate::simulate::autoscaler::AutoscalerSettings;

/// Tick of load-based scaling.
const LOAD_TICK: Duration = Duration::from_secs(5);
/// Up when any engine is above this.
const LOAD_UP: f64 = 1.0;
/// Down when all are below this.
const LOAD_DOWN: f64 = 0.6;
/// `adjustment_interval` of throughput-based scaling.
const THROUGHPUT_TICK: Duration = Duration::from_secs(180);
/// What an engine does at its service level, of what it can do: a profile's best point keeps a margin to saturation.
const SERVICE_LEVEL_SHARE: f64 = 0.8;

/// One replica more or less a tick.
pub(super) struct Load {
    ticks: Every,
}

impl Load {
    pub(super) fn new() -> Self {
        Self { ticks: Every::new(LOAD_TICK) }
    }
}

/// Scheduled and queued tokens over what the cache holds.
fn fill(replica: &SeenReplica) -> Option<f64> {
    let tokens = replica.kv_tokens.filter(|tokens| *tokens > 0.0)?;
    Some(replica.kv_usage? + replica.waiting_prompt_tokens / tokens)
}

impl Rival for Load {
    fn metric_age(&self) -> Duration {
        Duration::ZERO
    }

    fn chain(&self, _: u32, _: u32) -> Option<AutoscalerSettings> {
        None
    }

    fn wish(&mut self, now: Moment, seen: &Seen) -> Wish {
        if !self.ticks.is_due(now) || seen.ready.len() as u32 != seen.spec {
            return Wish::Keep;
        }
        let fills: Option<Vec<f64>> = seen.ready.iter().map(fill).collect();
        let Some(fills) = fills else { return Wish::Keep };
        if fills.iter().any(|fill| *fill > LOAD_UP) {
            Wish::Replicas(seen.spec + 1)
        } else if fills.iter().all(|fill| *fill < LOAD_DOWN) {
            Wish::Replicas(seen.spec.saturating_sub(1).max(1))
        } else {
            Wish::Keep
        }
    }
}

/// What the last interval's requests need.
pub(super) struct Throughput {
    ticks: Every,
    rates: TokenRates,
    requests: Window,
    input: Window,
    output: Window,
}

impl Throughput {
    /// With these rates as the engine's profile.
    pub(super) fn new(rates: TokenRates) -> Self {
        let window = || Window::new(THROUGHPUT_TICK);
        Self {
            ticks: Every::new(THROUGHPUT_TICK),
            rates,
            requests: window(),
            input: window(),
            output: window(),
        }
    }

    fn replicas(&self) -> Option<u32> {
        let requests = self.requests.mean().filter(|requests| *requests > 0.0)?;
        let (input, output) = (self.input.mean()? / requests, self.output.mean()? / requests);
        let seconds =
            input / self.rates.input_tokens_per_second + output / self.rates.output_tokens_per_second;
        // Rounding is no reason for a replica.
        Some((requests * seconds / SERVICE_LEVEL_SHARE - 1e-9).ceil().max(1.0) as u32)
    }
}

impl Rival for Throughput {
    fn metric_age(&self) -> Duration {
        super::SCRAPE_AGE
    }

    fn chain(&self, _: u32, _: u32) -> Option<AutoscalerSettings> {
        None
    }

    fn wish(&mut self, now: Moment, seen: &Seen) -> Wish {
        self.requests.push(seen.at, seen.served.requests);
        self.input.push(seen.at, seen.served.input_tokens);
        self.output.push(seen.at, seen.served.output_tokens);
        if !self.ticks.is_due(now) || seen.at < Moment::from_duration(THROUGHPUT_TICK / 2) {
            return Wish::Keep;
        }
        self.replicas().map_or(Wish::Keep, Wish::Replicas)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{changes, kv, play, seen, uniform};
    use super::*;
    use crate::backtest::rival::Rates;

    #[test]
    fn load_goes_by_one_and_waits_for_each_start() {
        let mut ready_at = 0.0;
        let specs = play(Box::new(Load::new()), (4, 20), 40, move |at, spec| {
            // Each start takes a minute.
            if spec as usize > 4 && ready_at == 0.0 {
                ready_at = at + 60.0;
            }
            let ready = if ready_at > 0.0 && at >= ready_at { spec } else { 4 };
            seen(at, spec, &vec![kv(0.95, 20.0); ready as usize])
        });
        let went = changes(&specs);
        assert_eq!(went[0], (5, 5));
        assert_eq!(went[1], (70, 6), "only when the fifth is ready: {went:?}");
    }

    #[test]
    fn load_goes_down_when_all_engines_are_below_0_6() {
        let mut load = Load::new();
        let mut wish = |at, seen: &Seen| load.wish(Moment::from_seconds(at), seen);
        assert_eq!(wish(5.0, &uniform(5.0, 3, kv(0.5, 0.0))), Wish::Replicas(2));
        assert_eq!(wish(10.0, &seen(10.0, 2, &[kv(0.5, 0.0), kv(0.7, 0.0)])), Wish::Keep);
        assert_eq!(wish(15.0, &uniform(15.0, 1, kv(0.1, 0.0))), Wish::Replicas(1));
        assert_eq!(wish(20.0, &uniform(20.0, 3, SeenReplica::default())), Wish::Keep, "nobody tells");
    }

    const RATES: TokenRates = TokenRates { input_tokens_per_second: 8000.0, output_tokens_per_second: 700.0 };

    /// So much served work, in replicas at full load.
    fn serving(at: f64, spec: u32, work: f64) -> Seen {
        let served = Rates {
            requests: work,
            input_tokens: 4000.0 * work,
            output_tokens: 350.0 * work,
            replicas: work,
        };
        Seen { served, ..uniform(at, spec, SeenReplica::default()) }
    }

    #[test]
    fn throughput_orders_for_the_next_interval_what_the_last_one_was() {
        let specs = play(Box::new(Throughput::new(RATES)), (10, 20), 120, |at, spec| {
            serving(at, spec, if at < 300.0 { 3.5 } else { 6.2 })
        });
        // Each interval sees the mean of three minutes: at 360 s it is 4.25, and four fifths of a replica are one.
        assert_eq!(changes(&specs), [(180, 5), (360, 6), (540, 8)]);
    }

    #[test]
    fn throughput_grows_a_full_fleet_by_a_quarter_and_skips_an_empty_interval() {
        let full = play(Box::new(Throughput::new(RATES)), (4, 20), 240, |at, spec| {
            serving(at, spec, f64::from(spec))
        });
        assert_eq!(changes(&full), [(180, 5), (360, 7), (540, 9), (720, 12), (900, 15), (1080, 19)]);
        let idle = play(Box::new(Throughput::new(RATES)), (4, 20), 240, |at, spec| serving(at, spec, 0.0));
        assert_eq!(changes(&idle), []);
    }
}
