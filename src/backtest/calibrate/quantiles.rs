//! Times of requests, and how far two lists of them are apart.

use serde::Serialize;

use super::log::LoggedRequest;

/// Quantiles that the search compares: the whole distribution, not only what is printed.
const COMPARED: [f64; 9] = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.98, 0.99];

/// Quantiles that are told.
const TOLD: [f64; 3] = [0.5, 0.9, 0.99];

/// Times below this are not told apart: a tenth of a millisecond.
const SMALLEST_SECONDS: f64 = 1e-4;

/// Share of the agreement of each request by itself in what is minimised: it decides between laws whose distributions
/// agree.
const EACH: f64 = 0.1;

/// What is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Quantity {
    /// From the arrival to the first token.
    TimeToFirstToken,
    /// From the first to the last token, over the tokens after the first.
    TimePerOutputToken,
    /// From the arrival to the last token.
    EndToEnd,
}

impl Quantity {
    const ALL: [Self; 3] = [Self::TimeToFirstToken, Self::TimePerOutputToken, Self::EndToEnd];

    /// For people.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::TimeToFirstToken => "TTFT",
            Self::TimePerOutputToken => "TPOT",
            Self::EndToEnd => "end to end",
        }
    }
}

/// A quantile, measured and simulated.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Compared {
    /// Of what.
    pub quantity: Quantity,
    /// Which, 0 to 1.
    pub quantile: f64,
    /// In the log, seconds.
    pub measured_seconds: f64,
    /// In the simulation, seconds.
    pub simulated_seconds: f64,
    /// Simulated over measured, less 1.
    pub error: f64,
}

/// The times of one request, seconds since its arrival.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Times {
    pub(super) first_token: f64,
    pub(super) per_output_token: Option<f64>,
    pub(super) end_to_end: f64,
}

impl Times {
    pub(super) fn of(first_token: f64, end_to_end: f64, output: u32) -> Self {
        let after_first = f64::from(output.saturating_sub(1));
        let per_output_token = (after_first > 0.0).then(|| (end_to_end - first_token) / after_first);
        Self { first_token, per_output_token, end_to_end }
    }

    pub(super) fn measured(logged: &LoggedRequest) -> Self {
        let since = |at: f64| at - logged.arrived_seconds;
        Self::of(since(logged.first_token_seconds), since(logged.last_token_seconds), logged.output)
    }

    fn of_quantity(&self, quantity: Quantity) -> Option<f64> {
        match quantity {
            Quantity::TimeToFirstToken => Some(self.first_token),
            Quantity::TimePerOutputToken => self.per_output_token,
            Quantity::EndToEnd => Some(self.end_to_end),
        }
    }
}

/// The times of one quantity, ascending.
fn sorted(times: &[Times], quantity: Quantity, wanted: impl Fn(usize) -> bool) -> Vec<f64> {
    let mut all: Vec<f64> = times
        .iter()
        .enumerate()
        .filter(|(index, _)| wanted(*index))
        .filter_map(|(_, times)| times.of_quantity(quantity))
        .collect();
    all.sort_by(f64::total_cmp);
    all
}

/// Linear between the two nearest, as numpy's `percentile` has it, which vLLM's benchmark prints.
fn quantile(sorted: &[f64], share: f64) -> f64 {
    let Some(last) = sorted.len().checked_sub(1) else { return f64::NAN };
    let place = share * last as f64;
    let below = place.floor() as usize;
    let above = (below + 1).min(last);
    sorted[below] + (sorted[above] - sorted[below]) * (place - below as f64)
}

/// What is told: p50, p90 and p99 of each quantity over the wanted requests.
pub(super) fn compare(
    measured: &[Times],
    simulated: &[Times],
    wanted: impl Fn(usize) -> bool + Copy,
) -> Vec<Compared> {
    let mut all = Vec::new();
    for quantity in Quantity::ALL {
        let (real, model) = (sorted(measured, quantity, wanted), sorted(simulated, quantity, wanted));
        for share in TOLD {
            let (measured_seconds, simulated_seconds) = (quantile(&real, share), quantile(&model, share));
            if measured_seconds.is_nan() {
                // No request has more than one token: there is no time per output token.
                continue;
            }
            let error =
                simulated_seconds.max(SMALLEST_SECONDS) / measured_seconds.max(SMALLEST_SECONDS) - 1.0;
            all.push(Compared { quantity, quantile: share, measured_seconds, simulated_seconds, error });
        }
    }
    all
}

/// What the search makes small: the mean squared logarithm of simulated over measured quantiles, and a little of the same
/// for each request by itself.
pub(super) fn distance(
    measured: &[Times],
    simulated: &[Times],
    wanted: impl Fn(usize) -> bool + Copy,
) -> f64 {
    let apart =
        |real: f64, model: f64| (model.max(SMALLEST_SECONDS) / real.max(SMALLEST_SECONDS)).ln().powi(2);
    let mut sum = Mean::default();
    let mut each = Mean::default();
    for quantity in Quantity::ALL {
        let (real, model) = (sorted(measured, quantity, wanted), sorted(simulated, quantity, wanted));
        if real.is_empty() {
            continue;
        }
        for share in COMPARED {
            sum.add(apart(quantile(&real, share), quantile(&model, share)));
        }
        let pairs = measured.iter().zip(simulated).enumerate().filter(|(index, _)| wanted(*index));
        for (_, (real, model)) in pairs {
            if let (Some(real), Some(model)) = (real.of_quantity(quantity), model.of_quantity(quantity)) {
                each.add(apart(real, model));
            }
        }
    }
    sum.value() + EACH * each.value()
}

#[derive(Default)]
struct Mean {
    sum: f64,
    count: f64,
}

impl Mean {
    fn add(&mut self, value: f64) {
        self.sum += value;
        self.count += 1.0;
    }

    fn value(&self) -> f64 {
        if self.count > 0.0 { self.sum / self.count } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_numpy() {
        let all = [1.0, 2.0, 3.0, 4.0];
        assert_eq!(quantile(&all, 0.5), 2.5);
        assert!((quantile(&all, 0.99) - 3.97).abs() < 1e-12);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn the_same_times_are_no_distance_apart() {
        let times: Vec<Times> = (1..50).map(|n| Times::of(f64::from(n), f64::from(3 * n), 5)).collect();
        assert_eq!(distance(&times, &times, |_| true), 0.0);
        assert!(compare(&times, &times, |_| true).iter().all(|score| score.error == 0.0));
        let longer: Vec<Times> =
            (1..50).map(|n| Times::of(1.2 * f64::from(n), f64::from(3 * n), 5)).collect();
        let told = compare(&times, &longer, |_| true);
        assert!((told[0].error - 0.2).abs() < 1e-9, "{:?}", told[0]);
    }
}
