//! What the tier will need by the time a new replica could be ready.
//!
//! The horizon is one lead time: the age of the data, the control delay and the cold start. Within it nothing that is
//! ordered now can help, so the load of all of it has to be carried by what is there at its end. `ahead` is the largest
//! of its terms; it takes the place of the demand of now where it is larger, and is never added to a floor.
//!
//! Its terms are the ramp that the operator declares, here, and what was learned from the load itself, in [`forecast`].

use std::time::Duration;

pub(super) mod forecast;

use super::blend::Demand;
use super::policy::TokenRates;
use super::policy::{Policy, QueueAllowance, Ramp};
use super::shape::RequestShape;
use crate::units::format_span;

/// Halvings of the interval in which the warm pool is looked for: far below a thousandth of a replica.
const BISECTIONS: u32 = 48;

/// What is needed one lead time ahead.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ahead {
    /// With replicas of unknown load as idle.
    pub(super) low: f64,
    /// With them as full.
    pub(super) high: f64,
    /// In words.
    pub(super) because: String,
}

/// The largest of the terms; None where there is none.
pub(super) fn ahead(
    policy: &Policy,
    lead: Duration,
    growing: &Demand,
    shape: &RequestShape,
    rates: TokenRates,
) -> Option<Ahead> {
    let ramp = policy.max_ramp?;
    let sized =
        |demand: f64| warm_pool(demand, ramp, lead.as_secs_f64(), allowance(policy, demand, shape, rates));
    let low = sized(growing.low);
    let high = if growing.high > growing.low { sized(growing.high) } else { low };
    Some(Ahead {
        low,
        high,
        because: format!(
            "{:.2} now may grow {}-fold in {}: {low:.2} carry it over one lead of {}",
            growing.low,
            ramp.factor,
            format_span(ramp.within),
            format_span(lead)
        ),
    })
}

/// The smallest `x` with `integral over 0..T of max(0, D f^(u/w) - x) du <= allowance`, in replicas.
///
/// `D` is the demand of now, which grows `f`-fold in each `w`; what `x` replicas can't carry queues, and the area above
/// `x` is that queue at the end of the lead, in replica-seconds. With `g = ln f / w` and the crossing `u0` at which the
/// demand reaches `x`, the area is `(D e^(gT) - max(D, x)) / g - x (T - u0)`, which falls with `x`.
pub(crate) fn warm_pool(demand: f64, ramp: Ramp, lead: f64, allowance: f64) -> f64 {
    let growth = ramp.factor.max(1.0).ln() / ramp.within.as_secs_f64().max(1e-3);
    if demand <= 0.0 || growth <= 0.0 || lead <= 0.0 {
        return demand.max(0.0);
    }
    // e^50 is beyond any tier, and keeps the exponential finite.
    let end = demand * (growth * lead).min(50.0).exp();
    let queued = |x: f64| {
        let crossing = (x / demand).max(1.0).ln() / growth;
        (end - x.max(demand)) / growth - x * (lead - crossing)
    };
    let (mut too_few, mut enough) = (0.0, end);
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(too_few, enough);
        if queued(middle) > allowance { too_few = middle } else { enough = middle }
    }
    enough
}

/// What may queue, in replica-seconds of the unit of the demand: that has its headroom in it, so work is divided by the
/// utilisation target. Requests and tokens are turned into work by the mean cost.
fn allowance(policy: &Policy, demand: f64, shape: &RequestShape, rates: TokenRates) -> f64 {
    let work = match policy.acceptable_queue {
        QueueAllowance::Seconds(seconds) => return seconds.max(0.0) * demand,
        QueueAllowance::Requests(requests) => requests * shape.cost(rates),
        QueueAllowance::Tokens(tokens) => tokens * shape.cost(rates) / (shape.input + shape.output),
    };
    (work / policy.signals.tokens.target).max(0.0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const DOUBLES: Ramp = Ramp { factor: 2.0, within: Duration::from_mins(2) };

    #[test]
    fn a_load_that_doubles_in_120_s_with_starts_of_180_s_and_5_s_of_queue_needs_2_43_fold() {
        let needed = warm_pool(4.0, DOUBLES, 180.0, 5.0 * 4.0);
        assert!((needed / 4.0 - 2.43).abs() < 0.005, "{}", needed / 4.0);
    }

    #[test]
    fn without_a_queue_all_of_the_growth_must_be_there() {
        let needed = warm_pool(1.0, DOUBLES, 180.0, 0.0);
        assert!((needed - 2_f64.powf(1.5)).abs() < 1e-6, "{needed}");
    }

    #[test]
    fn an_idle_tier_has_no_warm_pool() {
        assert!(warm_pool(0.0, DOUBLES, 180.0, 0.0) < 1e-12);
    }

    proptest! {
        #[test]
        fn the_pool_is_the_smallest_that_keeps_the_queue_allowed(
            demand in 0.1_f64..500.0,
            factor in 1.05_f64..6.0,
            within in 10_u64..3_600,
            lead in 10.0_f64..1_200.0,
            allowed in 0.0_f64..60.0,
        ) {
            let ramp = Ramp { factor, within: Duration::from_secs(within) };
            // By summing small steps, independently of the closed form.
            let queued = |x: f64| {
                let steps = 20_000;
                let du = lead / f64::from(steps);
                (0..steps)
                    .map(|n| {
                        let u = (f64::from(n) + 0.5) * du;
                        (demand * factor.powf(u / within as f64) - x).max(0.0) * du
                    })
                    .sum::<f64>()
            };
            prop_assume!(factor.ln() / (within as f64) * lead < 12.0);
            let x = warm_pool(demand, ramp, lead, allowed * demand);
            prop_assert!(queued(x * 1.001 + 1e-6) <= allowed * demand * 1.001 + 1e-3);
            if x > 1e-3 {
                prop_assert!(queued(x * 0.99) >= allowed * demand * 0.999 - 1e-3);
            }
        }
    }
}
