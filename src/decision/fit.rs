//! The cost of a scheduler step, learned from traffic.
//!
//! ```text
//! t_step = alpha + beta x prefill tokens of the step + delta x sequences that decode in it
//! ```
//!
//! This is the step law that fits vLLM (and every simulator of it), with the cost of reading KV cache folded into
//! `delta`. The time of a step is the mean inter-token time: each sequence that decodes sees the whole step. Wall time
//! over steps would not do, because engines idle between requests. Both regressors are counter differences divided by
//! the scheduler's own step count.
//!
//! The fit is weighted least squares (a row's weight is its number of steps), kept as decayed sums, so that a row is
//! used once and never stored. Coefficients can't be negative. A fit is refused, with its reason, when it rests on too
//! little, when the regressors don't vary apart (a constant ratio of input to output makes their two prices
//! indistinguishable), or when the result is imprecise. What was accepted stays in use until something better is, or
//! until new rows contradict it.

use serde::{Deserialize, Serialize};

use super::memory::exact;
use super::observation::StepSample;
use super::saturated::Saturated;
use linear::{SYMMETRIC, Solution};

mod linear;

/// Inter-token times that make a row: below, the mean is noise.
const FEWEST_INTER_TOKEN_TIMES: f64 = 200.0;

/// A row with fewer sequences a step is no good: the engine idles in it, and a prefill that nobody waits for while
/// decoding shows in no inter-token time.
const SMALLEST_BATCH: f64 = 2.0;

/// Rows before anything is said: five minutes of one busy replica that is scraped every 5 s.
const FEWEST_ROWS: f64 = 60.0;

/// Half-life of what is remembered, in rows of time: a day, so that a quiet night doesn't erase what the day taught.
const HALF_LIFE_SECONDS: f64 = 86_400.0;

/// The largest condition index (root of the ratio of the extreme eigenvalues of the scaled normal matrix). Above 30,
/// collinearity does damage: Belsley, Kuh and Welsch, Regression Diagnostics, 1980.
const LARGEST_CONDITION_INDEX: f64 = 30.0;

/// The largest relative standard error of `alpha` and `beta`: three of them are 15 %.
const LARGEST_RELATIVE_ERROR: f64 = 0.05;

/// Share of a new row in the running mean of how far rows lie from what the accepted fit says: about 50 rows.
const MISFIT_SHARE: f64 = 0.02;

/// A mean deviation beyond this says that the engine is another one: another model, another GPU, another version.
const LARGEST_MISFIT: f64 = 0.3;

/// The cost of a step, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct StepCost {
    /// Of any step.
    #[serde(with = "exact")]
    pub(super) alpha: f64,
    /// Of one prefill token.
    #[serde(with = "exact")]
    pub(super) beta: f64,
    /// Of one sequence that decodes.
    #[serde(with = "exact")]
    pub(super) delta: f64,
}

impl StepCost {
    /// A step that takes time, and a prefill token too.
    fn is_sane(&self) -> bool {
        let sane = |cost: f64, least: f64| cost.is_finite() && cost >= least;
        sane(self.alpha, f64::MIN_POSITIVE) && sane(self.beta, f64::MIN_POSITIVE) && sane(self.delta, 0.0)
    }

    /// How long a step takes.
    pub(super) fn step_seconds(&self, prefill_tokens: f64, decode_sequences: f64) -> f64 {
        self.alpha + self.beta * prefill_tokens + self.delta * decode_sequences
    }
}

/// What the rows so far allow to say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) enum Verdict {
    /// Nothing has been seen that could teach.
    #[default]
    NoRows,
    /// Too few rows.
    Few,
    /// Input and output vary together, or nothing varies.
    IllConditioned(#[serde(with = "exact")] f64),
    /// A coefficient that has to be above zero came out as zero.
    NoCost(Coefficient),
    /// The relative standard error is too large.
    Imprecise(#[serde(with = "exact")] f64),
    /// New rows contradicted what was accepted, and all of it was dropped.
    Contradicted(#[serde(with = "exact")] f64),
    /// Good.
    Accepted,
}

/// A coefficient of the step law.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Coefficient {
    /// Of any step.
    Alpha,
    /// Of a prefill token.
    Beta,
}

/// Scrape intervals of one replica that together become a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Pending {
    #[serde(with = "exact")]
    steps: f64,
    #[serde(with = "exact")]
    count: f64,
    #[serde(with = "exact")]
    inter_token_seconds: f64,
    #[serde(with = "exact")]
    prefill_tokens: f64,
    #[serde(with = "exact")]
    decode_tokens: f64,
}

impl Pending {
    /// Adds an interval; a row once there is enough.
    pub(super) fn add(&mut self, sample: &StepSample) -> Option<Row> {
        let numbers = [
            sample.steps,
            sample.inter_token_count,
            sample.inter_token_mean_seconds,
            sample.prefill_tokens_per_step,
            sample.decode_tokens_per_step,
        ];
        if numbers.iter().any(|n| !n.is_finite() || *n < 0.0) || sample.steps == 0.0 {
            return None;
        }
        self.steps += sample.steps;
        self.count += sample.inter_token_count;
        self.inter_token_seconds += sample.inter_token_count * sample.inter_token_mean_seconds;
        self.prefill_tokens += sample.steps * sample.prefill_tokens_per_step;
        self.decode_tokens += sample.steps * sample.decode_tokens_per_step;
        if self.count < FEWEST_INTER_TOKEN_TIMES {
            return None;
        }
        let row = Row {
            weight: self.steps,
            seconds: self.inter_token_seconds / self.count,
            prefill: self.prefill_tokens / self.steps,
            decode: self.decode_tokens / self.steps,
        };
        *self = Self::default();
        (row.decode >= SMALLEST_BATCH).then_some(row)
    }
}

/// One row of the regression.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Row {
    weight: f64,
    seconds: f64,
    prefill: f64,
    decode: f64,
}

/// The regression so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Fit {
    /// Weighted sums: the upper triangle of the normal matrix over (1, prefill, decode), then its right side, then the
    /// squares of the times.
    #[serde(with = "exact")]
    sums: [f64; 10],
    #[serde(with = "exact")]
    rows: f64,
    /// Watched seconds up to which the sums have decayed.
    #[serde(with = "exact")]
    decayed_to: f64,
    /// The largest batch that was seen to decode.
    #[serde(with = "exact")]
    largest_batch: f64,
    #[serde(with = "exact")]
    misfit: f64,
    accepted: Option<StepCost>,
    verdict: Verdict,
    /// What replicas serve while requests wait: it goes where the law of an engine that is another one goes.
    #[serde(default)]
    pub(super) saturated: Saturated,
}

impl Fit {
    /// Takes a row into the sums. [`Fit::judge`] says what they allow.
    pub(super) fn add(&mut self, row: Row, watched_seconds: f64) {
        self.decay(watched_seconds);
        self.contradict(&row);
        let x = [1.0, row.prefill, row.decode];
        for (sum, (i, j)) in self.sums.iter_mut().zip(SYMMETRIC) {
            *sum += row.weight * x[i] * x[j];
        }
        for (sum, x) in self.sums[6..9].iter_mut().zip(x) {
            *sum += row.weight * x * row.seconds;
        }
        self.sums[9] += row.weight * row.seconds * row.seconds;
        self.rows += 1.0;
        self.largest_batch = self.largest_batch.max(row.decode);
    }

    /// Says anew what the rows allow.
    pub(super) fn judge(&mut self) {
        self.verdict = match self.solve() {
            Ok(cost) => {
                self.accepted = Some(cost);
                Verdict::Accepted
            }
            Err(Verdict::Few) if matches!(self.verdict, Verdict::Contradicted(_)) => self.verdict,
            Err(verdict) => verdict,
        };
    }

    /// What is in use.
    pub(super) fn accepted(&self) -> Option<&StepCost> {
        self.accepted.as_ref()
    }

    /// The same with its clock moved by so many seconds: watched time is a process's own.
    pub(super) fn moved(&self, seconds: f64) -> Self {
        let saturated = self.saturated.moved(seconds);
        Self { decayed_to: self.decayed_to + seconds, saturated, ..self.clone() }
    }

    /// Is this the better one of two? It comes from elsewhere and has to be possible.
    pub(super) fn knows_more_than(&self, other: &Self) -> bool {
        let numbers =
            self.sums.iter().chain([&self.rows, &self.decayed_to, &self.largest_batch, &self.misfit]);
        let Some(cost) = self.accepted.filter(StepCost::is_sane) else { return false };
        numbers.into_iter().all(|number| number.is_finite())
            && self.saturated.is_sane()
            && self.rows >= FEWEST_ROWS / 2.0
            && self.misfit.abs() <= LARGEST_MISFIT
            && self.largest_batch >= 0.0
            && cost.step_seconds(1.0, 1.0).is_finite()
            && (other.accepted.is_none() || self.rows * 2.0 >= other.rows)
    }

    /// The largest batch that was seen to decode.
    pub(super) fn largest_batch(&self) -> f64 {
        self.largest_batch
    }

    /// Why nothing new is accepted, in words; empty when the newest rows were.
    pub(super) fn refusal(&self) -> String {
        match self.verdict {
            Verdict::NoRows => "no inter-token times seen yet".to_owned(),
            Verdict::Few => format!("{:.0} of {FEWEST_ROWS:.0} rows seen", self.rows),
            Verdict::IllConditioned(index) => format!(
                "ill-conditioned (condition index {index:.0}, at most {LARGEST_CONDITION_INDEX:.0}): input and output \
                 vary together, so their prices can't be told apart"
            ),
            Verdict::NoCost(Coefficient::Alpha) => "a step without work came out as free".to_owned(),
            Verdict::NoCost(Coefficient::Beta) => "input tokens came out as free".to_owned(),
            Verdict::Imprecise(error) => {
                format!("imprecise (standard error {:.0} %, at most 5 %)", error * 100.0)
            }
            Verdict::Contradicted(misfit) => format!(
                "steps take {:+.0} % against what was learned: the engine is another one, learning anew",
                misfit * 100.0
            ),
            Verdict::Accepted => String::new(),
        }
    }

    fn decay(&mut self, watched_seconds: f64) {
        let passed = watched_seconds - self.decayed_to;
        if passed <= 0.0 {
            return;
        }
        self.decayed_to = watched_seconds;
        let kept = (-passed * std::f64::consts::LN_2 / HALF_LIFE_SECONDS).exp();
        self.sums.iter_mut().for_each(|sum| *sum *= kept);
        self.rows *= kept;
        self.largest_batch *= kept;
    }

    fn contradict(&mut self, row: &Row) {
        let Some(cost) = self.accepted else { return };
        let expected = cost.step_seconds(row.prefill, row.decode);
        let deviation = ((row.seconds - expected) / expected.max(1e-9)).clamp(-1.0, 1.0);
        self.misfit += MISFIT_SHARE * (deviation - self.misfit);
        if self.misfit.abs() > LARGEST_MISFIT {
            let verdict = Verdict::Contradicted(self.misfit);
            *self = Self { decayed_to: self.decayed_to, verdict, ..Self::default() };
        }
    }

    fn solve(&self) -> Result<StepCost, Verdict> {
        if self.rows < FEWEST_ROWS {
            return Err(Verdict::Few);
        }
        let index = linear::condition_index(&self.sums);
        // Written so that NaN is refused too.
        if !index.is_finite() || index > LARGEST_CONDITION_INDEX {
            return Err(Verdict::IllConditioned(index));
        }
        let Solution { x: [alpha, beta, delta], relative_errors } =
            linear::solve_non_negative(&self.sums, self.rows).ok_or(Verdict::IllConditioned(index))?;
        if beta <= 0.0 {
            return Err(Verdict::NoCost(Coefficient::Beta));
        }
        if alpha <= 0.0 {
            return Err(Verdict::NoCost(Coefficient::Alpha));
        }
        let error = relative_errors[0].max(relative_errors[1]);
        if !error.is_finite() || error > LARGEST_RELATIVE_ERROR {
            return Err(Verdict::Imprecise(error));
        }
        Ok(StepCost { alpha, beta, delta })
    }
}

#[cfg(test)]
mod tests;
