//! What a tier has *learned*, apart from what it remembers of now: how long starts take, what a step costs, what a
//! request is like. One scaler takes it from another, so that their answers to the same pods agree.

use serde::{Deserialize, Serialize};

use super::cold_start::Samples;
use super::fit::Fit;
use super::memory::Memory;
use super::policy::Policy;
use super::shape::RequestShape;
use crate::forecast::{Experience, Forecast};

/// What a tier has learned. It travels as JSON; numbers are written as their bits.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Learned {
    cold_starts: Samples,
    /// Aged up to the moment of the telling: watched time is a process's own.
    fit: Fit,
    shape: Option<RequestShape>,
    /// How much the forecast has seen. The forecast itself is large, and is asked for where it is the better one.
    forecast: Option<Experience>,
}

impl Learned {
    /// Is the other's forecast to be taken over by one who has learned this?
    #[must_use]
    pub fn wants_forecast_of(&self, other: &Self) -> bool {
        other.forecast.is_some_and(|other| other.is_better_than(&self.forecast.unwrap_or_default()))
    }
}

impl Memory {
    /// What this tier has learned.
    #[must_use]
    pub fn learned(&self) -> Learned {
        Learned {
            cold_starts: self.cold_starts.samples().clone(),
            fit: self.fit.moved(-self.watched_seconds()),
            shape: self.shape,
            forecast: self.forecast.as_deref().map(Forecast::experience),
        }
    }

    /// What the load will need, as far as that was learned.
    #[must_use]
    pub fn forecast(&self) -> Option<&Forecast> {
        self.forecast.as_deref()
    }

    /// Takes another scaler's forecast over, where this tier wants one and knows less. False where it doesn't.
    pub fn take_forecast(&mut self, policy: &Policy, other: Forecast) -> bool {
        let own = self.forecast.as_deref().map(Forecast::experience).unwrap_or_default();
        if policy.forecast.is_none() || !other.experience().is_better_than(&own) {
            return false;
        }
        self.forecast.get_or_insert_default().take_over(other)
    }

    /// Takes over what the other knows more about. Nothing of now changes, and nothing that is fresher here is lost:
    ///
    /// - Starts are joined: each counts once, and of both accounts of one the better is kept.
    /// - The cost of a step is the other's where it has an accepted one that rests on at least half as many rows as the
    ///   one here. Taking it from one place only is what makes answers agree.
    /// - The lengths of requests are the other's only where none are known here: they follow the load within minutes.
    ///
    /// What can't be true is passed over.
    pub fn take_learned(&mut self, other: &Learned) {
        let at = self.watched_now();
        self.cold_starts.merge(&other.cold_starts, at);
        let fit = other.fit.moved(self.watched_seconds());
        if fit.knows_more_than(&self.fit) {
            self.fit = fit;
        }
        self.shape = self.shape.or(other.shape.filter(RequestShape::is_sane));
    }

    fn watched_seconds(&self) -> f64 {
        self.watched_now() as f64 / 1000.0
    }
}

#[cfg(test)]
mod tests;
