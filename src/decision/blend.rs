//! From asks to one demand.

use super::asks::{Asked, Considered};
use super::explanation::SignalKind;
use super::policy::Combine;

/// What the tier needs now.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Demand {
    /// With replicas of unknown load as idle: enough to go up.
    pub(super) low: f64,
    /// With them as full: enough to go down.
    pub(super) high: f64,
    /// What made it, in words.
    pub(super) because: String,
}

/// The demand; None where no signal with a weight is there.
///
/// `max` takes the largest ask. `weighted` takes `sum(weight x ask) / sum(weight)`, but never less than the ask of a
/// saturated signal: one that is at its end can't be averaged away. A kept ask counts upward only: the demand is the
/// larger of the one with it and the one without.
pub(super) fn blend(combine: Combine, considered: &[Considered]) -> Option<Demand> {
    let all = combined(combine, considered.iter().filter(|c| votes(c)));
    if !considered.iter().any(|c| c.kept.is_some()) {
        return all;
    }
    let present = combined(combine, considered.iter().filter(|c| votes(c) && c.kept.is_none()));
    match (all, present) {
        (Some(all), Some(present)) => {
            let larger = if present.low > all.low { &present } else { &all };
            Some(Demand {
                low: larger.low,
                high: all.high.max(present.high),
                because: larger.because.clone(),
            })
        }
        (all, _) => all,
    }
}

/// The demand without what drains a backlog or corrects a latency: the load that can be expected to grow.
pub(super) fn load_demand(combine: Combine, considered: &[Considered], demand: &Demand) -> Demand {
    let of_load = |c: &&Considered| !matches!(c.signal, SignalKind::Waiting | SignalKind::Latency);
    combined(combine, considered.iter().filter(|c| votes(c)).filter(of_load))
        .unwrap_or_else(|| demand.clone())
}

/// The largest ask, of equal ones the first.
fn largest_of<'a>(
    asked: impl Iterator<Item = (&'a Considered, &'a Asked)>,
) -> Option<(&'a Considered, &'a Asked)> {
    asked.reduce(|largest, next| if next.1.low > largest.1.low { next } else { largest })
}

fn votes(considered: &Considered) -> bool {
    considered.weight > 0.0 && considered.asked.is_some()
}

fn combined<'a>(combine: Combine, voters: impl Iterator<Item = &'a Considered> + Clone) -> Option<Demand> {
    let asked = voters.clone().filter_map(|c| Some((c, c.asked.as_ref()?)));
    let (largest, largest_ask) = largest_of(asked.clone())?;
    let highest = asked.clone().map(|(_, ask)| ask.high).fold(0.0, f64::max);
    match combine {
        Combine::Max => Some(Demand {
            low: largest_ask.low,
            high: highest,
            because: format!("{} asks {:.2}", largest.signal.name(), largest_ask.low),
        }),
        Combine::Weighted => {
            let weights: f64 = voters.map(|c| c.weight).sum();
            let mean = |of: fn(&Asked) -> f64| {
                asked.clone().map(|(c, ask)| c.weight * of(ask)).sum::<f64>() / weights
            };
            let (low, high) = (mean(|ask| ask.low), mean(|ask| ask.high));
            let saturated = largest_of(asked.clone().filter(|(_, ask)| ask.saturated));
            match saturated {
                Some((signal, ask)) if ask.low > low => Some(Demand {
                    low: ask.low,
                    high: high.max(ask.high),
                    because: format!(
                        "{} is saturated and asks {:.2} (the weighted mean is {low:.2})",
                        signal.signal.name(),
                        ask.low
                    ),
                }),
                saturated => Some(Demand {
                    low,
                    high: high.max(saturated.map_or(0.0, |(_, ask)| ask.high)),
                    because: format!("the weighted mean of the asks is {low:.2}"),
                }),
            }
        }
    }
}
