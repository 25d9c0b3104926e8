//! A law of arrivals, written in one line and drawn with a seed: what a benchmark of an engine would send.
//!
//! ```text
//! poisson rate=5 for=10m input=1155 output=211
//! gamma rate=5 burstiness=0.5 for=10m; ramp from=5 to=20 for=20m; steps rates=20,8,3 each=5m
//! ```
//!
//! Parts follow each other, with `;` between them. Intervals are those of vLLM's `benchmark_serving`: gamma distributed
//! with the shape `burstiness` and the mean 1 / rate; 1 is Poisson, below 1 arrivals come in bursts, above 1 they are more
//! even. Where the rate changes within a part, time is stretched so that the rate is met at each instant. Lengths are uniform
//! from `(1 - spread)` to `(1 + spread)` of their means, as vLLM's random data set has them.
//!
//! `input`, `output`, `spread` and `burstiness` hold until they are written anew; `seed` is of the whole line.

use std::f64::consts::TAU;

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use super::slots::Slots;
use super::{Arrivals, SLOT_SECONDS, Trace, TracedRequest};
use crate::units::{parse_span, shortened};

/// Requests a second: a hundred times the largest known fleets' a tier.
const MOST_RATE: f64 = 100_000.0;

/// Tokens of a prompt or an answer.
const MOST_TOKENS: f64 = 10_000_000.0;

/// Letters of a part that a message shows.
const MOST_SHOWN: usize = 80;

/// Steps of one part.
const MOST_STEPS: usize = 10_000;

/// Seconds of a whole law: that of any trace.
const LONGEST_SECONDS: f64 = 400.0 * 86_400.0;

/// Requests of a whole law: more take minutes to draw, and are a slip of the rate or of the span.
const MOST_REQUESTS: f64 = 1e9;

/// Azure's public conversation trace of 2023: the means of a request (CC-BY-4.0).
const USUAL: Shape = Shape { burstiness: 1.0, input: 1155.0, output: 211.0, spread: 0.0 };

/// A law of arrivals.
#[derive(Clone, Debug, PartialEq)]
pub struct ArrivalLaw {
    pieces: Vec<Piece>,
    seed: u64,
}

/// A span in which the rate goes evenly from one value to another.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Piece {
    seconds: f64,
    /// Requests a second at its beginning and at its end.
    from: f64,
    to: f64,
    shape: Shape,
}

impl Piece {
    /// Expected requests in it.
    fn requests(&self) -> f64 {
        f64::midpoint(self.from, self.to) * self.seconds
    }

    /// When so many requests are expected to have come.
    fn at(&self, requests: f64) -> f64 {
        let bend = (self.to - self.from) / (2.0 * self.seconds);
        let root = (self.from * self.from + 4.0 * bend * requests).max(0.0).sqrt();
        (2.0 * requests / (self.from + root)).min(self.seconds)
    }
}

/// How requests come, and how long they are.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Shape {
    burstiness: f64,
    input: f64,
    output: f64,
    spread: f64,
}

impl ArrivalLaw {
    /// Reads a law in one line, with `;` between its parts.
    ///
    /// # Errors
    /// What is wrong with the first part that is, and what to write instead.
    pub fn parse(text: &str) -> Result<Self, String> {
        Self::of_parts(std::iter::once(text)).map_err(|mut wrong| wrong.swap_remove(0).1)
    }

    /// Reads a law whose parts, or lines of them, are given one by one.
    ///
    /// # Errors
    /// Everything that is wrong, at least one: by the number of what was given, or of the law as a whole.
    pub fn of_parts<'a>(
        lines: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, Vec<(Option<usize>, String)>> {
        let mut law = Self { pieces: Vec::new(), seed: 1 };
        let (mut shape, mut wrong) = (USUAL, Vec::new());
        for (line, text) in lines.into_iter().enumerate() {
            for part in text.split(';').map(str::trim).filter(|part| !part.is_empty()) {
                if let Err(what) = law.part(part, &mut shape) {
                    wrong.push((Some(line), format!("`{}`: {what}", shortened(part, MOST_SHOWN))));
                }
            }
        }
        if !wrong.is_empty() {
            return Err(wrong);
        }
        law.whole().map_err(|what| vec![(None, what)])
    }

    fn whole(self) -> Result<Self, String> {
        let seconds: f64 = self.pieces.iter().map(|piece| piece.seconds).sum();
        if self.pieces.is_empty() {
            return Err("no part: write such as `poisson rate=5 for=10m`".to_owned());
        }
        if seconds > LONGEST_SECONDS {
            return Err("longer than 400 days".to_owned());
        }
        let requests: f64 = self.pieces.iter().map(Piece::requests).sum();
        if requests == 0.0 {
            return Err("nothing arrives: every rate is 0".to_owned());
        }
        if requests > MOST_REQUESTS {
            return Err(format!("{requests:.0} requests: at most {MOST_REQUESTS:.0}"));
        }
        Ok(self)
    }

    fn part(&mut self, part: &str, shape: &mut Shape) -> Result<(), String> {
        let mut words = part.split_whitespace();
        let law = words.next().unwrap_or("");
        let mut own = Vec::new();
        for word in words {
            let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is no key=value"))?;
            match key {
                "seed" => {
                    self.seed = value.parse().map_err(|_| format!("seed `{value}` is no whole number"))?;
                }
                "burstiness" => shape.burstiness = number(key, value, 0.01, 1000.0)?,
                "input" => shape.input = number(key, value, 1.0, MOST_TOKENS)?,
                "output" => shape.output = number(key, value, 1.0, MOST_TOKENS)?,
                "spread" => shape.spread = number(key, value, 0.0, 1.0)?,
                _ => own.push((key, value)),
            }
        }
        let mut own = Own { law, keys: own };
        match law {
            "poisson" | "gamma" => {
                if law == "poisson" {
                    shape.burstiness = 1.0;
                }
                let (rate, seconds) = (own.rate("rate")?, own.span("for")?);
                self.pieces.push(Piece { seconds, from: rate, to: rate, shape: *shape });
            }
            "ramp" => {
                let (from, to, seconds) = (own.rate("from")?, own.rate("to")?, own.span("for")?);
                self.pieces.push(Piece { seconds, from, to, shape: *shape });
            }
            "steps" => {
                let (rates, seconds) = (own.take("rates")?, own.span("each")?);
                if rates.split(',').count() > MOST_STEPS {
                    return Err(format!("more than {MOST_STEPS} steps"));
                }
                for rate in rates.split(',') {
                    let rate = number("rates", rate.trim(), 0.0, MOST_RATE)?;
                    self.pieces.push(Piece { seconds, from: rate, to: rate, shape: *shape });
                }
            }
            _ => return Err("write poisson, gamma, ramp or steps".to_owned()),
        }
        own.nothing_left()
    }

    /// How long it goes on.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.pieces.iter().map(|piece| piece.seconds).sum()
    }

    /// The requests, in the order of time. The same law gives the same ones.
    #[must_use]
    pub fn requests(&self) -> Draws<'_> {
        Draws { law: self, rng: StdRng::seed_from_u64(self.seed), piece: 0, begins: 0.0, expected: 0.0 }
    }

    /// The same summed in slots, up to the end of the last part; with `most_slots` only the beginning.
    ///
    /// # Errors
    /// None that a law which was read can have.
    pub fn trace(&self, most_slots: Option<usize>) -> Result<Trace, String> {
        let (mut slots, mut rows) = (Slots::new(most_slots), 0);
        for request in self.requests() {
            let arrivals = Arrivals {
                requests: 1.0,
                input_tokens: f64::from(request.input_tokens),
                output_tokens: f64::from(request.output_tokens),
            };
            if slots.at(request.at_seconds, arrivals)? == super::Wants::NoMore {
                break;
            }
            rows += 1;
        }
        // Nothing arrives any more, and that is known.
        slots.spread(0.0, self.seconds().max(SLOT_SECONDS), Arrivals::default())?;
        Ok(slots.into_trace(SLOT_SECONDS, rows))
    }
}

/// The keys of one part alone.
struct Own<'a> {
    law: &'a str,
    keys: Vec<(&'a str, &'a str)>,
}

impl<'a> Own<'a> {
    fn take(&mut self, key: &str) -> Result<&'a str, String> {
        let place = self.keys.iter().position(|(name, _)| *name == key);
        let place = place.ok_or_else(|| format!("{} needs {key}=", self.law))?;
        Ok(self.keys.remove(place).1)
    }

    fn rate(&mut self, key: &str) -> Result<f64, String> {
        number(key, self.take(key)?, 0.0, MOST_RATE)
    }

    fn span(&mut self, key: &str) -> Result<f64, String> {
        let text = self.take(key)?;
        let span = parse_span(text).map_err(|error| format!("{key}={text}: {error}"))?;
        if span.is_zero() { Err(format!("{key}={text}: above 0")) } else { Ok(span.as_secs_f64()) }
    }

    fn nothing_left(&self) -> Result<(), String> {
        match self.keys.first() {
            None => Ok(()),
            Some((key, _)) => Err(format!("{} knows no key `{key}`, or it is written twice", self.law)),
        }
    }
}

fn number(key: &str, text: &str, least: f64, most: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| format!("{key}={text} is no number"))?;
    // Not-a-number is in no range.
    if (least..=most).contains(&number) {
        Ok(number)
    } else {
        Err(format!("{key}={text}: {least} to {most}"))
    }
}

/// The requests of a law.
#[derive(Debug)]
pub struct Draws<'a> {
    law: &'a ArrivalLaw,
    rng: StdRng,
    piece: usize,
    /// When that piece begins.
    begins: f64,
    /// Requests expected in it up to the last one.
    expected: f64,
}

impl Iterator for Draws<'_> {
    type Item = TracedRequest;

    fn next(&mut self) -> Option<TracedRequest> {
        let mut piece = self.law.pieces.get(self.piece)?;
        self.expected += gamma(&mut self.rng, piece.shape.burstiness);
        while self.expected > piece.requests() {
            self.expected -= piece.requests();
            self.begins += piece.seconds;
            self.piece += 1;
            piece = self.law.pieces.get(self.piece)?;
        }
        let shape = piece.shape;
        let mut length = |mean: f64| {
            let share = shape.spread * (2.0 * self.rng.random::<f64>() - 1.0);
            (mean * (1.0 + share)).round().max(1.0) as u32
        };
        Some(TracedRequest {
            input_tokens: length(shape.input),
            output_tokens: length(shape.output),
            at_seconds: self.begins + piece.at(self.expected),
            prefix: Vec::new(),
        })
    }
}

/// A gamma variate of this shape with mean 1 (Marsaglia and Tsang, "A simple method for generating gamma variables",
/// 2000; for shapes below 1 with their power of a uniform).
fn gamma(rng: &mut StdRng, shape: f64) -> f64 {
    if shape == 1.0 {
        return -(1.0 - rng.random::<f64>()).ln();
    }
    let raised = if shape < 1.0 { shape + 1.0 } else { shape };
    let d = raised - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    let variate = loop {
        let normal = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt() * (TAU * rng.random::<f64>()).cos();
        let cube = (1.0 + c * normal).powi(3);
        let uniform = 1.0 - rng.random::<f64>();
        if cube > 0.0 && uniform.ln() < normal * normal / 2.0 + d - d * cube + d * cube.ln() {
            break d * cube;
        }
    };
    let power = if shape < 1.0 { (1.0 - rng.random::<f64>()).powf(1.0 / shape) } else { 1.0 };
    variate * power / shape
}

#[cfg(test)]
mod tests;
