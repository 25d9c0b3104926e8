//! The step law of an engine, fitted to a log of its requests. Pure and deterministic: the same log gives the same law.
//!
//! The whole log is simulated by [`EngineModel`], the times of *even* requests are compared with the log's, and a
//! Nelder-Mead search changes the five costs of [`StepLaw`] until they agree. What is told is the error on the *odd*
//! requests, which the search never saw. Limits of the engine that nobody states are tried out: `max_num_seqs` is read
//! off the log where it binds, the token budget and the KV cache come out of the search.
//!
//! What is compared are quantiles of the time to first token, of the time per output token and of the whole time: what a
//! policy's queue and latency rest on. Odd and even requests are of one run: how well the law predicts another run, only
//! another run tells, by `--law`.

use serde::Serialize;

use crate::simulate::engine_model::{EngineModel, EventKind, Request};
use crate::simulate::moment::Moment;
use crate::simulate::profile::{BLOCK_TOKENS, EngineSettings, StepLaw};

mod limits;
pub mod log;
mod nelder_mead;
mod quantiles;

pub use limits::{Known, Limit, StatedLimits};
pub use log::{LoggedRequest, RequestLog};
pub use quantiles::{Compared, Quantity};

use limits::{KvLimit, Limits, candidates, sequences};
use quantiles::{Times, compare, distance};

/// Requests that are simulated in each of some thousand trials. What a longer log adds is more of the same.
const MOST_REQUESTS: usize = 5_000;

/// Fewer tell no p99, and hardly a law.
const LEAST_REQUESTS: usize = 40;

/// Trials of a first look at a set of limits, and of the search from the best of them.
const LOOKS: usize = 100;
const TRIALS: usize = 400;

/// How far the first steps of the search go, as the logarithm of a factor.
const FIRST_STEP: f64 = 0.3;

/// An error of a quantile up to here is a good fit.
pub const GOOD: f64 = 0.10;

/// What a log teaches.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Calibration {
    /// The costs, in the units of [`StepLaw::new`].
    pub law: LawTerms,
    /// KV tokens of the replica.
    pub kv_tokens: Limit,
    /// `--max-num-seqs`.
    pub max_num_seqs: Limit,
    /// `--max-num-batched-tokens`.
    pub token_budget: Limit,
    /// Requests of the log that were used.
    pub requests: usize,
    /// Of them, those that the scores rest on and the search never saw.
    pub held_out: usize,
    /// Preemptions in the simulated run.
    pub preemptions: u64,
    /// Measured and simulated, on the requests that were held out.
    pub scores: Vec<Compared>,
    /// Prompt tokens a second of such a replica: `capacity.inputTokensPerSecond`.
    pub input_tokens_per_second: f64,
    /// Output tokens a second at the log's mean context: `capacity.outputTokensPerSecond`.
    pub output_tokens_per_second: f64,
}

impl Calibration {
    /// Why its rates are no capacity to configure; None where they are one.
    ///
    /// A replica is full when its batch, its KV cache or its patience is; a log in which neither the batch nor the cache was
    /// ever full tells what a step costs and not how many requests share it.
    #[must_use]
    pub fn why_no_capacity(&self) -> Option<&'static str> {
        let unseen = |limit: Limit| limit.known == Known::DidNotBind;
        if !self.is_good() {
            return Some("not every error is within 10 %");
        }
        (unseen(self.kv_tokens) && unseen(self.max_num_seqs)).then_some(
            "neither its KV cache nor its batch was ever full: state --kv-tokens, which the engine prints at its start",
        )
    }

    /// Is every error within [`GOOD`]?
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.scores.iter().all(|score| score.error.abs() <= GOOD)
    }
}

/// The five costs of a step.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LawTerms {
    /// a: a step, milliseconds.
    pub step_ms: f64,
    /// b: a prompt token, microseconds.
    pub prompt_token_us: f64,
    /// c: a sequence that decodes, microseconds.
    pub sequence_us: f64,
    /// d: a token of its context, nanoseconds.
    pub context_token_ns: f64,
    /// e: a token of a chunk and one that it attends to, nanoseconds.
    pub attended_pair_ns: f64,
}

impl LawTerms {
    fn of(point: &[f64]) -> Self {
        let term = |index: usize| point.get(index).copied().unwrap_or_default().exp();
        Self {
            step_ms: term(0),
            prompt_token_us: term(1),
            sequence_us: term(2),
            context_token_ns: term(3),
            attended_pair_ns: term(4),
        }
    }

    fn point(self) -> Vec<f64> {
        [self.step_ms, self.prompt_token_us, self.sequence_us, self.context_token_ns, self.attended_pair_ns]
            .map(|term| term.max(1e-6).ln())
            .to_vec()
    }

    /// The law itself.
    #[must_use]
    pub fn law(self) -> StepLaw {
        StepLaw::new(
            self.step_ms,
            self.prompt_token_us,
            self.sequence_us,
            self.context_token_ns,
            self.attended_pair_ns,
        )
    }
}

/// Where a search begins: laws of a 24 GB card, of an 80 GB card, and of a CPU or a very large model (the fits and the
/// datasheet rule of [`EngineSettings`]).
const STARTS: [LawTerms; 3] = [
    LawTerms {
        step_ms: 19.0,
        prompt_token_us: 85.0,
        sequence_us: 7.0,
        context_token_ns: 108.0,
        attended_pair_ns: 4.0,
    },
    LawTerms {
        step_ms: 8.0,
        prompt_token_us: 30.0,
        sequence_us: 45.0,
        context_token_ns: 50.0,
        attended_pair_ns: 1.5,
    },
    LawTerms {
        step_ms: 40.0,
        prompt_token_us: 800.0,
        sequence_us: 500.0,
        context_token_ns: 500.0,
        attended_pair_ns: 10.0,
    },
];

/// Fits a law.
///
/// # Errors
/// When the log is too short for that, or can't be served within the stated limits.
pub fn calibrate(log: &RequestLog, stated: StatedLimits) -> Result<Calibration, String> {
    let requests = &log.requests[..log.requests.len().min(MOST_REQUESTS)];
    if requests.len() < LEAST_REQUESTS {
        return Err(format!("{} requests: at least {LEAST_REQUESTS} are needed", requests.len()));
    }
    let measured: Vec<Times> = requests.iter().map(Times::measured).collect();
    let trial = Trial { requests, measured: &measured, until: until(log) };
    let sequences = sequences(requests, stated.max_num_seqs);
    let mut best: Option<(f64, Vec<f64>, Limits)> = None;
    for limits in candidates(requests, stated, sequences) {
        for start in STARTS {
            let found = trial.search(&start_point(start, limits), limits, LOOKS);
            if best.as_ref().is_none_or(|(loss, ..)| found.value < *loss) {
                best = Some((found.value, found.point, limits));
            }
        }
    }
    let Some((loss, point, limits)) = best.filter(|(loss, ..)| loss.is_finite()) else {
        return Err(
            "no law serves this log within these limits: a request doesn't fit the KV cache".to_owned()
        );
    };
    let first = trial.search(&point, limits, TRIALS);
    // A simplex may collapse on a ledge: one that begins anew from there finds its way down.
    let second = trial.search(&first.point, limits, TRIALS);
    let found = [(loss, point), (first.value, first.point), (second.value, second.point)]
        .into_iter()
        .min_by(|one, other| one.0.total_cmp(&other.0));
    let Some((_, point)) = found else { return Err("nothing was tried".to_owned()) };
    Ok(trial.told(&point, limits, stated, sequences))
}

/// How well a law that is known already predicts a log.
///
/// # Errors
/// When a request of the log doesn't fit the settings.
pub fn score(log: &RequestLog, settings: EngineSettings) -> Result<Vec<Compared>, String> {
    let requests = &log.requests[..log.requests.len().min(MOST_REQUESTS)];
    let measured: Vec<Times> = requests.iter().map(Times::measured).collect();
    let trial = Trial { requests, measured: &measured, until: until(log) };
    let (simulated, _) = trial
        .simulated(settings)
        .ok_or("a request of the log is longer than the KV cache of these settings")?;
    Ok(compare(&measured, &simulated, |index| trial.is_whole(index)))
}

fn start_point(start: LawTerms, limits: Limits) -> Vec<f64> {
    let mut point = start.point();
    if let KvLimit::Free(tokens) = limits.kv {
        point.push(tokens.max(1.0).ln());
    }
    point
}

/// A log, ready to be simulated again and again.
struct Trial<'a> {
    requests: &'a [LoggedRequest],
    measured: &'a [Times],
    /// From here on requests that are left out ran too.
    until: f64,
}

impl Trial<'_> {
    fn search(&self, start: &[f64], limits: Limits, trials: usize) -> nelder_mead::Found {
        nelder_mead::minimise(start, FIRST_STEP, trials, |point| {
            let settings = self.settings(point, limits);
            match self.simulated(settings) {
                Some((times, _)) => {
                    distance(self.measured, &times, |index| is_even(index) && self.is_whole(index))
                }
                None => f64::INFINITY,
            }
        })
    }

    /// Did it end before anybody came who isn't simulated?
    fn is_whole(&self, index: usize) -> bool {
        self.requests[index].last_token_seconds <= self.until
    }

    fn settings(&self, point: &[f64], limits: Limits) -> EngineSettings {
        let kv_tokens = match limits.kv {
            KvLimit::Fixed(tokens) => tokens,
            KvLimit::Unbounded => self.all_tokens(),
            KvLimit::Free(_) => {
                let tokens = point.last().copied().unwrap_or_default().exp();
                tokens.min(f64::from(self.all_tokens())) as u32
            }
        };
        let mut settings = EngineSettings::new(LawTerms::of(point).law(), kv_tokens);
        settings.max_num_seqs = limits.max_num_seqs;
        settings.token_budget = limits.token_budget;
        settings.max_model_len = kv_tokens / BLOCK_TOKENS * BLOCK_TOKENS;
        settings
    }

    /// Every request at once fits; a block more each, for what is rounded.
    fn all_tokens(&self) -> u32 {
        let tokens: u64 = self
            .requests
            .iter()
            .map(|request| u64::from(request.input) + u64::from(request.output) + u64::from(2 * BLOCK_TOKENS))
            .sum();
        u32::try_from(tokens).unwrap_or(u32::MAX / 2).min(u32::MAX / 2)
    }

    /// The times of all requests, and the preemptions; None when one is refused.
    fn simulated(&self, settings: EngineSettings) -> Option<(Vec<Times>, u64)> {
        let mut engine = EngineModel::new(settings, Moment::START);
        let mut times = vec![Times::default(); self.requests.len()];
        let mut left = self.requests.len();
        for (index, logged) in self.requests.iter().enumerate() {
            let at = Moment::from_seconds(logged.arrived_seconds);
            let request = Request {
                id: index as u64,
                arrived: at,
                input: logged.input,
                cached: 0,
                output: logged.output,
            };
            engine.arrive(request, at);
        }
        // Far beyond any end: all that is left runs at once.
        engine.advance(Moment::from_seconds(1e6));
        let preemptions = engine.metrics().preemptions;
        for event in engine.drain_events() {
            let request = &event.request;
            let place = &mut times[request.id as usize];
            let since = event.at.seconds() - request.arrived.seconds();
            match event.kind {
                EventKind::FirstToken => place.first_token = since,
                EventKind::Finished => {
                    left -= 1;
                    *place = Times::of(place.first_token, since, request.output);
                }
                EventKind::Refused | EventKind::TurnedAway | EventKind::Aborted => return None,
                EventKind::Admitted => {}
            }
        }
        (left == 0).then_some((times, preemptions))
    }

    /// Would a KV cache without a limit have served the log otherwise?
    fn binds(&self, point: &[f64], limits: Limits, simulated: &[Times]) -> bool {
        let without = self.settings(point, Limits { kv: KvLimit::Unbounded, ..limits });
        self.simulated(without).is_some_and(|(times, _)| times != simulated)
    }

    fn told(&self, point: &[f64], limits: Limits, stated: StatedLimits, sequences: Limit) -> Calibration {
        let settings = self.settings(point, limits);
        // It was simulated before: an empty list would score as no agreement at all.
        let (simulated, preemptions) = self.simulated(settings).unwrap_or_default();
        let kv_tokens = match limits.kv {
            KvLimit::Fixed(tokens) => Limit { value: Some(tokens), known: Known::Stated },
            KvLimit::Free(_) if self.binds(point, limits, &simulated) => {
                Limit { value: Some(settings.usable_blocks() * BLOCK_TOKENS), known: Known::Fitted }
            }
            _ => Limit { value: None, known: Known::DidNotBind },
        };
        let known = if stated.token_budget.is_some() { Known::Stated } else { Known::Fitted };
        let requests = self.requests.len() as f64;
        let mean = |of: fn(&LoggedRequest) -> u32| {
            self.requests.iter().map(|request| f64::from(of(request))).sum::<f64>() / requests
        };
        let context = mean(|request| request.input) + mean(|request| request.output) / 2.0;
        Calibration {
            law: LawTerms::of(point),
            kv_tokens,
            max_num_seqs: sequences,
            token_budget: Limit { value: Some(limits.token_budget), known },
            requests: self.requests.len(),
            held_out: self.requests.len() / 2,
            preemptions,
            scores: compare(self.measured, &simulated, |index| !is_even(index) && self.is_whole(index)),
            input_tokens_per_second: settings.input_tokens_per_second(),
            output_tokens_per_second: settings.output_tokens_per_second(context, 0.8),
        }
    }
}

/// When the first request that isn't simulated came.
fn until(log: &RequestLog) -> f64 {
    log.requests.get(MOST_REQUESTS).map_or(f64::INFINITY, |left_out| left_out.arrived_seconds)
}

fn is_even(index: usize) -> bool {
    index.is_multiple_of(2)
}

#[cfg(test)]
mod tests;
